# SPDX-License-Identifier: Apache-2.0
"""Power limits."""

from typing import Any

import pytest
from gpufacts import (
    FAILED,
    UNSUPPORTED,
    changed,
    findings,
    function,
    only,
    policy,
    section,
    silent,
    verdicts,
)

from gpuaudit.host import Unavailable

ID = "power-limit-default"


@pytest.mark.parametrize(
    ("limit", "default", "verdict"),
    [
        (700_000, 700_000, "pass"),
        (750_000, 700_000, "pass"),
        (699_999, 700_000, "pass"),  # rounded
        (690_000, 700_000, "fail"),
        (UNSUPPORTED, 700_000, "notapplicable"),
        (700_000, FAILED, "unknown"),
    ],
)
def test_limit_default(limit: Any, default: Any, verdict: str) -> None:
    check = function(ID)
    found = changed(power_limit=limit, power_default=default)
    assert verdicts(check(found, policy(section(ID))))[3] == verdict
    with pytest.raises(Unavailable):
        findings(check(silent(), policy(section(ID))))


def test_a_lowered_limit_tells_its_share() -> None:
    finding = only(function(ID)(changed(power_limit=500_000), policy(section(ID))))
    assert (finding.observed, finding.expected) == ("500 W", "700 W")
    assert "71 %" in finding.message
    assert finding.cost == "29 % of the GPU's power"


def test_a_site_may_cap_on_purpose() -> None:
    want = policy(section(ID), limit_min_percent=70)
    assert verdicts(function(ID)(changed(power_limit=500_000), want)) == ["pass"] * 8
