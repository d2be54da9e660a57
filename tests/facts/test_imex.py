# SPDX-License-Identifier: Apache-2.0
"""IMEX, and the NVSwitches on the bus."""

from pathlib import Path

import pytest
from fakenode import FakeNode, breaking, healthy_node
from fakenode.faults_nvlink import NVSWITCH
from fakenode.pci import path_of
from trees import make_host

from gpuaudit.engine import Facts
from gpuaudit.facts.base import Absent
from gpuaudit.facts.imex import CHANNELS, NODES, Imex
from gpuaudit.facts.nvswitch import NvSwitches
from gpuaudit.host import NotApplicable, Unavailable


@pytest.fixture
def node() -> FakeNode:
    return healthy_node()


def test_a_single_node(node: FakeNode) -> None:
    assert Facts(node.host()).get(Imex) == Imex(nodes=0, running=False, channels=0)


def test_a_domain(node: FakeNode) -> None:
    node.files[NODES] = "# the rack\n10.0.0.1\n\n10.0.0.2 # spare\n#10.0.0.3\n"
    node.files |= {f"{CHANNELS}/channel0": "", f"{CHANNELS}/channel2047": "", f"{CHANNELS}/x": ""}
    breaking.start(node, 4000, "nvidia-imex", "")
    assert Facts(node.host()).get(Imex) == Imex(nodes=2, running=True, channels=2)


def test_what_was_not_recorded_is_not_absent(tmp_path: Path) -> None:
    tree = {"/sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n"}
    tree |= {"/sys/bus/pci/devices/0000:01:00.0/class": "0x030200\n"}
    found = Facts(make_host(tmp_path, tree, source="plain")).get(Imex)
    assert {type(v) for v in (found.nodes, found.running, found.channels)} == {Absent}


def test_an_image_has_a_list_at_most(tmp_path: Path) -> None:
    host = make_host(tmp_path, {NODES: "10.0.0.1\n10.0.0.2\n"}, source="image")
    found = Facts(host).get(Imex)
    assert found.nodes == 2
    for absent in (found.running, found.channels):
        assert isinstance(absent, Absent)
        assert absent.kind == "unsupported"


def test_other_processes_may_be_hidden(node: FakeNode) -> None:
    node.processes = [one for one in node.processes if one["pid"] != 1]
    running = Facts(node.host()).get(Imex).running
    assert isinstance(running, Absent)
    assert running.kind == "denied"


def test_switches(node: FakeNode) -> None:
    found = Facts(node.host()).get(NvSwitches).switches
    assert list(found.values()) == [("nvidia-nvswitch", False)] * 4
    node.files[f"{path_of(NVSWITCH)}/config"] = b"\xff" * 64
    assert Facts(node.host()).get(NvSwitches).switches[NVSWITCH] == ("nvidia-nvswitch", True)
    breaking.remove(node, f"{path_of(NVSWITCH)}/config")
    dead = Facts(node.host()).get(NvSwitches).switches[NVSWITCH][1]
    assert isinstance(dead, Absent)


def test_switches_of_an_image_and_of_an_unread_bus(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable):
        Facts(make_host(tmp_path, {"/etc/hostname": "x"}, source="image")).get(NvSwitches)
    with pytest.raises(Unavailable):
        Facts(make_host(tmp_path / "plain", {"/etc/hostname": "x"}, source="plain")).get(NvSwitches)
