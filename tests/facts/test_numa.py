# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import pytest
from machines import nic
from trees import Tree, make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.cpu import cpu_sets
from gpuaudit.facts.cpusets import parse_list
from gpuaudit.facts.numa import NumaNode, NumaNodes, contradiction, locate, numa_nodes
from gpuaudit.host import NotApplicable, Unavailable

CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"


def nodes_of(folder: Path, tree: Tree, **more: Any) -> NumaNodes:
    host = make_host(folder, tree, **more)
    return numa_nodes(host, cpu_sets(host))


def node(number: int, cpus: str, distance: str = "") -> dict[str, str]:
    found = {f"{NODE}/node{number}/cpulist": f"{cpus}\n"}
    return found | ({f"{NODE}/node{number}/distance": f"{distance}\n"} if distance else {})


def test_strided_lists(tmp_path: Path) -> None:
    tree = {f"{CPU}/online": "0-7\n", **node(0, "0,2,4,6", "10 20"), **node(1, "1,3,5,7", "20 10")}
    found = nodes_of(tmp_path, tree, source="plain")
    assert [sorted(n.cpus) for n in found.nodes] == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert found.distances == {0: (10, 20), 1: (20, 10)}
    assert found.problems == ()


def test_sparse_ids_and_nodes_of_memory_only(tmp_path: Path) -> None:
    tree = {
        f"{CPU}/online": "0-3\n",
        f"{NODE}/online": "0,8,255\n",
        **node(0, "0-1", "10 40 80"),
        **node(8, "2-3", "40 10 80"),
        **node(255, "", "80 80 10"),
        f"{NODE}/node255/meminfo": "Node 255 MemTotal:       16515072 kB\n",
    }
    found = nodes_of(tmp_path, tree)
    assert found.cpu_nodes == (0, 8)
    assert [n.id for n in found.nodes] == [0, 8, 255]
    assert found.nodes[2].memory_kib == 16515072
    assert isinstance(found.nodes[0].memory_kib, Absent)
    assert found.problems == ()


def test_offline_cpu_0_and_node_0(tmp_path: Path) -> None:
    tree = {f"{CPU}/online": "4-7\n", f"{CPU}/present": "0-7\n", **node(1, "4-7", "10")}
    found = nodes_of(tmp_path, tree)
    assert found.cpu_nodes == (1,)
    assert found.problems == ()


def test_old_kernels_list_offline_cpus_on_a_node(tmp_path: Path) -> None:
    tree = {f"{CPU}/online": "0-2\n", **node(0, "0-3")}
    assert nodes_of(tmp_path, tree).cpus_of(0) == frozenset({0, 1, 2})


def test_only_a_hex_mask_was_recorded(tmp_path: Path) -> None:
    tree = {f"{CPU}/online": "32-39\n", f"{NODE}/node0/cpumap": "000000ff,00000000\n"}
    assert nodes_of(tmp_path, tree, source="plain").cpus_of(0) == frozenset(range(32, 40))


def test_nodes_that_all_claim_every_cpu(tmp_path: Path) -> None:
    tree = {f"{CPU}/online": "0-7\n"}
    for number in range(8):
        tree |= node(number, "0-7", " ".join(["10"] * 8))
    assert nodes_of(tmp_path, tree).problems == ("nodes 0-7 all claim CPUs 0-7",)


def test_a_cpu_on_no_node(tmp_path: Path) -> None:
    tree = {f"{CPU}/online": "0-4\n", **node(0, "0-1"), **node(1, "2-3")}
    assert nodes_of(tmp_path, tree).problems == ("CPUs 4 are online and on no node",)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("10", "node 0 has 1 distances for 2 nodes"),
        ("20 10", "node 0 is nearer to another node than to itself"),
    ],
)
def test_impossible_distances(tmp_path: Path, row: str, problem: str) -> None:
    tree = {f"{CPU}/online": "0-3\n", **node(0, "0-1", row), **node(1, "2-3", "20 10")}
    assert nodes_of(tmp_path, tree).problems == (problem,)


def test_garbled_distances_are_no_distances(tmp_path: Path) -> None:
    tree = {f"{CPU}/online": "0-3\n", **node(0, "0-3", "ten")}
    assert nodes_of(tmp_path, tree).distances == {}


def test_a_kernel_known_to_have_no_numa_is_one_node(tmp_path: Path) -> None:
    found = nodes_of(tmp_path, {f"{CPU}/online": "0-3\n"})
    assert found.cpu_nodes == (0,)
    assert found.cpus_of(0) == frozenset(range(4))


def test_a_folder_that_was_not_recorded_proves_nothing(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as absent:
        nodes_of(tmp_path, {f"{CPU}/online": "0-3\n"}, source="plain")
    assert absent.value.kind == "not-recorded"


def test_garbled_cpus_are_no_cpus(tmp_path: Path) -> None:
    tree = {f"{CPU}/online": "0-3\n", f"{NODE}/node0/cpulist": "many\n"}
    with pytest.raises(Unavailable, match="no CPU list"):
        nodes_of(tmp_path, tree)


def test_an_image_has_no_nodes(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable):
        nodes_of(tmp_path, {}, source="image")


TWO = NumaNodes(
    nodes=tuple(
        NumaNode(id=i, cpus=parse_list(cpus), memory_kib=1)
        for i, cpus in ((0, "0-3"), (1, "4-7"), (2, ""))
    ),
    distances={},
    problems=(),
)
NOTHING = Absent("missing", "not recorded")


@pytest.mark.parametrize(
    ("number", "cpus", "place"),
    [
        (1, "4-7", 1),
        (1, "4-9", 1),  # offline CPUs stay in local_cpulist on some kernels
        (-1, "4-7", 1),  # old kernels know the CPUs of the bus
        (NOTHING, "0-3", 0),
        (1, NOTHING, 1),
    ],
)
def test_locate(number: int | Absent, cpus: str | Absent, place: int) -> None:
    assert locate(nic("0000:01:00.0", number, cpus), TWO) == place


@pytest.mark.parametrize(
    ("number", "cpus", "reason"),
    [
        (-1, "0-7", "numa_node is -1"),
        (NOTHING, "0-7", "not recorded"),
        (1, "0-7", "numa_node is 1, but local_cpulist is 0-7"),
        (2, "", "numa_node is 2, which is not a node with CPUs"),
        (9, "4-7", "numa_node is 9, which is not a node with CPUs"),
    ],
)
def test_no_place(number: int | Absent, cpus: str, reason: str) -> None:
    place = locate(nic("0000:01:00.0", number, cpus), TWO)
    assert isinstance(place, Absent)
    assert reason in place.reason


def test_one_node_with_cpus_is_local_to_all() -> None:
    one = NumaNodes(nodes=TWO.nodes[::2], distances={}, problems=())
    assert locate(nic("0000:01:00.0", -1, "0-3"), one) == 0


def test_inconsistent_tables_locate_nothing() -> None:
    broken = NumaNodes(nodes=TWO.nodes[:1], distances={}, problems=("overlap",))
    assert isinstance(locate(nic("0000:01:00.0", 0, "0-3"), broken), Absent)


def test_unreadable_values_contradict_nothing() -> None:
    assert contradiction(nic("0000:01:00.0", NOTHING, NOTHING), TWO) is None
