# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
from judging import judge, verdicts

from gpuaudit.check import NotApplicable
from gpuaudit.facts.base import Absent
from gpuaudit.facts.bootunits import BootUnits
from gpuaudit.facts.updates import AutomaticUpdates

COSTLY = "services/services-costly"
UPDATES = "services/services-driver-updates"
NO_KERNEL = Absent("unsupported", "an image has no running kernel")
UNREAD = Absent("missing", "was not recorded")


def units(*enabled: str, running: Any = ()) -> BootUnits:
    seen = running if isinstance(running, Absent) else frozenset(running)
    return BootUnits(enabled=frozenset(enabled), running=seen)


@pytest.mark.parametrize(
    ("fact", "expected"),
    [
        (units("ssh.service", running=("ssh.service",)), [("services", "pass")]),
        (units("cups.service"), [("cups.service", "warn")]),
        (units(running=("numad.service",)), [("numad.service", "warn")]),
        (
            units("cups.service", running=UNREAD),
            [("cups.service", "warn"), ("running services", "unknown")],
        ),
        (units("ssh.service", running=UNREAD), [("running services", "unknown")]),
        (units("ModemManager.service", "nvidia-powerd.service"), [("services", "pass")]),
        (units(running=NO_KERNEL), [("services", "pass")]),
    ],
)
def test_costly(fact: BootUnits, expected: list[tuple[str, str]]) -> None:
    assert verdicts(judge(COSTLY, fact)) == expected


def test_the_reason_comes_from_the_policy() -> None:
    fact = units("x.service", running=("x.service",))
    (found,) = judge(COSTLY, fact, costly={"x.service": "it costs"})
    assert found.message == "runs and starts at boot: it costs"


@pytest.mark.parametrize(
    ("updates", "expected"),
    [
        (AutomaticUpdates(by=None, kept_by=None), "pass"),
        (AutomaticUpdates(by="unattended-upgrades", kept_by=None), "pass"),
        (
            AutomaticUpdates(by="unattended-upgrades", kept_by=None, packages=("nvidia-a",)),
            "warn",
        ),
        (
            AutomaticUpdates(by="unattended-upgrades", kept_by="hold", packages=("nvidia-a",)),
            "pass",
        ),
        (AutomaticUpdates(by="dnf-automatic.timer", kept_by=None), "warn"),
        (AutomaticUpdates(by="dnf-automatic.timer", kept_by="/etc/dnf/dnf.conf"), "pass"),
    ],
)
def test_updates(updates: AutomaticUpdates, expected: str) -> None:
    assert verdicts(judge(UPDATES, updates)) == [("driver packages", expected)]
    with pytest.raises(NotApplicable):
        judge(UPDATES, updates, driver_updates="any")
