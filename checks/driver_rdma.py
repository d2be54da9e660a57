# SPDX-License-Identifier: Apache-2.0
"""The driver's part in GPUDirect RDMA."""

import re
from typing import Literal

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    check,
    fails,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.driver import GpuDirect, KernelDriver
from gpuaudit.facts.generation import Generation
from gpuaudit.facts.gpu import Gpus
from gpuaudit.facts.node import Machine

DMA_BUF_SINCE = (5, 12)


class DriverRdmaExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of GPUDirect RDMA."""

    gpudirect: Literal["required", "any"]


@check("driver-gpudirect-rdma", severity=Severity.HIGH)
def gpudirect_rdma(
    rdma: GpuDirect,
    driver: KernelDriver,
    node: Machine,
    gpus: Gpus,
    generation: Generation,
    want: DriverRdmaExpectations,
) -> Finding:
    """GPU memory can be registered with the RDMA adapters.

    ## Why it matters
    Without GPUDirect RDMA every byte between GPUs of two nodes is copied through host memory.

    ## Evidence
    /sys/class/infiniband; nvidia_peermem in /sys/module and /sys/kernel/mm/memory_peers; flavour of
    the kernel modules and release of the kernel.

    ## How it is judged
    A registered peer-memory client, or DMA-BUF: open modules and Linux 5.12 or later. A loaded but
    unregistered nvidia_peermem counts, as it does for NCCL.

    ## Exceptions
    Not applicable without a hardware RDMA adapter, on GeForce (the driver refuses it), on GB10, and
    for EFA, which pins GPU memory by itself. Kernels before 5.12 with a vendor's backport are not
    recognised. In a guest whose adapters are all Ethernet it only warns: clouds give such a virtual
    function to every machine for its ordinary network.

    ## What to do
    Run `modprobe nvidia-peermem` and name it in /etc/modules-load.d, or install the open kernel
    modules on Linux 5.12 or later.

    ## References
    - https://docs.nvidia.com/cuda/gpudirect-rdma/
    - https://github.com/NVIDIA/nccl/blob/master/src/transport/net_ib.cc
    """
    if not rdma.adapters:
        raise NotApplicable("no RDMA adapter that needs it")
    if want.gpudirect == "any":
        raise NotApplicable("the policy does not ask for GPUDirect RDMA")
    if reason := generation.lacks("gpudirect-rdma"):
        raise NotApplicable(reason)
    if any("GeForce" in str(gpu.name) for gpu in gpus.records):
        raise NotApplicable("GeForce does not support GPUDirect RDMA")
    ways = (
        "nvidia_peermem" if rdma.peermem_loaded or rdma.registered else None,
        dma_buf(driver, node),
    )
    known = [way for way in ways if isinstance(way, str)]
    if known:
        return passes("GPUDirect RDMA", known)
    if isinstance(ways[1], Absent):
        return unknown("GPUDirect RDMA", ways[1].reason)
    plain_guest = bool(node.is_vm) and rdma.ethernet_only
    return (warns if plain_guest else fails)(
        "GPUDirect RDMA",
        "nvidia_peermem is not loaded and DMA-BUF is not possible",
        "off",
        cost="traffic between nodes is copied through host memory twice",
    )


def dma_buf(driver: KernelDriver, node: Machine) -> str | Absent | None:
    """The word DMA-BUF when it is possible, None when it is not, Absent when it cannot be told."""
    if driver.flavour == "proprietary":
        return None
    if isinstance(driver.flavour, Absent):
        return driver.flavour
    release = re.match(r"(\d+)\.(\d+)", node.kernel or "")
    if release is None:
        return Absent("missing", "the release of the kernel is not known")
    return "DMA-BUF" if (int(release[1]), int(release[2])) >= DMA_BUF_SINCE else None
