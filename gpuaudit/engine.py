# SPDX-License-Identifier: Apache-2.0
"""Run checks: supply facts and expectations by type, judge, keep the time, collect a report.

Checks that need NVML run last: the PCI links are read before a GPU is opened (opening one changes
its link), and the NVML child works while the other evidence is read.
"""

import os
import time
import traceback
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

import msgspec

from gpuaudit.check import Check, Expectations, Finding, Verdict, worst
from gpuaudit.deadline import OutOfTimeError, time_limit
from gpuaudit.facts.base import PROBES
from gpuaudit.facts.pci import PciDevices
from gpuaudit.host import Host, NotApplicable, SnapshotError, Unavailable
from gpuaudit.policy import Policy, PolicyError, PolicySet
from gpuaudit.report import Result

NOTHING = "the check found nothing to judge"
FIND_LIMIT_S = 5.0
LONGEST_TEXT = 2000
T = TypeVar("T")


class Outcome(NamedTuple):
    """Findings of one check, or why there are none; `trace` for a check that crashed."""

    findings: tuple[Finding, ...]
    reason: str | None = None
    verdict: Verdict | None = None
    trace: str | None = None


class Facts:
    """Facts on demand and once, for one Host. A probe that failed fails the same way again."""

    def __init__(self, host: Host) -> None:
        """Nothing is read before it is asked for."""
        self.host = host
        self._known: dict[type, Any] = {}

    def get(self, kind: type) -> Any:
        """The fact of this type. Raises Unavailable or NotApplicable as its probe did."""
        if kind is Host:
            return self.host
        if kind not in self._known:
            self._known[kind] = self._probe(kind)
        found = self._known[kind]
        if isinstance(found, (Unavailable, NotApplicable)):
            raise found
        return found

    def find(self, kind: type[T]) -> T | None:
        """The fact, or None whatever the reason: the checks that need it tell that.

        For what is asked beside the checks; bounded in time like one of them.
        """
        try:
            with time_limit(FIND_LIMIT_S):
                found: T = self.get(kind)
        except SnapshotError:
            raise
        except (Exception, OutOfTimeError):  # noqa: BLE001 - the fact's own checks say why
            return None
        return found

    def known(self, kind: type[T]) -> list[T]:
        """The facts of this kind that were asked for and could be had."""
        return [fact for fact in self._known.values() if isinstance(fact, kind)]

    def _probe(self, kind: type) -> Any:
        probe = PROBES[kind]
        needs = [hint for name, hint in probe.__annotations__.items() if name != "return"]
        try:
            return probe(*[self.get(need) for need in needs])
        except (Unavailable, NotApplicable) as absent:
            return absent


def needs_nvml(kind: type, seen: frozenset[type] = frozenset()) -> bool:
    """True when a fact type rests on NVML answers, directly or through other facts."""
    if kind not in PROBES or kind in seen:
        return False
    if getattr(kind, "asks_nvml", False):
        return True
    hints = PROBES[kind].__annotations__.items()
    return any(needs_nvml(hint, seen | {kind}) for name, hint in hints if name != "return")


def gpu_ids(facts: Facts) -> tuple[str, ...]:
    """PCI IDs of the node's GPUs, to pick the SKU policy; none when they cannot be read."""
    devices = facts.find(PciDevices)
    return tuple(sorted({gpu.id for gpu in devices.seen("gpu")})) if devices else ()


class Audit(NamedTuple):
    """What judge() gives back: results in check order, traces of crashed checks by ID."""

    results: tuple[Result, ...]
    policy: Policy
    traces: dict[str, str]


def judge(
    facts: Facts,
    checks: Iterable[Check],
    policies: PolicySet,
    *,
    timeout_s: float,
    check_timeout_s: float,
    required: Iterable[str] = (),
) -> Audit:
    """Run the checks and answer one Result each, in the order given."""
    ends_at = time.monotonic() + timeout_s
    ordered = list(checks)
    policy = policies.for_node(gpu_ids(facts))
    late = {c.id for c in ordered if any(needs_nvml(kind) for kind in c.needs)}
    if late:
        facts.host.nvml_start()
    must = frozenset(required)
    outcomes: dict[str, Result] = {}
    traces: dict[str, str] = {}
    for one in sorted(ordered, key=lambda c: c.id in late):
        started = time.perf_counter()
        budget_s = min(
            check_timeout_s if one.id not in late else timeout_s, ends_at - time.monotonic()
        )
        outcome = judge_one(one, facts, policy, budget_s)
        if outcome.trace:
            traces[one.id] = outcome.trace
        outcomes[one.id] = result_of(one, outcome, one.id in must, started)
    return Audit(tuple(outcomes[c.id] for c in ordered), policy, traces)


def judge_one(one: Check, facts: Facts, policy: Policy, budget_s: float) -> Outcome:
    """One check. A crash, a missing fact and a spent budget each become its verdict alone."""
    if one.id in policy.skip:
        return Outcome((), f"the policy skips it: {policy.skip[one.id]}", Verdict.NOT_APPLICABLE)
    if budget_s <= 0:
        return Outcome((), "not run: the time of the whole audit was spent", Verdict.UNKNOWN)
    try:
        with time_limit(budget_s):
            return judged(one.function(*[supply(kind, facts, policy) for kind in one.needs]))
    except (NotApplicable, Unavailable) as absent:
        never = isinstance(absent, NotApplicable)
        return Outcome((), absent.reason, Verdict.NOT_APPLICABLE if never else Verdict.UNKNOWN)
    except OutOfTimeError:
        return Outcome((), f"not finished within {budget_s:.1f} s", Verdict.UNKNOWN)
    except (PolicyError, SnapshotError):
        raise
    except Exception as error:  # noqa: BLE001 - a crashed check is a verdict, not the end of the audit
        return crashed(error)


def crashed(error: Exception) -> Outcome:
    """The verdict error, with file and line, and the trace for --verbose."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(where.filename)}:{where.lineno}"
    reason = f"the check crashed: {type(error).__name__}: {error} ({place})"
    trace = "".join(traceback.format_exception(error))
    return Outcome((), reason, Verdict.ERROR, trace)


def supply(kind: type, facts: Facts, policy: Policy) -> Any:
    """A parameter of a check: the expectations of its section, or a fact."""
    if issubclass(kind, Expectations):
        return policy.expectations(kind)
    return facts.get(kind)


def judged(answer: Finding | Iterable[Finding]) -> Outcome:
    """The findings of a check; none at all is unknown, never a pass."""
    findings = (answer,) if isinstance(answer, Finding) else tuple(answer)
    if not findings:
        return Outcome((), NOTHING, Verdict.UNKNOWN)
    return Outcome(tuple(map(clipped, findings)))


def clipped(one: Finding) -> Finding:
    """A finding as people can read it: a damaged file may be one word of megabytes."""
    texts = {name: getattr(one, name) or "" for name in ("subject", "observed", "message")}
    long = {n: f"{t[:LONGEST_TEXT]} ..." for n, t in texts.items() if len(t) > LONGEST_TEXT}
    return msgspec.structs.replace(one, **long) if long else one


def result_of(one: Check, outcome: Outcome, required: bool, started: float) -> Result:  # noqa: FBT001 - one call
    """The Result of one check. Its verdict is the worst of its findings."""
    verdict = outcome.verdict or worst(f.verdict for f in outcome.findings)
    return Result(
        check=one.id,
        title=one.title,
        severity=one.severity,
        verdict=verdict,
        reason=outcome.reason or shared_reason(outcome.findings, verdict),
        findings=outcome.findings,
        required=required,
        duration_ms=round((time.perf_counter() - started) * 1000, 3),
    )


def shared_reason(findings: tuple[Finding, ...], verdict: Verdict) -> str | None:
    """The one reason all findings give for not being judged, or None."""
    if verdict not in {Verdict.UNKNOWN, Verdict.NOT_APPLICABLE}:
        return None
    reasons = {f.message for f in findings if f.verdict is verdict}
    return reasons.pop() if len(reasons) == 1 else None
