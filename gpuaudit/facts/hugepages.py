# SPDX-License-Identifier: Apache-2.0
"""Reserved huge pages.

Source: Linux Documentation/admin-guide/mm/hugetlbpage.rst.
"""

from typing import NamedTuple

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.cpu import known, number_of
from gpuaudit.facts.numa import FOLDER as NODES
from gpuaudit.facts.numa import NumaNodes
from gpuaudit.host import Host, NotApplicable, Unavailable

FOLDER = "/sys/kernel/mm/hugepages"
MOST = 1 << 40


class Pool(NamedTuple):
    """Pages of one size. `reserved` are promised to a mapping and still free.

    `by_node` has the nodes that have CPUs, and nothing where no page is reserved.
    """

    size_kib: int
    total: int
    free: int
    reserved: int
    by_node: dict[int, int]


class HugePages(Fact, frozen=True, kw_only=True):
    """/sys/kernel/mm/hugepages/hugepages-*kB, /sys/devices/system/node/node*/hugepages."""

    pools: tuple[Pool, ...]


@probe
def huge_pages(host: Host, numa: NumaNodes) -> HugePages:
    """Read each size. Raises Unavailable; a kernel without hugetlbfs has none."""
    try:
        names = host.list(FOLDER)
    except Unavailable as absent:
        if absent.kind == "missing":
            raise NotApplicable("the kernel has no huge pages to reserve") from None
        raise
    sizes = [name for name in names if size_of(name)]
    return HugePages(pools=tuple(pool(host, name, numa.cpu_nodes) for name in sizes))


def size_of(name: str) -> int:
    """hugepages-2048kB -> 2048, 0 for what is none."""
    digits = name.removeprefix("hugepages-").removesuffix("kB")
    return int(digits) if digits.isdecimal() and len(digits) < 12 else 0


def pool(host: Host, name: str, nodes: tuple[int, ...]) -> Pool:
    """One size; the nodes are asked only when pages are reserved."""
    total = count(host, f"{FOLDER}/{name}/nr_hugepages")
    if not total:
        return Pool(size_of(name), 0, 0, 0, {})
    shares = {node: f"{NODES}/node{node}/hugepages/{name}/nr_hugepages" for node in nodes}
    return Pool(
        size_kib=size_of(name),
        total=total,
        free=count(host, f"{FOLDER}/{name}/free_hugepages"),
        reserved=count(host, f"{FOLDER}/{name}/resv_hugepages"),
        by_node={n: count(host, path) for n, path in shares.items()} if len(nodes) > 1 else {},
    )


def count(host: Host, path: str) -> int:
    """A number of pages. Raises Unavailable."""
    number: int | Absent = number_of(host, path, MOST)
    return known(number)


class MergedPages(Fact, frozen=True, kw_only=True):
    """/sys/kernel/mm/ksm/run (admin-guide/mm/ksm.rst). Without KSM there is no such file."""

    run: int | Absent


@probe
def merged_pages(host: Host) -> MergedPages:
    """Read the switch."""
    return MergedPages(run=number_of(host, "/sys/kernel/mm/ksm/run"))
