# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import pytest
from machines import machine
from trees import Link, Tree, make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.cpu import cpu_sets
from gpuaudit.facts.cpufreq import Cpufreq, cpufreq, frequency_limits, turbo
from gpuaudit.host import NotApplicable, Unavailable

CPU = "/sys/devices/system/cpu"


def policy(name: str, governor: str = "performance", **values: str) -> dict[str, str]:
    files = {"scaling_governor": governor, "scaling_driver": "intel_pstate", **values}
    return {f"{CPU}/{name}/{key}": f"{value}\n" for key, value in files.items()}


def scaling(folder: Path, tree: Tree, hypervisor: str | None = "", **more: Any) -> Cpufreq:
    host = make_host(folder, tree, **more)
    return cpufreq(host, cpu_sets(host), machine(hypervisor))


def test_one_policy_a_cpu(tmp_path: Path) -> None:
    tree = {
        f"{CPU}/online": "0-1\n",
        **policy("cpufreq/policy0", "powersave", energy_performance_preference="balance_power"),
        **policy("cpufreq/policy1", "performance", energy_performance_preference="performance"),
    }
    found = scaling(tmp_path, tree)
    assert [(p.cpus, p.governor, p.energy_preference) for p in found.policies] == [
        (frozenset({0}), "powersave", "balance_power"),
        (frozenset({1}), "performance", "performance"),
    ]
    assert found.driver == "intel_pstate"
    assert found.without_policy == frozenset()


def test_policies_of_several_cpus(tmp_path: Path) -> None:
    tree = {
        f"{CPU}/online": "0-7\n",
        **policy("cpufreq/policy0", affected_cpus="0 1 2 3"),
        **policy("cpufreq/policy4", affected_cpus="4 5 6 7"),
    }
    assert [sorted(p.cpus) for p in scaling(tmp_path, tree).policies] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
    ]


def test_an_offline_cpu_keeps_a_policy_that_cannot_be_read(tmp_path: Path) -> None:
    tree = {
        f"{CPU}/online": "1-2\n",
        f"{CPU}/cpufreq/policy0": None,
        **policy("cpufreq/policy1"),
        **policy("cpufreq/policy2"),
    }
    found = scaling(tmp_path, tree)
    assert [sorted(p.cpus) for p in found.policies] == [[1], [2]]
    assert found.without_policy == frozenset()


def test_offline_cpus_of_shared_policies(tmp_path: Path) -> None:
    tree = {
        f"{CPU}/online": "0-1\n",
        **policy("cpufreq/policy0", affected_cpus="0 1"),
        **policy("cpufreq/policy2", affected_cpus=""),
    }
    assert [sorted(p.cpus) for p in scaling(tmp_path, tree).policies] == [[0, 1]]


def test_the_layout_of_old_kernels(tmp_path: Path) -> None:
    tree: Tree = {
        f"{CPU}/online": "0-1\n",
        **policy("cpu0/cpufreq", "ondemand"),
        f"{CPU}/cpu1/cpufreq": Link("../cpu0/cpufreq"),
    }
    (only,) = scaling(tmp_path, tree, source="plain").policies
    assert (only.governor, only.cpus) == ("ondemand", frozenset({0, 1}))


def test_cpus_known_to_have_no_policy(tmp_path: Path) -> None:
    tree = {
        f"{CPU}/online": "0-2\n",
        f"{CPU}/cpu2": None,
        **policy("cpufreq/policy0", affected_cpus="0 1"),
    }
    assert scaling(tmp_path, tree).without_policy == frozenset({2})


def test_cpus_whose_policy_was_not_recorded(tmp_path: Path) -> None:
    tree = {f"{CPU}/online": "0-2\n", **policy("cpufreq/policy0", affected_cpus="0 1")}
    assert isinstance(scaling(tmp_path, tree, source="plain").without_policy, Absent)


def test_a_vm_known_to_have_none(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable, match="hypervisor"):
        scaling(tmp_path, {f"{CPU}/online": "0\n", f"{CPU}/cpufreq": None}, "kvm")


def test_bare_metal_known_to_have_none(tmp_path: Path) -> None:
    found = scaling(tmp_path, {f"{CPU}/online": "0-1\n"})
    assert found.policies == ()
    assert found.without_policy == frozenset({0, 1})


@pytest.mark.parametrize("hypervisor", ["kvm", "", None])
def test_not_recorded_is_not_missing(tmp_path: Path, hypervisor: str | None) -> None:
    tree = {f"{CPU}/online": "0-1\n", f"{CPU}/cpufreq": None}
    with pytest.raises(Unavailable):
        scaling(tmp_path, tree, hypervisor, source="plain")


def test_limits(tmp_path: Path) -> None:
    tree = {
        f"{CPU}/online": "0\n",
        f"{CPU}/intel_pstate/max_perf_pct": "80\n",
        **policy("cpufreq/policy0", scaling_max_freq="2000000", cpuinfo_max_freq="many"),
    }
    host = make_host(tmp_path, tree)
    found = frequency_limits(host, cpufreq(host, cpu_sets(host), machine()))
    (limit,) = found.limits
    assert limit.allowed_khz == 2_000_000
    assert isinstance(limit.possible_khz, Absent)
    assert found.max_perf_percent == 80


@pytest.mark.parametrize(
    ("steps", "possible"),
    [
        ({"scaling_available_frequencies": "2450000 2000000 1500000 "}, 2_450_000),
        ({}, 3_529_052),
    ],
)
def test_the_boost_clock_of_acpi_cpufreq_is_no_limit(
    tmp_path: Path, steps: dict[str, str], possible: int
) -> None:
    """An EPYC 7763 as it comes: scaling_max_freq is the nominal clock, boost is on."""
    clocks = {"scaling_max_freq": "2450000", "cpuinfo_max_freq": "3529052", **steps}
    tree = {
        f"{CPU}/online": "0\n",
        **policy("cpufreq/policy0", scaling_driver="acpi-cpufreq", **clocks),
    }
    host = make_host(tmp_path, tree)
    (limit,) = frequency_limits(host, cpufreq(host, cpu_sets(host), machine())).limits
    assert (limit.allowed_khz, limit.possible_khz) == (2_450_000, possible)


def test_steps_that_were_not_recorded_prove_nothing(tmp_path: Path) -> None:
    clocks = {"scaling_max_freq": "2450000", "cpuinfo_max_freq": "3529052"}
    tree = {
        f"{CPU}/online": "0\n",
        **policy("cpufreq/policy0", scaling_driver="acpi-cpufreq", **clocks),
    }
    host = make_host(tmp_path, tree, source="plain")
    (limit,) = frequency_limits(host, cpufreq(host, cpu_sets(host), machine())).limits
    assert isinstance(limit.possible_khz, Absent)


def test_no_limits_without_scaling(tmp_path: Path) -> None:
    nothing = Cpufreq(driver="x", policies=(), without_policy=frozenset({0}))
    with pytest.raises(NotApplicable):
        frequency_limits(make_host(tmp_path, {}), nothing)


@pytest.mark.parametrize(
    ("path", "text", "enabled"),
    [
        ("intel_pstate/no_turbo", "0", True),
        ("intel_pstate/no_turbo", "1", False),
        ("cpufreq/boost", "1", True),
        ("cpufreq/boost", "0", False),
    ],
)
def test_turbo(tmp_path: Path, path: str, text: str, *, enabled: bool) -> None:
    found = turbo(make_host(tmp_path, {f"{CPU}/{path}": f"{text}\n"}, source="plain"))
    assert found.enabled is enabled
    assert found.source == f"{CPU}/{path}"


def cppc(highest: int, nominal: int) -> Tree:
    """An Arm server with cppc_cpufreq, whose switch reads 0 whether or not there is a boost."""
    perf = {"highest_perf": highest, "nominal_perf": nominal}
    files = {f"{CPU}/cpu0/acpi_cppc/{name}": f"{value}\n" for name, value in perf.items()}
    return {f"{CPU}/cpufreq/boost": "0\n", **files}


def test_a_cpu_without_a_boost_clock(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable, match="nominal"):
        turbo(make_host(tmp_path, cppc(3447, 3447)))


def test_turbo_that_the_bios_of_an_intel_cpu_took_away(tmp_path: Path) -> None:
    tree = {**cppc(28, 28), f"{CPU}/intel_pstate/no_turbo": "1\n"}
    assert turbo(make_host(tmp_path, tree)).enabled is False


def test_a_boost_clock_that_is_switched_off(tmp_path: Path) -> None:
    assert turbo(make_host(tmp_path, cppc(4000, 3447))).enabled is False


def test_no_turbo_switch(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable):
        turbo(make_host(tmp_path, {f"{CPU}/online": "0"}))


def test_turbo_not_recorded(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        turbo(make_host(tmp_path, {f"{CPU}/online": "0"}, source="plain"))
