# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import pytest
from rdmaparts import PCI, adapter
from trees import Source, Tree, make_host

from gpuaudit.engine import Facts
from gpuaudit.facts.base import Absent
from gpuaudit.facts.driver import KernelDriver
from gpuaudit.facts.rdmagids import Gid, RdmaGids, Roce
from gpuaudit.facts.rdmastack import GdrCopy, RdmaStack, gdr_copy

LOST = Absent("failed", "/dev/gdrdrv was not recorded")
NO_KERNEL = Absent("unsupported", "an image has no running kernel")


def get(folder: Path, tree: Tree, kind: type, source: Source = "snapshot") -> Any:
    return Facts(make_host(folder, tree, source=source)).get(kind)


def gids(folder: Path, table: list[str], **more: str) -> Roce:
    port = f"{PCI}/infiniband/mlx5_0/ports/1"
    tree = adapter(link_layer="Ethernet", **more)
    tree |= {f"{port}/gids/{n}": f"{text}\n" for n, text in enumerate(table)}
    for n in range(len(table)):
        tree[f"{port}/gid_attrs/types/{n}"] = "RoCE v2\n" if n % 2 else "IB/RoCE v1\n"
    tree |= {f"{port}/gid_attrs/ndevs/0": "eth0\n", "/sys/class/net/eth0/mtu": "4200\n"}
    found: RdmaGids = get(folder, tree, RdmaGids)
    return found.ports["mlx5_0 port 1"]


ZERO = ":".join(["0000"] * 8)
LOCAL = "fe80:0000:0000:0000:0000:00ff:fe00:0001"
MAPPED = "0000:0000:0000:0000:0000:ffff:0a00:0001"
GLOBAL = "2001:0db8:0000:0000:0000:0000:0000:0001"


def test_gids(tmp_path: Path) -> None:
    found = gids(tmp_path / "1", [LOCAL, LOCAL, ZERO, MAPPED, GLOBAL, "?", ZERO, MAPPED])
    assert found.gids == (
        Gid(0, "link-local", "IB/RoCE v1"),
        Gid(1, "link-local", "RoCE v2"),
        Gid(3, "IPv4", "RoCE v2"),
        Gid(4, "IPv6", "IB/RoCE v1"),
    )
    assert [gid.routable for gid in found.gids] == [False, False, True, False]
    assert (found.mtu, found.packet, found.warp) == (4200, 4096, False)
    assert found.read == 7
    assert gids(tmp_path / "2", [ZERO, ZERO]).gids == ()
    moved = gids(tmp_path / "4", [LOCAL, LOCAL, ZERO, ZERO, MAPPED, MAPPED, ZERO, ZERO, MAPPED])
    assert isinstance(moved.gids, tuple)
    assert [gid.place for gid in moved.gids] == [0, 1, 4, 5]
    assert moved.read == 8
    assert isinstance(gids(tmp_path / "3", []).gids, Absent)


@pytest.mark.parametrize(
    ("mtu", "packet"), [(9000, 4096), (4192, 4096), (4191, 2048), (1500, 1024), (300, 0)]
)
def test_what_fits_into_an_mtu(mtu: int, packet: int) -> None:
    assert Roce(gids=(), mtu=mtu, warp=False).packet == packet


def test_iwarp_and_infiniband_have_no_roce_gids(tmp_path: Path) -> None:
    node_type = f"{PCI}/infiniband/mlx5_0/node_type"
    tree = {**adapter(link_layer="Ethernet"), node_type: "4: RNIC\n"}
    found: RdmaGids = get(tmp_path / "1", tree, RdmaGids)
    assert found.ports["mlx5_0 port 1"].warp
    assert isinstance(found.ports["mlx5_0 port 1"].packet, Absent)
    assert get(tmp_path / "2", adapter(), RdmaGids).ports == {}


def test_the_stack(tmp_path: Path) -> None:
    tree = {
        **adapter(),
        "/sys/class/infiniband_verbs/uverbs0/ibdev": "mlx5_0\n",
        "/sys/class/infiniband_verbs/abi_version": "6\n",
        "/dev/infiniband/uverbs0": "",
        "/sys/module/mlx5_core/taint": "OE\n",
        "/sys/module/ib_core/taint": "\n",
    }
    found: RdmaStack = get(tmp_path / "1", tree, RdmaStack)
    assert found.taints == {"mlx5_core": "OE", "ib_core": ""}
    assert (found.verbs, found.nodes) == ({"mlx5_0": "uverbs0"}, frozenset({"uverbs0"}))
    bare: RdmaStack = get(tmp_path / "2", adapter(), RdmaStack)
    assert (bare.taints, bare.verbs, bare.nodes) == ({}, {}, frozenset())
    plain: RdmaStack = get(tmp_path / "3", adapter(), RdmaStack, "plain")
    seen = (*plain.taints.values(), plain.verbs, plain.nodes)
    assert all(isinstance(one, Absent) for one in seen)


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("snapshot", GdrCopy(module=True, node=False)),
        ("plain", GdrCopy(module=True, node=LOST)),
        ("image", GdrCopy(module=NO_KERNEL, node=NO_KERNEL)),
    ],
)
def test_gdr_copy(tmp_path: Path, source: Source, wanted: GdrCopy) -> None:
    loaded = KernelDriver(loaded=True, version="570.1", flavour="open")
    host = make_host(tmp_path, {"/sys/module/gdrdrv/taint": "OE\n"}, source=source)
    assert gdr_copy(host, loaded) == wanted
