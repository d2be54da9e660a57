# SPDX-License-Identifier: Apache-2.0
"""Verdicts and findings, and the comparison of one reading with what the policy wants."""

import enum
from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from gpuaudit.facts.base import Absent


class Verdict(str, enum.Enum):
    """XCCDF's result words plus warn and waived (XCCDF 1.2, section 6.6.4.2)."""

    FAIL = "fail"
    ERROR = "error"
    UNKNOWN = "unknown"
    WARN = "warn"
    WAIVED = "waived"
    PASS = "pass"  # noqa: S105 - a verdict, not a password
    NOT_APPLICABLE = "notapplicable"


RANK = {verdict: rank for rank, verdict in enumerate(Verdict)}
JUDGED = frozenset({Verdict.FAIL, Verdict.WARN, Verdict.WAIVED, Verdict.PASS})


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict that decides: fail, error, unknown, warn, waived, pass, notapplicable.

    Nothing at all is unknown: an empty run is never green.
    """
    return min(verdicts, key=RANK.__getitem__, default=Verdict.UNKNOWN)


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One answer about one subject (GPU UUID, PCI address, NIC, file)."""

    subject: str
    verdict: Verdict
    observed: str | None = None
    expected: str | None = None
    message: str = ""
    cost: str | None = None
    evidence: tuple[str, ...] = ()


def shown(value: object) -> str:
    """A value as people read it: on/off words for truth, commas between several."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (tuple, list, set, frozenset)):
        items = sorted(value) if isinstance(value, (set, frozenset)) else value
        return " or ".join(shown(item) for item in items)
    return str(value.value if isinstance(value, enum.Enum) else value)


def counted(number: int, noun: str) -> str:
    """'1 process', '3 processes': a number with its noun."""
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number} {noun}{ending}"


def passes(of: str, observed: object = None, **fields: Any) -> Finding:
    """A pass; only code that saw the evidence may call it."""
    return _finding(Verdict.PASS, of, "", observed, fields)


def fails(of: str, message: str, observed: object = None, **fields: Any) -> Finding:
    """A failure: `message` says what is wrong in one line."""
    return _finding(Verdict.FAIL, of, message, observed, fields)


def warns(of: str, message: str, observed: object = None, **fields: Any) -> Finding:
    """A warning: worth a look, not worth draining a node."""
    return _finding(Verdict.WARN, of, message, observed, fields)


def unknown(of: str, reason: str, observed: object = None, **fields: Any) -> Finding:
    """Could not tell, with the reason and, where one exists, the way to find out."""
    return _finding(Verdict.UNKNOWN, of, reason, observed, fields)


def not_applicable(of: str, reason: str, observed: object = None, **fields: Any) -> Finding:
    """Does not apply to this subject, with the reason."""
    return _finding(Verdict.NOT_APPLICABLE, of, reason, observed, fields)


def _finding(
    verdict: Verdict, of: str, message: str, observed: object, fields: dict[str, Any]
) -> Finding:
    if "expected" in fields:
        fields = {**fields, "expected": shown(fields["expected"])}
    seen = None if observed is None else shown(observed)
    return Finding(subject=of, verdict=verdict, message=message, observed=seen, **fields)


def without_value(observed: object, of: str) -> Finding | None:
    """The finding for a value that was not read, or None when there is a value."""
    if observed is None:
        return unknown(of, "no value was read")
    return for_absent(observed, of) if isinstance(observed, Absent) else None


def for_absent(absent: Absent, of: str) -> Finding:
    """Unsupported by the device: does not apply. Anything else: unknown."""
    judge = not_applicable if absent.kind == "unsupported" else unknown
    return judge(of, absent.reason)


def expect(  # noqa: PLR0913 - one argument a field of the finding
    observed: object,
    expected: object,
    *,
    of: str,
    message: str = "",
    cost: str | None = None,
    evidence: tuple[str, ...] = (),
    otherwise: Verdict = Verdict.FAIL,
) -> Finding:
    """Compare one reading with the value (or the collection of values) the policy accepts.

    `of` is the subject. A reading that is Absent or None never passes: unsupported becomes
    notapplicable, everything else unknown.
    """
    if (absent := without_value(observed, of)) is not None:
        return absent
    several = isinstance(expected, Collection) and not isinstance(expected, (str, bytes))
    good = observed in expected if several else observed == expected  # type: ignore[operator]  # several implies a container
    return Finding(
        subject=of,
        verdict=Verdict.PASS if good else otherwise,
        observed=shown(observed),
        expected=shown(expected),
        message="" if good else message or f"{of} is {shown(observed)}",
        cost=None if good else cost,
        evidence=evidence,
    )


def expect_at_least(  # noqa: PLR0913 - one argument a field of the finding
    observed: float | Absent | None,
    minimum: float,
    *,
    of: str,
    unit: str = "",
    message: str = "",
    cost: str | None = None,
    evidence: tuple[str, ...] = (),
    otherwise: Verdict = Verdict.FAIL,
) -> Finding:
    """Like expect, for a number that must not be below `minimum`."""
    if observed is None:
        return unknown(of, "no value was read")
    if isinstance(observed, Absent):
        return for_absent(observed, of)
    good = observed >= minimum
    return Finding(
        subject=of,
        verdict=Verdict.PASS if good else otherwise,
        observed=f"{round(observed, 2)} {unit}".strip(),
        expected=f"at least {minimum} {unit}".strip(),
        message=""
        if good
        else message or f"{of} is {round(observed, 2)} {unit}, below {minimum} {unit}",
        cost=None if good else cost,
        evidence=evidence,
    )
