# SPDX-License-Identifier: Apache-2.0
"""Class devices: network interfaces, RDMA devices and their ports, NVMe controllers."""

from fakenode.layout import (
    MANAGEMENT_ADDRESS,
    STORAGE_ADDRESSES,
    drive_addresses,
    hca_addresses,
)
from fakenode.pci import link, path_of
from fakenode.values import Files

COUNTERS = ("symbol_error", "link_downed", "link_error_recovery", "port_rcv_errors")


def class_files() -> Files:
    """Every class device and the links below /sys/class."""
    found: Files = {}
    for place, address in enumerate(hca_addresses()):
        found |= interface(address, f"ibp{place}", mtu=4092, speed=400_000, kind=32)
        found |= rdma(address, f"mlx5_{place}", "InfiniBand", "400 Gb/sec (4X NDR)")
    for place, address in enumerate(STORAGE_ADDRESSES):
        found |= interface(address, f"ens3f{place}np{place}", mtu=9000, speed=100_000, kind=1)
        found |= rdma(address, f"mlx5_{8 + place}", "Ethernet", "100 Gb/sec (4X EDR)")
    found |= interface(MANAGEMENT_ADDRESS, "eno1", mtu=1500, speed=1000, kind=1)
    for place, address in enumerate(drive_addresses()):
        found |= drive(address, f"nvme{place}")
    return found


def interface(address: str, name: str, *, mtu: int, speed: int, kind: int) -> Files:
    """A network interface."""
    parent = path_of(address)
    here = f"{parent}/net/{name}"
    texts = {
        "address": f"02:00:00:00:00:{len(name) + mtu % 200:02x}",
        "mtu": mtu,
        "operstate": "up",
        "carrier": 1,
        "speed": speed,
        "type": kind,
        "flags": "0x1003",
        "uevent": f"INTERFACE={name}",
    }
    found: Files = {f"{here}/{key}": f"{value}\n" for key, value in texts.items()}
    return found | link(f"{here}/device", parent) | link(f"/sys/class/net/{name}", here)


def rdma(address: str, name: str, layer: str, rate: str) -> Files:
    """An RDMA device with one port."""
    parent = path_of(address)
    here = f"{parent}/infiniband/{name}"
    port = {
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "link_layer": layer,
        "rate": rate,
        "lid": "0x11" if layer == "InfiniBand" else "0x0",
        **{f"counters/{counter}": 0 for counter in COUNTERS},
    }
    found: Files = {
        f"{here}/fw_ver": "28.43.2026\n",
        f"{here}/board_id": "EXA0000000001\n",
        f"{here}/node_type": "1: CA\n",
        f"{here}/hca_type": "MT4129\n",
    }
    found |= {f"{here}/ports/1/{key}": f"{value}\n" for key, value in port.items()}
    return found | link(f"{here}/device", parent) | link(f"/sys/class/infiniband/{name}", here)


def drive(address: str, name: str) -> Files:
    """An NVMe controller."""
    parent = path_of(address)
    here = f"{parent}/nvme/{name}"
    found: Files = {
        f"{here}/model": "Example NVMe 7.68TB\n",
        f"{here}/state": "live\n",
        f"{here}/address": f"{address}\n",
        f"{here}/transport": "pcie\n",
    }
    return found | link(f"{here}/device", parent) | link(f"/sys/class/nvme/{name}", here)
