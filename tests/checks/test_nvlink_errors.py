# SPDX-License-Identifier: Apache-2.0
"""Errors on NVLink, by their rate."""

from typing import Any

import pytest
from gpufacts import findings, function, policy, section, verdicts
from linkfacts import links

from gpuaudit.facts.counters import SCHEMA, Earlier, Reading

PLACE = "0000:3f:00.0"
"""GPU 2."""
HOUR_S, DAY_S = 3600.0, 86400.0


def reading(seconds: float | None = None, **totals: int) -> Earlier:
    """An earlier reading of GPU 2, `seconds` ago, of a node that runs for ten days."""
    names = {name.replace("_", "-"): total for name, total in totals.items()}
    kept = Reading(
        schema=SCHEMA,
        boot_id="b",
        uptime_s=10 * DAY_S - (seconds or 0),
        written_at="",
        counters={PLACE: names},
    )
    why = "" if seconds else "there is no earlier reading"
    return Earlier(reading=kept if seconds else None, why=why, uptime_s=10 * DAY_S)


def errors(check_id: str, changes: dict[str, Any], earlier: Earlier | None = None) -> Any:
    want = policy(section(check_id))
    return function(check_id)(links(changes), earlier or reading(), want)


def test_no_errors_pass() -> None:
    for check_id in ("nvlink-crc-errors", "nvlink-replays", "nvlink-recovery-errors"):
        assert verdicts(errors(check_id, {})) == ["pass"] * 8


@pytest.mark.parametrize(
    ("check_id", "field", "now", "earlier", "verdict"),
    [
        ("nvlink-crc-errors", 163, 5000, reading(), "pass"),
        ("nvlink-crc-errors", 163, 9_000_000, reading(), "unknown"),
        ("nvlink-crc-errors", 163, 9_000_000, reading(HOUR_S, crc_errors_3=9_000_000), "pass"),
        ("nvlink-crc-errors", 163, 9_000_000, reading(HOUR_S, crc_errors_3=0), "warn"),
        ("nvlink-replays", 161, 90, reading(), "pass"),
        ("nvlink-replays", 161, 900, reading(DAY_S, replays_3=0), "warn"),
        ("nvlink-recovery-errors", 162, 1, reading(), "unknown"),
        ("nvlink-recovery-errors", 162, 1, reading(DAY_S, recoveries_3=1), "pass"),
        ("nvlink-recovery-errors", 162, 2, reading(DAY_S, recoveries_3=1), "fail"),
    ],
)
def test_errors_are_judged_by_their_rate(
    check_id: str, field: int, now: int, earlier: Earlier, verdict: str
) -> None:
    finding = findings(errors(check_id, {f"FieldValues({field},3)": now}, earlier))[2]
    assert finding.verdict.value == verdict
    assert verdict == "pass" or "link 3" in finding.message


def test_what_blackwell_counts() -> None:
    hopper = {f"FieldValues({field},{n})": {"e": 3} for field in (161, 162, 163) for n in range(18)}
    blackwell = {f"FieldValues({field},0)": 0 for field in (206, 208, 211, 213, 214, 219)}
    assert verdicts(errors("nvlink-crc-errors", {**hopper, **blackwell}))[2] == "notapplicable"
    assert verdicts(errors("nvlink-recovery-errors", {**hopper, **blackwell}))[2] == "pass"
    broken = {**hopper, **blackwell, "FieldValues(214,0)": 1}
    earlier = reading(DAY_S, failed_recoveries_0=0)
    finding = findings(errors("nvlink-recovery-errors", broken, earlier))[2]
    assert (finding.verdict.value, "failed recoveries on link 0" in finding.message) == (
        "fail",
        True,
    )
    assert verdicts(errors("nvlink-recovery-errors", hopper))[2] == "notapplicable"
    failed = {call: {"e": 999} for call in hopper}
    assert verdicts(errors("nvlink-recovery-errors", failed))[2] == "unknown"


@pytest.mark.parametrize(
    ("now", "earlier", "verdict"),
    [
        (0, reading(), "pass"),
        (7, reading(), "unknown"),
        (7, reading(DAY_S, effective_errors_0=7), "pass"),
        (7, reading(DAY_S, effective_errors_0=2), "warn"),
    ],
)
def test_packets_of_blackwell(now: int, earlier: Earlier, verdict: str) -> None:
    found = verdicts(errors("nvlink-packet-errors", {"FieldValues(219,0)": now}, earlier))
    assert found == ["notapplicable", "notapplicable", verdict, *["notapplicable"] * 5]


def test_what_ampere_counts() -> None:
    hopper = {f"FieldValues({field},{n})": {"e": 3} for field in (161, 162, 163) for n in range(18)}
    ampere = {f"FieldValues({field})": 0 for field in (38, 45, 52, 59)}
    for check_id in ("nvlink-crc-errors", "nvlink-replays", "nvlink-recovery-errors"):
        assert verdicts(errors(check_id, {**hopper, **ampere}))[2] == "pass"
    again = {**hopper, **ampere, "FieldValues(52)": 500}
    finding = findings(errors("nvlink-replays", again, reading(DAY_S, replays=0)))[2]
    assert (finding.verdict.value, "replays on NVLink" in finding.message) == ("warn", True)
