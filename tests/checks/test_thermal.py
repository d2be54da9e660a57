# SPDX-License-Identifier: Apache-2.0
"""Temperatures."""

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

from gpuaudit.facts.gpuvalues import Utilization
from gpuaudit.host import Unavailable

ID = "thermal-margin"
BY_THRESHOLDS = {"thermal_margin": UNSUPPORTED, "slowdown_at": 89, "highest_operating": 85}


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({"thermal_margin": 46}, "pass"),
        ({"thermal_margin": 5}, "pass"),
        ({"thermal_margin": 4}, "fail"),
        ({"thermal_margin": -1}, "fail"),
        ({"thermal_margin": 4, "compute_pids": (4242,)}, "warn"),
        ({"thermal_margin": 0, "compute_pids": (4242,)}, "fail"),
        ({"thermal_margin": 4, "compute_pids": FAILED}, "warn"),
        ({"thermal_margin": 4, "utilization": Utilization(gpu=99)}, "warn"),  # another's PIDs
        ({"thermal_margin": 4, "utilization": UNSUPPORTED}, "warn"),
        ({"thermal_margin": 4, "power_draw": 436_000}, "warn"),  # a job has just ended
        ({"thermal_margin": 4, "power_now": UNSUPPORTED}, "warn"),
        ({**BY_THRESHOLDS, "temperature": 27}, "pass"),
        ({**BY_THRESHOLDS, "temperature": 82}, "fail"),
        ({**BY_THRESHOLDS, "temperature": 60, "memory_temperature": 94}, "fail"),
        ({**BY_THRESHOLDS, "temperature": 60, "memory_temperature": 80}, "pass"),
        ({**BY_THRESHOLDS, "temperature": 60, "memory_temperature": UNSUPPORTED}, "pass"),
        ({**BY_THRESHOLDS, "temperature": 95, "slowdown_at": 4294967294}, "fail"),
        ({**BY_THRESHOLDS, "highest_operating": UNSUPPORTED, "temperature": 82}, "pass"),
        ({**BY_THRESHOLDS, "slowdown_at": 2, "highest_operating": 0}, "notapplicable"),
        ({**BY_THRESHOLDS, "temperature": FAILED}, "unknown"),
        ({"thermal_margin": FAILED, "slowdown_at": FAILED, "highest_operating": FAILED}, "unknown"),
    ],
)
def test_margin(fields: dict[str, Any], verdict: str) -> None:
    check = function(ID)
    assert verdicts(check(changed(**fields), policy(section(ID))))[3] == verdict
    with pytest.raises(Unavailable):
        findings(check(silent(), policy(section(ID))))


def test_the_temperature_is_evidence() -> None:
    finding = only(function(ID)(changed(thermal_margin=1, temperature=86), policy(section(ID))))
    assert finding.evidence == ("the GPU has 86 C",)
