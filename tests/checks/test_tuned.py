# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
from judging import judge, verdicts

from gpuaudit.check import NotApplicable, Unavailable
from gpuaudit.facts.base import Absent
from gpuaudit.facts.bootunits import BootUnits
from gpuaudit.facts.memory import TransparentHugepage
from gpuaudit.facts.sysctl import SysctlFiles, SysctlSetting
from gpuaudit.facts.sysctlvalues import Sysctls
from gpuaudit.facts.tuned import Tuned, TunedSetting

PROFILE = "tuned/tuned-profile"
MATCHES = "tuned/tuned-matches"
NO_KERNEL = Absent("unsupported", "an image has no running kernel")
UNREAD = Absent("missing", "was not recorded")


def units(*enabled: str, running: Any = ()) -> BootUnits:
    seen = running if isinstance(running, Absent) else frozenset(running)
    return BootUnits(enabled=frozenset(enabled), running=seen)


def tuned(*profiles: str, enabled: bool = True, **more: Any) -> Tuned:
    return Tuned(profiles=profiles, enabled=enabled, **{"settings": {}, **more})


RUNS = units("tuned.service", running=("tuned.service",))


@pytest.mark.parametrize(
    ("fact", "seen", "want", "expected"),
    [
        (tuned("throughput-performance"), RUNS, {}, ["pass", "pass"]),
        (tuned("balanced"), RUNS, {}, ["warn", "pass"]),
        (tuned("a", "powersave"), RUNS, {}, ["warn", "pass"]),
        (tuned("a"), RUNS, {"accepted": ["b"]}, ["fail", "pass"]),
        (tuned("b"), RUNS, {"accepted": ["b"]}, ["pass", "pass"]),
        (tuned("a", missing=("a",)), RUNS, {}, ["warn", "pass"]),
        (tuned(), RUNS, {}, ["warn", "pass"]),
        (tuned("a"), units("tuned.service"), {}, ["pass", "warn"]),
        (tuned("a"), units("tuned.service", running=UNREAD), {}, ["pass"]),
        (tuned("balanced"), units("tuned.service", running=NO_KERNEL), {}, ["warn"]),
        (tuned("a", enabled=False), units(), {"required": True}, ["warn"]),
        (tuned("a", enabled=False), RUNS, {}, ["pass", "pass"]),
    ],
)
def test_profile(fact: Tuned, seen: BootUnits, want: dict[str, Any], expected: list[str]) -> None:
    assert [v for _, v in verdicts(judge(PROFILE, fact, seen, **want))] == expected


@pytest.mark.parametrize(
    ("fact", "seen"),
    [
        (tuned(enabled=False), units()),
        (tuned(), units("tuned.service", running=NO_KERNEL)),
    ],
)
def test_no_profile_to_judge(fact: Tuned, seen: BootUnits) -> None:
    with pytest.raises(NotApplicable):
        judge(PROFILE, fact, seen)


def profile(**settings: str) -> Tuned:
    places = {
        "ratio": ("sysctl", "vm.dirty_ratio"),
        "thp": ("vm", "transparent_hugepages"),
        "other": ("sysctl", "net.core.somaxconn"),
        "free": ("sysctl", "vm.min_free_kbytes"),
    }
    found = {places[k]: TunedSetting(value=v, file="/a/tuned.conf") for k, v in settings.items()}
    return tuned("a", settings=found)


def facts(ratio: Any, *files: SysctlSetting) -> tuple[Sysctls, TransparentHugepage]:
    values = Sysctls(
        running={"vm.dirty_ratio": ratio, "vm.min_free_kbytes": "337920"},
        files=SysctlFiles(settings=files),
        by_tuned={},
        image=False,
        applied=True,
    )
    return values, TransparentHugepage(enabled="madvise", defrag="madvise", boot=None)


RATIO, THP = "vm.dirty_ratio", "transparent_hugepage"


@pytest.mark.parametrize(
    ("fact", "ratio", "expected"),
    [
        (profile(ratio="40"), "40", [(RATIO, "pass")]),
        (profile(ratio="40"), "20", [(RATIO, "warn")]),
        (profile(ratio="40"), UNREAD, [(RATIO, "unknown")]),
        (profile(thp="madvise"), "20", [(THP, "pass")]),
        (profile(thp="always", ratio="20"), "20", [(RATIO, "pass"), (THP, "warn")]),
    ],
)
def test_matches(fact: Tuned, ratio: Any, expected: list[tuple[str, str]]) -> None:
    assert verdicts(judge(MATCHES, fact, *facts(ratio))) == expected


def test_what_sysctl_files_set_is_not_tuneds() -> None:
    over = SysctlSetting(key=RATIO, value="20", file="/etc/sysctl.d/a.conf", line=1)
    with pytest.raises(NotApplicable):
        judge(MATCHES, profile(ratio="40"), *facts("20", over))


@pytest.mark.parametrize(
    "fact",
    [
        *(profile(ratio="${calc}"), profile(ratio=">40"), profile(other="1"), tuned("a")),
        profile(free="135168"),
    ],
)
def test_what_tuned_works_out_is_left_to_it(fact: Tuned) -> None:
    with pytest.raises(NotApplicable):
        judge(MATCHES, fact, *facts("20"))


def test_files_that_were_not_read_decide_nothing() -> None:
    values, thp = facts("20")
    unread = Sysctls(running=values.running, files=UNREAD, by_tuned={}, image=False, applied=True)
    with pytest.raises(Unavailable):
        judge(MATCHES, profile(ratio="40"), unread, thp)
