# SPDX-License-Identifier: Apache-2.0
"""YAML that remembers on which line each value stands, and typed errors that say so."""

import re
from typing import Any, TypeVar

import msgspec
import yaml

from gpuaudit.policy.kinds import (
    Misfit,
    Path,
    allowed,
    container,
    misfit,
    plain,
    takes_numbers,
    takes_words,
)

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
T = TypeVar("T")
SIZE_LIMIT_BYTES = 1 << 20
DEPTH_LIMIT = 20
OPENERS = (b"[", b"{", b"- ", b"? ")
OPENERS_LIMIT = 1000
VALUES_LIMIT = 100_000  # an alias stands for all that it names, again and again


class PolicyError(Exception):
    """A policy, profile or waiver file that cannot be used: 'file:line: what is wrong'."""


def read_document(path: str) -> bytes:
    """The bytes of a file, no more than tells that it is too large. Raises PolicyError."""
    try:
        with open(path, "rb") as file:
            return file.read(SIZE_LIMIT_BYTES + 1)
    except (OSError, ValueError) as error:
        raise PolicyError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


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
            wrong = misfit(value, kind, path) or Misfit(path, value, kind, str(error))
            raise self._explained(wrong) from None

    def _explained(self, wrong: Misfit) -> PolicyError:
        path, message = wrong.path, wrong.message
        if unknown := re.match(r"Object contains unknown field `(.*)`", message):
            path, message = (*path, unknown[1]), "unknown key"
            hint = nearest(unknown[1], field_names(wrong))
        else:
            hint = f"; allowed: {text}" if (text := allowed(wrong.kind)) else ""
            hint += advice(wrong)
        dotted = ".".join(str(step) for step in path) or "the file"
        said = plain(message)
        return PolicyError(f"{self.at(path)}: {dotted}: {said[:1].lower()}{said[1:]}{hint}")

    def _parse(self, data: bytes) -> Any:
        loader = None
        try:
            self._refuse_deep(data)
            loader = Loader(data)
            node = loader.get_single_node()
            return None if node is None else self._build(loader, node, ())
        except (yaml.YAMLError, ValueError) as error:
            mark = getattr(error, "problem_mark", None)
            line = mark.line + 1 if mark else 1
            problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
            raise PolicyError(f"{self.name}:{line}: not valid YAML: {problem}") from None
        finally:
            if loader is not None:
                loader.dispose()

    def _refuse_deep(self, data: bytes) -> None:
        """LibYAML composes by recursion in C: ten thousands of brackets overflow its stack."""
        if sum(data.count(opener) for opener in OPENERS) < OPENERS_LIMIT:
            return
        depth = 0
        for event in yaml.parse(data, Loader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > DEPTH_LIMIT:
                line = event.start_mark.line + 1 if event.start_mark else 1
                raise PolicyError(f"{self.name}:{line}: nested more than {DEPTH_LIMIT} deep")

    def _build(self, loader: Any, node: Any, path: Path) -> Any:
        self.lines[path] = node.start_mark.line + 1
        if len(path) > DEPTH_LIMIT:
            raise PolicyError(f"{self.at(path)}: nested more than {DEPTH_LIMIT} deep")
        if len(self.lines) > VALUES_LIMIT:
            raise PolicyError(f"{self.at(path)}: more than {VALUES_LIMIT} values")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(loader, node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self._build(loader, item, (*path, i)) for i, item in enumerate(node.value)]
        try:
            return loader.construct_object(node)
        except ValueError as error:  # a day or a number that is none, such as 2026-02-30
            problem = str(error).partition(";")[0]
            raise PolicyError(f"{self.at(path)}: not valid YAML: {problem}") from None

    def _mapping(self, loader: Any, node: Any, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is None or key in values:
                line = key_node.start_mark.line + 1
                what = "a key must be a word" if key is None else f"the key {key} stands twice"
                raise PolicyError(f"{self.name}:{line}: {what}")
            place = (*path, key)
            values[key] = self._build(loader, value_node, place)
            self.lines[place] = key_node.start_mark.line + 1
        return values


def advice(wrong: Misfit) -> str:
    """What people trip over: YAML's truth values, and units written behind numbers."""
    if isinstance(wrong.value, bool) and takes_words(wrong.kind):
        return "; YAML reads a bare on, off, yes or no as a truth value: put quotes around it"
    if isinstance(wrong.value, str) and wrong.value[:1].isdigit() and takes_numbers(wrong.kind):
        return "; write the number alone, the unit is in the name of the key"
    if isinstance(wrong.value, (int, float)) and takes_words(wrong.kind):
        return "; YAML reads 0000:18:00 as a number: put quotes around it"
    return ""


def field_names(wrong: Misfit) -> list[str]:
    """The keys that a record takes."""
    return list(getattr(container(wrong.kind, wrong.value), "__struct_fields__", ()))


def nearest(word: str, words: list[str] | tuple[str, ...]) -> str:
    """'; did you mean X' or '; allowed: a, b, c'."""
    import difflib

    close = difflib.get_close_matches(word, words, n=1)
    if close:
        return f"; did you mean {close[0]}"
    return f"; allowed: {', '.join(sorted(words))}" if words else ""
