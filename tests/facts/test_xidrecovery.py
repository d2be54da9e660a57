# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest
from fakenode import FakeNode, healthy_node
from fakenode.layout import gpu_addresses
from trees import make_host

from gpuaudit.facts.xidrecovery import CALL, recovery_actions

ADDRESSES = gpu_addresses()


@pytest.fixture
def node() -> FakeNode:
    return healthy_node()


def test_every_gpu_says_what_it_needs(node: FakeNode) -> None:
    assert recovery_actions(node.host()).by_address == dict.fromkeys(ADDRESSES, 0)
    node.nvml["devices"][2][CALL] = {"v": 2}
    assert recovery_actions(node.host()).by_address[ADDRESSES[2]] == 2


@pytest.mark.parametrize("answer", [{"e": 15, "t": "GPU is lost"}, {"v": "x"}, {"v": True}, None])
def test_a_gpu_that_does_not_say_is_left_out(node: FakeNode, answer: object) -> None:
    node.nvml["devices"][2].pop(CALL)
    if answer is not None:
        node.nvml["devices"][2][CALL] = answer
    assert set(recovery_actions(node.host()).by_address) == set(ADDRESSES) - {ADDRESSES[2]}


def test_without_nvml_nothing_is_known(tmp_path: Path) -> None:
    assert recovery_actions(make_host(tmp_path / "a", {})).by_address == {}
    assert recovery_actions(make_host(tmp_path / "b", {}, source="image")).by_address == {}
