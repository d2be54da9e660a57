# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
from judging import judge, verdicts

from gpuaudit.check import NotApplicable
from gpuaudit.facts.base import Absent
from gpuaudit.facts.sysctl import SysctlFiles, SysctlSetting
from gpuaudit.facts.sysctlvalues import Sysctls

VALUES = "sysctl/sysctl-values"
LASTS = "sysctl/sysctl-persisted"
MAPS = "vm.max_map_count"
GONE = Absent("missing", "was not recorded")
DENIED = Absent("denied", "needs root")


def setting(key: str, value: str) -> SysctlSetting:
    return SysctlSetting(key=key, value=value, file="/etc/sysctl.d/90-a.conf", line=4)


def sysctls(running: dict[str, Any], *set_by: SysctlSetting, **more: Any) -> Sysctls:
    fields: dict[str, Any] = {
        "files": SysctlFiles(settings=set_by),
        "by_tuned": {},
        "image": False,
        "applied": True,
        **more,
    }
    return Sysctls(running=running, **fields)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (MAPS, "65530", "pass"),
        (MAPS, "65529", "warn"),
        (MAPS, "many", "warn"),
        (MAPS, GONE, "unknown"),
        (MAPS, DENIED, "unknown"),
        ("vm.overcommit_memory", "0", "pass"),
        ("vm.overcommit_memory", "1", "pass"),
        ("vm.overcommit_memory", "2", "warn"),
        ("vm.panic_on_oom", "1", "warn"),
        ("kernel.pid_max", "4194304", "pass"),
    ],
)
def test_ranges(key: str, value: Any, expected: str) -> None:
    assert verdicts(judge(VALUES, sysctls({key: value}))) == [(key, expected)]


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [([1, None], "at least 1"), ([None, 90], "at most 90"), ([0, 0], "0"), ([1, 9], "1 to 9")],
)
def test_what_is_wanted_is_said(bounds: Any, expected: str) -> None:
    (found,) = judge(VALUES, sysctls({MAPS: "5"}), ranges={MAPS: bounds})
    assert found.expected == expected


def test_a_key_that_the_kernel_does_not_have() -> None:
    with pytest.raises(NotApplicable):
        judge(VALUES, sysctls({}))


def test_a_policy_that_asks_for_what_is_not_read() -> None:
    found = judge(VALUES, sysctls({}), ranges={"vm.laptop_mode": [0, 0]})
    assert verdicts(found) == [("vm.laptop_mode", "unknown")]


def test_an_image_is_judged_by_its_files() -> None:
    image = sysctls({}, setting(MAPS, "1000"), image=True, applied=False)
    (found,) = judge(VALUES, image)
    assert (found.verdict, found.evidence) == ("warn", ("/etc/sysctl.d/90-a.conf:4",))
    with pytest.raises(NotApplicable):
        judge(VALUES, sysctls({}, image=True))


@pytest.mark.parametrize(
    ("value", "configured", "expected"),
    [
        ("1048576", "1048576", "pass"),
        ("65530", "1048576", "warn"),
        (GONE, "1048576", "unknown"),
    ],
)
def test_lasting(value: Any, configured: str, expected: str) -> None:
    found = judge(LASTS, sysctls({MAPS: value}, setting(MAPS, configured)))
    assert verdicts(found) == [(MAPS, expected)]
    if expected == "warn":
        assert "/etc/sysctl.d/90-a.conf:4 sets 1048576" in found[0].message


def test_a_ratio_that_nothing_overrules_has_to_last() -> None:
    fact = sysctls({"vm.dirty_ratio": "0"}, setting("vm.dirty_ratio", "9"))
    assert verdicts(judge(LASTS, fact)) == [("vm.dirty_ratio", "warn")]


def test_spaces_between_values_do_not_matter() -> None:
    key = "net.ipv4.tcp_rmem"
    fact = sysctls({key: "4096 131072 6291456"}, setting(key, "4096\t131072  6291456"))
    assert verdicts(judge(LASTS, fact, lasting=[key])) == [(key, "pass")]


@pytest.mark.parametrize(
    "fact",
    [
        sysctls({MAPS: "5"}),
        sysctls({MAPS: "5"}, setting(MAPS, "6"), image=True),
        sysctls({MAPS: "5"}, setting(MAPS, "6"), applied=False),
        sysctls({}, setting(MAPS, "6")),
        sysctls(
            {"vm.dirty_ratio": "0"}, setting("vm.dirty_ratio", "9"), setting("vm.dirty_bytes", "9")
        ),
    ],
)
def test_nothing_to_compare(fact: Sysctls) -> None:
    with pytest.raises(NotApplicable):
        judge(LASTS, fact)


@pytest.mark.parametrize(
    ("why", "expected"),
    [(GONE, "unknown"), (Absent("unsupported", "a container"), "notapplicable")],
)
def test_files_that_were_not_read(why: Absent, expected: str) -> None:
    found = judge(LASTS, sysctls({MAPS: "5"}, files=why))
    assert verdicts(found) == [("sysctl.d", expected)]
