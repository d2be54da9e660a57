# SPDX-License-Identifier: Apache-2.0
"""Whether all GPUs of a node are in one NVLink partition, and whether its switches are alive."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    check,
    expect,
    fails,
    not_applicable,
    passes,
    unknown,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpu import Gpu, Gpus, majority
from gpuaudit.facts.gpurecord import VGPU_HOSTS
from gpuaudit.facts.gpuscan import GpuScan
from gpuaudit.facts.gpuvalues import FABRIC_COMPLETED, Fabric
from gpuaudit.facts.node import Machine
from gpuaudit.facts.nvswitch import NvSwitches

Count = Annotated[int, msgspec.Meta(ge=1, le=64)]
WHOLE_BOARD = 8
DRIVER = "nvidia-nvswitch"


class FabricClusterExpectations(Expectations, frozen=True, kw_only=True):
    """NVSwitches on the PCI bus of a board with eight GPUs, by PCI ID of the GPUs."""

    switches_by_id: dict[str, Count]


@check("fabric-cluster", severity=Severity.CRITICAL)
def cluster(gpus: Gpus) -> Iterator[Finding]:
    """All GPUs of the node are in the same NVLink cluster and clique.

    ## Why it matters
    GPUs of different cliques have no NVLink between them, however healthy each of them looks.

    ## Evidence
    nvmlDeviceGetGpuFabricInfoV: cluster UUID and clique, of GPUs that have joined a fabric.

    ## How it is judged
    Both are those of most GPUs of the node.

    ## Exceptions
    One GPU is not compared. Not applicable before the registration (fabric-state), on GPUs without
    a fabric (PCIe, A100), and on a vGPU host, whose guests have partitions. A cluster
    UUID of zeros is normal on a single node.

    ## What to do
    Look at the partitions that Fabric Manager or NMX-C gave out, correct them, and reset the GPUs.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlFabricDefs.html
    - https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide
    """
    asked = gpus.asked()
    if len(asked) < 2:
        raise NotApplicable("there is only one GPU to compare")
    usual = majority(p for p in map(place, asked) if p is not None)
    for gpu in asked:
        yield of_place(gpu, usual)


def place(gpu: Gpu) -> tuple[str, int] | None:
    """Cluster and clique of a GPU that has joined."""
    fabric = gpu.fabric
    joined = isinstance(fabric, Fabric) and fabric.state == FABRIC_COMPLETED
    return (fabric.cluster, fabric.clique) if joined else None  # type: ignore[union-attr]  # joined implies Fabric


def of_place(gpu: Gpu, usual: tuple[str, int] | None) -> Finding:
    """One GPU."""
    mine = place(gpu)
    if isinstance(gpu.fabric, Absent):
        return expect(gpu.fabric, None, of=gpu.subject)
    if gpu.virtualization in VGPU_HOSTS:
        return not_applicable(gpu.subject, "a host of guests: each has a partition of its own")
    if mine is None or usual is None:
        return not_applicable(gpu.subject, "the GPU has not joined a fabric: see fabric-state")
    seen, wanted = (f"cluster {uuid or 'none'}, clique {clique}" for uuid, clique in (mine, usual))
    cost = "no NVLink to the other GPUs"
    if mine != usual:
        return fails(gpu.subject, f"another partition: {seen}", seen, expected=wanted, cost=cost)
    return passes(gpu.subject, f"clique {mine[1]}")


@check("fabric-switches", severity=Severity.CRITICAL)
def switches(
    scan: GpuScan, found: NvSwitches, node: Machine, want: FabricClusterExpectations
) -> Iterator[Finding]:
    """Every NVSwitch answers and has its driver, and none is missing.

    ## Why it matters
    Without one of its switches the board has no fabric at all, or a part of its bandwidth.

    ## Evidence
    NVSwitches on the PCI bus, their driver and the first bytes of their configuration space.

    ## How it is judged
    Each is bound to nvidia-nvswitch and does not read ff. A board with eight GPUs has the number
    of `fabric_cluster.switches_by_id`. Their driver is a part of nvidia.ko and has its version.

    ## Exceptions
    Not applicable without NVSwitches on the bus: PCIe boards, boards of four GPUs, B200 and GB200
    (reached otherwise), guests with GPUs only. In a guest their number is the host's choice.

    ## What to do
    Read the kernel log for nvidia-nvswitch and SXid lines; power-cycle the board when a switch does
    not come back after a reboot.

    ## References
    - https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide
    - https://github.com/NVIDIA/open-gpu-kernel-modules/blob/main/kernel-open/nvidia/linux_nvswitch.c
    """
    if not found.switches:
        raise NotApplicable("no NVSwitch on the PCI bus")
    for address, (driver, dead) in found.switches.items():
        yield of_switch(address, driver, dead)
    number = want.switches_by_id.get(majority(scan.kinds) or "")
    if number and node.is_vm is False and len(scan.kinds) == WHOLE_BOARD:
        count = len(found.switches)
        text = f"{count} NVSwitches are on the bus"
        yield expect(count, number, of="number of NVSwitches", message=text)


def of_switch(address: str, driver: str | Absent | None, dead: bool | Absent) -> Finding:  # noqa: FBT001 - a reading, not a switch of behaviour
    """One NVSwitch."""
    of = f"NVSwitch {address}"
    if dead is True:
        return fails(of, "it does not answer on the bus", "all ff")
    absent = next((one for one in (driver, dead) if isinstance(one, Absent)), None)
    if absent is not None:
        return unknown(of, absent.reason)
    return expect(
        driver or "no driver", DRIVER, of=of, message=f"it is bound to {driver or 'no driver'}"
    )
