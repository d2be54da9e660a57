# SPDX-License-Identifier: Apache-2.0
import pytest
from judging import judge

from gpuaudit.facts.base import Absent
from gpuaudit.facts.cpu import CpuSets
from gpuaudit.facts.cpusets import parse_list
from gpuaudit.facts.load import Load
from gpuaudit.host import NotApplicable, Unavailable

ALL = parse_list("0-99")
CPUS = CpuSets(possible=ALL, present=ALL, online=ALL)
NO_PSI = Absent("unsupported", "no such file")
UNREAD = Absent("missing", "not recorded")


def load(one_minute: float = 0.0, **pressure: float | Absent) -> Load:
    idle: dict[str, float | Absent] = {"cpu": 0.0, "memory": 0.0, "io": 0.0}
    return Load(one_minute=one_minute, pressure=idle | pressure)


@pytest.mark.parametrize(
    ("busy", "verdict"), [(0.5, "pass"), (25.0, "pass"), (26.0, "warn"), (400.0, "warn")]
)
def test_load_of_a_hundred_cpus(busy: float, verdict: str) -> None:
    (finding,) = judge("cpu_load/cpu-load", load(busy), CPUS)
    assert finding.verdict.value == verdict


def test_an_unknown_number_of_cpus() -> None:
    with pytest.raises(Unavailable, match="not recorded"):
        judge("cpu_load/cpu-load", load(), CpuSets(possible=ALL, present=ALL, online=UNREAD))


@pytest.mark.parametrize(
    ("pressure", "expected"),
    [
        ({}, ["pass", "pass", "pass"]),
        ({"cpu": 26.0}, ["warn", "pass", "pass"]),
        ({"memory": 1.5, "io": 11.0}, ["pass", "warn", "warn"]),
        ({"io": UNREAD}, ["pass", "pass", "unknown"]),
        ({"cpu": NO_PSI}, ["unknown", "pass", "pass"]),
    ],
)
def test_pressure(pressure: dict[str, float | Absent], expected: list[str]) -> None:
    findings = judge("cpu_load/cpu-pressure", load(0.0, **pressure))
    assert [f.verdict.value for f in findings] == expected


def test_a_resource_that_the_policy_leaves_out() -> None:
    findings = judge("cpu_load/cpu-pressure", load(io=99.0), max_waiting_percent={"memory": 1.0})
    assert [f.verdict.value for f in findings] == ["pass", "pass", "pass"]


def test_a_kernel_without_pressure_information() -> None:
    with pytest.raises(NotApplicable, match="no pressure stall"):
        judge("cpu_load/cpu-pressure", load(cpu=NO_PSI, memory=NO_PSI, io=NO_PSI))
