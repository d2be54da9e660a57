# SPDX-License-Identifier: Apache-2.0
"""The policy: what a node should look like. Base, then the file of its SKU, then site files.

Later files win value by value; every value knows the file and line it came from. Unknown keys,
wrong types and values outside their physical range are errors with file and line.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from gpuaudit.check import CHECKS, Expectations
from gpuaudit.policy.builtin import read_built_in, sku_files
from gpuaudit.policy.located import Located, PolicyError, nearest, read_document

__all__ = ["Policy", "PolicyError", "PolicySet", "Value", "load_policies"]

SITE_FOLDER = "/etc/gpuaudit/policy.d"
E = TypeVar("E", bound=Expectations)


class Match(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which nodes a file is for: any GPU with one of these PCI IDs (`10de:2330`)."""

    pci_ids: tuple[str, ...] = ()


class Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A policy file. `skip` maps a check ID to the reason it does not apply."""

    policy: int
    sku: str | None = None
    about: str | None = None
    match: Match | None = None
    expect: dict[str, dict[str, Any]] = {}
    skip: dict[str, str] = {}


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """One policy file, read."""

    name: str
    sha256: str
    located: Any
    document: Document


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """One effective value and the place it came from ('base.yaml:12')."""

    section: str
    field: str
    value: Any
    source: str


class Policy:
    """The effective policy of one node."""

    def __init__(
        self, layers: tuple[Layer, ...], sections: Mapping[str, type[Expectations]]
    ) -> None:
        """Merge `layers` in order. Raises PolicyError."""
        self.layers = layers
        self.sku = next((x.document.sku for x in reversed(layers) if x.document.sku), None)
        self.skip = {k: v for layer in layers for k, v in layer.document.skip.items()}
        self._sections = sections
        self._values: dict[tuple[str, str], tuple[Any, str]] = {}
        self._made: dict[type[Expectations], Expectations] = {}
        for layer in layers:
            self._merge(layer)

    def _merge(self, layer: Layer) -> None:
        for section, fields in layer.document.expect.items():
            for field, value in fields.items():
                place = layer.located.at(("expect", section, field))
                self._values[section, field] = (value, place)

    def expectations(self, kind: type[E]) -> E:
        """The record a check asks for. Raises PolicyError when the base policy lacks a value."""
        if kind not in self._made:
            section = kind.section()
            mine = {f: v for (s, f), (v, _) in self._values.items() if s == section}
            try:
                self._made[kind] = msgspec.convert(mine, kind)
            except msgspec.ValidationError as error:
                raise PolicyError(f"expect.{section}: {error}") from None
        return self._made[kind]  # type: ignore[return-value]  # keyed by its own type

    def with_value(self, section: str, field: str, value: object) -> "Policy":
        """The same policy with one value changed."""
        other = Policy(self.layers, self._sections)
        other._values = {**self._values, (section, field): (value, "changed")}
        return other

    def values(self) -> tuple[Value, ...]:
        """Every effective value with its source, in section order."""
        return tuple(
            Value(section=s, field=f, value=v, source=where)
            for (s, f), (v, where) in sorted(self._values.items())
        )

    def source(self, section: str, field: str) -> str | None:
        """The file and line a value came from."""
        found = self._values.get((section, field))
        return found[1] if found else None


class PolicySet:
    """All policy files, read and checked; for_node() picks and merges those of one node."""

    def __init__(
        self,
        base: Layer,
        skus: tuple[Layer, ...],
        sites: tuple[Layer, ...],
        sections: Mapping[str, type[Expectations]],
    ) -> None:
        """Only load_policies() calls this."""
        self.base, self.skus, self.sites, self.sections = base, skus, sites, sections

    def for_node(self, gpu_pci_ids: Iterable[str]) -> Policy:
        """The policy for a node with these GPUs. Unknown GPUs get the generic SKU file."""
        present = frozenset(gpu_pci_ids)
        matching = [x for x in self.skus if matches(x, present)]
        generic = [x for x in self.skus if not (x.document.match and x.document.match.pci_ids)]
        chosen = matching or (generic if present else [])
        sites = [x for x in self.sites if x.document.match is None or matches(x, present)]
        return Policy((self.base, *chosen, *sites), self.sections)


def matches(layer: Layer, present: frozenset[str]) -> bool:
    """True when one of the node's GPUs is named in the file's match."""
    return layer.document.match is not None and bool(present & set(layer.document.match.pci_ids))


def load_policies(
    sections: Mapping[str, type[Expectations]], files: Iterable[str] = (), *, site: bool = True
) -> PolicySet:
    """Read the built-in files, /etc/gpuaudit/policy.d/*.yaml and `files`. Raises PolicyError."""
    return PolicySet(
        read_layer("base.yaml", read_built_in("base.yaml"), sections),
        tuple(read_layer(name, read_built_in(name), sections) for name in sku_files()),
        tuple(read_file(f, sections) for f in (*(site_files() if site else ()), *files)),
        sections,
    )


def site_files() -> list[str]:
    """The site's files in name order; none when the folder is not there."""
    if not os.path.isdir(SITE_FOLDER):
        return []
    names = sorted(n for n in os.listdir(SITE_FOLDER) if n.endswith((".yaml", ".yml")))
    return [f"{SITE_FOLDER}/{name}" for name in names]


def read_file(path: str, sections: Mapping[str, type[Expectations]]) -> Layer:
    """Read one file of the site. Raises PolicyError."""
    return read_layer(path, read_document(path), sections)


def read_layer(name: str, data: bytes, sections: Mapping[str, type[Expectations]]) -> Layer:
    """Parse and check one document. Raises PolicyError."""
    located = Located(name, data)
    if not isinstance(located.value, dict):
        raise PolicyError(f"{name}:1: a policy file is a mapping that starts with policy: 1")
    document = located.convert(located.value, Document)
    if document.policy != 1:
        raise PolicyError(f"{located.at(('policy',))}: policy: this release reads version 1")
    for section, fields in document.expect.items():
        check_section(located, section, fields, sections)
    check_skips(located, document.skip)
    return Layer(
        name=name,
        sha256=hashlib.sha256(data).hexdigest(),
        located=located,
        document=document,
    )


def check_skips(located: Located, skips: Mapping[str, str]) -> None:
    """Every check exists and is left out for a reason. Raises PolicyError."""
    for check_id, reason in skips.items():
        where = f"{located.at(('skip', check_id))}: skip.{check_id}"
        if CHECKS and check_id not in CHECKS:
            hint = nearest(check_id, list(CHECKS))[:200]
            raise PolicyError(f"{where}: no check has this name{hint}")
        if not reason.strip():
            raise PolicyError(f"{where}: say why, for example 'the BIOS is locked by the vendor'")


def check_section(
    located: Located,
    section: str,
    fields: Mapping[str, Any],
    sections: Mapping[str, type[Expectations]],
) -> None:
    """Every field exists and its value has the right type and range. Raises PolicyError."""
    kind = sections.get(section)
    if kind is None:
        hint = nearest(section, list(sections))
        raise PolicyError(
            f"{located.at(('expect', section))}: expect.{section}: unknown section{hint}"
        )
    hints = kind.__annotations__
    for field, value in fields.items():
        path = ("expect", section, field)
        if field not in hints:
            hint = nearest(field, list(hints))
            raise PolicyError(f"{located.at(path)}: expect.{section}.{field}: unknown key{hint}")
        located.convert(value, hints[field], path)
