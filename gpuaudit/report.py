# SPDX-License-Identifier: Apache-2.0
"""The report: one node, one moment, versioned. The only input of renderers, fixes and fleet."""

from collections.abc import Iterable
from typing import Any

import msgspec

from gpuaudit.check import Finding, Severity, Verdict

SCHEMA = "gpuaudit.report/1"


class ReportError(Exception):
    """A file that is no report of this schema; the message names the JSON path."""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """What the machine is. Unknown values are null, never invented."""

    hostname: str | None = None
    machine: str | None = None
    kernel: str | None = None
    os: str | None = None
    architecture: str | None = None
    virtualization: str | None = None
    boot_id: str | None = None
    cpus_online: str | None = None
    """A CPU list such as 0-95."""

    cpus_offline: str | None = None
    """Present and not online; an empty text for none."""

    numa_nodes: tuple[int, ...] | None = None
    gpus: tuple[str, ...] | None = None
    """Product names, or PCI IDs without NVML; null when it cannot be told whether there are any."""

    driver: str | None = None
    sku: str | None = None


class PolicyFile(msgspec.Struct, frozen=True, kw_only=True):
    """A policy file that took part, with the SHA-256 of its bytes."""

    path: str
    sha256: str


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """How and when the audit ran. Times are UTC (RFC 3339), durations milliseconds."""

    id: str
    started_at: str
    duration_ms: float
    profile: str
    source: str
    gpuaudit: str
    policy: tuple[PolicyFile, ...] = ()


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One check's answer. `reason` says why it was not judged, `remediation` what to do."""

    check: str
    title: str
    severity: Severity
    verdict: Verdict
    reason: str | None = None
    findings: tuple[Finding, ...] = ()
    remediation: str | None = None
    required: bool = False
    duration_ms: float = 0.0


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The worst verdict, and how many checks got which."""

    verdict: Verdict
    counts: dict[str, int]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A whole audit."""

    schema: str = SCHEMA
    node: Node
    run: Run
    summary: Summary
    results: tuple[Result, ...]


def by_severity(report: Report, verdict: Verdict) -> list[Result]:
    """The results with this verdict, most severe first."""
    mine = [result for result in report.results if result.verdict is verdict]
    return sorted(mine, key=lambda result: list(Severity).index(result.severity))


def by_reason(results: Iterable[Result]) -> list[tuple[str, list[str]]]:
    """(why they were not judged, IDs of the checks), the reason of most checks first."""
    found: dict[str, list[str]] = {}
    for result in results:
        found.setdefault(reason_of(result), []).append(result.check)
    return sorted(found.items(), key=lambda item: -len(item[1]))


def reason_of(result: Result) -> str:
    """Why a check was not judged: its own reason, or the first its findings give.

    It names the subject where others of the same check were judged.
    """
    mine = [f for f in result.findings if f.verdict is result.verdict]
    if result.reason:
        if not 0 < len(mine) < len(result.findings) or result.reason.startswith(mine[0].subject):
            return result.reason
        others = f" and {len(mine) - 1} more" if len(mine) > 1 else ""
        return f"{mine[0].subject}{others}: {result.reason}"
    more = f" (and {len(mine) - 1} more like it)" if len(mine) > 1 else ""
    if not mine:
        return "no reason given"
    where = "" if mine[0].message.startswith(mine[0].subject) else f"{mine[0].subject}: "
    return f"{where}{mine[0].message}{more}"


def encode(report: Report) -> bytes:
    """The report as indented JSON with a final newline."""
    return json_of(report)


def json_of(value: object) -> bytes:
    """Any record as indented JSON with a final newline. Names that are no UTF-8 lose the rest."""
    try:
        data = msgspec.json.encode(value)
    except UnicodeEncodeError:
        data = msgspec.json.encode(encodable(msgspec.to_builtins(value)))
    return msgspec.json.format(data, indent=2) + b"\n"


def encodable(value: Any) -> Any:
    """The same with a question mark for each byte of a file name that is no UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {encodable(key): encodable(inner) for key, inner in value.items()}
    return [encodable(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def decode(data: bytes) -> Report:
    """Read a report back. Raises ReportError naming the JSON path."""
    try:
        report = msgspec.json.decode(data, type=Report)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ReportError(f"not a {SCHEMA} report: {error}") from error
    if report.schema != SCHEMA:
        raise ReportError(f"schema is {report.schema!r}, this release reads {SCHEMA!r}")
    return report


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of the report."""
    schema = msgspec.json.schema(Report)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCHEMA, **schema}
