# SPDX-License-Identifier: Apache-2.0
"""What a check is, and the registry. Everything a file under checks/ needs is importable here.

A check is a pure function. Its parameter types say what it needs: fact types and at most one
Expectations type. It returns one Finding or yields several. The decorator registers the function
and returns it unchanged, so a test calls it with facts made by hand.
"""

import enum
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from gpuaudit.finding import (
    JUDGED,
    Finding,
    Verdict,
    counted,
    expect,
    expect_at_least,
    fails,
    for_absent,
    not_applicable,
    passes,
    shown,
    unknown,
    warns,
    worst,
)
from gpuaudit.growth import DAY, HOUR, MINUTE, expect_rate
from gpuaudit.host.errors import NotApplicable, Unavailable

__all__ = [
    "CHECKS",
    "DAY",
    "HOUR",
    "JUDGED",
    "MINUTE",
    "Check",
    "DuplicateCheckError",
    "Expectations",
    "Finding",
    "NotApplicable",
    "Severity",
    "Unavailable",
    "Verdict",
    "check",
    "counted",
    "expect",
    "expect_at_least",
    "expect_rate",
    "fails",
    "for_absent",
    "not_applicable",
    "passes",
    "shown",
    "unknown",
    "warns",
    "worst",
]


class Severity(str, enum.Enum):
    """How much a failure matters to a distributed training job."""

    CRITICAL = "critical"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Expectations(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the policy wants of one subject. Values come from policy files, none from code."""

    @classmethod
    def section(cls) -> str:
        """The key below `expect:` in a policy file: MemoryExpectations -> memory."""
        name = cls.__name__.removesuffix("Expectations")
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


class DuplicateCheckError(Exception):
    """Two checks carry one ID."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A registered check: the function, its ID and where it came from."""

    id: str
    function: Callable[..., Finding | Iterable[Finding]]
    severity: Severity
    origin: str

    @property
    def title(self) -> str:
        """First line of the docstring: a sentence that is true when the check passes."""
        return (self.function.__doc__ or "").strip().partition("\n")[0].rstrip(".")

    @property
    def needs(self) -> tuple[type, ...]:
        """The types of the parameters, in order."""
        hints = self.function.__annotations__
        return tuple(hint for name, hint in hints.items() if name != "return")


CHECKS: dict[str, Check] = {}
ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+")
F = TypeVar("F", bound=Callable[..., Any])


def check(check_id: str, *, severity: Severity) -> Callable[[F], F]:
    """Register a function as the check `check_id` (`<file>-<property>`, kebab case)."""

    def register(function: F) -> F:
        code = function.__code__
        found = Check(
            id=check_id,
            function=function,
            severity=severity,
            origin=f"{function.__module__} ({code.co_filename}:{code.co_firstlineno})",
        )
        refuse_duplicate(found)
        CHECKS[check_id] = found
        return function

    return register


def refuse_duplicate(found: Check) -> None:
    """Raise DuplicateCheckError naming both places, or ValueError for an ID that is no ID."""
    if not ID.fullmatch(found.id):
        raise ValueError(f"{found.id!r} is no check ID ({found.origin})")
    if found.id in CHECKS:
        other = CHECKS[found.id].origin
        raise DuplicateCheckError(f"check {found.id} is defined twice: {other} and {found.origin}")
