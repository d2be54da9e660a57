# SPDX-License-Identifier: Apache-2.0
"""What each RDMA port is for, by every rule of gpuaudit/topology/rdmaroles.py."""

from pathlib import Path

import pytest
from pcitree import GPU, Files, function
from rdmanode import DOWN, SWITCH, bridges, decided, gpu, hca, hgx, kinds, place
from rdmaparts import port as rdma_port
from trees import Link

from gpuaudit.topology.rdmaroles import selected


def test_a_switch_shared_with_a_gpu_makes_a_compute_port(tmp_path: Path) -> None:
    found = decided(tmp_path, *hgx())
    assert kinds(found) == {"mlx5_0": "compute", "mlx5_1": "compute", "mlx5_9": "storage"}
    assert found.roles["mlx5_0 port 1"].sure


def test_the_default_route_makes_a_management_port(tmp_path: Path) -> None:
    header = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
    route = f"{header}e9\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
    assert kinds(decided(tmp_path, *hgx(), route=route))["mlx5_9"] == "management"


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("mlx5_0", {"mlx5_0": "compute", "mlx5_1": "storage", "mlx5_9": "storage"}),
        ("=mlx5_0:1", {"mlx5_0": "compute", "mlx5_1": "storage", "mlx5_9": "storage"}),
        ("^mlx5_1", {"mlx5_0": "compute", "mlx5_1": "storage", "mlx5_9": "compute"}),
        ("mlx5", {"mlx5_0": "compute", "mlx5_1": "compute", "mlx5_9": "storage"}),
        ("nothing", {"mlx5_0": "compute", "mlx5_1": "compute", "mlx5_9": "storage"}),
    ],
)
def test_nccl_ib_hca_decides(tmp_path: Path, value: str, wanted: dict[str, str]) -> None:
    found = decided(tmp_path, *hgx(), conf=f"NCCL_IB_HCA={value}\n")
    assert kinds(found) == wanted
    assert found.selections == ((value, "/etc/nccl.conf:1"),)


def test_values_that_contradict_decide_nothing(tmp_path: Path) -> None:
    found = decided(tmp_path, *hgx(), conf="NCCL_IB_HCA=mlx5_1\n", env="NCCL_IB_HCA=mlx5_9\n")
    assert kinds(found)["mlx5_0"] == "compute"
    assert {value for value, _ in found.selections} == {"mlx5_1", "mlx5_9"}


def test_in_a_guest_several_alike_are_compute_ports_with_less_certainty(tmp_path: Path) -> None:
    rails = [hca(f"mlx5_{n}", f"pci0000:0{n}/0000:0{n}:00.0") for n in range(4)]
    other = hca("mlx5_7", "pci0000:07/0000:07:00.0", model="MT4126", netdev="e7")
    found = decided(tmp_path / "1", *rails, other, gpu(SWITCH[0], 0), vm=True)
    assert kinds(found) == {**{f"mlx5_{n}": "compute" for n in range(4)}, "mlx5_7": "unknown"}
    assert not found.roles["mlx5_0 port 1"].sure
    assert set(kinds(decided(tmp_path / "2", *rails[:3], vm=True)).values()) == {"unknown"}
    gpus = [gpu(SWITCH[0], 0), *(function(f"pci0000:4{n}/0000:4{n}:00.0", GPU) for n in range(4))]
    assert set(kinds(decided(tmp_path / "3", *rails, *gpus, vm=True)).values()) == {"unknown"}
    named = decided(tmp_path / "4", *rails[:1], vm=True, conf="NCCL_IB_HCA=mlx5\n")
    assert named.roles["mlx5_0 port 1"].kind == "compute"
    assert named.roles["mlx5_0 port 1"].sure


def two_port_cards(*states: str) -> list[Files]:
    """Cards with two functions below the switches; each letter is u (up) or d (down)."""
    found = [*map(bridges, SWITCH), gpu(SWITCH[0], 0), gpu(SWITCH[1], 0)]
    for card, root in enumerate(SWITCH):
        for socket in range(2):
            more = DOWN if states[card][socket] == "d" else {}
            where = place(root, 1, f"8:00.{socket}")
            found.append(hca(f"mlx5_{2 * card + socket}", where, **more))
    return found


@pytest.mark.parametrize(
    ("states", "wanted"),
    [
        (("ud", "ud"), ["compute", "unused", "compute", "unused"]),
        (("ud", "uu"), ["compute", "compute", "compute", "compute"]),
        (("dd", "ud"), ["compute", "unused", "compute", "unused"]),
        (("du", "ud"), ["unused", "compute", "compute", "unused"]),
        (("dd", "dd"), ["compute", "compute", "compute", "compute"]),
    ],
)
def test_cards_wired_with_one_cable(
    tmp_path: Path, states: tuple[str, str], wanted: list[str]
) -> None:
    assert list(kinds(decided(tmp_path, *two_port_cards(*states))).values()) == wanted


def test_another_board_of_the_model_counts_while_ports_are_fewer_than_gpus(tmp_path: Path) -> None:
    replaced = [*hgx(), hca("mlx5_1", place(SWITCH[1], 1, "8:00.0"), board="OTHER")]
    assert kinds(decided(tmp_path / "1", *replaced))["mlx5_1"] == "compute"
    bridge = [*hgx(), hca("mlx5_4", place(SWITCH[1], 2, "9:00.0"), board="NVLINK")]
    assert kinds(decided(tmp_path / "2", *bridge))["mlx5_4"] == "unknown"
    far = [*hgx(), hca("mlx5_5", "pci0000:50/0000:51:00.0")]
    assert kinds(decided(tmp_path / "3", *far))["mlx5_5"] == "unknown"


def test_software_and_virtual_functions_carry_no_job(tmp_path: Path) -> None:
    where = place(SWITCH[0], 2, "9:00.0")
    virtual = {**hca("mlx5_5", where), f"/sys/devices/{where}/physfn": Link("../x")}
    software = {"/sys/devices/virtual/infiniband/rxe0/ports/1/state": "4: ACTIVE\n"}
    link = {"/sys/class/infiniband/rxe0": Link("../../devices/virtual/infiniband/rxe0")}
    found = kinds(decided(tmp_path, *hgx(), virtual, {**software, **link}))
    assert (found["mlx5_5"], found["rxe0"]) == ("none", "none")


@pytest.mark.parametrize(
    ("value", "picked"),
    [
        ("mlx5_1", ["mlx5_1 1", "mlx5_1 2", "mlx5_10 1"]),
        ("=mlx5_1", ["mlx5_1 1", "mlx5_1 2"]),
        ("=mlx5_1:2", ["mlx5_1 2"]),
        ("mlx5_10,mlx5_1:1", ["mlx5_1 1", "mlx5_10 1"]),
        ("^=mlx5_1", ["mlx5_10 1"]),
        ("^mlx5_1:2", ["mlx5_1 1", "mlx5_10 1"]),
        ("", ["mlx5_1 1", "mlx5_1 2", "mlx5_10 1"]),
        ("^", []),
        (",", ["mlx5_1 1", "mlx5_1 2", "mlx5_10 1"]),
        ("=mlx5", []),
    ],
)
def test_the_syntax_of_nccl_ib_hca(value: str, picked: list[str]) -> None:
    ports = [rdma_port("mlx5_1"), rdma_port("mlx5_1", 2), rdma_port("mlx5_10")]
    assert [f"{p.device} {p.number}" for p in selected(value, ports)] == picked
