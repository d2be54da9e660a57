# SPDX-License-Identifier: Apache-2.0
"""Links that several GPUs share on their way to the CPU, and what each gets when all move."""

from typing import NamedTuple

from gpuaudit.facts.base import Absent
from gpuaudit.facts.pci import PciDevice, PciDevices
from gpuaudit.facts.pciways import movers
from gpuaudit.topology.links import Hop, Rate
from gpuaudit.topology.paths import hops_of, own_link


class Uplink(NamedTuple):
    """One link above more than one device that moves much data, a GPU among them.

    All rates are in one direction, by what the links can do at best, so that a GPU at rest changes
    nothing. They are of traffic to the host: what stays below a switch does not cross its uplink.
    """

    hop: Hop
    gpus: tuple[PciDevice, ...]
    others: tuple[PciDevice, ...]
    """RDMA NICs and NVMe drives below it."""

    rate: Rate | Absent
    """What the link carries; Absent where its ends disagree or do not tell."""

    wanted_gb_per_s: float | Absent
    """What the GPUs below could take together, each at the rate of its own link."""

    @property
    def share(self) -> float | Absent:
        """The part of its own rate that each GPU gets when all GPUs talk to the host; at most 1."""
        if isinstance(self.rate, Absent):
            return self.rate
        if isinstance(self.wanted_gb_per_s, Absent):
            return self.wanted_gb_per_s
        return min(1.0, self.rate.gb_per_s / self.wanted_gb_per_s)

    @property
    def each_gb_per_s(self) -> float | Absent:
        """What a GPU gets when all GPUs below talk to the host at once."""
        share = self.share
        if isinstance(share, Absent) or isinstance(self.wanted_gb_per_s, Absent):
            return share if isinstance(share, Absent) else Absent("missing", "no rate is known")
        return share * self.wanted_gb_per_s / len(self.gpus)


def shared_uplinks(devices: PciDevices) -> tuple[Uplink, ...]:
    """Every link above at least one GPU and one more GPU, RDMA NIC or drive, from the root down.

    Raises NotApplicable when nothing is in use. In a guest the tree is made up: do not ask there.
    """
    crossed: dict[str, tuple[Hop, list[PciDevice]]] = {}
    for device in movers(devices):
        for hop in hops_of(devices, device):
            crossed.setdefault(hop.name, (hop, []))[1].append(device)
    found = (uplink(devices, hop, below) for hop, below in crossed.values())
    return tuple(one for one in found if one.gpus and len(one.gpus) + len(one.others) > 1)


def uplink(devices: PciDevices, hop: Hop, below: list[PciDevice]) -> Uplink:
    """One link and all below it. Functions of one card count once."""
    slots = {device.slot: device for device in reversed(below)}
    gpus = tuple(sorted((d for d in slots.values() if d.role == "gpu"), key=lambda d: d.address))
    others = tuple(d for d in slots.values() if d.role != "gpu")
    return Uplink(
        hop=hop,
        gpus=gpus,
        others=tuple(sorted(others, key=lambda d: d.address)),
        rate=doubt_of(hop) or hop.could,
        wanted_gb_per_s=together(devices, gpus),
    )


def doubt_of(hop: Hop) -> Absent | None:
    """Why what a link says of itself is not to be believed: switches make up ports of their own."""
    for told in (hop.width, hop.speed):
        if isinstance(told.now, Absent):
            return told.now
        if not isinstance(told.best, Absent) and told.now > told.best:
            return Absent("failed", "it does more than an end says it can: the port is made up")
    return None


def together(devices: PciDevices, gpus: tuple[PciDevice, ...]) -> float | Absent:
    """The sum of what their own links can do."""
    total = 0.0
    for gpu in gpus:
        link = own_link(devices, gpu)
        rate = link.could if link else Absent("missing", f"{gpu.address} has no link of its own")
        if isinstance(rate, Absent):
            return rate
        total += rate.gb_per_s
    return total


def at_once_gb_per_s(devices: PciDevices, gpu: PciDevice) -> float | Absent:
    """What one GPU gets to and from the host when all GPUs of the node move at once."""
    link = own_link(devices, gpu)
    alone = link.could if link else Absent("missing", f"{gpu.address} has no link of its own")
    if isinstance(alone, Absent):
        return alone
    rate = alone.gb_per_s
    for one in shared_uplinks(devices):
        share = one.share
        if gpu in one.gpus:
            if isinstance(share, Absent):
                return share
            rate = min(rate, share * alone.gb_per_s)
    return rate
