# SPDX-License-Identifier: Apache-2.0
"""Slowdowns that come and go, highest clocks, auto boost."""

from typing import Any

import msgspec
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

from gpuaudit.facts.base import Absent
from gpuaudit.facts.counters import SCHEMA, Earlier, Reading
from gpuaudit.facts.gputhrottle import GpuThrottle
from gpuaudit.facts.gpuvalues import Pci
from gpuaudit.host import Unavailable

ADDRESS = str(gpus().records[0].address)
DAY_S = 86400.0


def earlier(total: int | None, uptime_s: float | None = DAY_S) -> Earlier:
    """What was read an hour ago."""
    kept = Reading(
        schema=SCHEMA,
        boot_id="b",
        uptime_s=DAY_S - 3600,
        written_at="",
        counters={ADDRESS: {"power-brake-ms": total or 0}},
    )
    return Earlier(reading=None if total is None else kept, why="first", uptime_s=uptime_s)


@pytest.mark.parametrize(
    ("total", "before", "verdict"),
    [
        (0, None, "pass"),
        (36_000, None, "pass"),
        (400_000, None, "unknown"),  # 17 s an hour since boot, and nobody knows in which hour
        (4_000_000, None, "fail"),
        (4_000_000, 4_000_000, "pass"),
        (4_000_000, 3_970_000, "pass"),
        (4_000_000, 3_900_000, "fail"),
    ],
)
def test_throttle_history(total: int, before: int | None, verdict: str) -> None:
    check_id = "clocks-throttle-history"
    times = GpuThrottle(by_gpu={0: {"power-brake-ms": total}}, addresses={0: ADDRESS})
    found = function(check_id)(gpus(count=1), times, earlier(before), policy(section(check_id)))
    (finding,) = findings(found)
    assert finding.verdict.value == verdict
    assert verdict == "pass" or "power brake" in finding.message


@pytest.mark.parametrize(
    ("absent", "verdict"), [(UNSUPPORTED, "notapplicable"), (FAILED, "unknown")]
)
def test_no_throttle_history(absent: Absent, verdict: str) -> None:
    check_id = "clocks-throttle-history"
    times = GpuThrottle(by_gpu={0: absent}, addresses={})
    found = function(check_id)(gpus(count=1), times, earlier(None), policy(section(check_id)))
    assert verdicts(found) == [verdict]
    assert times.counters() == {}


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({}, "pass"),
        ({"sm_clock_max": 1755}, "warn"),
        ({"clock_boost": 1755}, "warn"),
        ({"memory_clock_max": 1593}, "warn"),
        ({"clock_boost": UNSUPPORTED}, "pass"),
        ({"sm_clock_max": UNSUPPORTED}, "notapplicable"),
        ({"sm_clock_max": FAILED}, "unknown"),
        ({"sm_clock_max": 1755, "virtualization": 2}, "notapplicable"),
    ],
)
def test_maximum(fields: dict[str, Any], verdict: str) -> None:
    check_id = "clocks-maximum"
    found = function(check_id)(changed(**fields), policy(section(check_id)))
    assert verdicts(found) == [*["pass"] * 3, verdict, *["pass"] * 4]


def test_maximum_of_an_unknown_product() -> None:
    check_id = "clocks-maximum"
    maximum, want = function(check_id), policy(section(check_id))
    pci = Pci(bus_id="x", device_id=0x123410DE)
    records = [msgspec.structs.replace(gpu, pci=pci) for gpu in gpus().records]
    slow = msgspec.structs.replace(records[0], sm_clock_max=1500)
    both = msgspec.structs.replace(gpus(), records=(slow, records[1]))
    assert only(maximum(both, want), "warn").cost == "25 % of a clock"
    geforce = [msgspec.structs.replace(g, name="NVIDIA GeForce RTX 4090") for g in both.records]
    of_two_makers = msgspec.structs.replace(gpus(), records=tuple(geforce))
    assert verdicts(maximum(of_two_makers, want)) == ["notapplicable"] * 2
    alone = msgspec.structs.replace(gpus(), records=(slow,))
    assert verdicts(maximum(alone, want)) == ["notapplicable"]
    with pytest.raises(Unavailable):
        findings(maximum(silent(), want))


@pytest.mark.parametrize(
    ("mode", "verdict"),
    [
        ((1, 1), "pass"),
        ((0, 0), "pass"),
        ((0, 1), "warn"),
        (UNSUPPORTED, "notapplicable"),
        (FAILED, "unknown"),
    ],
)
def test_auto_boost(mode: Any, verdict: str) -> None:
    assert verdicts(function("clocks-auto-boost")(changed(auto_boost=mode)))[3] == verdict
