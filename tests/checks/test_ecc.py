# SPDX-License-Identifier: Apache-2.0
"""ECC mode, counters and repaired memory."""

from typing import Any

import pytest
from gpufacts import (
    FAILED,
    UNSUPPORTED,
    changed,
    findings,
    function,
    only,
    policy,
    section,
    silent,
    verdicts,
)

from gpuaudit.facts.gpuvalues import Banks, RemappedRows, Setting, Sram
from gpuaudit.host import Unavailable

ABSENCES = [(UNSUPPORTED, "notapplicable"), (FAILED, "unknown")]


def judged(check_id: str, pci_id: str = "10de:2330", **fields: Any) -> str:
    """The verdict of GPU 3; all others pass."""
    answer = function(check_id)(changed(**fields), policy(section(check_id), pci_id))
    return verdicts(answer)[3]


@pytest.mark.parametrize(
    ("ecc", "pci_id", "verdict"),
    [
        (Setting(1, 1), "10de:2330", "pass"),
        (Setting(0, 0), "10de:2330", "fail"),
        (Setting(0, 0), "10de:2684", "notapplicable"),
        (UNSUPPORTED, "10de:2684", "notapplicable"),
        (FAILED, "10de:2684", "unknown"),
    ],
)
def test_mode_enabled(ecc: Any, pci_id: str, verdict: str) -> None:
    assert judged("ecc-mode-enabled", pci_id, ecc=ecc) == verdict


@pytest.mark.parametrize(
    ("ecc", "verdict"),
    [(Setting(1, 1), "pass"), (Setting(0, 0), "pass"), (Setting(1, 0), "fail"), *ABSENCES],
)
def test_mode_settled(ecc: Any, verdict: str) -> None:
    settled = function("ecc-mode-settled")
    assert verdicts(settled(changed(ecc=ecc)))[3] == verdict
    with pytest.raises(Unavailable):
        findings(settled(silent()))


@pytest.mark.parametrize(("count", "verdict"), [(0, "pass"), (1, "fail"), *ABSENCES])
def test_volatile_uncorrected(count: Any, verdict: str) -> None:
    assert judged("ecc-volatile-uncorrected", volatile_uncorrected=count) == verdict


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({"aggregate_uncorrected": 512}, "pass"),
        ({"aggregate_uncorrected": 513}, "fail"),
        ({"sram": Sram(threshold_exceeded=1)}, "fail"),
        ({"sram": UNSUPPORTED, "aggregate_uncorrected": 3}, "pass"),
        ({"sram": UNSUPPORTED, "aggregate_uncorrected": UNSUPPORTED}, "notapplicable"),
        ({"aggregate_uncorrected": FAILED}, "unknown"),
    ],
)
def test_aggregate_uncorrected(fields: dict[str, Any], verdict: str) -> None:
    assert judged("ecc-aggregate-uncorrected", **fields) == verdict


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [(RemappedRows(0, 5, 0, 0), "pass"), (RemappedRows(0, 1, 1, 0), "warn"), *ABSENCES],
)
def test_row_remap_pending(rows: Any, verdict: str) -> None:
    assert judged("ecc-row-remap-pending", remapped=rows) == verdict


def test_row_remap_pending_may_be_a_failure() -> None:
    pending = function("ecc-row-remap-pending")
    want = policy(section("ecc-row-remap-pending"), pending="fail")
    assert "reset" in only(pending(changed(remapped=RemappedRows(0, 1, 1, 0)), want)).message


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [(RemappedRows(0, 5, 1, 0), "pass"), (RemappedRows(0, 1, 0, 1), "fail"), *ABSENCES],
)
def test_row_remap_failed(rows: Any, verdict: str) -> None:
    assert verdicts(function("ecc-row-remap-failed")(changed(remapped=rows)))[3] == verdict


@pytest.mark.parametrize(
    ("banks", "verdict"),
    [
        (Banks(max=2560, high=0, partial=0, low=0, none=0), "pass"),
        (Banks(max=2559, high=0, partial=0, low=1, none=0), "warn"),
        (Banks(max=2559, high=0, partial=0, low=1, none=1), "fail"),
        *ABSENCES,
    ],
)
def test_row_remap_banks(banks: Any, verdict: str) -> None:
    assert judged("ecc-row-remap-banks", banks=banks) == verdict


@pytest.mark.parametrize(
    ("single", "double", "pending", "verdict"),
    [
        (0, 0, 0, "pass"),
        (30, 29, 0, "pass"),
        (30, 30, 0, "fail"),
        (0, 1, 1, "fail"),
        (UNSUPPORTED, UNSUPPORTED, UNSUPPORTED, "notapplicable"),
        (0, FAILED, 0, "unknown"),
    ],
)
def test_retired_pages(single: Any, double: Any, pending: Any, verdict: str) -> None:
    fields = {"retired_single": single, "retired_double": double, "retired_pending": pending}
    assert judged("ecc-retired-pages", **fields) == verdict


@pytest.mark.parametrize(
    ("remapped", "words"), [(RemappedRows(0, 0, 0, 0), "remaps rows"), (UNSUPPORTED, "support it")]
)
def test_retired_pages_say_what_is_done_instead(remapped: Any, words: str) -> None:
    single, found = UNSUPPORTED, function("ecc-retired-pages")
    gpus = changed(retired_single=single, remapped=remapped)
    finding = findings(found(gpus, policy(section("ecc-retired-pages"))))[3]
    assert (finding.verdict.value, words in finding.message) == ("notapplicable", True)


@pytest.mark.parametrize("check", ["pending", "failed", "banks"])
@pytest.mark.parametrize(("mig", "told"), [(Setting(1, 1), True), (Setting(0, 1), False)])
def test_mig_hides_repaired_rows(check: str, mig: Setting, told: bool) -> None:
    check_id = f"ecc-row-remap-{check}"
    gpus = changed(mig=mig, remapped=UNSUPPORTED, banks=UNSUPPORTED)
    want = () if check == "failed" else (policy(section(check_id)),)
    finding = findings(function(check_id)(gpus, *want))[3]
    assert (finding.verdict.value, "MIG is on" in finding.message) == ("notapplicable", told)
