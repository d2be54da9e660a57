# SPDX-License-Identifier: Apache-2.0
"""The report for a terminal or a log: worst first, one block a check, one line a finding."""

import os
import re
import shutil
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterator

from gpuaudit.check import Finding, Verdict
from gpuaudit.report import Report, Result, by_reason, by_severity

PLAIN_WIDTH = 100
GLUE = "\u00a0"  # a space that textwrap does not break at
WORDS = {one: one.value.upper() for one in Verdict} | {Verdict.NOT_APPLICABLE: "N/A"}
COLOURS = dict(zip(Verdict, ("31;1", "35;1", "36", "33", "34", "32", "2"), strict=True))
SHOWN_IN_FULL = (Verdict.FAIL, Verdict.ERROR, Verdict.WARN, Verdict.WAIVED)
SAME_SUBJECTS_SHOWN = 4
REASONS_IN_SHORT = 3
CHECKS_IN_SHORT = 8


class Page:
    """The width and colour of one rendering, and the lines so far."""

    def __init__(self, width: int, *, colour: bool) -> None:
        self.width = width
        self.colour = colour
        self.lines: list[str] = []

    def add(self, text: str = "", indent: str = "", first: str | None = None) -> None:
        """Wrap `text` to the width; continuation lines get `indent`.

        A `command` stays on one line where it fits, so that it can be copied.
        """
        lead = indent if first is None else first
        room = self.width - len(indent) - len("` ,")
        kept = re.sub(rf"`[^`]{{1,{room}}}`", lambda m: m[0].replace(" ", GLUE), text)
        wrapped = textwrap.wrap(
            kept, self.width, initial_indent=lead, subsequent_indent=indent, break_on_hyphens=False
        )
        self.lines += [line.replace(GLUE, " ") for line in wrapped] or [""]

    def paint(self, text: str, verdict: Verdict) -> str:
        """The verdict's colour around `text` on a terminal."""
        return f"\x1b[{COLOURS[verdict]}m{text}\x1b[0m" if self.colour else text

    def colour_word(self, line: int, verdict: Verdict) -> None:
        """Paint the verdict that a finished line starts with."""
        word = WORDS[verdict]
        self.lines[line] = self.paint(word, verdict) + self.lines[line].removeprefix(word)


def render(report: Report, *, verbose: bool = False, terminal: bool = False) -> str:
    """Render for the terminal's width and colour, or plain at 100 columns."""
    on_terminal = terminal and sys.stdout.isatty()
    width = shutil.get_terminal_size((PLAIN_WIDTH, 24)).columns if on_terminal else PLAIN_WIDTH
    page = Page(max(width, 40), colour=on_terminal and takes_colour())
    head(page, report)
    for verdict in SHOWN_IN_FULL:
        for result in by_severity(report, verdict):
            block(page, result)
    not_judged(page, report, verbose=verbose)
    if verbose:
        passes(page, report)
    foot(page, report, verbose=verbose)
    return "\n".join(page.lines) + "\n"


def takes_colour() -> bool:
    """Neither the user (https://no-color.org) nor the kind of terminal says no."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def head(page: Page, report: Report) -> None:
    """Which machine, which audit."""
    node, run = report.node, report.run
    what = ", ".join(
        word
        for word in (
            node.machine,
            f"guest ({node.virtualization})" if node.virtualization else None,
            gpus(report),
            f"driver {node.driver}" if node.driver else None,
            f"kernel {node.kernel}" if node.kernel else None,
        )
        if word
    )
    page.add(f"{clean(node.hostname or 'unnamed node')}: {clean(what)}")
    page.add(f"profile {run.profile}, {run.source}, policy {', '.join(p.path for p in run.policy)}")
    page.add()


def gpus(report: Report) -> str | None:
    """'8 x NVIDIA H100 80GB HBM3'; an image holds none, a recording may not tell."""
    names = report.node.gpus
    if report.run.source == "image":
        return "image"
    if names is None:
        return "GPUs not recorded"
    kinds = (f"{names.count(kind)} x {kind}" for kind in sorted(set(names)))
    return ", ".join(kinds) or "no NVIDIA GPU seen"


def block(page: Page, result: Result) -> None:
    """One check: headline, a line a finding, what to do."""
    word = WORDS[result.verdict]
    start = len(page.lines)
    line = f"{word:<8}{result.check}  [{result.severity.value}] wanted: {result.title}"
    page.add(line, indent=" " * 8, first="")
    page.colour_word(start, result.verdict)
    if not result.findings and result.reason:
        page.add(clean(result.reason), indent=" " * 8)
    for text, verdict in findings(result):
        page.add(text, indent=" " * 12, first=" " * 8 + mark(verdict, result.verdict))
    if result.remediation:
        page.add(f"Do: {clean(result.remediation)}", indent=" " * 12, first=" " * 8)
    page.add()


def mark(verdict: Verdict, of_check: Verdict) -> str:
    """A word in front of a finding that is judged other than its check."""
    if verdict is Verdict.PASS:
        return "- "
    return "- " if verdict is of_check else f"- ({WORDS[verdict].lower()}) "


def findings(result: Result) -> Iterator[tuple[str, Verdict]]:
    """Lines for the findings that are not good, alike ones told once with all their subjects."""
    alike: dict[tuple[str, Verdict], list[str]] = defaultdict(list)
    for one in result.findings:
        if one.verdict not in {Verdict.PASS, Verdict.NOT_APPLICABLE}:
            alike[line_of(one), one.verdict].append(one.subject)
    for (text, verdict), subjects in alike.items():
        yield f"{subjects_of(subjects)}: {text}", verdict
    good = sum(f.verdict is Verdict.PASS for f in result.findings)
    if good and alike:
        yield f"{good} other{'s are' if good > 1 else ' is'} good", Verdict.PASS


def subjects_of(subjects: list[str]) -> str:
    """All of a few subjects, the first ones of many."""
    if len(subjects) <= SAME_SUBJECTS_SHOWN:
        return clean(", ".join(subjects))
    few = ", ".join(subjects[: SAME_SUBJECTS_SHOWN - 1])
    return clean(f"{few} and {len(subjects) - SAME_SUBJECTS_SHOWN + 1} more")


def line_of(one: Finding) -> str:
    """Observed, expected, what is wrong, what it costs."""
    message = one.message.removeprefix(one.subject).lstrip(": ").strip()
    parts = [message] if message else []
    if one.expected is not None and one.observed is None:
        parts.append(f"expected {one.expected}")
    elif one.expected is not None:
        parts.append(f"observed {one.observed}, expected {one.expected}")
    elif one.observed is not None and one.observed not in message:
        parts.append(f"observed {one.observed}")
    if one.cost:
        parts.append(f"cost: {one.cost}")
    return clean("; ".join(parts))


def not_judged(page: Page, report: Report, *, verbose: bool) -> None:
    """Checks without a verdict, grouped by reason. What does not apply is told in short."""
    unknown = by_severity(report, Verdict.UNKNOWN)
    if unknown:
        most = None if verbose else CHECKS_IN_SHORT
        reasons(page, Verdict.UNKNOWN, "Could not be told:", by_reason(unknown), most)
    skipped = by_reason(by_severity(report, Verdict.NOT_APPLICABLE))
    if skipped and verbose:
        reasons(page, Verdict.NOT_APPLICABLE, "Does not apply here:", skipped)
    elif skipped:
        in_short(page, skipped)


def reasons(
    page: Page,
    verdict: Verdict,
    title: str,
    found: list[tuple[str, list[str]]],
    most: int | None = None,
) -> None:
    """One line a reason with the checks it stands for, or the most severe of them."""
    page.add(title)
    page.lines[-1] = page.paint(page.lines[-1], verdict)
    for reason, checks in found:
        count = f"{len(checks)} checks: " if len(checks) > 1 else ""
        left = len(checks[most:]) if most and len(checks) > most + 1 else 0
        more = f" and {left} more, which -v lists" if left else ""
        names = ", ".join(checks[:most] if left else checks)
        page.add(f"{count}{clean(reason)} ({names}{more})", indent=" " * 12, first=" " * 8)
    page.add()


def in_short(page: Page, found: list[tuple[str, list[str]]]) -> None:
    """How many checks do not apply, and the reasons of most of them."""
    number = sum(len(checks) for _, checks in found)
    told = [f"{clean(reason)} ({len(checks)})" for reason, checks in found[:REASONS_IN_SHORT]]
    more = "; and others" if len(found) > REASONS_IN_SHORT else ""
    few = "1 check does" if number == 1 else f"{number} checks do"
    page.add(f"{few} not apply here (-v lists them): {'; '.join(told)}{more}", " " * 8, "")
    page.add()


def passes(page: Page, report: Report) -> None:
    """What is good, for --verbose."""
    good = [result for result in report.results if result.verdict is Verdict.PASS]
    if good:
        page.add("Good:")
    for result in good:
        seen = sorted({f.observed for f in result.findings if f.observed})
        shown = f": {', '.join(seen[:3])}" if seen else ""
        page.add(f"{result.check}{clean(shown)}", indent=" " * 12, first=" " * 8)
    page.add()


def foot(page: Page, report: Report, *, verbose: bool) -> None:
    """Counts, the verdict, how to see more."""
    counts = report.summary.counts
    told = [f"{counts[v.value]} {WORDS[v].lower()}" for v in Verdict if counts.get(v.value)]
    verdict = report.summary.verdict
    number = len(report.results)
    took = f"in {report.run.duration_ms / 1000:.2f} s"
    checks = f"{number} check{'' if number == 1 else 's'} {took}"
    start = len(page.lines)
    page.add(f"{WORDS[verdict]}: {checks}: {', '.join(told)}")
    page.colour_word(start, verdict)
    if not verbose and any(counts[kind] for kind in ("fail", "warn", "unknown")):
        page.add("gpuaudit explain ID tells more about a check; -v shows what is good")


def clean(text: str) -> str:
    """Text of a node without control characters: a terminal obeys them."""
    return "".join(c if c.isprintable() else "?" for c in text)
