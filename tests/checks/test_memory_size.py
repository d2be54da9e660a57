# SPDX-License-Identifier: Apache-2.0
from typing import Any

import msgspec
import pytest
from gpufacts import gpus
from judging import judge
from machines import numa

from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpu import Gpus
from gpuaudit.facts.memory import TotalMemory
from gpuaudit.facts.numa import NumaNode, NumaNodes
from gpuaudit.facts.pagesize import PageSize
from gpuaudit.host import NotApplicable, Unavailable

GIB = 1 << 20  # in KiB
TWO = numa("0-3", "4-7")
GONE = Absent("failed", "GPU is lost")


def sized(*gib: float | None) -> NumaNodes:
    """Nodes with CPUs, and so much memory each; None is not known."""
    lists = [f"{4 * n}-{4 * n + 3}" for n in range(len(gib))]
    nodes = zip(numa(*lists).nodes, gib, strict=True)
    return NumaNodes(
        nodes=tuple(
            msgspec.structs.replace(n, memory_kib=GONE if g is None else int(g * GIB))
            for n, g in nodes
        ),
        distances={},
        problems=(),
    )


@pytest.mark.parametrize(("gib", "verdict"), [(2048, "pass"), (640, "pass"), (512, "warn")])
def test_memory_for_eight_gpus_of_80_gib(gib: int, verdict: str) -> None:
    (finding,) = judge("memory_size/memory-per-gpu", TotalMemory(kib=gib * GIB), TWO, gpus())
    assert finding.verdict.value == verdict


def test_memory_of_the_gpus_is_not_the_hosts() -> None:
    """On Grace the GPUs' memory is part of MemTotal, on nodes without CPUs."""
    there = NumaNode(id=2, cpus=frozenset(), memory_kib=640 * GIB)
    grace = msgspec.structs.replace(TWO, nodes=(*TWO.nodes, there))
    (finding,) = judge("memory_size/memory-per-gpu", TotalMemory(kib=1120 * GIB), grace, gpus())
    assert finding.verdict.value == "warn"
    assert (finding.observed or "").startswith("480 GiB")


def test_a_lost_gpu_counts_like_the_others() -> None:
    known = gpus()
    lost = msgspec.structs.replace(known.records[0], memory=GONE)
    some = msgspec.structs.replace(known, records=(lost, *known.records[1:]))
    (finding,) = judge("memory_size/memory-per-gpu", TotalMemory(kib=600 * GIB), TWO, some)
    assert finding.verdict.value == "warn"


def test_nothing_is_known_of_the_gpus() -> None:
    known = gpus(count=1)
    lost = msgspec.structs.replace(known.records[0], memory=GONE)
    silent = msgspec.structs.replace(known, records=(lost,))
    with pytest.raises(Unavailable, match="no GPU tells"):
        judge("memory_size/memory-per-gpu", TotalMemory(kib=GIB), TWO, silent)
    none = Gpus(records=(), problem=None)
    with pytest.raises(Unavailable, match="NVML lists none"):
        judge("memory_size/memory-per-gpu", TotalMemory(kib=GIB), TWO, none)


def test_an_unknown_host_memory() -> None:
    (finding,) = judge("memory_size/memory-per-gpu", TotalMemory(kib=GONE), TWO, gpus())
    assert finding.verdict.value == "unknown"


@pytest.mark.parametrize(
    ("nodes", "verdict"),
    [
        (sized(1007, 1008), "pass"),
        (sized(1000, 1042), "warn"),
        (sized(1000, 1041), "pass"),
        (sized(60, 64), "pass"),
        (sized(504, 504, 504, 440), "warn"),
        (sized(0, 4), "warn"),
    ],
)
def test_nodes_alike(nodes: NumaNodes, verdict: str) -> None:
    (finding,) = judge("memory_size/memory-numa-alike", nodes)
    assert finding.verdict.value == verdict


def test_the_poorer_node_is_named() -> None:
    (finding,) = judge("memory_size/memory-numa-alike", sized(504, 440))
    assert finding.message == "node 1 has 13 % less memory than others"


def test_one_node() -> None:
    with pytest.raises(NotApplicable, match="nothing to compare"):
        judge("memory_size/memory-numa-alike", sized(64))


def test_a_node_that_tells_nothing() -> None:
    with pytest.raises(Unavailable, match="GPU is lost"):
        judge("memory_size/memory-numa-alike", sized(64, None))


def test_inconsistent_tables() -> None:
    with pytest.raises(Unavailable, match="inconsistent"):
        judge("memory_size/memory-numa-alike", numa("0-3", "0-3", problems=("both claim",)))


@pytest.mark.parametrize(("kib", "verdict"), [(64, "pass"), (4, "warn")])
def test_page_size_of_grace(kib: int, verdict: str) -> None:
    (finding,) = judge("memory_size/memory-page-size", PageSize(kib=kib, grace=True))
    assert finding.verdict.value == verdict


@pytest.mark.parametrize("kib", [4, 64])
def test_page_size_of_other_arm_cpus(kib: Any) -> None:
    with pytest.raises(NotApplicable, match="Grace"):
        judge("memory_size/memory-page-size", PageSize(kib=kib, grace=False))
