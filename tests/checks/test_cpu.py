# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
from judging import judge

from gpuaudit.check import Finding
from gpuaudit.facts.base import Absent
from gpuaudit.facts.cpu import CpuSets, Smt
from gpuaudit.facts.cpuidle import IdleState, IdleStates
from gpuaudit.facts.cpusets import parse_list
from gpuaudit.host import Unavailable

NOT_RECORDED = Absent("missing", "not recorded")
NO_SWITCH = Absent("unsupported", "no such file")


def online(present: str, up: str, control: str | Absent = NO_SWITCH, **want: Any) -> Finding:
    sets = CpuSets(possible=parse_list("0-79"), present=parse_list(present), online=parse_list(up))
    (finding,) = judge("cpu/cpu-all-online", sets, Smt(control=control), **want)
    return finding


@pytest.mark.parametrize(
    ("present", "up", "control", "verdict"),
    [
        ("0-39", "0-39", "on", "pass"),
        ("0-39", "1-39", "on", "fail"),
        ("0-39", "1-39", NO_SWITCH, "fail"),
        ("0-39", "0-19", "off", "pass"),
        ("0-39", "0-19", "on", "fail"),
        ("0-31", "0,4,8,12,16,20,24,28", "forceoff", "pass"),
        ("0-39", "0-18", "off", "unknown"),
    ],
)
def test_online(present: str, up: str, control: Any, verdict: str) -> None:
    assert online(present, up, control).verdict.value == verdict


def test_the_offline_cpus_are_named() -> None:
    finding = online("0-39", "1-38")
    assert (finding.message, finding.observed) == ("offline: CPUs 0,39", "38 of 40 online")


def test_a_policy_may_allow_offline_cpus() -> None:
    assert online("0-39", "1-39", max_offline_cpus=1).verdict.value == "pass"


def test_cpus_that_are_not_known() -> None:
    sets = CpuSets(possible=NOT_RECORDED, present=NOT_RECORDED, online=parse_list("0-3"))
    with pytest.raises(Unavailable):
        judge("cpu/cpu-all-online", sets, Smt(control="on"))


@pytest.mark.parametrize(
    ("control", "want", "verdict"),
    [
        ("on", "any", "pass"),
        ("off", "any", "pass"),
        ("on", "enabled", "pass"),
        ("8", "enabled", "pass"),
        ("on", "disabled", "fail"),
        ("off", "enabled", "fail"),
        ("notsupported", "enabled", "fail"),
        ("forceoff", "disabled", "pass"),
        ("notimplemented", "enabled", "notapplicable"),
        (NO_SWITCH, "any", "notapplicable"),
        (NOT_RECORDED, "any", "unknown"),
    ],
)
def test_smt(control: Any, want: str, verdict: str) -> None:
    (finding,) = judge("cpu/cpu-smt", Smt(control=control), smt=want)
    assert finding.verdict.value == verdict


def state(name: str, latency_us: Any, enabled_on: Any = frozenset({0}), cpu: int = 0) -> IdleState:
    return IdleState(cpu=cpu, name=name, latency_us=latency_us, enabled_on=enabled_on)


def idle(*states: IdleState) -> list[Finding]:
    return judge(
        "cpu/cpu-deepest-idle-state",
        IdleStates(driver="intel_idle", states=states),
        max_idle_latency_us=50,
    )


def test_shallow_states() -> None:
    (finding,) = idle(state("POLL", 0), state("C1E", 10), state("C6", 290, frozenset()))
    assert (finding.verdict.value, finding.observed) == ("pass", "C1E, 10 us")


def test_a_deep_state() -> None:
    (finding,) = idle(state("POLL", 0), state("C6", 290))
    assert (finding.verdict.value, finding.message) == ("warn", "idle state C6 is enabled")
    assert "290 us" in (finding.cost or "")


def test_a_deep_state_on_some_cpus_only() -> None:
    (finding,) = idle(state("POLL", 0), state("C6", 290, frozenset({5, 6})))
    assert (finding.verdict.value, finding.message) == (
        "warn",
        "idle state C6 is enabled on CPUs 5-6",
    )


def test_each_kind_of_core_is_judged() -> None:
    found = idle(state("C1", 2), state("C10", 680, frozenset({19}), cpu=19))
    assert [f.verdict.value for f in found] == ["pass", "warn"]


@pytest.mark.parametrize("broken", [state("C6", NOT_RECORDED), state("C6", 1, NOT_RECORDED)])
def test_a_state_that_cannot_be_read(broken: IdleState) -> None:
    assert idle(broken)[0].verdict.value == "unknown"


def test_no_state_is_enabled() -> None:
    assert idle(state("C1", 2, frozenset()))[0].verdict.value == "notapplicable"
