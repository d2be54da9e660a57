# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
from judging import judge
from machines import gpu, nic, pci

from gpuaudit.facts.base import Absent
from gpuaudit.facts.callingcontext import CallingContext
from gpuaudit.facts.cores import CpuCores
from gpuaudit.facts.cpu import CpuSets
from gpuaudit.facts.cpusets import parse_list
from gpuaudit.facts.environment import Environment
from gpuaudit.host import NotApplicable, Unavailable

ALL = parse_list("0-15")
CPUS = CpuSets(possible=ALL, present=ALL, online=ALL)
GPUS = pci(gpu("0000:01:00.0", 0, "0-7"), gpu("0000:02:00.0", 1, "8-15"))
CORES = CpuCores(cores=tuple(frozenset({n, n + 8}) for n in range(8)), sockets=(ALL,))
GONE = Absent("failed", "not recorded")


def held_to(cpus: str, gpus: int | None = None) -> CallingContext:
    return CallingContext(cpus=parse_list(cpus), memory_nodes=frozenset({0}), gpus=gpus)


@pytest.mark.parametrize(
    ("cpus", "visible", "expected"),
    [
        ("0-15", None, ["pass"]),
        ("0-3,8-11", None, ["pass"]),
        ("0-1,8-9", None, ["warn"]),
        ("5", None, ["fail", "warn"]),
        ("5", 1, ["warn"]),
        ("0-3", 1, ["pass"]),
        ("0-7", None, ["pass", "warn"]),
        ("0-7", 2, ["pass", "warn"]),
        ("0-7,900", 5, ["pass", "warn"]),
    ],
)
def test_width(cpus: str, visible: int | None, expected: list[str]) -> None:
    findings = judge("cpu_context/cpu-affinity-width", held_to(cpus, visible), CPUS, GPUS)
    assert [f.verdict.value for f in findings] == expected


def test_a_small_set_that_is_no_jobs_is_not_judged() -> None:
    """CoreSpecCount=1 holds slurmd, and with it the prolog, to one CPU for eight GPUs."""
    narrow, wide = (
        CallingContext(cpus=parse_list(cpus), memory_nodes=frozenset({0}), not_of_job="slurmd's")
        for cpus in ("0-3,8", "0-7")
    )
    (finding,) = judge("cpu_context/cpu-affinity-width", wide, CPUS, GPUS)
    assert finding.verdict.value == "pass"
    for check in ("cpu-affinity-width", "cpu-affinity-cores"):
        with pytest.raises(NotApplicable, match="slurmd's"):
            judge(f"cpu_context/{check}", narrow, CPUS, GPUS, CORES)


def test_the_gpu_that_is_far_is_named() -> None:
    found = judge("cpu_context/cpu-affinity-width", held_to("0-7"), CPUS, GPUS)[-1]
    assert found.subject == "0000:02:00.0"
    assert found.message == "none of its local CPUs may be used (CPUs 8-15)"


@pytest.mark.parametrize(
    ("context", "devices"), [(held_to("0-15", 0), GPUS), (held_to("0"), pci(nic("0000:03:00.0")))]
)
def test_no_gpu_is_visible(context: CallingContext, devices: Any) -> None:
    with pytest.raises(NotApplicable, match="no NVIDIA GPU"):
        judge("cpu_context/cpu-affinity-width", context, CPUS, devices)


@pytest.mark.parametrize("check", ["cpu-affinity-width", "cpu-affinity-cores"])
def test_a_set_that_is_not_known(check: str) -> None:
    context = CallingContext(cpus=GONE, memory_nodes=GONE)
    with pytest.raises(Unavailable, match="not recorded"):
        judge(f"cpu_context/{check}", context, CPUS, GPUS, CORES)


@pytest.mark.parametrize(
    ("cpus", "verdict"),
    [("0-3,8-11", "pass"), ("0-3", "pass"), ("5", "pass"), ("0-3,8", "warn"), ("0-10", "warn")],
)
def test_whole_cores(cpus: str, verdict: str) -> None:
    (finding,) = judge("cpu_context/cpu-affinity-cores", held_to(cpus), CORES)
    assert finding.verdict.value == verdict


def test_the_cut_cores_are_named() -> None:
    (finding,) = judge("cpu_context/cpu-affinity-cores", held_to("0-3,8"), CORES)
    assert finding.message == "CPUs 1-3: not all threads of the core"


@pytest.mark.parametrize(
    ("cores", "reason"),
    [(CORES, "not limited"), (CpuCores(cores=(frozenset({1}),), sockets=()), "one thread")],
)
def test_cores_that_cannot_be_cut(cores: CpuCores, reason: str) -> None:
    with pytest.raises(NotApplicable, match=reason):
        judge("cpu_context/cpu-affinity-cores", held_to("0-15"), cores)


def threads(context: CallingContext, **variables: str) -> list[tuple[str, str]]:
    environment = Environment(assignments=(), caller=variables, gaps={})
    found = judge("cpu_context/cpu-openmp-threads", environment, context, CPUS)
    return [(f.subject, f.verdict.value) for f in found]


@pytest.mark.parametrize(
    ("variables", "verdict"),
    [
        ({"OMP_NUM_THREADS": "16"}, "pass"),
        ({"OMP_NUM_THREADS": "17"}, "warn"),
        ({"OMP_NUM_THREADS": "2", "LOCAL_WORLD_SIZE": "8"}, "pass"),
        ({"OMP_NUM_THREADS": "3", "LOCAL_WORLD_SIZE": "8"}, "warn"),
        ({"OMP_NUM_THREADS": "1", "LOCAL_WORLD_SIZE": "64"}, "pass"),
        ({"OMP_NUM_THREADS": "16", "SLURM_NTASKS_PER_NODE": "8"}, "pass"),
        ({"OMP_NUM_THREADS": "4,2"}, "pass"),
        ({"OMP_NUM_THREADS": "four"}, "warn"),
        ({"OMP_NUM_THREADS": "0"}, "warn"),
        ({"OMP_NUM_THREADS": "-1"}, "warn"),
    ],
)
def test_openmp(variables: dict[str, str], verdict: str) -> None:
    assert threads(held_to("0-15"), **variables) == [("OMP_NUM_THREADS", verdict)]


def test_the_set_counts_and_every_variable() -> None:
    found = threads(held_to("0-3"), OMP_NUM_THREADS="8", MKL_NUM_THREADS="4", HOME="/")
    assert found == [("OMP_NUM_THREADS", "warn"), ("MKL_NUM_THREADS", "pass")]


def test_no_variable_is_set() -> None:
    with pytest.raises(NotApplicable, match="none of the variables"):
        threads(held_to("0-3"), OMP_NUM_THREADS=" ")


def test_an_environment_that_is_not_known() -> None:
    unread = Environment(assignments=(), caller=GONE, gaps={})
    (finding,) = judge("cpu_context/cpu-openmp-threads", unread, held_to("0"), CPUS)
    assert finding.verdict.value == "unknown"


@pytest.mark.parametrize(
    ("quota", "verdict"),
    [(None, "pass"), (32.0, "pass"), (8.0, "pass"), (4.0, "warn"), (1.0, "fail")],
)
def test_quota_of_cpu_time(quota: float | None, verdict: str) -> None:
    context = CallingContext(cpus=ALL, memory_nodes=frozenset({0}), quota_cpus=quota)
    (finding,) = judge("cpu_context/cpu-affinity-width", context, CPUS, GPUS)
    assert finding.verdict.value == verdict
    assert finding.message == "" if verdict == "pass" else "cpu.max grants" in finding.message
