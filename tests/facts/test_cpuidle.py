# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest
from trees import make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.cpu import cpu_sets
from gpuaudit.facts.cpuidle import idle_states
from gpuaudit.host import NotApplicable, Unavailable

CPU = "/sys/devices/system/cpu"
DRIVER = f"{CPU}/cpuidle/current_driver"


def state(cpu: int, number: int, name: str, latency: str, disable: str = "0") -> dict[str, str]:
    folder = f"{CPU}/cpu{cpu}/cpuidle/state{number}"
    return {f"{folder}/name": name, f"{folder}/latency": latency, f"{folder}/disable": disable}


def test_both_ends_are_looked_at(tmp_path: Path) -> None:
    tree = {f"{CPU}/online": "0-3\n", DRIVER: "intel_idle\n"}
    tree |= state(0, 0, "POLL", "0") | state(0, 1, "C6", "290") | state(3, 0, "C10", "680")
    host = make_host(tmp_path, tree)
    found = idle_states(host, cpu_sets(host))
    assert [(s.cpu, s.name, s.latency_us, s.enabled_on) for s in found.states] == [
        (0, "POLL", 0, frozenset({0})),
        (0, "C6", 290, frozenset({0})),
        (3, "C10", 680, frozenset({3})),
    ]


def test_a_state_disabled_here_is_looked_for_on_the_others(tmp_path: Path) -> None:
    tree = {f"{CPU}/online": "0-2\n", DRIVER: "intel_idle\n"}
    for cpu in range(3):
        tree |= state(cpu, 0, "C6", "290", "0" if cpu == 1 else "1")
    host = make_host(tmp_path, tree)
    found = idle_states(host, cpu_sets(host)).states
    assert [s.enabled_on for s in found] == [frozenset({1}), frozenset({1})]


def test_garbled_files_are_absent(tmp_path: Path) -> None:
    tree = {f"{CPU}/online": "0\n", DRIVER: "intel_idle\n", **state(0, 0, "C6", "long", "maybe")}
    host = make_host(tmp_path, tree)
    (only,) = idle_states(host, cpu_sets(host)).states
    assert isinstance(only.latency_us, Absent)
    assert isinstance(only.enabled_on, Absent)


@pytest.mark.parametrize("driver", ["none", "haltpoll"])
def test_drivers_without_states(tmp_path: Path, driver: str) -> None:
    host = make_host(tmp_path, {f"{CPU}/online": "0\n", DRIVER: driver}, source="plain")
    with pytest.raises(NotApplicable):
        idle_states(host, cpu_sets(host))


def test_no_idle_driver_at_all(tmp_path: Path) -> None:
    host = make_host(tmp_path, {f"{CPU}/online": "0\n"})
    with pytest.raises(NotApplicable):
        idle_states(host, cpu_sets(host))


def test_states_that_were_not_recorded(tmp_path: Path) -> None:
    host = make_host(tmp_path, {f"{CPU}/online": "0\n", DRIVER: "acpi_idle"}, source="plain")
    with pytest.raises(Unavailable):
        idle_states(host, cpu_sets(host))
