# SPDX-License-Identifier: Apache-2.0
"""Rails: which GPU reaches the network through which port, and how wide that way is."""

from collections.abc import Iterator
from typing import NamedTuple

from gpuaudit.check import (
    Finding,
    NotApplicable,
    Severity,
    check,
    fails,
    not_applicable,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.pci import PciDevice
from gpuaudit.facts.pcilink import LinkEnd
from gpuaudit.facts.rdma import InfinibandDevices
from gpuaudit.facts.rdmaports import RdmaPort, RdmaPorts, RdmaRate
from gpuaudit.topology import Hop, Topology, narrowest
from gpuaudit.topology.rdmaroles import RdmaRoles

DETOUR = "traffic of this GPU crosses the CPU or another GPU's port"


class Rail(NamedTuple):
    """A compute port and its PCI function."""

    port: RdmaPort
    nic: PciDevice


@check("rdma-rail-pairing", severity=Severity.HIGH)
def rail_pairing(
    ports: RdmaPorts, roles: RdmaRoles, topology: Topology, devices: InfinibandDevices
) -> Iterator[Finding]:
    """Every GPU has its share of the compute ports below its own PCIe switch.

    ## Why it matters
    Each GPU then sends through its own rail at full rate (PIX, PXB). A GPU that has lost its port
    borrows another GPU's, and both run at half of it.

    ## Evidence
    The PCI tree and the compute ports; `gpuaudit topology` prints the matrix.

    ## How it is judged
    A port counts for the GPUs that share a switch with it, in equal parts. Each GPU gets at least
    as much as most of them do.

    ## Exceptions
    Not applicable in a guest, whose tree is made up, and on servers where no compute port shares
    a switch with a GPU. Boards without NVSwitch only warn: their slots are filled as needed. So do
    those with NVSwitch where half of the GPUs or more lack more than one port together and no such
    adapter stands idle beside them: that is how they were built. Where RDMA devices belong to one
    network namespace, a container may have taken the missing ones: that warns too.

    ## What to do
    Look for the missing adapter with `lspci -d 15b3:` and in the log; reseat it, or move it to the
    slot below this GPU's switch. If NCCL_IB_HCA leaves it out, add it there.

    ## References
    - https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-net-gdr-level
    - https://docs.nvidia.com/cuda/gpudirect-rdma/index.html#supported-systems
    """
    if topology.is_vm:
        raise NotApplicable("a guest sees a PCI tree that its hypervisor made up")
    gpus = topology.devices.of("gpu")
    found = rails(ports, roles, topology)
    if not gpus or not found:
        raise NotApplicable("no compute port of known place" if gpus else "no NVIDIA GPU")
    shares = {gpu.address: share(gpu, gpus, found) for gpu in gpus}
    if not any(shares.values()):
        raise NotApplicable("no compute port shares a PCIe switch with a GPU on this server")
    usual = commonest(list(shares.values()))
    lacking = [gpu for gpu in gpus if shares[gpu.address] < usual]
    loss = is_loss(list(shares.values())) or is_idle(lacking, found, topology.devices.of("nic"))
    certain = bool(topology.devices.of("nvswitch")) and not devices.exclusive
    blame = fails if certain and loss else warns
    for gpu in gpus:
        mine = ", ".join(rail.port.name for rail in found if near(gpu, rail.nic)) or "none"
        if shares[gpu.address] >= usual:
            yield passes(gpu.address, mine)
            continue
        seen = f"{shares[gpu.address]:g} below its switch, {usual:g} for the others"
        message = f"it is near fewer compute ports than the other GPUs: {mine}"
        yield blame(gpu.address, message, seen, expected=f"at least {usual:g}", cost=DETOUR)


def rails(ports: RdmaPorts, roles: RdmaRoles, topology: Topology) -> list[Rail]:
    """The compute ports whose place on the bus is known."""
    by_address = topology.devices.by_address
    compute = roles.compute(ports)
    return [Rail(p, by_address[p.place]) for p in compute if p.place and p.place in by_address]


def near(gpu: PciDevice, nic: PciDevice) -> bool:
    """PIX or PXB: both hang below one switch."""
    return gpu.root == nic.root and bool(set(gpu.parents) & set(nic.parents))


def share(gpu: PciDevice, gpus: tuple[PciDevice, ...], found: list[Rail]) -> float:
    """How many ports a GPU would have if those it shares were cut into equal parts."""
    mine = (rail.nic for rail in found if near(gpu, rail.nic))
    return round(sum(1 / sum(near(other, nic) for other in gpus) for nic in mine), 3)


def commonest(values: list[float]) -> float:
    """What most have, and of several answers the greatest: a lost GPU leaves its share behind."""
    return max(values, key=lambda value: (values.count(value), value))


def is_loss(shares: list[float]) -> bool:
    """True when one port is missing, or some for a few GPUs."""
    lacking = [commonest(shares) - share for share in shares if share < commonest(shares)]
    return sum(lacking) < 1.5 or 2 * len(lacking) < len(shares)


def is_idle(lacking: list[PciDevice], found: list[Rail], nics: tuple[PciDevice, ...]) -> bool:
    """True when an adapter like the rails, but none of them, is near a GPU that lacks one."""
    used, like = {rail.nic.slot for rail in found}, {rail.nic.id for rail in found}
    spare = [nic for nic in nics if nic.id in like and nic.slot not in used]
    return any(near(gpu, nic) for gpu in lacking for nic in spare)


@check("rdma-port-bandwidth", severity=Severity.MEDIUM)
def port_bandwidth(ports: RdmaPorts, roles: RdmaRoles, topology: Topology) -> Iterator[Finding]:
    """The PCIe way of each compute port carries what the port does.

    ## Why it matters
    A 400 Gb/s port moves 50 GB/s each way. PCIe 4.0 with 16 lanes carries 31.5 GB/s: such a port
    pauses its partner and congests the fabric.

    ## Evidence
    /sys/class/infiniband/*/ports/*/rate; both ends of each link between the root port and the
    adapter.

    ## How it is judged
    The narrowest link, at the best that both its ends can do, carries the rate of the port. Less
    warns: that is how the server was built. Links that run below their best are for the checks of
    PCIe links to judge.

    ## Exceptions
    In a guest only the adapter's own end of its own link is believed. A link whose ends disagree is
    left out: outer ports of some switches report made-up values. Ports that are not active, and
    adapters that show no link (virtual functions), are not judged. Packet headers, which take some
    percent, are not counted.

    ## What to do
    Put the adapter into a slot of its own generation and width, or accept the slower one in a
    waiver.

    ## References
    - https://docs.nvidia.com/networking/display/connectx7vpi
    - https://pcisig.com/specifications
    """
    found = [rail for rail in rails(ports, roles, topology) if rail.port.active]
    if not found:
        raise NotApplicable("no compute port of known place is active")
    for rail in found:
        yield bandwidth_of(rail, topology)


def is_agreed(hop: Hop) -> bool:
    """Both ends of a link run alike, where both say so."""
    ends = (end for end in (hop.upper_end, hop.lower_end) if isinstance(end, LinkEnd))
    return len({(end.speed_gt_per_s, end.width) for end in ends}) < 2


def bandwidth_of(rail: Rail, topology: Topology) -> Finding:
    """One port against the links above it."""
    name, rate = rail.port.name, rail.port.rate
    own = topology.own_link(rail.nic)
    if own is None:
        return not_applicable(name, "the adapter shows no PCI Express link")
    hops = (own,) if topology.is_vm else topology.hops(rail.nic) or (own,)
    tight = narrowest(tuple(filter(is_agreed, hops)), at_best=True)
    if not isinstance(rate, RdmaRate) or not rate.told:
        reason = rate.reason if isinstance(rate, Absent) else "the kernel does not know its speed"
        return unknown(name, reason)
    if tight is None:
        return unknown(name, "no link above the adapter tells its speed and width")
    hop, pcie = tight
    seen, wanted = f"{pcie}, {pcie.gb_per_s:.1f} GB/s", f"at least {rate.gb_per_s:.1f} GB/s"
    if pcie.gb_per_s >= rate.gb_per_s:
        return passes(name, seen, expected=wanted)
    message = f"{hop.name} can carry less than the port's {rate}"
    lost = f"{pcie.gb_per_s:.1f} instead of {rate.gb_per_s:.1f} GB/s each way"
    return warns(name, message, seen, expected=wanted, cost=lost)
