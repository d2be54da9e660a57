# SPDX-License-Identifier: Apache-2.0
"""The topology as data: what `gpuaudit topology --format json` prints and the pictures draw."""

from itertools import combinations
from typing import Literal

import msgspec

from gpuaudit.facts.base import Absent
from gpuaudit.facts.cpu import CpuSets
from gpuaudit.facts.cpusets import format_list
from gpuaudit.facts.numa import NumaNodes
from gpuaudit.facts.pci import PciDevice, Role
from gpuaudit.topology.beyond import Beyond
from gpuaudit.topology.links import Hop, Rate, narrowest
from gpuaudit.topology.marks import Mark
from gpuaudit.topology.names import DeviceNames
from gpuaudit.topology.nodes import CpuView, NodeView, cpu_view, node_views
from gpuaudit.topology.paths import GUEST, Class
from gpuaudit.topology.whole import Topology

LABELS: dict[Role, str] = {
    "gpu": "GPU",
    "accelerator": "ACC",
    "nvswitch": "NVS",
    "nic": "NIC",
    "nvme": "NVME",
    "storage": "DISK",
}


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """Generation, lanes and gigabytes a second in each direction."""

    generation: int
    width: int
    gb_per_s: float

    def __str__(self) -> str:
        """Gen5 x16."""
        return f"Gen{self.generation} x{self.width}"


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A link, named by the port above and the function below. `reason`: why `now` is not known."""

    upper: str
    lower: str
    now: Speed | None
    could: Speed | None
    reason: str | None


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """What a way carries in each direction, and the link that decides it; None where not known.

    `narrowest` is the link that carries least now, or the one whose rate cannot be told.
    """

    now_gb_per_s: float | None
    could_gb_per_s: float | None
    narrowest: Link | None


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A device and its way to the root complex. `ports` lists the bridges, root port first."""

    label: str
    address: str
    role: Role
    id: str
    name: str | None
    driver: str | None
    numa_node: int | None
    """As sysfs says it, -1 for "firmware said nothing"; None when it was not read."""

    cpu_node: int | None
    """The node whose CPUs are near it, also where only these are known; None when in doubt."""

    numa_doubt: str | None
    """Why the node may not be believed."""

    local_cpus: str | None
    root: str
    ports: tuple[str, ...]
    own_link: Link | None
    """The link it hangs on; in a guest as the device alone tells it, `upper` is then empty."""

    links: tuple[Link, ...]
    """All links from the root port down that are visible."""

    to_root: Capacity


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """How two devices are connected. `doubt`: why the class may not be believed."""

    one: str
    other: str
    path: Class
    doubt: str | None
    numa_distance: int | None
    capacity: Capacity


class View(msgspec.Struct, frozen=True, kw_only=True):
    """Everything. Rates are gigabytes (10^9) a second in each direction."""

    schema: Literal["gpuaudit.topology/1"] = "gpuaudit.topology/1"
    node: str | None
    notes: tuple[str, ...]
    numa: tuple[NodeView, ...]
    cpus: CpuView
    devices: tuple[Device, ...]
    pairs: tuple[Pair, ...]
    beyond: Beyond = Beyond()
    marks: tuple[Mark, ...] = ()


def view_of(tree: Topology, names: DeviceNames, node: str | None, cpus: CpuSets) -> View:
    """Put it together: GPUs first, then by role, each in PCI order."""
    shown = [device for role in LABELS for device in tree.devices.seen(role)]
    labels = labels_of(shown)
    pairs = combinations(shown, 2)
    return View(
        node=node,
        notes=notes_of(tree),
        numa=node_views(tree.numa),
        cpus=cpu_view(cpus),
        devices=tuple(device_view(tree, d, labels[d.address], names) for d in shown),
        pairs=tuple(pair_view(tree, a, b, labels) for a, b in pairs),
    )


def view_without_pci(why: str, node: str | None, numa: NumaNodes | Absent, cpus: CpuSets) -> View:
    """What is left when the PCI devices cannot be told."""
    return View(
        node=node,
        notes=(f"PCI: {why}", *numa_notes(numa)),
        numa=node_views(numa),
        cpus=cpu_view(cpus),
        devices=(),
        pairs=(),
    )


def labels_of(shown: list[PciDevice]) -> dict[str, str]:
    """GPU0, GPU1, NIC0 and so on, by address."""
    counts: dict[str, int] = {}
    labels = {}
    for device in shown:
        word = LABELS[device.role]
        labels[device.address] = f"{word}{counts.get(word, 0)}"
        counts[word] = counts.get(word, 0) + 1
    return labels


def notes_of(tree: Topology) -> tuple[str, ...]:
    """What the reader has to know before believing it."""
    notes = [f"{GUEST}: classes in doubt are marked with ?"] if tree.is_vm else []
    return (*notes, *numa_notes(tree.numa))


def numa_notes(numa: NumaNodes | Absent) -> tuple[str, ...]:
    """Why there are no NUMA tables, or what is wrong with them."""
    if isinstance(numa, Absent):
        return (f"NUMA: {numa.reason}",)
    return tuple(f"NUMA: {problem}" for problem in numa.problems)


def device_view(tree: Topology, device: PciDevice, label: str, names: DeviceNames) -> Device:
    """One device."""
    node, hops = tree.node_of(device), tree.hops(device)
    own = tree.own_link(device)
    return Device(
        label=label,
        address=device.address,
        role=device.role,
        id=device.id,
        name=names.by_address.get(device.address),
        driver=device.driver,
        numa_node=None if isinstance(device.numa_node, Absent) else device.numa_node,
        cpu_node=None if isinstance(node, Absent) else node,
        numa_doubt=node.reason if isinstance(node, Absent) else None,
        local_cpus=None
        if isinstance(device.local_cpus, Absent)
        else format_list(device.local_cpus),
        root=device.root,
        ports=device.parents,
        own_link=link_view(own) if own else None,
        links=tuple(link_view(hop) for hop in hops),
        to_root=capacity(tree, hops),
    )


def pair_view(tree: Topology, one: PciDevice, other: PciDevice, labels: dict[str, str]) -> Pair:
    """One pair."""
    found = tree.locality(one, other)
    return Pair(
        one=labels[one.address],
        other=labels[other.address],
        path=found.kind,
        doubt=found.doubt or None,
        numa_distance=tree.distance(one, other),
        capacity=capacity(tree, tree.between(one, other)),
    )


def capacity(tree: Topology, hops: tuple[Hop, ...]) -> Capacity:
    """What these links carry."""
    untold = next((hop for hop in hops if isinstance(hop.now, Absent)), None)
    known = narrowest(hops)
    tight = untold or (known[0] if known else None)
    return Capacity(
        now_gb_per_s=rounded(tree.gb_per_s(hops)),
        could_gb_per_s=rounded(tree.gb_per_s(hops, at_best=True)),
        narrowest=link_view(tight) if tight else None,
    )


def rounded(number: float | None) -> float | None:
    """Two digits are more than the physics of it are worth."""
    return None if number is None else round(number, 2)


def link_view(hop: Hop) -> Link:
    """One link."""
    now, could = hop.now, hop.could
    return Link(
        upper=hop.upper,
        lower=hop.lower,
        now=speed(now),
        could=speed(could),
        reason=now.reason if isinstance(now, Absent) else None,
    )


def speed(rate: Rate | Absent) -> Speed | None:
    """A rate, or None for one that is not known."""
    if isinstance(rate, Absent):
        return None
    return Speed(generation=rate.generation, width=rate.width, gb_per_s=round(rate.gb_per_s, 2))
