# SPDX-License-Identifier: Apache-2.0
"""The PCI tree, the NUMA tables and whether a hypervisor made them up, as one fact."""

from gpuaudit.facts.base import Absent, Fact, probe, unread
from gpuaudit.facts.cpu import cpu_sets
from gpuaudit.facts.node import Machine
from gpuaudit.facts.numa import NumaNodes, locate, numa_nodes
from gpuaudit.facts.pci import PciDevice, PciDevices
from gpuaudit.host import Host, Unavailable
from gpuaudit.topology.judged import seen_link
from gpuaudit.topology.links import Hop, narrowest
from gpuaudit.topology.paths import Locality, between, classify, distance, hops_of


class Topology(Fact, frozen=True, kw_only=True):
    """PciDevices with what is needed to say how two of them are connected."""

    devices: PciDevices
    numa: NumaNodes | Absent
    is_vm: bool | None

    def locality(self, one: PciDevice, other: PciDevice) -> Locality:
        """The class of a pair."""
        return classify(one, other, self.numa, is_vm=self.is_vm)

    def hops(self, device: PciDevice) -> tuple[Hop, ...]:
        """The links from the root port down to a device."""
        return hops_of(self.devices, device)

    def own_link(self, device: PciDevice) -> Hop | None:
        """The link a device hangs on; None when it shows no state, as emulated devices do."""
        link = seen_link(self.devices, device, is_vm=self.is_vm)
        now = link.now if link else None
        return None if isinstance(now, Absent) and now.kind == "unsupported" else link

    def between(self, one: PciDevice, other: PciDevice) -> tuple[Hop, ...]:
        """The links that traffic between two devices crosses."""
        return between(self.devices, one, other)

    def gb_per_s(self, hops: tuple[Hop, ...], *, at_best: bool = False) -> float | None:
        """What the links carry in each direction; None when the rate of one is not known."""
        found = narrowest(hops, at_best=at_best)
        rates = (h.could if at_best else h.now for h in hops)
        if found is None or any(isinstance(r, Absent) for r in rates):
            return None
        return found[1].gb_per_s

    def node_of(self, device: PciDevice) -> int | Absent:
        """The CPU node a device hangs on."""
        return self.numa if isinstance(self.numa, Absent) else locate(device, self.numa)

    def distance(self, one: PciDevice, other: PciDevice) -> int | None:
        """NUMA distance between two devices, 10 on one node; None when it cannot be told."""
        first, second = self.node_of(one), self.node_of(other)
        if isinstance(first, Absent) or isinstance(second, Absent):
            return None
        return None if isinstance(self.numa, Absent) else distance(first, second, self.numa)


@probe
def topology(host: Host, devices: PciDevices, machine: Machine) -> Topology:
    """Without NUMA tables the tree still tells everything inside one host bridge."""
    try:
        numa: NumaNodes | Absent = numa_nodes(host, cpu_sets(host))
    except Unavailable as absent:
        numa = unread(absent)
    return Topology(devices=devices, numa=numa, is_vm=machine.is_vm)
