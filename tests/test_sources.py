# SPDX-License-Identifier: Apache-2.0
"""One machine, every source: in memory, a folder, an archive, a live root. One answer."""

from pathlib import Path

import pytest
from fakenode import FakeNode, healthy_node
from fakenode.breaking import cut_config

from gpuaudit import audit
from gpuaudit.host import Host
from gpuaudit.report import Report
from gpuaudit.snapshot import record

FILES_ONLY = ("pcie-*", "acs-*", "numa-*", "cpu-*", "irq-*", "memory-*")
"""Checks that rest on files below the root: a fake live root has those, and nothing else."""

NOT_FILES = ("irq-balance-policy", "memory-per-gpu", "pcie-replay-rate", "cpu-cores-per-gpu")
"""These ask the process table or NVML as well."""

REQUEST = audit.Request(profile="bringup")


def verdicts(report: Report) -> dict[str, str]:
    return {result.check: result.verdict.value for result in report.results}


def answers(report: Report) -> dict[str, object]:
    return {r.check: (r.verdict, r.reason, r.findings) for r in report.results}


@pytest.fixture(scope="module")
def node() -> FakeNode:
    return healthy_node()


@pytest.fixture(scope="module")
def expected(node: FakeNode) -> Report:
    return audit.run(node.host(), REQUEST).report


def test_a_healthy_node_has_no_finding(expected: Report) -> None:
    bad = {"fail", "warn", "unknown", "error"}
    assert [
        (r.check, r.reason, r.findings) for r in expected.results if r.verdict.value in bad
    ] == []
    assert expected.summary.verdict.value == "pass"
    assert audit.exit_code(expected) == 0


def test_the_node_is_named(expected: Report) -> None:
    assert expected.node.hostname == "node017"
    assert expected.node.machine == "Example Systems EX-8000"
    assert expected.node.virtualization == ""
    assert expected.node.gpus == ("NVIDIA H100 80GB HBM3",) * 8
    assert expected.node.sku == "h100"


@pytest.mark.parametrize("name", ["node.tar.gz", "node.tar.zst", "node"])
def test_every_recording_says_the_same(
    node: FakeNode, expected: Report, tmp_path: Path, name: str
) -> None:
    where = tmp_path / name
    node.write(where) if name == "node" else node.archive(where)
    report = audit.run(Host.snapshot(str(where)), REQUEST).report
    assert answers(report) == answers(expected)


def test_a_recording_of_it_says_the_same(node: FakeNode, expected: Report, tmp_path: Path) -> None:
    """What `record` keeps is enough for every check."""
    written = record(node.host(), str(tmp_path / "again.tar.gz"))
    assert written.crashed == {}
    report = audit.run(Host.snapshot(written.path), REQUEST).report
    assert answers(report) == answers(expected)


def test_a_scrubbed_recording_says_the_same(
    node: FakeNode, expected: Report, tmp_path: Path
) -> None:
    """Names are replaced, and with them texts, but no verdict turns."""
    written = record(node.host(), str(tmp_path / "scrubbed.tar.gz"), scrub=True)
    report = audit.run(Host.snapshot(written.path), REQUEST).report
    assert verdicts(report) == verdicts(expected)
    assert report.node.hostname != "node017"


def test_a_live_root_says_the_same(node: FakeNode, expected: Report, tmp_path: Path) -> None:
    host = Host.live(str(node.live_root(tmp_path / "root")), nvml_deadline_s=5)
    request = audit.Request(profile="bringup", select=FILES_ONLY, ignore=NOT_FILES)
    report = audit.run(host, request).report
    host.close()
    known = answers(expected)
    assert answers(report) == {check: known[check] for check in answers(report)}


def test_without_root_nothing_turns_green(node: FakeNode) -> None:
    """Config space cut at 64 bytes: what rests on it is unknown, the rest stays as it was."""
    user = node.copied()
    cut_config(user)
    before = verdicts(audit.run(node.host(), REQUEST).report)
    after = verdicts(audit.run(user.host(), REQUEST).report)
    changed = {check: after[check] for check in after if after[check] != before[check]}
    assert set(changed.values()) == {"unknown"}
