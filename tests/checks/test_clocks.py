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

from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpuvalues import Utilization
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
        (0x8, "fail"),
        (0x20, "fail"),
        (0x48, "fail"),
        (0x88, "fail"),
        (0x4, "pass"),
        (0x400, "warn"),
        (UNSUPPORTED, "notapplicable"),
        (FAILED, "unknown"),
    ],
)
def test_throttle_reasons(reasons: Any, verdict: str) -> None:
    throttle = function("clocks-throttle-reasons")
    late = UNSUPPORTED if isinstance(reasons, Absent) else reasons
    found = at_work(clock_reasons=reasons, clock_reasons_later=late)
    assert verdicts(throttle(found))[3] == verdict
    with pytest.raises(Unavailable):
        findings(throttle(silent()))


IDLE: dict[str, Any] = {"compute_pids": (), "utilization": Utilization(gpu=0)}


def at_work(**fields: Any) -> Any:
    """GPU 3 works evenly; the later reading is the earlier one unless it is named."""
    pairs = {"clock_reasons": 0, "sm_clock": 1980, "power_draw": 400_000, "power_now": 400_000}
    early = {name: fields.get(name, value) for name, value in pairs.items()}
    late = {f"{name}_later": value for name, value in early.items()}
    busy = {"compute_pids": (4242,), "utilization": Utilization(gpu=97)}
    return changed(**{**busy, **early, **late, **fields})


def throttled(**fields: Any) -> str:
    throttle = function("clocks-throttle-reasons")
    return verdicts(throttle(at_work(**fields)))[3]


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({}, "fail"),
        ({"clock_reasons_later": 0}, "warn"),
        ({"clock_reasons": 0, "clock_reasons_later": 0x8}, "warn"),
        ({"compute_pids": ()}, "fail"),  # another's PIDs: it is busy
        ({"compute_pids": (), "utilization": Utilization(gpu=0)}, "warn"),
        ({"compute_pids": (), "utilization": UNSUPPORTED}, "fail"),
        ({"compute_pids": FAILED}, "fail"),
        ({"clock_reasons_later": FAILED}, "fail"),
        ({"clock_reasons": 0, "clock_reasons_later": 0x48}, "fail"),
    ],
)
def test_a_slowdown_counts_under_load_and_may_be_a_change_of_clocks_without(
    fields: dict[str, Any], verdict: str
) -> None:
    assert throttled(**{"clock_reasons": 0x8, **fields}) == verdict


def test_the_reasons_are_named() -> None:
    throttle = function("clocks-throttle-reasons")
    finding = only(throttle(at_work(clock_reasons=0x88)))
    assert finding.observed == "hardware slowdown, power brake"
    assert finding.cost
    assert "reliability limit" in only(throttle(at_work(clock_reasons=0x400)), "warn").message
    assert "unknown 0x800" in only(throttle(at_work(clock_reasons=0x800)), "warn").message


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
        ({"sm_clock": 1980}, "pass"),
        ({"sm_clock": 1700}, "pass"),
        ({"sm_clock": 1200}, "warn"),
        ({"sm_clock": 585, **IDLE}, "notapplicable"),
        ({"sm_clock": 585, **IDLE, "compute_pids": FAILED}, "unknown"),
        ({"sm_clock": 1200, "compute_pids": ()}, "warn"),  # another's PIDs: it is busy
        ({"clock_reasons": 2, "sm_clock": 1200, "sm_clock_applied": 1200}, "pass"),
        ({"sm_clock": 1200, "sm_clock_applied": 1200}, "pass"),
        # An A100: its application clock is below its boost clock by default, and holds nothing.
        ({"sm_clock": 1500, "sm_clock_applied": 1600, "sm_clock_default": 1600}, "warn"),
        ({"sm_clock": 1200, "sm_clock_applied": UNSUPPORTED}, "warn"),
        ({"clock_reasons": 0x48, "sm_clock": 700}, "notapplicable"),
        ({"sm_clock": FAILED}, "unknown"),
        ({"clock_reasons": FAILED}, "unknown"),
        ({"sm_clock": 1200, "clock_boost": UNSUPPORTED}, "notapplicable"),  # RTX
        ({"sm_clock": 1680, "sm_clock_later": 1605}, "notapplicable"),  # it moves
        ({"sm_clock": 1605, "sm_clock_later": 1980}, "pass"),
        ({"sm_clock": 1680, "clock_reasons_later": 4}, "notapplicable"),
        ({"sm_clock": 1680, "clock_reasons_later": FAILED}, "unknown"),
        ({"sm_clock": 1980, "sm_clock_later": FAILED}, "pass"),
        ({"sm_clock": 1680, "power_draw": 139_617, "power_now": 655_000}, "notapplicable"),
        ({"sm_clock": 1680, "power_draw": 640_000, "power_now": 640_000}, "notapplicable"),
        ({"sm_clock": 345, "utilization": Utilization(gpu=3)}, "notapplicable"),
        ({"sm_clock": 345, "utilization": UNSUPPORTED}, "notapplicable"),  # MIG
        ({"sm_clock": 1200, "power_now": UNSUPPORTED}, "notapplicable"),  # before 530
        ({"memory_clock": 1593, "memory_clock_later": 1593}, "warn"),
        ({"memory_clock": 1593, "memory_clock_later": 2619}, "pass"),
        ({"memory_clock": 1593, "memory_clock_later": 1593, "state_later": 2}, "pass"),
        ({"memory_clock": 1593, "memory_clock_later": 1593, **IDLE}, "notapplicable"),
        ({"memory_clock": FAILED}, "pass"),
    ],
)
def test_locked(fields: dict[str, Any], verdict: str) -> None:
    locked = function("clocks-locked")
    assert verdicts(locked(at_work(**fields), policy(section("clocks-locked"))))[3] == verdict


def test_a_lock_tells_its_cost() -> None:
    found = function("clocks-locked")(at_work(sm_clock=990), policy(section("clocks-locked")))
    (finding,) = (f for f in found if f.verdict.value == "warn")
    assert finding.cost == "50 % of its clock"


def test_a_locked_memory_clock_is_named() -> None:
    slow = at_work(memory_clock=1593, memory_clock_later=1593)
    found = function("clocks-locked")(slow, policy(section("clocks-locked")))
    (finding,) = (f for f in found if f.verdict.value == "warn")
    assert finding.message == "memory at 1593 MHz under load: probably locked"
    assert finding.cost == "40 % of the memory bandwidth"
