# SPDX-License-Identifier: Apache-2.0
"""Nodes of GPUs and RDMA adapters below PCIe switches, as trees, for tests of roles."""

from pathlib import Path
from typing import Any

from pcitree import GPU, NIC, Files, function, port
from trees import Link, make_host

from gpuaudit.engine import Facts
from gpuaudit.topology.rdmaroles import RdmaRoles

SWITCH = ("pci0000:10", "pci0000:20")
DOWN = {"state": "1: DOWN", "phys_state": "2: Polling"}


def bridges(root: str) -> Files:
    """A root port and a switch with four ports; a device may hang below each."""
    bus = root[-2:]
    top, up = f"{root}/0000:{bus}:01.0", f"{root}/0000:{bus}:01.0/0000:{bus}:02.0"
    found = port(top) | port(up)
    for slot in range(4):
        found |= port(f"{up}/0000:{bus}:03.{slot}")
    return found


def place(root: str, slot: int, name: str) -> str:
    bus = root[-2:]
    return f"{root}/0000:{bus}:01.0/0000:{bus}:02.0/0000:{bus}:03.{slot}/0000:{bus[0]}{name}"


def gpu(root: str, slot: int) -> Files:
    return function(place(root, slot, f"{slot + 4}:00.0"), GPU)


def hca(
    name: str, where: str, *, model: str = "MT4129", board: str = "A", netdev: str = "", **more: str
) -> Files:
    """An adapter with one port."""
    here = f"/sys/devices/{where}/infiniband/{name}"
    texts = {"state": "4: ACTIVE", "link_layer": "InfiniBand", "rate": "400 Gb/sec (4X NDR)"}
    files: Files = {f"{here}/ports/1/{k}": f"{v}\n" for k, v in {**texts, **more}.items()}
    files |= {f"{here}/hca_type": f"{model}\n", f"{here}/board_id": f"{board}\n"}
    if netdev:
        files |= {f"{here}/ports/1/gid_attrs/ndevs/0": f"{netdev}\n"}
        files[f"{here}/ports/1/link_layer"] = "Ethernet\n"
    nic = function(where, NIC, vendor=0x15B3, device=0x1021, driver="mlx5_core")
    return {
        **nic,
        **files,
        f"/sys/class/infiniband/{name}": Link(f"../../devices/{where}/infiniband/{name}"),
    }


def decided(folder: Path, *parts: Files, vm: bool = False, **files: str) -> RdmaRoles:
    tree: dict[str, Any] = {"/sys/class/dmi/id/sys_vendor": "QEMU\n" if vm else "Dell Inc.\n"}
    tree["/proc/cpuinfo"] = "flags : hypervisor\n" if vm else "flags : fpu\n"
    for part in parts:
        tree |= part
    named = {"conf": "/etc/nccl.conf", "route": "/proc/net/route", "env": "/etc/environment"}
    tree |= {named[key]: text for key, text in files.items()}
    found: RdmaRoles = Facts(make_host(folder, tree)).get(RdmaRoles)
    return found


def kinds(found: RdmaRoles) -> dict[str, str]:
    return {name.partition(" ")[0]: role.kind for name, role in found.roles.items()}


def hgx() -> list[Files]:
    """Two switches with a GPU and a rail each, and a storage adapter beside them."""
    found = [*map(bridges, SWITCH)]
    for number, root in enumerate(SWITCH):
        found += [gpu(root, 0), hca(f"mlx5_{number}", place(root, 1, "8:00.0"))]
    return [
        *found,
        hca("mlx5_9", "pci0000:30/0000:31:00.0", model="MT4125", board="B", netdev="e9"),
    ]
