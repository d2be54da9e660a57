# SPDX-License-Identifier: Apache-2.0
"""The report as one self-contained HTML page: offline, light and dark, no script from elsewhere."""

import importlib.resources

from gpuaudit.check import Finding, Verdict
from gpuaudit.report import Report, Result, by_severity, reason_of

GROUPS = (
    (Verdict.FAIL, "Failed"),
    (Verdict.ERROR, "Crashed"),
    (Verdict.WARN, "Warnings"),
    (Verdict.UNKNOWN, "Could not be told"),
    (Verdict.WAIVED, "Waived"),
    (Verdict.PASS, "Good"),
    (Verdict.NOT_APPLICABLE, "Does not apply here"),
)
URGENT = (Verdict.FAIL, Verdict.ERROR, Verdict.WARN)
FOLDED = ("unknown", "pass", "notapplicable")


def render(report: Report, *, verbose: bool = False, terminal: bool = False) -> str:  # noqa: ARG001 - every renderer takes the same arguments
    """One page; everything a node said is escaped by the template engine."""
    import jinja2

    template = importlib.resources.files("gpuaudit.reports") / "templates" / "node.html.j2"
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    page = environment.from_string(template.read_text(encoding="utf-8"))
    groups = [(v.value, t, by_severity(report, v)) for v, t in GROUPS]
    shown = [group for group in groups if group[2]]
    given = {"overview": overview(report), "folded": FOLDED, "alike_in": alike_in}
    return page.render(report=report, groups=shown, gpus=gpus(report), split=split, **given) + "\n"


def overview(report: Report) -> list[tuple[Result, str, str]]:
    """One row for each check that needs a look: where, and what is wrong there."""
    urgent = [one for verdict in URGENT for one in by_severity(report, verdict)]
    return [(one, *first_trouble(one)) for one in urgent]


def first_trouble(result: Result) -> tuple[str, str]:
    """The subject that decided, how many more there are, and what is wrong with it."""
    mine = [one for one in result.findings if one.verdict is result.verdict]
    if not mine:
        return "", result.reason or result.title
    more = f" and {len(mine) - 1} more" if len(mine) > 1 else ""
    message = mine[0].message.removeprefix(mine[0].subject).lstrip(": ")
    return f"{mine[0].subject}{more}", message


def alike_in(results: list[Result]) -> list[tuple[str, list[Result]]]:
    """The checks that were not judged, by the reason; the reason of most comes first."""
    found: dict[str, list[Result]] = {}
    for one in results:
        found.setdefault(reason_of(one), []).append(one)
    return sorted(found.items(), key=lambda item: -len(item[1]))


def split(findings: tuple[Finding, ...]) -> tuple[list[Finding], list[Finding]]:
    """What needs a look, and what is good or does not apply."""
    fine = {Verdict.PASS, Verdict.NOT_APPLICABLE}
    bad = [one for one in findings if one.verdict not in fine]
    return bad, [one for one in findings if one.verdict in fine]


def gpus(report: Report) -> str:
    """'8 x NVIDIA H100 80GB HBM3', or that none was seen."""
    names = report.node.gpus
    if names is None:
        return "GPUs not recorded"
    kinds = [f"{names.count(k)} x {k}" for k in sorted(set(names))]
    return ", ".join(kinds) or "no NVIDIA GPU seen"
