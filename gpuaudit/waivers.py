# SPDX-License-Identifier: Apache-2.0
"""Waivers: findings the site accepts until a date, with a reason and an owner.

A waived finding stays visible. An expired waiver waives nothing and is a finding of its own.
"""

import datetime as dt
import fnmatch
from collections.abc import Iterable

import msgspec

from gpuaudit.check import Finding, Severity, Verdict, worst
from gpuaudit.policy.located import Located, PolicyError, read_document
from gpuaudit.policy.profiles import require_known
from gpuaudit.report import Result

WAIVABLE = frozenset({Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN})
EXPIRED = "waiver-expired"


class Waiver(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One accepted finding. `until` is the last day on which it counts."""

    check: str
    subject: str = "*"
    reason: str
    until: dt.date
    owner: str


class WaiverFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A waiver file: `waivers: [...]`."""

    waivers: tuple[Waiver, ...]


class PlacedWaiver(msgspec.Struct, frozen=True):
    """A waiver and the file and line it stands at."""

    waiver: Waiver
    place: str


def load_waivers(path: str, known: Iterable[str]) -> tuple[PlacedWaiver, ...]:
    """Read a waiver file. Raises PolicyError with file and line, also for unknown checks."""
    located = Located(path, read_document(path))
    found = located.convert(located.value, WaiverFile)
    placed = tuple(PlacedWaiver(w, located.at(("waivers", i))) for i, w in enumerate(found.waivers))
    ids = sorted(known)
    for one in placed:
        try:
            require_known(one.waiver.check, ids)
        except PolicyError as error:
            raise PolicyError(f"{one.place}: {error}") from None
    return placed


def waive(result: Result, waivers: Iterable[PlacedWaiver], today: dt.date) -> Result:
    """The result with every accepted finding turned to waived."""
    mine = [
        w
        for w in waivers
        if w.waiver.until >= today and fnmatch.fnmatchcase(result.check, w.waiver.check)
    ]
    if not mine or result.verdict not in WAIVABLE:
        return result
    if not result.findings:
        return waived_whole(result, mine)
    findings = tuple(waived(f, mine) for f in result.findings)
    verdict = worst(f.verdict for f in findings)
    return msgspec.structs.replace(result, findings=findings, verdict=verdict)


def waived_whole(result: Result, mine: list[PlacedWaiver]) -> Result:
    """A result without findings (not judged) is waived by a waiver for every subject."""
    every = next((w for w in mine if w.waiver.subject == "*"), None)
    if every is None:
        return result
    return msgspec.structs.replace(
        result, verdict=Verdict.WAIVED, reason=f"{result.reason}; {words(every)}"
    )


def waived(finding: Finding, mine: list[PlacedWaiver]) -> Finding:
    """One finding, waived when a waiver names its subject."""
    for placed in mine:
        if finding.verdict in WAIVABLE and fnmatch.fnmatchcase(
            finding.subject, placed.waiver.subject
        ):
            message = f"{finding.message}; {words(placed)}"
            return msgspec.structs.replace(finding, verdict=Verdict.WAIVED, message=message)
    return finding


def words(placed: PlacedWaiver) -> str:
    """How a waiver is told in a report."""
    one = placed.waiver
    return f"waived until {one.until} by {one.owner}: {one.reason} ({placed.place})"


def expired(waivers: Iterable[PlacedWaiver], today: dt.date) -> Result | None:
    """The finding about waivers whose date has passed, or None."""
    old = [w for w in waivers if w.waiver.until < today]
    if not old:
        return None
    findings = tuple(
        Finding(
            subject=w.place,
            verdict=Verdict.WARN,
            observed=str(w.waiver.until),
            expected=f"{today} or later",
            message=f"the waiver of {w.waiver.check} by {w.waiver.owner} has expired",
        )
        for w in old
    )
    return Result(
        check=EXPIRED,
        title="Every waiver is still in force",
        severity=Severity.LOW,
        verdict=Verdict.WARN,
        findings=findings,
        remediation="Fix what was waived, or agree a new date with the owner.",
    )
