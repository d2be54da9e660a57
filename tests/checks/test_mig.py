# SPDX-License-Identifier: Apache-2.0
"""MIG mode."""

from typing import Any

import pytest
from gpufacts import (
    FAILED,
    UNSUPPORTED,
    changed,
    findings,
    function,
    gpus,
    only,
    policy,
    section,
    silent,
    verdicts,
)

from gpuaudit.facts.gpuvalues import Setting
from gpuaudit.host import NotApplicable, Unavailable

OFF, ON, WAITS = Setting(0, 0), Setting(1, 1), Setting(0, 1)


@pytest.mark.parametrize(
    ("mig", "verdict"),
    [
        (OFF, "pass"),
        (ON, "pass"),
        (WAITS, "fail"),
        (UNSUPPORTED, "notapplicable"),
        (FAILED, "unknown"),
    ],
)
def test_mode_settled(mig: Any, verdict: str) -> None:
    settled = function("mig-mode-settled")
    assert verdicts(settled(changed(mig=mig)))[3] == verdict
    with pytest.raises(Unavailable):
        findings(settled(silent()))


@pytest.mark.parametrize(
    ("mig", "mode", "verdict"),
    [
        (OFF, "any", "pass"),
        (ON, "any", "pass"),
        (ON, "disabled", "fail"),
        (ON, "enabled", "pass"),
        (UNSUPPORTED, "disabled", "notapplicable"),
        (FAILED, "any", "unknown"),
    ],
)
def test_mode_expected(mig: Any, mode: str, verdict: str) -> None:
    expected = function("mig-mode-expected")
    want = policy(section("mig-mode-expected"), mode=mode)
    assert verdicts(expected(changed(mig=mig), want))[3] == verdict


def test_mode_alike() -> None:
    alike = function("mig-mode-alike")
    assert verdicts(alike(gpus())) == ["pass"] * 8
    assert only(alike(changed(mig=ON)), "warn").message == "MIG is enabled"
    assert verdicts(alike(changed(mig=FAILED)))[3] == "unknown"
    with pytest.raises(NotApplicable):
        findings(alike(gpus(count=1)))
