# SPDX-License-Identifier: Apache-2.0
"""Findings on the topology: each at the device, port or NUMA node that it speaks of."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result
from fakenode import healthy_node
from fakenode.breaking import acs, answer, attribute, retrain

from gpuaudit.cli import cli
from gpuaudit.cli.topology_command import seen
from gpuaudit.host import Host
from gpuaudit.topology.marks import Mark, by_place, marked


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPU with half its lanes, a port that redirects, a GPU without ECC, a drive without node."""
    node = healthy_node()
    retrain(node, "0000:18:00.0", 5, 8)
    acs(node, "0000:17:01.0", 0x1D)
    answer(node, 4, "EccMode", [0, 0])
    attribute(node, "0000:3e:00.0", "numa_node", "-1")
    return node.archive(tmp_path_factory.mktemp("marks") / "node.tar.gz")


def topology(path: Path, *options: str) -> Result:
    found = CliRunner().invoke(cli, ["topology", "--snapshot", str(path), *options])
    assert found.exit_code == 0, found.output
    return found


MARKED = {
    "0000:18:00.0": "pcie-link-width",
    "0000:17:01.0": "acs-redirect-off",
    "0000:9a:00.0": "ecc-mode-enabled",
    "0000:3e:00.0": "numa-node-known",
}


def test_the_tree_marks_devices_and_ports(broken: Path) -> None:
    tree = [line for line in topology(broken).stdout.splitlines() if "- 0000:" in line]
    found = {line.split("- ")[1].split(" ")[0]: line for line in tree if "!" in line}
    assert {place: line.split("! fail ")[1] for place, line in found.items()} == MARKED


def test_the_table_of_devices_names_the_findings(broken: Path) -> None:
    lines = topology(broken).stdout.splitlines()
    (row,) = (line for line in lines if line.startswith("GPU4   0000:9a:00.0"))
    assert row.endswith("fail ecc-mode-enabled")


def test_json_holds_every_finding_and_its_place(broken: Path) -> None:
    marks = json.loads(topology(broken, "--format", "json").stdout)["marks"]
    places = {place: mark["check"] for mark in marks for place in mark["places"]}
    assert places == MARKED
    assert all(mark["verdict"] == "fail" and mark["message"] for mark in marks)


def test_the_picture_marks_them_too(broken: Path) -> None:
    page = topology(broken, "--format", "svg").stdout
    picture = ET.fromstring(page)  # noqa: S314 - our own output
    words = [text.text or "" for text in picture.iter() if text.tag.endswith("text")]
    assert sorted(w for w in words if w.startswith("! ")) == [
        f"! fail {check}" for check in sorted(MARKED.values())
    ]
    boxes = [b for b in picture.iter() if "marked" in b.get("class", "")]
    assert len(boxes) == 3  # the port has no box


def test_the_worst_comes_first(tmp_path: Path) -> None:
    node = healthy_node()
    answer(node, 6, "RemappedRows", [0, 1, 1, 0])
    answer(node, 6, "EccMode", [0, 0])
    path = node.archive(tmp_path / "node.tar.gz")
    lines = topology(path).stdout.splitlines()
    (row,) = (line for line in lines if line.startswith("GPU6   0000:ba:00.0"))
    assert row.endswith("fail ecc-mode-enabled, warn ecc-row-remap-pending")


def test_a_name_is_a_place_too(tmp_path: Path) -> None:
    path = healthy_node().archive(tmp_path / "node.tar.gz")
    view = seen(Host.snapshot(str(path)))
    marks = [
        Mark(check="a-b", verdict="warn", subject="mlx5_3 port 1", message="m"),
        Mark(check="c-d", verdict="fail", subject="0000:37:01.0 -> 0000:38:00.0", message="m"),
        Mark(check="e-f", verdict="warn", subject="NUMA node 1", message="m"),
        Mark(check="g-h", verdict="fail", subject="kernel.numa_balancing", message="m"),
        Mark(check="i-j", verdict="unknown", subject="mlx5_3 port 1", message="m"),
    ]
    found = {place: [m.check for m in at] for place, at in by_place(marked(view, marks)).items()}
    assert found == {"0000:3d:00.0": ["a-b"], "0000:38:00.0": ["c-d"], "NUMA node 1": ["e-f"]}


def test_a_healthy_node_has_no_marks(tmp_path: Path) -> None:
    path = healthy_node().archive(tmp_path / "node.tar.gz")
    assert "!" not in topology(path).stdout


def test_without_findings_nothing_is_audited(broken: Path) -> None:
    assert json.loads(topology(broken, "--no-findings", "--format", "json").stdout)["marks"] == []


def test_a_warning_is_told_more_quietly_than_a_failure(tmp_path: Path) -> None:
    node = healthy_node()
    answer(node, 6, "RemappedRows", [0, 1, 1, 0])
    page = topology(node.archive(tmp_path / "node.tar.gz"), "--format", "svg").stdout
    picture = ET.fromstring(page)  # noqa: S314 - our own output
    styles = [e.get("class", "") for e in picture.iter() if "marked" in e.get("class", "")]
    told = [e.get("class") for e in picture.iter() if (e.text or "").startswith("! warn")]
    assert (styles, told) == (["box gpu marked soft"], ["soft"])
