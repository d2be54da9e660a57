# SPDX-License-Identifier: Apache-2.0
"""Judging a running total by its rate.

One reading is enough for a verdict only where it leaves no doubt: a total that never exceeded what
one hour may bring passes, and a mean since boot above the limit fails.
"""

from gpuaudit.facts.base import Absent
from gpuaudit.facts.counters import Growth
from gpuaudit.finding import Finding, Verdict, for_absent

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
UNITS = ((DAY, "day"), (HOUR, "hour"), (MINUTE, "minute"))
HOW = "Run `gpuaudit run --interval 60`, or let the nightly audit keep readings."


def expect_rate(  # noqa: PLR0913 - one argument a field of the finding
    growth: Growth | Absent,
    limit: int,
    *,
    per_s: float,
    of: str,
    what: str,
    cost: str | None = None,
    evidence: tuple[str, ...] = (),
    otherwise: Verdict = Verdict.FAIL,
) -> Finding:
    """Compare the growth of a total with at most `limit` in `per_s` seconds.

    `what` names the things counted, in the plural: "corrected PCIe errors". Growth too small for
    its short interval to say anything about `per_s` is unknown; so is a counter at its end.
    """
    if isinstance(growth, Absent):
        return for_absent(growth, of)
    verdict, message = judged(growth, limit, per_s, what)
    bad = verdict is Verdict.FAIL
    return Finding(
        subject=of,
        verdict=otherwise if bad else verdict,
        observed=told(growth),
        expected=f"at most {limit} {unit_of(per_s)}",
        message=message,
        cost=cost if bad else None,
        evidence=evidence,
    )


def judged(growth: Growth, limit: int, per_s: float, what: str) -> tuple[Verdict, str]:
    """The verdict and what to say about it."""
    if too_many(growth, limit, per_s):
        return Verdict.FAIL, f"{what}: {told(growth)}, more than {limit} {unit_of(per_s)}"
    if growth.stuck:
        return Verdict.UNKNOWN, f"the counter of {what} is at its end and must be reset to count on"
    if growth.before is None:
        if growth.now <= limit:
            return Verdict.PASS, ""
        return (
            Verdict.UNKNOWN,
            f"{what}: {growth.now} by now, and how fast is not known: {growth.why}. {HOW}",
        )
    if growth.by <= allowed(growth, limit, per_s) or not growth.by:
        return Verdict.PASS, ""
    return Verdict.UNKNOWN, f"{what}: {told(growth)}, too short a time to tell a rate. {HOW}"


def too_many(growth: Growth, limit: int, per_s: float) -> bool:
    """More than the time allows, and more than even the whole of `per_s` would.

    A counter that came to its end in between has grown by at least so much.
    """
    if growth.seconds is None:
        return False
    return growth.by > max(limit, allowed(growth, limit, per_s))


def allowed(growth: Growth, limit: int, per_s: float) -> float:
    """What the limit comes to in the time between the readings."""
    return limit * (growth.seconds or 0.0) / per_s


def told(growth: Growth) -> str:
    """'12 in 3 hours', '9 since boot', '255'."""
    if growth.before is not None:
        return f"{growth.by} in {span(growth.seconds or 0.0)}"
    return str(growth.now) if growth.seconds is None else f"{growth.now} since boot"


def span(seconds: float) -> str:
    """'1 hour', '3.5 hours'."""
    unit_s, name = next((unit for unit in UNITS if seconds >= unit[0]), (1.0, "second"))
    number = f"{seconds / unit_s:.1f}".removesuffix(".0")
    return f"{number} {name}" if number == "1" else f"{number} {name}s"


def unit_of(per_s: float) -> str:
    """'an hour', 'a day'."""
    names = {DAY: "a day", HOUR: "an hour", MINUTE: "a minute"}
    return names.get(per_s, f"in {span(per_s)}")
