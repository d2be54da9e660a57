# SPDX-License-Identifier: Apache-2.0
"""How much memory the host has, where it is, and in which pages."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    Unavailable,
    Verdict,
    check,
    expect,
    passes,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpu import Gpus
from gpuaudit.facts.gpuvalues import Memory
from gpuaudit.facts.memory import TotalMemory
from gpuaudit.facts.numa import NumaNodes, require_consistent
from gpuaudit.facts.pagesize import PageSize

GIB_IN_KIB = 1 << 20
PAGES = "more page faults and TLB misses, most of all where CPU and GPU share memory"


class MemorySizeExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of the host's memory."""

    min_percent_of_gpu_memory: Annotated[int, msgspec.Meta(ge=0, le=10_000)]
    socket_spread_max_percent: Annotated[float, msgspec.Meta(ge=0, le=100)]
    socket_spread_allowance_gib: Annotated[int, msgspec.Meta(ge=0, le=1024)]
    grace_page_kib: tuple[Annotated[int, msgspec.Meta(ge=4, le=64)], ...]


@check("memory-per-gpu", severity=Severity.LOW)
def per_gpu(
    memory: TotalMemory, numa: NumaNodes, gpus: Gpus, want: MemorySizeExpectations
) -> Finding:
    """The host has enough memory for what its GPUs hold.

    ## Why it matters
    Checkpoints, offloaded optimizer states and pinned staging buffers stand in host memory, beside
    the page cache of the data set. Where it is short, saving a checkpoint ends in the OOM killer.

    ## Evidence
    MemTotal of /proc/meminfo; memory of the GPUs, from nvmlDeviceGetMemoryInfo.

    ## How it is judged
    MemTotal in percent of the memory of all GPUs reaches `memory_size.min_percent_of_gpu_memory`;
    less warns.

    ## Exceptions
    Memory of nodes without CPUs is left out: on Grace the GPUs' own memory is a NUMA node of the
    host. A GPU that does not answer counts like the largest that does. In a container this is the
    host's memory; a limit of its cgroup is not seen.

    ## What to do
    Choose a flavour or a server with more memory; NVIDIA advises twice the memory of the GPUs. Set
    the policy lower where jobs are known to need less.

    ## References
    - https://docs.nvidia.com/certification-programs/nvidia-certified-configuration-guide/index.html
    """
    sizes = [g.memory.total for g in gpus.asked() if isinstance(g.memory, Memory)]
    if not sizes:
        raise Unavailable("no GPU tells how much memory it has", "unsupported")
    if isinstance(memory.kib, Absent):
        return expect(memory.kib, None, of="host memory")
    elsewhere = sum(memory_of(n.memory_kib) for n in numa.nodes if not n.cpus)
    host_gib = (memory.kib - elsewhere) / GIB_IN_KIB
    gpus_gib = max(sizes) * len(gpus.records) / (1 << 30)
    seen = f"{host_gib:.0f} GiB for {gpus_gib:.0f} GiB of GPU memory"
    least = f"at least {want.min_percent_of_gpu_memory} % of the GPU memory"
    if host_gib * 100 >= gpus_gib * want.min_percent_of_gpu_memory:
        return passes("host memory", seen, expected=least)
    share = f"{100 * host_gib / gpus_gib:.0f} % of the memory of the GPUs"
    return warns("host memory", share, seen, expected=least, cost="what the GPUs hold does not fit")


def memory_of(kib: int | Absent) -> int:
    """Memory of a node, 0 where it is not known."""
    return 0 if isinstance(kib, Absent) else kib


@check("memory-numa-alike", severity=Severity.MEDIUM)
def numa_alike(numa: NumaNodes, want: MemorySizeExpectations) -> Finding:
    """All NUMA nodes with CPUs have the same amount of memory.

    ## Why it matters
    A node with less memory than its sister lost a module, or has some of its channels empty: its
    GPUs get less bandwidth, and their processes spill to the other socket.

    ## Evidence
    MemTotal in /sys/devices/system/node/nodeN/meminfo.

    ## How it is judged
    The smallest and the largest differ by no more than `memory_size.socket_spread_max_percent`, or
    `memory_size.socket_spread_allowance_gib`, which is room for what the kernel keeps. More warns.

    ## Exceptions
    Nodes without CPUs (memory of Grace's GPUs, CXL, HBM) are left out. Not applicable with one
    node. A guest has what its hypervisor gave it.

    ## What to do
    Run `dmidecode -t memory` and look in the BIOS and the log of the management controller for
    modules that were disabled; reseat or replace them.

    ## References
    - https://docs.kernel.org/admin-guide/mm/numaperf.html
    - https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-devices-node
    """
    require_consistent(numa)
    nodes = [node for node in numa.nodes if node.cpus]
    if len(nodes) < 2:
        raise NotApplicable("one NUMA node has all CPUs: nothing to compare")
    sizes: dict[int, int] = {}
    for node in nodes:
        if isinstance(node.memory_kib, Absent):
            raise Unavailable(node.memory_kib.reason, "not-recorded")
        sizes[node.id] = node.memory_kib
    least, most = min(sizes.values()), max(sizes.values())
    seen = f"{least / GIB_IN_KIB:.1f} to {most / GIB_IN_KIB:.1f} GiB on {len(nodes)} nodes"
    percent = 100 * (most - least) / most if most else 0.0
    small = most - least <= want.socket_spread_allowance_gib * GIB_IN_KIB
    if percent <= want.socket_spread_max_percent or (small and least):
        return passes("NUMA nodes", seen)
    short = ", ".join(str(node) for node, size in sizes.items() if size == least)
    missing = f"node {short} has {percent:.0f} % less memory than others"
    cost = "its memory bandwidth is lower, or its processes use the other socket's memory"
    return warns("NUMA nodes", missing, seen, cost=cost)


@check("memory-page-size", severity=Severity.LOW)
def page_size(pages: PageSize, want: MemorySizeExpectations) -> Iterator[Finding]:
    """A Grace CPU runs a kernel with the page size that NVIDIA recommends.

    ## Why it matters
    CPU and GPU of a Grace superchip share one page table. Pages of 64 KiB need a sixteenth of the
    entries, faults and translations of pages of 4 KiB.

    ## Evidence
    AT_PAGESZ in /proc/self/auxv; the CPU's part number in /proc/cpuinfo.

    ## How it is judged
    The page size is one of `memory_size.grace_page_kib`; another one warns.

    ## Exceptions
    Not applicable on x86, which has pages of 4 KiB only, and on CPUs other than Grace (Neoverse
    V2). Programs that were built for 4 KiB pages may need the other kernel: change the policy.

    ## What to do
    Install and boot the 64k flavour of the kernel (`linux-nvidia-64k` on Ubuntu, `kernel-64k` on
    Red Hat).

    ## References
    - https://docs.nvidia.com/grace-perf-tuning-guide/os-settings.html
    """
    if not pages.grace:
        raise NotApplicable("the advice on page sizes is for NVIDIA Grace")
    accepted = tuple(f"{kib} KiB" for kib in want.grace_page_kib)
    yield expect(f"{pages.kib} KiB", accepted, of="page size", cost=PAGES, otherwise=Verdict.WARN)
