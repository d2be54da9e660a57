# SPDX-License-Identifier: Apache-2.0
import importlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from trees import make_host

from gpuaudit.check import CHECKS, Finding, Verdict
from gpuaudit.facts.base import Absent
from gpuaudit.facts.memory import TransparentHugepage, ZoneReclaim
from gpuaudit.facts.node import Machine, machine
from gpuaudit.facts.swap import Swap
from gpuaudit.facts.sysctl import SysctlSetting

pack = importlib.import_module("gpuaudit.checks.memory")
WANT = pack.MemoryExpectations(
    thp_enabled=("always", "madvise"),
    thp_defrag=("madvise", "defer"),
    swap="none",
    zone_reclaim_mode=(0,),
)
NO_KERNEL = Absent("unsupported", "an image has no running kernel")
GONE = Absent("failed", "was not recorded")


@pytest.fixture
def node(tmp_path: Path) -> Machine:
    return machine(make_host(tmp_path, {}))


def judge(check: str, *facts: Any) -> list[Finding]:
    answer = CHECKS[check].function(*facts)
    return [answer] if isinstance(answer, Finding) else list(answer)


def verdicts(findings: list[Finding]) -> list[str]:
    return [f.verdict.value for f in findings]


def thp(**change: Any) -> TransparentHugepage:
    fields: dict[str, Any] = {"enabled": "madvise", "defrag": "madvise", "boot": None, **change}
    return TransparentHugepage(**fields)


@pytest.mark.parametrize(
    ("fact", "expected"),
    [
        (thp(), ["pass"]),
        (thp(enabled="never"), ["fail"]),
        (thp(boot="always"), ["pass", "pass"]),
        (thp(boot="never"), ["pass", "warn"]),
        (thp(enabled="never", boot="always"), ["fail", "pass"]),
        (thp(boot=GONE), ["pass"]),
    ],
)
def test_thp_enabled(fact: TransparentHugepage, expected: list[str]) -> None:
    assert verdicts(judge("memory-thp-enabled", fact, WANT)) == expected


@pytest.mark.parametrize(("defrag", "expected"), [("defer", "pass"), ("always", "fail")])
def test_thp_defrag(defrag: str, expected: str) -> None:
    (finding,) = judge("memory-thp-defrag", thp(defrag=defrag), WANT)
    assert finding.verdict == expected
    assert finding.observed == defrag


@pytest.mark.parametrize(
    ("running", "next_boot", "expected"),
    [
        ((), (), ["pass", "pass"]),
        (("/dev/sda2",), (), ["fail", "pass"]),
        ((), ("/etc/fstab:3",), ["pass", "warn"]),
        (("/dev/sda2",), ("/etc/fstab:3",), ["fail", "warn"]),
        (NO_KERNEL, ("/etc/fstab:3",), ["notapplicable", "fail"]),
        (NO_KERNEL, (), ["notapplicable", "pass"]),
        (GONE, GONE, ["unknown", "unknown"]),
        ((), GONE, ["pass", "unknown"]),
    ],
)
def test_swap(running: Any, next_boot: Any, expected: list[str], node: Machine) -> None:
    swap = Swap(running=running, next_boot=next_boot)
    assert verdicts(judge("memory-swap-off", swap, node, WANT)) == expected


def test_swap_names_what_is_on(node: Machine) -> None:
    swap = Swap(running=("/dev/zram0",), next_boot=())
    finding = judge("memory-swap-off", swap, node, WANT)[0]
    assert finding.observed == "/dev/zram0"
    assert finding.message == "swap is on"


def test_swap_of_a_container_belongs_to_the_host(node: Machine) -> None:
    inside = msgspec.structs.replace(node, container=True)
    swap = Swap(running=("/dev/sda2",), next_boot=())
    assert "host" in judge("memory-swap-off", swap, inside, WANT)[0].message


def test_a_policy_may_allow_swap(node: Machine) -> None:
    swap = Swap(running=("/dev/sda2",), next_boot=("/etc/fstab:1",))
    want = msgspec.structs.replace(WANT, swap="any")
    assert verdicts(judge("memory-swap-off", swap, node, want)) == ["pass", "pass"]


def line(value: str) -> SysctlSetting:
    return SysctlSetting(key="vm.zone_reclaim_mode", value=value, file="/etc/sysctl.d/a", line=4)


@pytest.mark.parametrize(
    ("mode", "next_boot", "expected"),
    [
        (0, None, ["pass"]),
        (1, None, ["fail"]),
        (0, line("0"), ["pass", "pass"]),
        (0, line("1"), ["pass", "warn"]),
        (0, GONE, ["pass", "unknown"]),
        (GONE, GONE, ["unknown", "unknown"]),
        (NO_KERNEL, line("1"), ["notapplicable", "fail"]),
        (NO_KERNEL, None, ["notapplicable", "pass"]),
    ],
)
def test_zone_reclaim(mode: Any, next_boot: Any, expected: list[str]) -> None:
    zone = ZoneReclaim(mode=mode, next_boot=next_boot)
    assert verdicts(judge("memory-zone-reclaim", zone, WANT)) == expected


def test_zone_reclaim_names_the_line() -> None:
    findings = judge("memory-zone-reclaim", ZoneReclaim(mode=0, next_boot=line("1")), WANT)
    assert findings[1].evidence == ("/etc/sysctl.d/a:4",)
    assert findings[1].verdict is Verdict.WARN
