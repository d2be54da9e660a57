# SPDX-License-Identifier: Apache-2.0
"""Draft a policy from a known-good node: take over what was observed where the policy compares it.

There is no table of which value belongs to which check. A value is proposed, the checks that read
it are judged again on the same evidence, and it is kept when they prove that it is what they
compare: another allowed value would fail this node, or the old one did.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from gpuaudit.check import Check, Expectations, Finding, Verdict
from gpuaudit.policy import Policy
from gpuaudit.policy.kinds import arms

Judge = Callable[[Check, Policy], tuple[Finding, ...]]
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?")
BAD = frozenset({Verdict.FAIL, Verdict.WARN})
UNDEMANDING = "any"


class Drafted(msgspec.Struct, frozen=True, kw_only=True):
    """A value to be written down, and what speaks for it."""

    section: str
    field: str
    value: Any
    was: Any
    source: str
    check: str
    observed: str
    loosened: bool
    """True when the node fails what the policy wants now."""


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One value of the policy, with the checks that may read it."""

    section: str
    name: str
    kind: Any
    checks: tuple[Check, ...]


def draft(policy: Policy, checks: Iterable[Check], judge: Judge) -> Iterator[Drafted]:
    """Every value that the node proves, one after the other, each under those before it."""
    for field in fields_of(checks):
        values = {(v.section, v.field): v for v in policy.values()}
        known = values.get((field.section, field.name))
        if known is None:
            continue
        trial = Trial(policy, field, known.value, judge)
        found = trial.proved()
        if found is not None:
            value, one = found
            policy = policy.with_value(field.section, field.name, value)
            yield Drafted(
                section=field.section,
                field=field.name,
                value=value,
                was=known.value,
                source=known.source,
                check=one.id,
                observed=observed(judge(one, policy)),
                loosened=one.id in trial.failing,
            )


def fields_of(checks: Iterable[Check]) -> list[Field]:
    """The values the checks may read, in the order of sections and of their records."""
    readers: dict[type[Expectations], list[Check]] = {}
    for one in checks:
        for kind in one.needs:
            if issubclass(kind, Expectations):
                readers.setdefault(kind, []).append(one)
    return [
        Field(section=kind.section(), name=name, kind=hint, checks=tuple(readers[kind]))
        for kind in sorted(readers, key=lambda k: k.section())
        for name, hint in get_type_hints(kind, include_extras=True).items()
    ]


class Trial:
    """One value of the policy, tried out on the node."""

    def __init__(self, policy: Policy, field: Field, value: Any, judge: Judge) -> None:
        """Judges the checks as the policy stands."""
        self.policy, self.field, self.value, self.judge = policy, field, value, judge
        self.before = {one.id: judge(one, policy) for one in field.checks}
        self.failing = {i for i, findings in self.before.items() if bad(findings)}

    def proved(self) -> tuple[Any, Check] | None:
        """The value the node has, with the check that proves it; None when nothing does."""
        for one in self.field.checks:
            proposals = candidates(self.field.kind, self.value, seen_words(self.before[one.id]))
            tried = [(value, self.under(value)) for value in proposals if value != self.value]
            found = self.healed(one, tried) if one.id in self.failing else self.told(one, tried)
            if found is not None:
                return found[0], one
        return None

    def under(self, value: Any) -> dict[str, tuple[Finding, ...]]:
        """What the checks find under another value."""
        policy = self.policy.with_value(self.field.section, self.field.name, value)
        return {one.id: self.judge(one, policy) for one in self.field.checks}

    def harmless(self, after: dict[str, tuple[Finding, ...]]) -> bool:
        """True when no check of the section finds more wrong than before."""
        return all(len(bad(after[i])) <= len(bad(was)) for i, was in self.before.items())

    def healed(self, one: Check, tried: list[tuple[Any, Any]]) -> tuple[Any] | None:
        """The first value under which a failing check passes."""
        good = (v for v, after in tried if passing(after[one.id]) and self.harmless(after))
        return next(((value,) for value in good), None)

    def told(self, one: Check, tried: list[tuple[Any, Any]]) -> tuple[Any] | None:
        """The one value that passes where the policy leaves a choice and the others fail."""
        if not open_choice(self.value):
            return None
        demanding = [(v, after) for v, after in tried if not open_choice(v)]
        words = seen_words(self.before[one.id])
        good = [v for v, after in demanding if passing(after[one.id]) and self.harmless(after)]
        good = [value for value in good if was_seen(value, words)]
        others = any(bad(after[one.id]) for _, after in demanding)
        return (good[0],) if len(good) == 1 and others else None


def bad(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that say something is wrong."""
    return [one for one in findings if one.verdict in BAD]


def passing(findings: Iterable[Finding]) -> bool:
    """True when something was judged and all of it is good."""
    verdicts = {one.verdict for one in findings}
    return Verdict.PASS in verdicts and verdicts <= {Verdict.PASS, Verdict.NOT_APPLICABLE}


def open_choice(value: Any) -> bool:
    """True for what demands nothing, or accepts several things."""
    several = isinstance(value, (list, tuple)) and len(value) > 1
    return several or value is None or value == UNDEMANDING


def was_seen(value: Any, words: list[str]) -> bool:
    """False for a list of what is accepted that names nothing observed (patterns, say)."""
    return not isinstance(value, list) or any(str(one) in word for one in value for word in words)


def seen_words(findings: Iterable[Finding]) -> list[str]:
    """What was observed, each once."""
    return list(dict.fromkeys(f.observed for f in findings if f.observed))


def candidates(kind: Any, value: Any, words: list[str]) -> Iterator[Any]:
    """Values to try, the nearest to what was observed first. What demands nothing comes last."""
    for arm in arms(kind):
        if get_origin(arm) is tuple:
            yield from lists(get_args(arm)[0], value, words)
        elif get_origin(arm) is Literal:
            yield from sorted(get_args(arm), key=lambda word: word == UNDEMANDING)
        elif arm is bool:
            yield from (True, False)
        elif arm in {int, float}:
            yield from fitting(kind, numbers(arm, value, words))
        elif arm is str:
            yield from fitting(kind, words)


def lists(inside: Any, value: Any, words: list[str]) -> Iterator[list[Any]]:
    """Each thing observed alone, all of them, then each word that is accepted now, alone."""
    seen = (one for arm in arms(inside) for one in observed_items(arm, words))
    items = list(fitting(inside, seen))
    alone = dict.fromkeys((*items, *(value or ())))
    yield from ([one] for one in alone if one in items)
    if len(items) > 1:
        yield items
    yield from ([one] for one in alone if one not in items)


def observed_items(arm: Any, words: list[str]) -> list[Any]:
    """What was observed, as items of a list."""
    if arm in {int, float}:
        return list(dict.fromkeys(numbers(arm, None, words)))
    return words


def numbers(arm: Any, value: Any, words: list[str]) -> list[int | float]:
    """Numbers that were observed, whole where whole ones are wanted, the nearest first."""
    found = [float(n) for word in words for n in NUMBER.findall(word)]
    whole = [n for x in found for n in (math.floor(x), math.ceil(x))]
    usable: list[int | float] = [*whole] if arm is int else [*found, *whole]
    # One more than each: a value that has to be met exactly fails with it.
    usable += [n + 1 for n in usable]
    distinct = list(dict.fromkeys(usable))
    known = isinstance(value, (int, float))
    return sorted(distinct, key=lambda n: abs(n - value)) if known else distinct


def fitting(kind: Any, values: Iterable[Any]) -> Iterator[Any]:
    """Those of the values that the policy accepts."""
    for value in values:
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError:
            continue
        yield value


def observed(findings: Iterable[Finding]) -> str:
    """What was seen, in a few words."""
    words = seen_words(findings)
    return ", ".join(words[:3]) + (" and others" if len(words) > 3 else "")


def described(one: Drafted) -> str:
    """The comment above a drafted value."""
    saw = f"Observed: {one.observed} ({one.check})." if one.observed else f"By {one.check}."
    was = shown(one.was) if len(shown(one.was)) <= 60 else f"{shown(one.was)[:56]} ..."
    if one.loosened:
        return f"{saw} LOOSER: {one.source} wants {was}, which this node fails."
    return f"{saw} {one.source} has {was}."


def shown(value: Any) -> str:
    """A value as YAML has it, on one line."""
    import yaml

    text: str = yaml.safe_dump(value, default_flow_style=True, width=10_000)
    return text.removesuffix("\n").removesuffix("\n...")


def written(drafted: Iterable[Drafted], *, about: Iterable[str], pci_ids: Iterable[str]) -> str:
    """The policy file."""
    lines = [*(f"# {line}" for line in about), "policy: 1"]
    if ids := list(pci_ids):
        lines += ["match:", f"  pci_ids: {shown(ids)}"]
    section = None
    for one in drafted:
        if section is None:
            lines.append("expect:")
        if one.section != section:
            section = one.section
            lines.append(f"  {section}:")
        lines += [f"    # {described(one)}", f"    {one.field}: {shown(one.value)}"]
    return "\n".join(lines) + "\n"
