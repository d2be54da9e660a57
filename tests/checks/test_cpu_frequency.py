# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
from judging import judge
from machines import machine

from gpuaudit.check import Finding
from gpuaudit.facts.base import Absent
from gpuaudit.facts.cpufreq import (
    Cpufreq,
    FrequencyLimit,
    FrequencyLimits,
    FrequencyPolicy,
    Turbo,
)
from gpuaudit.host import NotApplicable

NOT_RECORDED = Absent("missing", "not recorded")
NO_HINT = Absent("unsupported", "no such file")


def scaling(*settings: tuple[Any, Any], driver: str = "intel_pstate", **more: Any) -> Cpufreq:
    policies = tuple(
        FrequencyPolicy(
            path=f"policy{n}", cpus=frozenset({n}), governor=governor, energy_preference=preference
        )
        for n, (governor, preference) in enumerate(settings)
    )
    return Cpufreq(driver=driver, policies=policies, without_policy=more.get("bare", frozenset()))


def governors(fact: Cpufreq, hypervisor: str = "") -> list[tuple[str, str, str]]:
    found = judge("cpu_frequency/cpu-governor", fact, machine(hypervisor))
    return [(f.subject, f.verdict.value, f.message) for f in found]


@pytest.mark.parametrize(
    ("driver", "governor", "preference", "verdict"),
    [
        ("intel_pstate", "performance", "performance", "pass"),
        ("intel_pstate", "powersave", "performance", "pass"),
        ("amd-pstate-epp", "powersave", "performance", "pass"),
        ("intel_pstate", "powersave", "balance_performance", "fail"),
        ("intel_pstate", "powersave", NO_HINT, "fail"),
        ("intel_pstate", "powersave", NOT_RECORDED, "unknown"),
        ("intel_cpufreq", "powersave", "performance", "fail"),
        ("acpi-cpufreq", "ondemand", NO_HINT, "fail"),
        ("cppc_cpufreq", "performance", NO_HINT, "pass"),
        ("intel_pstate", NOT_RECORDED, NOT_RECORDED, "unknown"),
    ],
)
def test_governor(driver: str, governor: Any, preference: Any, verdict: str) -> None:
    ((subject, found, _),) = governors(scaling((governor, preference), driver=driver))
    assert (subject, found) == ("CPU 0", verdict)


def test_cpus_of_one_setting_are_one_finding() -> None:
    odd = ("powersave", "balance_power")
    fact = scaling(*[("performance", "performance")] * 2, odd, odd)
    assert governors(fact) == [
        ("CPUs 0-1", "pass", ""),
        ("CPUs 2-3", "fail", "2 of 4 CPUs: powersave with balance_power"),
    ]


def test_unreadable_governors_are_one_finding() -> None:
    lost = [(Absent("missing", f"policy{n} was not recorded"), NO_HINT) for n in range(3)]
    assert [row[:2] for row in governors(scaling(*lost))] == [("CPUs 0-2", "unknown")]


@pytest.mark.parametrize(
    ("bare", "subject", "verdict"),
    [
        (frozenset({7}), "CPU 7", "warn"),
        (NOT_RECORDED, "CPUs without a frequency policy", "unknown"),
    ],
)
def test_cpus_without_a_policy(bare: Any, subject: str, verdict: str) -> None:
    found = governors(scaling(("performance", NO_HINT), bare=bare))
    assert [row[:2] for row in found] == [("CPU 0", "pass"), (subject, verdict)]


def test_bare_metal_without_a_driver_warns() -> None:
    ((subject, verdict, message),) = governors(scaling(bare=frozenset({0, 1})))
    assert (subject, verdict) == ("cpufreq", "warn")
    assert "on bare metal" in message


@pytest.mark.parametrize(
    ("preference", "verdict"),
    [
        ("performance", "pass"),
        ("balance_performance", "fail"),
        (NO_HINT, "notapplicable"),
        (NOT_RECORDED, "unknown"),
    ],
)
def test_energy_preference(preference: Any, verdict: str) -> None:
    (finding,) = judge("cpu_frequency/cpu-energy-preference", scaling(("powersave", preference)))
    assert finding.verdict.value == verdict


def test_a_preference_beside_the_performance_governor_only_warns() -> None:
    """intel_cpufreq with HWP keeps the preference, and asks for the highest clock all the same."""
    fact = scaling(("performance", "balance_performance"), driver="intel_cpufreq")
    (finding,) = judge("cpu_frequency/cpu-energy-preference", fact)
    assert (finding.verdict.value, finding.cost) == ("warn", None)


@pytest.mark.parametrize("fact", [scaling(), scaling(("x", NOT_RECORDED), driver="acpi-cpufreq")])
def test_no_energy_preference(fact: Cpufreq) -> None:
    with pytest.raises(NotApplicable):
        judge("cpu_frequency/cpu-energy-preference", fact)


def limits(allowed: Any, possible: Any, percent: Any = NO_HINT, **want: Any) -> list[Finding]:
    one = FrequencyLimit(cpus=frozenset({0, 1}), allowed_khz=allowed, possible_khz=possible)
    fact = FrequencyLimits(limits=(one,), max_perf_percent=percent)
    return judge("cpu_frequency/cpu-frequency-limits", fact, **want)


@pytest.mark.parametrize(
    ("allowed", "possible", "verdict"),
    [
        (4_000_000, 4_000_000, "pass"),
        (3_900_000, 4_000_000, "pass"),
        (2_000_000, 4_000_000, "fail"),
        (NOT_RECORDED, 4_000_000, "unknown"),
        (4_000_000, NOT_RECORDED, "unknown"),
        (4_000_000, 0, "unknown"),
    ],
)
def test_limits(allowed: Any, possible: Any, verdict: str) -> None:
    (finding,) = limits(allowed, possible)
    assert (finding.subject, finding.verdict.value) == ("CPUs 0-1", verdict)


def test_a_cap_says_what_it_costs() -> None:
    (finding,) = limits(2_000_000, 4_000_000)
    assert finding.cost == "work on the CPU runs at 50% of its speed"


@pytest.mark.parametrize(("percent", "verdict"), [(100, "pass"), (60, "fail")])
def test_the_cap_of_intel_pstate(percent: int, verdict: str) -> None:
    found = limits(4_000_000, 4_000_000, percent)
    assert [f.verdict.value for f in found] == ["pass", verdict]


@pytest.mark.parametrize(
    ("want", "enabled", "verdict"),
    [
        ("enabled", True, "pass"),
        ("enabled", False, "fail"),
        ("disabled", False, "pass"),
        ("disabled", True, "fail"),
        ("any", False, "pass"),
    ],
)
def test_turbo(want: str, enabled: bool, verdict: str) -> None:
    fact = Turbo(enabled=enabled, source="/sys/no_turbo")
    (finding,) = judge("cpu_frequency/cpu-turbo", fact, turbo=want)
    assert finding.verdict.value == verdict
