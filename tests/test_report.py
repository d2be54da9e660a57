# SPDX-License-Identifier: Apache-2.0
"""The report's JSON: what is written can be read, and the committed schema still describes it."""

import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # its stubs are another package to keep
import pytest

from gpuaudit.check import Severity, Verdict, fails
from gpuaudit.report import (
    Node,
    Report,
    ReportError,
    Result,
    Run,
    Summary,
    decode,
    encode,
    json_schema,
)

FROZEN = Path(__file__).parent / "data" / "report-1.json"
SCHEMA = Path(__file__).parent.parent / "docs" / "gpuaudit.report.schema.json"


def example() -> Report:
    return Report(
        node=Node(hostname="n1", gpus=("NVIDIA H100 80GB HBM3",) * 2, driver="570.1"),
        run=Run(
            id="r",
            started_at="2026-01-01T00:00:00Z",
            duration_ms=12.5,
            profile="preflight",
            source="live",
            gpuaudit="0.1",
        ),
        summary=Summary(verdict=Verdict.FAIL, counts={"fail": 1}),
        results=(
            Result(
                check="pcie-link-width",
                title="Every link is as wide as both its ends allow",
                severity=Severity.HIGH,
                verdict=Verdict.FAIL,
                findings=(
                    fails("0000:1a:00.0", "the link is x8", "x8", expected="x16", cost="half"),
                ),
                remediation="Reseat the card.",
                required=True,
            ),
        ),
    )


def test_what_is_written_can_be_read() -> None:
    assert decode(encode(example())) == example()


def test_what_is_written_is_valid_under_the_exported_schema() -> None:
    jsonschema.validate(json.loads(encode(example())), json_schema())


def test_a_report_of_the_first_release_is_still_read_and_valid() -> None:
    data = FROZEN.read_bytes()
    report = decode(data)
    assert report.results[0].findings[0].expected == "x16"
    jsonschema.validate(json.loads(data), json_schema())


@pytest.mark.tree
def test_the_committed_schema_is_the_exported_one() -> None:
    assert json.loads(SCHEMA.read_text()) == json.loads(json.dumps(json_schema()))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"schema": "gpuaudit.report/2"}, "schema is 'gpuaudit.report/2'"),
        ({"results": [{"check": 1}]}, r"`\$.results\[0\].check`"),
        ({"summary": None}, r"`\$.summary`"),
    ],
)
def test_a_wrong_report_is_refused_with_its_path(change: dict[str, Any], error: str) -> None:
    data = json.dumps({**json.loads(encode(example())), **change}).encode()
    with pytest.raises(ReportError, match=error):
        decode(data)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"[]", b"null"])
def test_no_report_at_all_is_refused(data: bytes) -> None:
    with pytest.raises(ReportError):
        decode(data)
