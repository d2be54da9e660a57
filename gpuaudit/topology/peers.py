# SPDX-License-Identifier: Apache-2.0
"""Pairs of devices that talk past the CPU, and the ports on the way that can send them to it.

Ports that matter for a pair: the root and downstream ports on each device's own way below the
first bridge both share; without a shared switch both root ports (PCI Express Base Specification
5.0, section 6.12; Linux drivers/pci/p2pdma.c, calc_map_type_and_dist()). Upstream ports and
endpoints do not redirect.
"""

import re
from collections.abc import Iterator
from itertools import combinations, product
from typing import Literal

import msgspec

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.node import Machine
from gpuaudit.facts.pci import PciDevice, PciDevices
from gpuaudit.facts.pciconfig import ConfigSpace, read_config
from gpuaudit.host import Host
from gpuaudit.topology.paths import shared

Reach = Literal["switch", "host-bridge", "anywhere"]
Platform = Literal["guest", "vfio-host", "arm", "bare-metal", "unknown"]
REACHES: tuple[Reach, ...] = ("switch", "host-bridge", "anywhere")
GRACE = re.compile(r"CPU (implementer\s*: 0x4e|part\s*: 0xd4f)\b")
RDMA_DRIVERS = frozenset({"mlx4_core", "mlx5_core", "efa", "hfi1", "ib_qib"})


class Peers(msgspec.Struct, frozen=True, kw_only=True):
    """A pair, the ports that could redirect its traffic, and how far apart it is."""

    one: PciDevice
    other: PciDevice
    ports: tuple[str, ...]
    reach: Reach

    @property
    def name(self) -> str:
        """The two addresses."""
        return f"{self.one.address} <-> {self.other.address}"


class PeerPorts(Fact, frozen=True, kw_only=True):
    """GPU-GPU and GPU-NIC pairs, and the config space of every port between them.

    /sys/bus/pci/devices/A/config of those ports only. `grace`: the CPU is NVIDIA's own or a
    Neoverse V2, by /proc/cpuinfo (Linux arch/arm64/include/asm/cputype.h, ARM_CPU_IMP_NVIDIA and
    ARM_CPU_PART_NEOVERSE_V2).
    """

    pairs: tuple[Peers, ...]
    config: dict[str, ConfigSpace | Absent]
    grace: bool


@probe
def peer_ports(host: Host, devices: PciDevices) -> PeerPorts:
    """Find the pairs, then read the ports they need."""
    pairs = tuple(peers(devices))
    wanted = sorted({port for pair in pairs for port in pair.ports})
    return PeerPorts(
        pairs=pairs,
        config={a: port_config(host, devices, a) for a in wanted},
        grace=bool(GRACE.search(host.optional("/proc/cpuinfo") or "")),
    )


def port_config(host: Host, devices: PciDevices, address: str) -> ConfigSpace | Absent:
    """The registers of one port."""
    port = devices.by_address.get(address)
    if port is None:
        return Absent("missing", f"{address} is not listed")
    return read_config(host, port.path)


def peers(devices: PciDevices) -> Iterator[Peers]:
    """Every two GPUs, and every GPU with each RDMA NIC of its host bridge."""
    gpus = devices.of("gpu")
    nics = [nic for nic in devices.of("nic") if speaks_rdma(nic)]
    for one, other in combinations(gpus, 2):
        yield pair(one, other)
    for one, other in product(gpus, nics):
        if not one.root or one.root == other.root:
            yield pair(one, other)


def speaks_rdma(nic: PciDevice) -> bool:
    """An InfiniBand device hangs on it, or the driver makes one; untold, it may."""
    untold = nic.rdma is None and not nic.driver_known
    return bool(nic.rdma) or nic.driver in RDMA_DRIVERS or untold


def pair(one: PciDevice, other: PciDevice) -> Peers:
    """The ports at even depth (0 is the root port) below the bridges both share."""
    common = len(shared(one, other))
    ports = (p for d in (one, other) for p in d.parents[common + common % 2 :: 2])
    return Peers(one=one, other=other, ports=tuple(dict.fromkeys(ports)), reach=reach(one, other))


def reach(one: PciDevice, other: PciDevice) -> Reach:
    """How far up the traffic has to go."""
    if one.root != other.root or not one.root:
        return "anywhere"
    return "switch" if shared(one, other) else "host-bridge"


def platform_of(machine: Machine, devices: PciDevices) -> Platform:
    """What decides how ACS and the IOMMU ought to be set."""
    if machine.is_vm:
        return "guest"
    if any("vfio" in (d.driver or "") for d in devices.of("gpu", "nic", "nvswitch")):
        return "vfio-host"
    if machine.architecture == "aarch64":
        return "arm"
    if machine.is_vm is None or machine.architecture != "x86_64":
        return "unknown"
    return "bare-metal"
