# SPDX-License-Identifier: Apache-2.0
"""The way from a PCI function to the root complex, and between two functions.

A switch is an upstream port and its downstream ports; the bus between those is inside the switch
and no link (PCI Express Base Specification 5.0, section 1.3.3). On the way down from a root port
the links are therefore every second step: root port -> device, or root port -> upstream port,
downstream port -> device, and so on.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from gpuaudit.facts.base import Absent
from gpuaudit.facts.numa import NumaNodes, locate
from gpuaudit.facts.pci import PciDevice, PciDevices
from gpuaudit.facts.pcilink import LinkEnd
from gpuaudit.topology.links import Hop

Class = Literal["LOC", "PIX", "PXB", "PHB", "NODE", "SYS", "?"]
NOT_VISIBLE = Absent("missing", "the port above is not visible")
GUEST = "a guest sees a tree its hypervisor made up"


class Locality(msgspec.Struct, frozen=True, kw_only=True):
    """How two devices are connected. `doubt` is not empty when that may not be believed.

    LOC the same device; PIX through one switch; PXB through more than one; PHB through one host
    bridge; NODE between host bridges of one NUMA node; SYS between NUMA nodes; ? cannot be told.
    """

    kind: Class
    doubt: str = ""


def chain(device: PciDevice) -> tuple[str, ...]:
    """Addresses from the root port down to the device."""
    return (*device.parents, device.address)


def hops_of(devices: PciDevices, device: PciDevice) -> tuple[Hop, ...]:
    """The links on the way, from the root port down; empty for a device on the root bus."""
    steps = chain(device)
    pairs = ((steps[i], steps[i + 1]) for i in range(0, len(steps) - 1, 2))
    hops = (hop(devices, upper, lower) for upper, lower in pairs)
    return tuple(h for h in hops if h.exists)


def own_link(devices: PciDevices, device: PciDevice) -> Hop | None:
    """The link a device itself hangs on, or None when it has none.

    A guest may see the device alone on a root bus: then only its own end is known.
    """
    if device.parents:
        hops = hops_of(devices, device)
        below = devices.function_0(device).address
        return next((h for h in hops if h.lower == below), None)
    end = devices.function_0(device).link
    if isinstance(end, Absent) and end.kind == "unsupported":
        return None
    address = devices.function_0(device).address
    return Hop(upper="", lower=address, upper_end=NOT_VISIBLE, lower_end=end)


def hop(devices: PciDevices, upper: str, lower: str) -> Hop:
    """The link below a port. Function 0 speaks for the device."""
    child = devices.by_address.get(lower)
    below = devices.function_0(child).address if child else lower
    return Hop(
        upper=upper,
        lower=below,
        upper_end=end_of(devices, upper),
        lower_end=end_of(devices, below),
    )


def end_of(devices: PciDevices, address: str) -> LinkEnd | Absent:
    """The view one function has of its link."""
    device = devices.by_address.get(address)
    return device.link if device else Absent("missing", f"{address} is not listed")


def shared(one: PciDevice, other: PciDevice) -> tuple[str, ...]:
    """The bridges both have above them, root port first; none across host bridges."""
    if one.root != other.root:
        return ()
    common: list[str] = []
    for mine, theirs in zip(one.parents, other.parents, strict=False):
        if mine != theirs:
            break
        common.append(mine)
    return tuple(common)


def between(devices: PciDevices, one: PciDevice, other: PciDevice) -> tuple[Hop, ...]:
    """The links that traffic between two devices crosses: up to the common switch only.

    Without a common switch it is all links of both up to their root ports.
    """
    common = set(shared(one, other))
    hops = [*hops_of(devices, one), *hops_of(devices, other)]
    crossed = {h.name: h for h in hops if not {h.upper, h.lower} <= common}
    return tuple(crossed.values())


def classify(
    one: PciDevice, other: PciDevice, numa: NumaNodes | Absent, *, is_vm: bool | None
) -> Locality:
    """The class of a pair, as nvidia-smi topo -m words it."""
    if one.address == other.address:
        return Locality(kind="LOC")
    if not one.root or not other.root:
        return Locality(kind="?", doubt="the recording does not hold the PCI tree")
    doubt = GUEST if is_vm else ""
    if one.root != other.root:
        found = across(one, other, numa)
        return Locality(kind=found.kind, doubt=found.doubt or doubt)
    common = shared(one, other)
    if not common:
        return Locality(kind="PHB", doubt=doubt)
    longest = max(len(d.parents) - len(common) for d in (one, other))
    return Locality(kind="PIX" if longest <= 1 else "PXB", doubt=doubt)


def across(one: PciDevice, other: PciDevice, numa: NumaNodes | Absent) -> Locality:
    """NODE or SYS, by the CPU nodes of both; never by a node number that is not known."""
    if isinstance(numa, Absent):
        return Locality(kind="?", doubt=numa.reason)
    nodes = (locate(one, numa), locate(other, numa))
    unknown = next((n for n in nodes if isinstance(n, Absent)), None)
    if unknown is not None:
        return Locality(kind="?", doubt=unknown.reason)
    return Locality(kind="NODE" if nodes[0] == nodes[1] else "SYS")


def distance(one: int, other: int, numa: NumaNodes) -> int | None:
    """ACPI SLIT distance between two nodes, None when there is none."""
    ids = [node.id for node in numa.nodes]
    row = numa.distances.get(one, ())
    if other not in ids or len(row) != len(ids):
        return None
    return row[ids.index(other)]


def below_ports(devices: Iterable[PciDevice]) -> dict[str, tuple[PciDevice, ...]]:
    """Port address -> the devices somewhere below it."""
    found: dict[str, tuple[PciDevice, ...]] = {}
    for device in devices:
        for port in device.parents:
            found[port] = (*found.get(port, ()), device)
    return found
