# SPDX-License-Identifier: Apache-2.0
"""What each RDMA port is for where names and protocols differ from the usual."""

from pathlib import Path

import pytest
from pcitree import GPU, Files, function
from rdmanode import SWITCH, bridges, decided, gpu, hca, hgx, kinds, place
from trees import Link, make_host

from gpuaudit.engine import Facts
from gpuaudit.topology.rdmaroles import RdmaRoles


@pytest.mark.parametrize(("bond", "kind"), [(False, "storage"), (True, "management")])
def test_a_containers_interface_of_the_same_name(tmp_path: Path, kind: str, *, bond: bool) -> None:
    route = "Iface Destination\ne9 00000000 0100000A 0003 0 0 0 00000000 0 0 0\n"
    file = "bonding/mode" if bond else "mtu"
    tree: Files = {f"/sys/devices/virtual/net/e9/{file}": "1\n"}
    tree |= {"/sys/class/net/e9": Link("../../devices/virtual/net/e9")}
    assert kinds(decided(tmp_path, *hgx(), tree, route=route))["mlx5_9"] == kind


@pytest.mark.parametrize("above", ["vlan7", "br0"])
def test_the_default_route_may_be_on_top(tmp_path: Path, above: str) -> None:
    """A VLAN, or a bridge on a VLAN, of a port that shares a switch with a GPU."""
    route = f"Iface Destination\n{above} 00000000 0100000A 0003 0 0 0 00000000 0 0 0\n"
    tree: Files = {"/sys/class/net/e9/upper_vlan7": Link("../vlan7")}
    tree |= {"/sys/class/net/vlan7/upper_br0": Link("../br0")}
    rail = hca("mlx5_4", place(SWITCH[0], 2, "9:00.0"), model="MT4125", board="B", netdev="e9")
    assert kinds(decided(tmp_path, *hgx()[:-1], rail, tree, route=route))["mlx5_4"] == "management"


def mixed_rails(*ethernet: bool) -> list[Files]:
    """Adapters of one make below the switches, beside GPUs; some speak Ethernet."""
    found = [*map(bridges, SWITCH), *(gpu(SWITCH[n % 2], n // 2) for n in range(4))]
    for n, other in enumerate(ethernet):
        where = place(SWITCH[n % 2], 2 + n % 4 // 2, f"8:0{n}.0")
        found.append(hca(f"mlx5_{n}", where, netdev=f"e{n}" if other else ""))
    return found


@pytest.mark.parametrize(
    ("ethernet", "compute"),
    [
        ((False,) * 4, 4),
        ((False, False, False, True), 4),  # one of four was set to the wrong protocol
        ((False, False, True, True), 2),  # two and two is how the node is wired
        ((False,) * 4 + (True,), 4),  # a storage adapter of the same make
        ((False,) * 2 + (True,), 2),
    ],
)
def test_another_protocol_below_the_same_switch(
    tmp_path: Path, ethernet: tuple[bool, ...], compute: int
) -> None:
    found = kinds(decided(tmp_path, *mixed_rails(*ethernet)))
    assert [*found.values()].count("compute") == compute


@pytest.mark.parametrize(
    ("rails", "layer", "vm", "sure"),
    [
        (4, "InfiniBand", True, True),
        (4, "InfiniBand", False, True),
        (8, "Unknown", True, True),
        (4, "Ethernet", True, True),
        (4, "Ethernet", False, False),
        (5, "InfiniBand", True, False),
    ],
)
def test_as_many_alike_as_gpus_are_surely_compute_ports(
    tmp_path: Path, rails: int, layer: str, *, vm: bool, sure: bool
) -> None:
    gpus = [function(f"pci0000:4{n}/0000:4{n}:00.0", GPU) for n in range(4)]
    places = [f"pci0000:0{n}/0000:0{n}:00.0" for n in range(rails)]
    parts = [hca(f"mlx5_{n}", where, link_layer=layer) for n, where in enumerate(places)]
    found = decided(tmp_path, *gpus, *parts, vm=vm)
    assert {(role.kind, role.sure) for role in found.roles.values()} == {("compute", sure)}


@pytest.mark.parametrize(
    ("rails", "layer", "sure"),
    [(8, "InfiniBand", True), (4, "InfiniBand", False), (8, "Ethernet", False)],
)
def test_many_alike_where_nothing_tells_the_gpus(
    tmp_path: Path, rails: int, layer: str, *, sure: bool
) -> None:
    """A copy of /sys/class/infiniband alone: eight InfiniBand rails are of no file server."""
    ports = {
        f"/sys/class/infiniband/mlx5_{n}/{name}": content
        for n in range(rails)
        for name, content in {
            "hca_type": "MT4129",
            "board_id": "MT_0000000838",
            "ports/1/link_layer": layer,
            "ports/1/state": "4: ACTIVE",
            "ports/1/phys_state": "5: LinkUp",
            "ports/1/rate": "400 Gb/sec (4X NDR)",
        }.items()
    }
    found: RdmaRoles = Facts(make_host(tmp_path, ports, source="plain")).get(RdmaRoles)
    assert {(role.kind, role.sure) for role in found.roles.values()} == {("compute", sure)}
