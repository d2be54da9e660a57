# SPDX-License-Identifier: Apache-2.0
"""Drives and arrays."""

from typing import Any

import pytest
from judging import judge, verdicts

from gpuaudit.check import NotApplicable
from gpuaudit.facts.base import Absent
from gpuaudit.facts.blockdev import Array, Arrays, Controller, Drive, NvmeDrives

LOST = Absent("failed", "not recorded")
MIRROR = Array("md0", "active", "raid1", members=2, missing=0, failed=(), doing="")


def drives(scheduler: Any = "none", ahead: Any = 128) -> NvmeDrives:
    return NvmeDrives(controllers=(), drives=(Drive("nvme0n1", scheduler, ahead),))


@pytest.mark.parametrize(
    ("scheduler", "verdict"),
    [("none", "pass"), ("mq-deadline", "warn"), ("bfq", "warn"), (LOST, "unknown")],
)
def test_scheduler(scheduler: Any, verdict: str) -> None:
    found = judge("storage/storage-nvme-scheduler", drives(scheduler))
    assert verdicts(found) == [("nvme0n1", verdict)]


@pytest.mark.parametrize(
    ("ahead", "verdict"), [(128, "pass"), (4096, "pass"), (0, "warn"), (LOST, "unknown")]
)
def test_read_ahead(ahead: Any, verdict: str) -> None:
    found = judge("storage/storage-read-ahead", drives(ahead=ahead))
    assert verdicts(found) == [("nvme0n1", verdict)]


@pytest.mark.parametrize("check", ["storage-nvme-scheduler", "storage-read-ahead"])
def test_no_namespace_is_nothing_to_judge(check: str) -> None:
    with pytest.raises(NotApplicable):
        judge(f"storage/{check}", NvmeDrives(controllers=(), drives=()))


@pytest.mark.parametrize(
    ("state", "namespaces", "verdict"),
    [
        ("live", 1, "pass"),
        ("live", 0, "warn"),
        ("live", LOST, "unknown"),
        ("dead", 1, "fail"),
        ("deleting", 1, "fail"),
        ("resetting", 1, "unknown"),
        (LOST, 1, "unknown"),
    ],
)
def test_controllers(state: Any, namespaces: Any, verdict: str) -> None:
    one = Controller("nvme0", state, namespaces)
    idle = Controller("nvme0", "live", 0, stores=False)
    (beside,) = judge("storage/storage-nvme-state", NvmeDrives(controllers=(idle,), drives=()))
    assert beside.verdict.value == "pass"
    found = judge("storage/storage-nvme-state", NvmeDrives(controllers=(one,), drives=()))
    assert verdicts(found) == [("nvme0", verdict)]


@pytest.mark.parametrize(
    ("changes", "want", "verdict"),
    [
        ({}, "warn", "pass"),
        ({"doing": "check 12.6%"}, "warn", "pass"),
        ({"missing": 1}, "warn", "warn"),
        ({"missing": 1}, "fail", "fail"),
        ({"missing": 1, "failed": ("sda1",)}, "warn", "warn"),
        ({"state": "inactive", "members": None}, "warn", "fail"),
        ({"state": "broken", "level": "raid0"}, "warn", "fail"),
    ],
)
def test_arrays(changes: dict[str, Any], want: str, verdict: str) -> None:
    found = judge(
        "storage/storage-raid-degraded",
        Arrays(arrays=(MIRROR._replace(**changes),)),
        degraded_array=want,
    )
    assert verdicts(found) == [("md0", verdict)]
