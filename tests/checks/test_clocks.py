# SPDX-License-Identifier: Apache-2.0
"""Clocks: reasons, application clocks, locks."""

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


@pytest.mark.parametrize(
    ("reasons", "verdict"),
    [
        (0x0, "pass"),
        (0x1, "pass"),
        (0x2, "pass"),
        (0x10, "pass"),
        (0x100, "pass"),
        (0x5, "pass"),
        (0x8, "warn"),
        (0x20, "fail"),
        (0x48, "fail"),
        (0x88, "fail"),
        (0x4, "warn"),
        (0x400, "warn"),
        (UNSUPPORTED, "notapplicable"),
        (FAILED, "unknown"),
    ],
)
def test_throttle_reasons(reasons: Any, verdict: str) -> None:
    throttle = function("clocks-throttle-reasons")
    want = policy(section("clocks-throttle-reasons"))
    assert verdicts(throttle(changed(clock_reasons=reasons), want))[3] == verdict
    with pytest.raises(Unavailable):
        findings(throttle(silent(), want))


@pytest.mark.parametrize(
    ("draw", "verdict"), [(690_000, "pass"), (400_000, "warn"), (FAILED, "warn")]
)
def test_the_power_cap_is_normal_at_the_limit(draw: Any, verdict: str) -> None:
    throttle = function("clocks-throttle-reasons")
    want = policy(section("clocks-throttle-reasons"))
    assert verdicts(throttle(changed(clock_reasons=4, power_draw=draw), want))[3] == verdict


def test_a_slowdown_counts_under_load_and_may_be_a_change_of_clocks_without() -> None:
    throttle = function("clocks-throttle-reasons")
    want = policy(section("clocks-throttle-reasons"))
    for processes, verdict in (((), "warn"), ((4242,), "fail"), (FAILED, "fail")):
        found = throttle(changed(clock_reasons=0x8, compute_pids=processes), want)
        assert verdicts(found)[3] == verdict


def test_the_reasons_are_named() -> None:
    throttle = function("clocks-throttle-reasons")
    want = policy(section("clocks-throttle-reasons"))
    finding = only(throttle(changed(clock_reasons=0x88), want))
    assert finding.observed == "hardware slowdown, power brake"
    assert finding.cost
    assert "reliability limit" in only(throttle(changed(clock_reasons=0x400), want), "warn").message
    assert "unknown 0x800" in only(throttle(changed(clock_reasons=0x800), want), "warn").message


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({}, "pass"),
        ({"sm_clock_applied": 1410}, "fail"),
        ({"memory_clock_applied": 1593}, "fail"),
        ({"sm_clock_default": 1755}, "pass"),
        ({"sm_clock_default": 1755, "memory_clock_applied": 1593}, "fail"),
        ({"sm_clock_applied": UNSUPPORTED}, "notapplicable"),
        ({"sm_clock_default": FAILED}, "unknown"),
    ],
)
def test_application_default(fields: dict[str, Any], verdict: str) -> None:
    assert verdicts(function("clocks-application-default")(changed(**fields)))[3] == verdict


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({"clock_reasons": 1}, "notapplicable"),
        ({"clock_reasons": 0, "sm_clock": 1980}, "pass"),
        ({"clock_reasons": 0, "sm_clock": 1700}, "pass"),
        ({"clock_reasons": 0, "sm_clock": 1200}, "warn"),
        ({"clock_reasons": 0, "sm_clock": 585, "compute_pids": ()}, "notapplicable"),
        ({"clock_reasons": 0, "sm_clock": 585, "compute_pids": FAILED}, "unknown"),
        ({"clock_reasons": 2, "sm_clock": 1200, "sm_clock_applied": 1200}, "pass"),
        ({"clock_reasons": 0, "sm_clock": 1200, "sm_clock_applied": UNSUPPORTED}, "warn"),
        ({"clock_reasons": 0x48, "sm_clock": 700}, "notapplicable"),
        ({"clock_reasons": 0, "sm_clock": FAILED}, "unknown"),
        ({"clock_reasons": 0, "sm_clock_max": UNSUPPORTED}, "notapplicable"),
    ],
)
def test_locked(fields: dict[str, Any], verdict: str) -> None:
    locked = function("clocks-locked")
    found = changed(**{"compute_pids": (4242,), **fields})
    assert verdicts(locked(found, policy(section("clocks-locked"))))[3] == verdict


def test_a_lock_tells_its_cost() -> None:
    locked = function("clocks-locked")
    busy = changed(clock_reasons=0, sm_clock=990, compute_pids=(4242,))
    found = locked(busy, policy(section("clocks-locked")))
    (finding,) = (f for f in found if f.verdict.value == "warn")
    assert finding.cost == "50 % of its clock"
