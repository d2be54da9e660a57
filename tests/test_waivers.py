# SPDX-License-Identifier: Apache-2.0
"""Waivers: accepted findings stay visible, expire, and are refused when they name nothing."""

import datetime as dt
from pathlib import Path

import pytest

from gpuaudit.audit import exit_code, summary_of
from gpuaudit.check import Finding, Severity, Verdict, fails, passes, unknown
from gpuaudit.policy import PolicyError
from gpuaudit.report import Node, Report, Result, Run
from gpuaudit.waivers import PlacedWaiver, expired, load_waivers, waive

TODAY = dt.date(2026, 6, 1)
KNOWN = ["pcie-link-width", "pcie-link-speed"]
GOOD = """waivers:
  - check: pcie-link-width
    subject: "0000:3a:*"
    reason: riser on order, ticket 42
    until: 2026-06-01
    owner: ops@example.org
"""


def written(folder: Path, text: str) -> str:
    path = folder / "waivers.yaml"
    path.write_text(text)
    return str(path)


def loaded(folder: Path, text: str = GOOD) -> tuple[PlacedWaiver, ...]:
    return load_waivers(written(folder, text), KNOWN)


def result(
    *findings: Finding, verdict: Verdict = Verdict.FAIL, reason: str | None = None
) -> Result:
    return Result(
        check="pcie-link-width",
        title="t",
        severity=Severity.HIGH,
        verdict=verdict,
        findings=findings,
        reason=reason,
        required=True,
    )


def report(one: Result) -> Report:
    run = Run(id="i", started_at="t", duration_ms=1, profile="p", source="live", gpuaudit="0")
    return Report(node=Node(), run=run, summary=summary_of((one,)), results=(one,))


def test_a_waived_finding_stays_visible_and_does_not_fail_the_node(tmp_path: Path) -> None:
    told = waive(
        result(fails("0000:3a:00.0", "x8"), passes("0000:1a:00.0")), loaded(tmp_path), TODAY
    )
    assert told.verdict is Verdict.WAIVED
    assert "riser on order, ticket 42" in told.findings[0].message
    assert "waivers.yaml:2" in told.findings[0].message
    assert exit_code(report(told)) == 0
    assert report(told).summary.verdict is Verdict.PASS
    assert report(told).summary.counts["waived"] == 1


def test_another_subject_still_fails(tmp_path: Path) -> None:
    told = waive(
        result(fails("0000:3a:00.0", "x8"), fails("0000:1a:00.0", "x8")), loaded(tmp_path), TODAY
    )
    assert [f.verdict for f in told.findings] == [Verdict.WAIVED, Verdict.FAIL]
    assert told.verdict is Verdict.FAIL
    assert exit_code(report(told)) == 1


def test_a_required_unknown_can_be_waived(tmp_path: Path) -> None:
    one = result(unknown("0000:3a:00.0", "idle"), verdict=Verdict.UNKNOWN)
    assert exit_code(report(one)) == 3
    assert exit_code(report(waive(one, loaded(tmp_path), TODAY))) == 0


def test_a_result_without_findings_is_waived_only_for_every_subject(tmp_path: Path) -> None:
    one = result(verdict=Verdict.UNKNOWN, reason="not read")
    assert waive(one, loaded(tmp_path), TODAY).verdict is Verdict.UNKNOWN
    everything = GOOD.replace('    subject: "0000:3a:*"\n', "")
    assert waive(one, loaded(tmp_path, everything), TODAY).verdict is Verdict.WAIVED


def test_an_expired_waiver_waives_nothing_and_is_a_finding(tmp_path: Path) -> None:
    later = TODAY + dt.timedelta(days=1)
    accepted = loaded(tmp_path)
    assert waive(result(fails("0000:3a:00.0", "x8")), accepted, later).verdict is Verdict.FAIL
    assert expired(accepted, TODAY) is None
    old = expired(accepted, later)
    assert old is not None
    assert old.verdict is Verdict.WARN
    assert old.findings[0].subject.endswith("waivers.yaml:2")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            GOOD.replace("link-width", "link-widht"),
            ":2: no check is named pcie-link-widht; did you mean pcie-link-width",
        ),
        (
            GOOD.replace("2026-06-01", "soon"),
            ":5: waivers.0.until: expected a date such as 2027-01-31",
        ),
        (
            GOOD.replace("    owner: ops@example.org\n", ""),
            ":2: waivers.0: object missing required field `owner`",
        ),
        (
            GOOD.replace("reason:", "because:"),
            ":4: waivers.0.because: unknown key; allowed: check, owner, reason, subject, until",
        ),
        ("waivers: [\n", "not valid YAML"),
        ("", ":1: the file: expected a mapping, got nothing"),
    ],
)
def test_a_wrong_file_is_one_error_with_file_and_line(
    tmp_path: Path, text: str, error: str
) -> None:
    with pytest.raises(PolicyError) as caught:
        loaded(tmp_path, text)
    assert str(caught.value).startswith(str(tmp_path))
    assert error in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"none.yaml: No such file"):
        load_waivers(str(tmp_path / "none.yaml"), KNOWN)
