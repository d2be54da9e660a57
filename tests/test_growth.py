# SPDX-License-Identifier: Apache-2.0
"""Rates: what one reading can tell, and what two can."""

import pytest

from gpuaudit.check import DAY, HOUR, Finding, Verdict, expect_rate
from gpuaudit.facts.base import Absent
from gpuaudit.facts.counters import Growth


def judged(growth: Growth | Absent, limit: int = 10, per_s: float = HOUR) -> Finding:
    return expect_rate(growth, limit, per_s=per_s, of="0000:18:00.0", what="replays", cost="time")


@pytest.mark.parametrize(
    ("growth", "verdict"),
    [
        (Growth(5, None, None), "pass"),  # never more than an hour may bring
        (Growth(11, None, None, "why"), "unknown"),
        (Growth(11, None, 2 * HOUR, "why"), "unknown"),  # all of it may be of one minute
        (Growth(11, None, HOUR, "why"), "fail"),  # more than the hour since boot may bring
        (Growth(21, None, 2 * HOUR, "why"), "fail"),  # the mean is too high
        (Growth(20, None, 2 * HOUR, "why"), "unknown"),
        (Growth(1000, 1000, 5.0), "pass"),
        (Growth(1001, 1000, 5.0), "unknown"),  # one in five seconds says nothing of an hour
        (Growth(1010, 1000, 5.0), "unknown"),
        (Growth(1011, 1000, 5.0), "fail"),
        (Growth(1010, 1000, HOUR), "pass"),
        (Growth(1011, 1000, HOUR), "fail"),
        (Growth(1240, 1000, DAY), "pass"),
        (Growth(1241, 1000, DAY), "fail"),
        (Growth(255, None, None, "why", stuck=True), "unknown"),
        (Growth(255, 255, DAY, stuck=True), "unknown"),
        (Growth(255, 250, HOUR, stuck=True), "unknown"),  # five or more
        (Growth(255, 0, HOUR, stuck=True), "fail"),  # how many more makes no difference
        (Growth(255, None, HOUR, "why", stuck=True), "fail"),
        (Growth(0, None, None), "pass"),
    ],
)
def test_verdicts(growth: Growth, verdict: str) -> None:
    assert judged(growth).verdict.value == verdict


def test_a_limit_of_none_at_all() -> None:
    assert judged(Growth(1, 0, DAY), 0).verdict is Verdict.FAIL
    assert judged(Growth(1, 1, DAY), 0).verdict is Verdict.PASS
    assert judged(Growth(1, None, None), 0).verdict is Verdict.UNKNOWN


def test_a_failure_says_how_many_in_which_time() -> None:
    found = judged(Growth(150, 100, 3 * HOUR))
    assert (found.observed, found.expected) == ("50 in 3 hours", "at most 10 an hour")
    assert found.message == "replays: 50 in 3 hours, more than 10 an hour"
    assert found.cost == "time"


def test_not_knowing_says_how_to_know() -> None:
    found = judged(Growth(11, None, None, "there is no earlier reading"))
    assert "there is no earlier reading" in found.message
    assert "--interval 60" in found.message
    assert found.cost is None


@pytest.mark.parametrize(
    ("kind", "verdict"), [("unsupported", "notapplicable"), ("denied", "unknown")]
)
def test_no_counter(kind: str, verdict: str) -> None:
    assert judged(Absent(kind, "no counter")).verdict.value == verdict  # type: ignore[arg-type]  # parametrized


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(5.0, "1 in 5 seconds"), (90.0, "1 in 1.5 minutes"), (2 * DAY, "1 in 2 days")],
)
def test_times_are_told_as_people_say_them(seconds: float, text: str) -> None:
    assert judged(Growth(1, 0, seconds)).observed == text
