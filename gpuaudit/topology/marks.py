# SPDX-License-Identifier: Apache-2.0
"""What an audit found, put on the devices, ports and NUMA nodes that it speaks of."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from gpuaudit.topology.view import View

PLACE = re.compile(r"\b[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b|NUMA node \d+")
WORD = re.compile(r"[A-Za-z0-9_.-]+")
SHOWN = ("fail", "error", "warn")
"""What is marked, the worst first. The unknown would hide the rest: it is in the JSON alone."""


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A finding on the picture.

    `places` are addresses of devices and ports, or "NUMA node 0"; none where it is about the node.
    """

    check: str
    verdict: str
    subject: str
    message: str
    places: tuple[str, ...] = ()

    def __str__(self) -> str:
        """'fail pcie-link-width'."""
        return f"{self.verdict} {self.check}"


def marked(view: "View", marks: Iterable[Mark]) -> "View":
    """The view with each finding at the place that its subject names, the worst first."""
    names = places_by_name(view)
    shown = {a for device in view.devices for a in (device.address, *device.ports)}
    shown |= {f"NUMA node {node.id}" for node in view.numa}
    placed = [placed_mark(mark, shown, names) for mark in marks]
    placed.sort(key=lambda mark: [*SHOWN, mark.verdict].index(mark.verdict))
    return msgspec.structs.replace(view, marks=tuple(placed))


def places_by_name(view: "View") -> dict[str, str]:
    """mlx5_0, ens3, nvme0 -> address."""
    named = ((name, d.address) for d in view.devices for name in (d.name or "").split(", "))
    return {name: address for name, address in named if name}


def placed_mark(mark: Mark, shown: set[str], names: dict[str, str]) -> Mark:
    """A link (`port -> function`) is marked at its lower end, where the tree shows it."""
    told = [place for place in PLACE.findall(mark.subject) if place in shown]
    if " -> " in mark.subject:
        told = told[-1:]
    told = told or [names[word] for word in WORD.findall(mark.subject) if word in names]
    return msgspec.structs.replace(mark, places=tuple(dict.fromkeys(told)))


def shown_marks(view: "View") -> list[Mark]:
    """What the pictures show."""
    return [mark for mark in view.marks if mark.verdict in SHOWN]


def by_place(view: "View") -> dict[str, tuple[Mark, ...]]:
    """The marks of each place; one check is named once a place."""
    found: dict[str, dict[str, Mark]] = {}
    for mark in shown_marks(view):
        for place in mark.places:
            found.setdefault(place, {}).setdefault(mark.check, mark)
    return {place: tuple(marks.values()) for place, marks in found.items()}


def mark_text(marks: Iterable[Mark]) -> str:
    """'fail pcie-link-width, warn irq-nic-affinity', or nothing."""
    return ", ".join(map(str, marks))
