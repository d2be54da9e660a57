# SPDX-License-Identifier: Apache-2.0
"""Which GPUs reach each other over NVLink or PCIe, and what stands in the way of NVLink SHARP."""

from collections.abc import Iterator

from gpuaudit.check import (
    Finding,
    NotApplicable,
    Severity,
    check,
    expect,
    fails,
    not_applicable,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpu import Gpu, Gpus
from gpuaudit.facts.gpuanswer import release_of
from gpuaudit.facts.gpurecord import VGPU_HOSTS
from gpuaudit.facts.gpuscan import GpuScan
from gpuaudit.facts.gpuvalues import FABRIC_COMPLETED, Fabric
from gpuaudit.facts.node import Machine
from gpuaudit.facts.nvlink import P2P_DISABLED, P2P_OK, STATUS, TO_SWITCH, GpuLinks, NvLinks

HOPPER = 9
"""NVML_DEVICE_ARCH_HOPPER."""
NVLS_DRIVER = 530
"""NCCL uses NVLS from CUDA 12.1 on, which came with this driver."""
PCIE_COST = "their traffic takes PCIe: 63 instead of 450 GB/s on an H100 (raw x16, one direction)"


@check("nvlink-peers", severity=Severity.CRITICAL)
def peers(links: NvLinks, scan: GpuScan) -> Iterator[Finding]:
    """All GPUs that should talk to each other directly can.

    ## Why it matters
    A pair without peer access copies through host memory, and the whole ring runs at that pace.

    ## Evidence
    nvmlDeviceGetP2PStatus of every pair for NVLink, and for reads where NVLink is not ok.

    ## How it is judged
    Between GPUs whose links lead to NVSwitches every pair must reach each other over NVLink. A GPU
    whose links lead to other GPUs must reach one of them. Without NVLink peer access that a setting
    of the driver disabled is a warning.

    ## Exceptions
    Not applicable: one GPU, MIG and vGPU, hosts that hand partitions to guests, GPUs of different
    fabric partitions (fabric-cluster), jobs and containers that may not see the peers of a bridge.
    GeForce and boards whose chipset has no peer access over PCIe are so by design: not applicable.

    ## What to do
    Run `nvidia-smi topo -p2p n`, look at fabric-state and nvlink-links-active, and restart Fabric
    Manager when no job runs. Disabled by a setting: look for NVreg_RegistryDwords in modprobe.d.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
    """
    if len(links.gpus) < 2:
        raise NotApplicable("there is only one GPU")
    for one in links.gpus:
        others = [other for other in links.gpus if other is not one and comparable(one, other)]
        yield left_out(one, others) or of_peers(one, others, links, scan)


def comparable(one: GpuLinks, other: GpuLinks) -> bool:
    """Whether the two may be expected to reach each other at all."""
    a, b = one.gpu.fabric, other.gpu.fabric
    apart = isinstance(a, Fabric) and isinstance(b, Fabric) and place(a) != place(b)
    return not (other.gpu.lost or other.gpu.mig_runs or apart)


def place(fabric: Fabric) -> tuple[str, int]:
    """The partition of a fabric."""
    return fabric.cluster, fabric.clique


def left_out(one: GpuLinks, others: list[GpuLinks]) -> Finding | None:
    """The finding for a GPU that is not to be judged, or None."""
    of, gpu = one.gpu.subject, one.gpu
    if one.absent is not None and one.absent.kind != "unsupported":
        return expect(one.absent, None, of=of)
    if gpu.mig_runs or gpu.is_vgpu:
        return not_applicable(of, "MIG or a virtual GPU: there is no peer access")
    if gpu.virtualization in VGPU_HOSTS:
        return not_applicable(of, "a host of guests: they have the peer access")
    return None if others else not_applicable(of, "there is no other GPU to compare with")


def of_peers(one: GpuLinks, others: list[GpuLinks], links: NvLinks, scan: GpuScan) -> Finding:
    """One GPU against all others."""
    if one.up and one.to == TO_SWITCH:
        switched = [other for other in others if other.up and other.to == TO_SWITCH]
        return by_nvlink(one.gpu, [other.gpu for other in switched], links)
    joined = [other for other in others if reaches(links, one.gpu, other.gpu)]
    if joined:
        return passes(one.gpu.subject, f"NVLink to {names(g.gpu for g in joined)}")
    if one.up and not scan.confined:
        return by_bridge(one.gpu, [other.gpu for other in others], links)
    return by_pcie(one.gpu, [other.gpu for other in others], links)


def reaches(links: NvLinks, one: Gpu, other: Gpu) -> bool:
    """Whether a pair is joined by NVLink."""
    pair = links.pair(one.index, other.index)
    return pair is not None and pair.joined


def names(gpus: Iterator[Gpu]) -> str:
    """GPU 1, GPU 2."""
    return ", ".join(f"GPU {gpu.index}" for gpu in gpus)


def by_nvlink(gpu: Gpu, others: list[Gpu], links: NvLinks) -> Finding:
    """Every pair behind switches has to be ok."""
    told = {o.index: p.nvlink for o in others if (p := links.pair(gpu.index, o.index))}
    absent = next((status for status in told.values() if isinstance(status, Absent)), None)
    bad = {n: s for n, s in told.items() if isinstance(s, int) and s != P2P_OK}
    if bad:
        list_of = ", ".join(f"GPU {n} ({STATUS.get(s, f'status {s}')})" for n, s in bad.items())
        text = f"no NVLink to {list_of}"
        return fails(gpu.subject, text, text, expected="NVLink to all", cost=PCIE_COST)
    if absent is not None:
        return unknown(gpu.subject, absent.reason)
    if not told:
        return not_applicable(gpu.subject, "no other GPU has links to a switch that are up")
    return passes(gpu.subject, f"NVLink to {len(told)} GPUs")


def by_bridge(gpu: Gpu, others: list[Gpu], links: NvLinks) -> Finding:
    """A GPU whose links lead to other GPUs, and that is known to reach none."""
    told = [p.nvlink for o in others if (p := links.pair(gpu.index, o.index))]
    absent = next((status for status in told if isinstance(status, Absent)), None)
    if absent is not None:
        return expect(absent, None, of=gpu.subject)
    return warns(gpu.subject, "its links are up but lead to no GPU of this node", "none")


def by_pcie(gpu: Gpu, others: list[Gpu], links: NvLinks) -> Finding:
    """Pairs without NVLink: what NVML says of reads."""
    told = [p.read for o in others if (p := links.pair(gpu.index, o.index))]
    found = [status for status in told if isinstance(status, int)]
    if P2P_DISABLED in found:
        return warns(gpu.subject, "peer access is disabled by a setting of the driver")
    if found and set(found) == {P2P_OK}:
        return passes(gpu.subject, "PCIe to all")
    if len(found) < len(told):
        absent = next(status for status in told if isinstance(status, Absent))
        return expect(absent, None, of=gpu.subject)
    why = "; ".join(dict.fromkeys(STATUS.get(s, f"status {s}") for s in found if s != P2P_OK))
    return not_applicable(gpu.subject, f"no peer access over PCIe: {why or 'nothing was asked'}")


@check("nvlink-sharp", severity=Severity.LOW)
def sharp(links: NvLinks, gpus: Gpus, node: Machine) -> Iterator[Finding]:
    """Nothing that NVML shows keeps NVLink SHARP from working.

    ## Why it matters
    NVLink SHARP (NVLS in NCCL) adds in the switches: an all-reduce moves half of the data.

    ## Evidence
    Architecture, kind of the first link's far end, fabric state, MIG mode, driver release.

    ## How it is judged
    On a GPU of Hopper or later that is linked to NVSwitches and has joined its fabric a driver
    before 530 warns: NCCL has NVLS from CUDA 12.1 on.

    ## Exceptions
    A pass means that nothing known stands in the way; whether a group can be made only CUDA tells
    (NCCL_DEBUG=INFO shows it). Not applicable on A100 and older, without switches, with MIG, before
    the fabric is complete (fabric-state), and in a guest, where the host decides.

    ## What to do
    Update the driver. Then run an all-reduce with NCCL_DEBUG=INFO and look for NVLS in its output.

    ## References
    - https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-nvls-enable
    """
    for one in links.gpus:
        yield of_sharp(one, node, release_of(gpus.driver))


def of_sharp(one: GpuLinks, node: Machine, release: int) -> Finding:
    """One GPU."""
    gpu, of = one.gpu, one.gpu.subject
    if isinstance(gpu.architecture, Absent):
        return expect(gpu.architecture, None, of=of)
    if gpu.architecture < HOPPER or one.to != TO_SWITCH or gpu.mig_runs:
        return not_applicable(of, "it needs Hopper or later, linked to NVSwitches, without MIG")
    if node.is_vm:
        return not_applicable(of, "a guest: the host decides")
    if not isinstance(gpu.fabric, Fabric) or gpu.fabric.state != FABRIC_COMPLETED:
        return not_applicable(of, "the GPU has not joined its fabric: see fabric-state")
    return of_release(of, release)


def of_release(of: str, release: int) -> Finding:
    """The driver of a GPU that has all else."""
    if not release:
        return unknown(of, "the release of the driver is not known")
    if release < NVLS_DRIVER:
        text = f"driver {release} has no NVLink SHARP: it came with {NVLS_DRIVER}"
        return warns(of, text, release, expected=f"{NVLS_DRIVER} or later")
    return passes(of, "nothing rules it out")
