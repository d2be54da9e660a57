# SPDX-License-Identifier: Apache-2.0
import pytest
from judging import judge
from machines import gpu, nic, pci

from gpuaudit.facts.base import Absent
from gpuaudit.facts.cores import CpuCores, CpuThrottling
from gpuaudit.facts.counters import Earlier
from gpuaudit.facts.cpusets import parse_list
from gpuaudit.host import NotApplicable

HOUR_S = 3600.0


def cores(*lists: str, hybrid: bool = False) -> CpuCores:
    every = tuple(map(parse_list, lists))
    return CpuCores(cores=every, sockets=(frozenset().union(*every),), hybrid=hybrid)


@pytest.mark.parametrize(
    ("per_gpu", "verdict"), [(6, "pass"), (12, "pass"), (5, "warn"), (1, "warn")]
)
def test_cores_for_two_gpus(per_gpu: int, verdict: str) -> None:
    some = cores(*map(str, range(2 * per_gpu)))
    devices = pci(gpu("0000:01:00.0"), gpu("0000:02:00.0"), nic("0000:03:00.0"))
    (finding,) = judge("cpu_cores/cpu-cores-per-gpu", some, devices)
    assert finding.verdict.value == verdict


def test_threads_are_no_cores() -> None:
    some = cores("0-1", "2-3", "4-5", "6-7", "8-9")
    (finding,) = judge("cpu_cores/cpu-cores-per-gpu", some, pci(gpu("0000:01:00.0")))
    assert (finding.verdict.value, finding.message) == ("warn", "5 cores for 1 GPUs")


def test_no_gpu() -> None:
    with pytest.raises(NotApplicable, match="no NVIDIA GPU"):
        judge("cpu_cores/cpu-cores-per-gpu", cores("0"), pci(nic("0000:03:00.0")))


@pytest.mark.parametrize(
    ("lists", "verdict"),
    [(("0,2", "1,3"), "pass"), (("0", "1"), "pass"), (("0,2", "1"), "warn")],
)
def test_siblings(lists: tuple[str, ...], verdict: str) -> None:
    (finding,) = judge("cpu_cores/cpu-siblings-alike", cores(*lists))
    assert finding.verdict.value == verdict


def test_the_cores_that_lack_a_thread_are_named() -> None:
    (finding,) = judge("cpu_cores/cpu-siblings-alike", cores("0,4", "1,5", "2", "3,7"))
    assert finding.message == "CPU 2: 1 of 2 threads of the core online"


def test_two_kinds_of_cores() -> None:
    with pytest.raises(NotApplicable, match="two kinds"):
        judge("cpu_cores/cpu-siblings-alike", cores("0,1", "2", hybrid=True))


@pytest.mark.parametrize(
    ("total_ms", "hours", "verdict"),
    [
        (0, 100.0, "pass"),
        (36_000, 0.5, "pass"),
        (40_000, 100.0, "unknown"),
        (7_200_000, 100.0, "warn"),
        (Absent("failed", "hot"), 1.0, "unknown"),
    ],
)
def test_throttled(total_ms: int | Absent, hours: float, verdict: str) -> None:
    heat = CpuThrottling(by_socket={"socket 0": total_ms})
    earlier = Earlier(reading=None, why="no earlier reading", uptime_s=hours * HOUR_S)
    (finding,) = judge("cpu_cores/cpu-throttled", heat, earlier)
    assert (finding.subject, finding.verdict.value) == ("socket 0", verdict)
