# SPDX-License-Identifier: Apache-2.0
"""Where a PCI function hangs: its host bridge and the bridges above it.

The canonical sysfs path says it. Recordings in which /sys/bus/pci/devices holds plain folders have
no such path; there the bus numbers in the headers of the bridges say it (PCI-to-PCI Bridge
Architecture Specification 1.2, section 3.2.5.4; PCI_SECONDARY_BUS in Linux
include/uapi/linux/pci_regs.h).
"""

import re
from typing import NamedTuple

from gpuaudit.host import Host, Unavailable

ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]")
ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
SECONDARY_BUS = 0x19
DEEPEST = 64  # more bridges in a row than bus numbers allow is a broken recording


class Place(NamedTuple):
    """Host bridge folder name ("" when it cannot be told) and bridges, root port first."""

    root: str
    parents: tuple[str, ...]


NOWHERE = Place("", ())


def place_of_path(path: str) -> Place:
    """By the path: /sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/...

    Behind an Intel VMD controller a second host bridge folder follows; the last one counts.
    """
    parts = path.split("/")
    roots = [i for i, part in enumerate(parts) if ROOT.fullmatch(part)]
    if not roots:
        return NOWHERE
    above = parts[roots[-1] + 1 : -1]
    return Place(parts[roots[-1]], tuple(p for p in above if ADDRESS.fullmatch(p)))


class Span(NamedTuple):
    """The bus directly below one bridge."""

    bridge: str
    secondary: int


def bridge_span(host: Host, address: str, path: str) -> Span | None:
    """The buses below a bridge by its header, which is readable without root."""
    try:
        header = host.read_bytes(f"{path}/config")
    except Unavailable:
        return None
    return Span(address, header[SECONDARY_BUS]) if len(header) > SECONDARY_BUS else None


def place_by_buses(address: str, spans: tuple[Span, ...]) -> Place:
    """By bus numbers: the bridge whose secondary bus is mine, then its bridge, and so on up.

    A function on another bus than the first, and below no bridge, hangs on a host bridge of its own
    or below bridges that were left out of the recording. Nothing tells which.
    """
    domain, bus = address.rsplit(":", 2)[:2]
    parents: list[str] = []
    while above := bridge_of(domain, int(bus, 16), spans):
        if above in parents or len(parents) > DEEPEST:
            return NOWHERE
        parents.insert(0, above)
        bus = above.rsplit(":", 2)[1]
    if not parents and int(bus, 16):
        return NOWHERE
    return Place(f"pci{domain}:{bus}", tuple(parents))


def bridge_of(domain: str, bus: int, spans: tuple[Span, ...]) -> str | None:
    """The bridge directly above a bus of a domain."""
    mine = (s for s in spans if s.secondary == bus and s.bridge.startswith(f"{domain}:"))
    return next((s.bridge for s in mine), None)
