# SPDX-License-Identifier: Apache-2.0
"""NVLink and shared uplinks on the topology: through switches, direct, partly down, in a guest."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fakenode import FakeNode, healthy_node
from fakenode.breaking import answer, everywhere, no_nvml, retrain

from gpuaudit.cli import cli

Shown = Callable[..., str]


@pytest.fixture
def shown(tmp_path: Path) -> Shown:
    def show(node: FakeNode, form: str = "text") -> str:
        path = node.archive(tmp_path / "node.tar.gz")
        options = ["--no-findings", "--format", form, "--snapshot", str(path)]
        done = CliRunner().invoke(cli, ["topology", *options])
        assert done.exit_code == 0, done.output
        return done.stdout

    return show


def cells(text: str, row: str) -> list[str]:
    """The cells of a row of the matrix."""
    lines = [line for line in text.splitlines() if line.startswith(f"{row} ")]
    return next(line for line in lines if " X " in line or "NV" in line).split()[1:]


def beyond(shown: Shown, node: FakeNode) -> Any:
    return json.loads(shown(node, "json"))["beyond"]


def test_gpus_behind_switches_reach_each_other_with_all_links(shown: Shown) -> None:
    node = healthy_node()
    found = beyond(shown, node)
    assert len(found["nvlinks"]) == 8
    assert found["nvlinks"][0] == {
        "address": "0000:18:00.0",
        "links": 18,
        "up": 18,
        "gb_per_s": 478.1,
        "to": "switch",
    }
    assert len(found["nvpairs"]) == 28
    assert {(pair["links"], pair["gb_per_s"]) for pair in found["nvpairs"]} == {(18, 478.1)}
    assert cells(shown(node), "GPU0")[:3] == ["X", "NV18", "478"]
    assert ">NV18 478<" in shown(node, "svg")


def test_a_link_that_is_down_shows_in_every_pair_of_its_gpu(shown: Shown) -> None:
    node = healthy_node()
    for call in ("NvLinkState(5)", "FieldValues(165,5)"):
        answer(node, 2, call, 0)
    found = beyond(shown, node)
    gpu = next(one for one in found["nvlinks"] if one["address"] == "0000:3a:00.0")
    assert (gpu["links"], gpu["up"], gpu["gb_per_s"]) == (18, 17, 451.6)
    of_gpu = [p for p in found["nvpairs"] if "0000:3a:00.0" in (p["one"], p["other"])]
    assert {(pair["links"], pair["gb_per_s"]) for pair in of_gpu} == {(17, 451.6)}
    assert "17 of 18" in shown(node)


def test_links_between_gpus_say_no_number_of_a_pair(shown: Shown) -> None:
    """A mesh of more than two: NVML tells which GPUs are joined, and not by how many links."""
    node = healthy_node()
    everywhere(node, "NvLinkRemoteDeviceType(0)", 0)
    found = beyond(shown, node)
    assert {one["to"] for one in found["nvlinks"]} == {"gpu"}
    assert {(pair["links"], pair["gb_per_s"]) for pair in found["nvpairs"]} == {(None, None)}
    assert cells(shown(node), "GPU1")[:2] == ["NV", "X"]


def test_a_pair_that_is_not_joined_is_shown_by_its_pci_path(shown: Shown) -> None:
    node = healthy_node()
    answer(node, 0, "P2PStatus(1,2)", 4)
    assert len(beyond(shown, node)["nvpairs"]) == 27
    assert cells(shown(node), "GPU0")[:3] == ["X", "PIX", "63"]


def test_without_nvml_the_pci_paths_are_left(shown: Shown) -> None:
    node = healthy_node()
    no_nvml(node, 9)
    found = beyond(shown, node)
    assert (found["nvlinks"], found["nvpairs"]) == ([], [])
    assert len(found["uplinks"]) == 4
    assert cells(shown(node), "GPU0")[:3] == ["X", "PIX", "63"]


def test_what_is_left_when_all_gpus_move_at_once(shown: Shown) -> None:
    found = beyond(shown, healthy_node())["uplinks"]
    assert found[0] == {
        "upper": "0000:15:01.0",
        "lower": "0000:16:00.0",
        "gpus": ["0000:18:00.0", "0000:1a:00.0"],
        "others": ["0000:19:00.0", "0000:1b:00.0", "0000:1c:00.0"],
        "gb_per_s": 63.02,
        "each_gb_per_s": 31.51,
    }
    row = "0000:15:01.0 -> 0000:16:00.0  GPU0 GPU1  NIC1 NIC2 NVME0   63.0  31.5"
    assert row in shown(healthy_node())


def test_an_uplink_that_trained_down_is_judged_by_what_it_could(shown: Shown) -> None:
    """The tree marks the slow link; the share is the board's, and not of the moment."""
    node = healthy_node()
    retrain(node, "0000:16:00.0", 4, 16)
    (first, *_) = beyond(shown, node)["uplinks"]
    assert (first["gb_per_s"], first["each_gb_per_s"]) == (63.02, 31.51)
    assert "Gen4 x16 of Gen5 x16" in shown(node)
