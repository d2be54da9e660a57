# SPDX-License-Identifier: Apache-2.0
import pytest
from judging import judge, verdicts

from gpuaudit.check import NotApplicable, Unavailable
from gpuaudit.facts.base import Absent
from gpuaudit.facts.hugepages import HugePages, MergedPages, Pool
from gpuaudit.facts.memory import TotalMemory

IDLE = "memory_hugepages/memory-hugepages-idle"
EVEN = "memory_hugepages/memory-hugepages-even"
MERGED = "memory_hugepages/memory-ksm-off"
NONE = Pool(1048576, 0, 0, 0, {})
MEMORY = TotalMemory(kib=100 << 20)


def pool(total: int, free: int = 0, reserved: int = 0, **shares: int) -> HugePages:
    nodes = {int(name.removeprefix("node")): count for name, count in shares.items()}
    return HugePages(pools=(NONE, Pool(2048, total, free, reserved, nodes)))


@pytest.mark.parametrize(
    ("pages", "expected"),
    [
        (HugePages(pools=(NONE,)), "pass"),
        (HugePages(pools=()), "pass"),
        (pool(5120, free=5120), "warn"),
        (pool(2560, free=2560), "pass"),
        (pool(5120, free=0), "pass"),
        (pool(5120, free=5120, reserved=5120), "pass"),
    ],
)
def test_idle(pages: HugePages, expected: str) -> None:
    assert verdicts(judge(IDLE, pages, MEMORY)) == [("huge pages", expected)]


def test_what_is_lost_is_counted() -> None:
    (found,) = judge(IDLE, pool(10240, free=9216, reserved=1024), MEMORY)
    assert found.observed == "16.0 GiB idle, 16.0 % of memory"
    assert found.cost is not None
    assert found.cost.startswith("16.0 GiB")


def test_without_the_size_of_memory() -> None:
    with pytest.raises(Unavailable):
        judge(IDLE, pool(10, free=10), TotalMemory(kib=Absent("failed", "no MemTotal")))


@pytest.mark.parametrize(
    ("pages", "expected"),
    [
        (pool(20, node0=10, node1=10), "pass"),
        (pool(19, node0=10, node1=9), "pass"),
        (pool(18, node0=10, node1=8), "warn"),
        (pool(10, node0=10, node1=0), "warn"),
    ],
)
def test_even(pages: HugePages, expected: str) -> None:
    assert verdicts(judge(EVEN, pages)) == [("hugepages-2048kB", expected)]


@pytest.mark.parametrize("pages", [HugePages(pools=(NONE,)), pool(10, free=10)])
def test_nothing_to_spread(pages: HugePages) -> None:
    with pytest.raises(NotApplicable):
        judge(EVEN, pages)


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (0, "pass"),
        (2, "pass"),
        (1, "warn"),
        (7, "warn"),
        (Absent("unsupported", "no KSM"), "notapplicable"),
        (Absent("missing", "was not recorded"), "unknown"),
    ],
)
def test_merging(run: int | Absent, expected: str) -> None:
    assert verdicts(judge(MERGED, MergedPages(run=run))) == [("KSM", expected)]


def test_a_host_of_guests_may_merge() -> None:
    with pytest.raises(NotApplicable):
        judge(MERGED, MergedPages(run=1), merging="any")
