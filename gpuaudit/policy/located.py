# SPDX-License-Identifier: Apache-2.0
"""YAML that remembers on which line each value stands, and typed errors that say so."""

import re
from collections.abc import Iterator
from typing import Any, TypeVar, get_args

import msgspec
import yaml

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
Path = tuple[str | int, ...]
T = TypeVar("T")
SIZE_LIMIT_BYTES = 1 << 20
DEPTH_LIMIT = 20


class PolicyError(Exception):
    """A policy, profile or waiver file that cannot be used: 'file:line: what is wrong'."""


class Located:
    """A YAML document as plain values, with the line of every key path."""

    def __init__(self, name: str, data: bytes) -> None:
        """`name` is what errors call the file. Raises PolicyError."""
        self.name = name
        self.lines: dict[Path, int] = {(): 1}
        if len(data) > SIZE_LIMIT_BYTES:
            raise PolicyError(f"{name}: larger than 1 MiB")
        self.value = self._parse(data)

    def at(self, path: Path) -> str:
        """'file:line' of the value at `path`, or of the nearest thing above it."""
        while path not in self.lines:
            path = path[:-1]
        return f"{self.name}:{self.lines[path]}"

    def convert(self, value: object, kind: type[T], path: Path = ()) -> T:
        """`value` (which stands at `path`) as the type `kind`. Raises PolicyError."""
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            raise self._explained(str(error), path, kind) from None

    def _explained(self, text: str, path: Path, kind: Any) -> PolicyError:
        message, _, where = text.partition(" - at `$")
        inner = tuple(steps(where.rstrip("`")))
        full = (*path, *inner)
        dotted = ".".join(str(step) for step in full) or "the file"
        hint = ""
        if unknown := re.match(r"Object contains unknown field `(.*)`", message):
            full = (*full, unknown[1])
            dotted, message = ".".join(str(s) for s in full), "unknown key"
            hint = nearest(unknown[1], fields_at(kind, inner))
        elif "got `bool`" in message:
            hint = "; YAML reads a bare on, off, yes or no as a truth value: put quotes around it"
        return PolicyError(f"{self.at(full)}: {dotted}: {message[:1].lower()}{message[1:]}{hint}")

    def _parse(self, data: bytes) -> Any:
        loader = None
        try:
            loader = Loader(data)
            node = loader.get_single_node()
            return None if node is None else self._build(loader, node, ())
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            mark = getattr(error, "problem_mark", None)
            line = mark.line + 1 if mark else 1
            problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
            raise PolicyError(f"{self.name}:{line}: not valid YAML: {problem}") from None
        finally:
            if loader is not None:
                loader.dispose()

    def _build(self, loader: Any, node: Any, path: Path) -> Any:
        self.lines[path] = node.start_mark.line + 1
        if len(path) > DEPTH_LIMIT:
            raise PolicyError(f"{self.at(path)}: nested more than {DEPTH_LIMIT} deep")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(loader, node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self._build(loader, item, (*path, i)) for i, item in enumerate(node.value)]
        return loader.construct_object(node)

    def _mapping(self, loader: Any, node: Any, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is None or key in values:
                line = key_node.start_mark.line + 1
                what = "a key must be a word" if key is None else f"the key {key} stands twice"
                raise PolicyError(f"{self.name}:{line}: {what}")
            values[key] = self._build(loader, value_node, (*path, key))
            self.lines[(*path, key)] = key_node.start_mark.line + 1
        return values


def steps(text: str) -> Iterator[str | int]:
    """Msgspec's path `.expect.memory[0]` as keys and indexes. `[...]` (a dict value) is dropped."""
    for name, index in re.findall(r"\.([A-Za-z_0-9]+)|\[(\d+)\]", text):
        yield name or int(index)


def fields_at(kind: Any, inner: Path) -> list[str]:
    """The field names of a record type, followed through `inner` as far as it is a record."""
    for step in inner:
        hints = getattr(kind, "__annotations__", {})
        inside = get_args(kind)
        kind = hints.get(step) or (inside[-1 if isinstance(step, str) else 0] if inside else None)
    return list(getattr(kind, "__struct_fields__", ()))


def nearest(word: str, words: list[str] | tuple[str, ...]) -> str:
    """'; did you mean X' or '; allowed: a, b, c'."""
    import difflib

    close = difflib.get_close_matches(word, words, n=1)
    if close:
        return f"; did you mean {close[0]}"
    return f"; allowed: {', '.join(sorted(words))}" if words else ""
