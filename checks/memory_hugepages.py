# SPDX-License-Identifier: Apache-2.0
"""Memory that is set aside: reserved huge pages, and page merging."""

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    Verdict,
    check,
    expect,
    passes,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.cpu import known
from gpuaudit.facts.hugepages import HugePages, MergedPages, Pool
from gpuaudit.facts.memory import TotalMemory

Percent = Annotated[float, msgspec.Meta(ge=0, le=100)]


class MemoryHugepagesExpectations(Expectations, frozen=True, kw_only=True):
    """How much memory may lie idle, how even its shares have to be, and page merging."""

    idle_max_percent: Percent
    node_spread_max_percent: Percent
    merging: Literal["off", "any"]


def named(pool: Pool) -> str:
    """As the kernel names the size."""
    return f"hugepages-{pool.size_kib}kB"


def gib(pages: int, pool: Pool) -> float:
    """Pages of a size in GiB."""
    return pages * pool.size_kib / (1 << 20)


@check("memory-hugepages-idle", severity=Severity.MEDIUM)
def idle(pages: HugePages, memory: TotalMemory, want: MemoryHugepagesExpectations) -> Finding:
    """No large part of memory is reserved as huge pages that nobody uses.

    ## Why it matters
    Reserved huge pages serve only programs that ask for hugetlbfs. To every other job, and to the
    page cache, that memory does not exist: data loaders end out of memory on a node that is empty.

    ## Evidence
    /sys/kernel/mm/hugepages/*/{nr,free,resv}_hugepages, MemTotal of /proc/meminfo.

    ## How it is judged
    Warns when pages that are free and promised to nobody make up more than
    `memory_hugepages.idle_max_percent` of memory.

    ## Exceptions
    Hosts of virtual machines and DPDK nodes reserve on purpose and fill the pages while they work;
    judge them then. In a container these are the host's. Not applicable in an image.

    ## What to do
    Lower `vm.nr_hugepages` in sysctl.d, or `hugepages=` on the kernel command line, to what is
    used, and write the number to nr_hugepages now.

    ## References
    - https://docs.kernel.org/admin-guide/mm/hugetlbpage.html
    """
    if not any(pool.total for pool in pages.pools):
        return passes("huge pages", "none reserved")
    lost = sum(gib(max(0, pool.free - pool.reserved), pool) for pool in pages.pools)
    percent = lost * (1 << 20) * 100 / max(1, known(memory.kib))
    seen = f"{lost:.1f} GiB idle, {percent:.1f} % of memory"
    limit = f"at most {want.idle_max_percent} %"
    if percent <= want.idle_max_percent:
        return passes("huge pages", seen, expected=limit)
    message = f"{lost:.1f} GiB are reserved as huge pages and not used"
    cost = f"{lost:.1f} GiB of memory (free less reserved pages, times their size)"
    return warns("huge pages", message, seen, expected=limit, cost=cost)


@check("memory-hugepages-even", severity=Severity.LOW)
def even(pages: HugePages, want: MemoryHugepagesExpectations) -> Iterator[Finding]:
    """Reserved huge pages are spread evenly over the NUMA nodes.

    ## Why it matters
    A boot that finds too little contiguous memory on a node takes the pages from another. Jobs on
    the node that came off badly get theirs across the link between the sockets, or not at all.

    ## Evidence
    /sys/devices/system/node/node*/hugepages/*/nr_hugepages of the nodes that have CPUs.

    ## How it is judged
    For each page size, warns when the largest and the smallest share differ by more than
    `memory_hugepages.node_spread_max_percent` of the largest.

    ## Exceptions
    Not applicable with one NUMA node, and where no page is reserved. Nodes without CPUs (GPU memory
    of Grace, CXL) do not count. Not applicable in an image.

    ## What to do
    Reserve by node: `hugepages=<node>:<count>,...` on the kernel command line (Linux 5.16 or
    newer), or write the count to each node's nr_hugepages early at boot.

    ## References
    - https://docs.kernel.org/admin-guide/mm/hugetlbpage.html
    """
    pools = [pool for pool in pages.pools if pool.by_node]
    if not pools:
        raise NotApplicable("no huge page is reserved, or there is one NUMA node")
    for pool in pools:
        shares = pool.by_node.values()
        spread = (max(shares) - min(shares)) * 100 / max(1, *shares)
        seen = ", ".join(f"node {node}: {pages}" for node, pages in pool.by_node.items())
        expected = f"a spread of at most {want.node_spread_max_percent} %"
        if spread <= want.node_spread_max_percent:
            yield passes(named(pool), seen, expected=expected)
        else:
            message = f"the nodes' shares differ by {spread:.0f} %"
            yield warns(named(pool), message, seen, expected=expected)


@check("memory-ksm-off", severity=Severity.LOW)
def ksm_off(merged: MergedPages, want: MemoryHugepagesExpectations) -> Finding:
    """The kernel does not search memory for equal pages to merge.

    ## Why it matters
    Kernel samepage merging (KSM) scans memory all the time and splits huge pages to merge parts of
    them. It saves memory for many alike guests; on a training node it only costs CPU time.

    ## Evidence
    /sys/kernel/mm/ksm/run: 0 stopped, 1 runs, 2 stopped and all unmerged.

    ## How it is judged
    Warns when it is 1, unless `memory_hugepages.merging` is `any`.

    ## Exceptions
    Hosts of many alike guests want it: set `any` there. Only memory of programs that allow it is
    scanned. Not applicable to a kernel without KSM, and in an image.

    ## What to do
    Run `systemctl disable --now ksm ksmtuned`, then `echo 2 > /sys/kernel/mm/ksm/run`.

    ## References
    - https://docs.kernel.org/admin-guide/mm/ksm.html
    """
    if want.merging == "any":
        raise NotApplicable("the policy accepts page merging")
    words = {0: "off", 1: "runs", 2: "off"}
    run = merged.run
    state = run if isinstance(run, Absent) else words.get(run, f"run is {run}")
    message = "the kernel scans memory for equal pages"
    return expect(state, "off", of="KSM", message=message, otherwise=Verdict.WARN)
