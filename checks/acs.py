# SPDX-License-Identifier: Apache-2.0
"""Access Control Services: whether ports send peer-to-peer traffic up to the root complex."""

from collections.abc import Iterator
from typing import Literal

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    Unavailable,
    Verdict,
    check,
    fails,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.generation import Generation
from gpuaudit.facts.node import Machine
from gpuaudit.facts.pciconfig import Acs, bit_names
from gpuaudit.topology import PeerPorts, Peers, Platform, Topology, platform_of

REACH = {"switch": 0, "host-bridge": 1, "anywhere": 2}
KEEP: dict[Platform, str] = {
    "guest": "a guest sees emulated ports: ACS is the host's matter, and must stay on there; "
    "GPUDirect RDMA in a guest needs ATS on the NIC instead",
    "vfio-host": "a GPU or NIC is bound to VFIO: redirection isolates the guests and must stay",
}
CONNECTX_8 = "15b3:1023"
GRACE = "Grace ports keep the kernel's default: redirection does not hinder NVLink-C2C"
DATA_DIRECT = (
    "with ConnectX-8 Data Direct each kind of port wants another value (0x19 to the NIC's DMA "
    "function, 0x15 to the GPU, 0x1c at the root): compare with `rdma_topo check`"
)
WANTED = "RR, CR and EC off"


class AcsExpectations(Expectations, frozen=True, kw_only=True):
    """Which pairs count, and how bad redirected traffic is."""

    redirect: Literal["fail", "warn"]
    gpu_gpu_reach: Literal["switch", "host-bridge", "anywhere"]
    gpu_nic_reach: Literal["switch", "host-bridge"]


@check("acs-redirect-off", severity=Severity.HIGH)
def redirect_off(
    peers: PeerPorts,
    tree: Topology,
    machine: Machine,
    generation: Generation,
    want: AcsExpectations,
) -> Iterator[Finding]:
    """No port between GPUs, or between a GPU and its NIC, redirects traffic.

    ## Why it matters
    With redirection on, what a GPU writes to its neighbour or NIC does not turn round in the
    switch: it goes up to the root complex, through the IOMMU, and down again. NCCL then hangs or
    runs several times slower, and all devices share the uplink.

    ## Evidence
    The ACS capability (extended capability 0x000D, control word at +6) in
    /sys/bus/pci/devices/PORT/config of every root and downstream port between each GPU-GPU and
    GPU-RDMA-NIC pair. Reading it needs root.

    ## How it is judged
    P2P Request Redirect (0x04), P2P Completion Redirect (0x08) and P2P Egress Control (0x20) must
    be off on those ports. Source validation, translation blocking and upstream forwarding do not
    redirect and are ignored, as are all ports that are on no such path.

    ## Exceptions
    GeForce GPUs since Ampere have neither peer-to-peer nor GPUDirect RDMA: not applicable. Virtual
    machines need redirection for isolation: guests, and hosts with a GPU or NIC bound to
    VFIO, are not judged, nor is Grace, whose ports keep the kernel's default. With ConnectX-8 Data
    Direct on Grace each kind of port wants another value: unknown, to be compared with NVIDIA's
    `rdma_topo check`. On other Arm and unknown platforms a set bit only warns: change it only when
    the vendor says so. `acs.gpu_gpu_reach` and `acs.gpu_nic_reach` say how far apart a pair may be
    to count. Between different root ports traffic goes through the root complex in any case, and
    on boards with NVSwitches over NVLink: a port that hurts only such pairs warns.

    ## What to do
    On bare metal, switch ACS off in the BIOS, or boot with `pci=disable_acs_redir=PORT`
    (PORT as named here, several joined by `;`), and run this check again. At run time:
    `setpci -s PORT ECAP_ACS+6.w=0000:002c` until the next boot.

    Note the old value first. Do not do this where guests use VFIO: it removes their isolation.

    ## References
    - https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#pci-access-control-services-acs
    - https://docs.kernel.org/admin-guide/kernel-parameters.html
    - https://github.com/torvalds/linux/blob/master/drivers/pci/p2pdma.c
    - https://github.com/linux-rdma/rdma-core (rdma_topo)
    """
    platform = platform_of(machine, tree.devices)
    if reason := harmless(platform, generation):
        raise NotApplicable(reason)
    direct = any(nic.id == CONNECTX_8 for nic in tree.devices.of("nic"))
    if peers.grace and not direct:
        raise NotApplicable(GRACE)
    if lost := next((d for p in peers.pairs for d in (p.one, p.other) if not d.root), None):
        raise Unavailable(f"where {lost.address} hangs was not recorded")
    counted = [pair for pair in peers.pairs if counts(pair, want)]
    ports = sorted({port for pair in counted for port in pair.ports})
    if not ports:
        raise NotApplicable("no two GPUs, and no GPU and RDMA NIC, share a way below the CPU")
    for port in ports:
        hurt = [pair for pair in counted if port in pair.ports]
        found = readable(peers, port)
        if isinstance(found, Absent):
            yield nothing_read(port, found)
        elif peers.grace:
            yield unknown(port, DATA_DIRECT, value(found))
        else:
            yield judged(port, found, hurt, tree, bad(platform, want, hurt))


def harmless(platform: Platform, generation: Generation) -> str | None:
    """Why redirection hinders nothing here, or has to stay."""
    no_peers = generation.lacks("pcie-p2p")
    if no_peers and generation.lacks("gpudirect-rdma"):
        return f"nothing goes from device to device: {no_peers}"
    return KEEP.get(platform)


def counts(pair: Peers, want: AcsExpectations) -> bool:
    """Whether the policy lets a pair this far apart count."""
    limit = want.gpu_gpu_reach if pair.other.role == "gpu" else want.gpu_nic_reach
    return REACH[pair.reach] <= REACH[limit]


def bad(platform: Platform, want: AcsExpectations, hurt: list[Peers]) -> Verdict:
    """What a set bit means: a failure only on bare metal, for traffic that could turn round.

    Between two root ports traffic goes through the root complex in any case; the kernel looks at
    these bits only below a common switch (Linux drivers/pci/p2pdma.c, calc_map_type_and_dist).
    """
    turns = any(pair.reach == "switch" for pair in hurt)
    plain = platform == "bare-metal" and want.redirect == "fail" and turns
    return Verdict.FAIL if plain else Verdict.WARN


def readable(peers: PeerPorts, port: str) -> Acs | Absent:
    """The ACS registers of a port."""
    config = peers.config[port]
    return config if isinstance(config, Absent) else config.acs


def nothing_read(port: str, absent: Absent) -> Finding:
    """A port known to have no ACS cannot redirect; everything else is unknown."""
    if absent.kind == "unsupported":
        return passes(port, "no ACS capability", expected=WANTED)
    return unknown(port, absent.reason)


def value(acs: Acs) -> str:
    """0x001d (SV+RR+CR+UF)."""
    return f"{acs.control:#06x} ({bit_names(acs.control)})"


def judged(port: str, acs: Acs, hurt: list[Peers], tree: Topology, otherwise: Verdict) -> Finding:
    """One port: the pairs it hurts, and what their way could carry."""
    seen = value(acs)
    if not acs.redirects:
        return passes(port, seen, expected=WANTED)
    hurt = sorted(hurt, key=lambda pair: REACH[pair.reach])
    names = ", ".join(pair.name for pair in hurt[:3])
    more = f" and {len(hurt) - 3} more" if len(hurt) > 3 else ""
    word = fails if otherwise is Verdict.FAIL else warns
    return word(
        port,
        f"ACS ({bit_names(acs.redirects)}) sends peer traffic to the root complex: {names}{more}",
        seen,
        expected=WANTED,
        cost=cost(hurt, tree),
        evidence=tuple(pair.name for pair in hurt),
    )


def cost(hurt: list[Peers], tree: Topology) -> str:
    """What the best of the pairs could carry without the detour."""
    direct = [pair for pair in hurt if pair.reach == "switch"]
    rates = [tree.gb_per_s(tree.between(p.one, p.other), at_best=True) for p in direct or hurt]
    best = max((rate for rate in rates if rate is not None), default=None)
    amount = "their traffic" if best is None else f"up to {best:.1f} GB/s each way"
    if direct:
        return f"{amount} leaves the switch, and crosses the shared uplink twice"
    return f"{amount} between root ports is checked on its way through the root complex"
