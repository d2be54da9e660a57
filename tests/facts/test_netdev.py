# SPDX-License-Identifier: Apache-2.0
"""Interfaces of hardware: which there are, and what is read of them."""

import json
from pathlib import Path
from typing import Any

import pytest
from machines import nic, pci
from trees import Link, Source, Tree, make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.netdev import NetDevice, NetDevices, net_devices
from gpuaudit.facts.netroute import Routes
from gpuaudit.facts.pci import PciDevices
from gpuaudit.host import Host, NotApplicable, Unavailable

ADDRESS = "0000:5a:00.0"
HOME = f"/sys/devices/pci0000:59/{ADDRESS}/net"
NIC = nic(ADDRESS, vendor=0x15B3, device=0x101D, driver="mlx5_core", rdma=True)
NO_ROUTES = Routes(default=frozenset(), subnets={})


def interface(name: str, folder: str = HOME, **changes: str | None) -> dict[str, Any]:
    usual: dict[str, str | None] = {
        "type": "1",
        "operstate": "up",
        "speed": "100000",
        "mtu": "9000",
        "carrier_changes": "2",
    }
    files = {f"{folder}/{name}/{k}": v for k, v in (usual | changes).items() if v is not None}
    up = "../" * 3
    return {**files, f"/sys/class/net/{name}": Link(f"{up}{folder.lstrip('/')}/{name}")}


def read(
    folder: Path,
    tree: Tree,
    devices: PciDevices | None = None,
    routes: Routes = NO_ROUTES,
    source: Source = "snapshot",
) -> NetDevices:
    return net_devices(make_host(folder, tree, source=source), devices or pci(NIC), routes)


def one(folder: Path, tree: Tree, *rest: Any) -> NetDevice:
    (found,) = read(folder, tree, *rest).devices
    return found


def test_an_interface_with_all_it_has(tmp_path: Path) -> None:
    found = one(tmp_path, interface("rail0"))
    assert found == NetDevice(
        name="rail0",
        address=ADDRESS,
        model="15b3:101d",
        driver="mlx5_core",
        rdma=True,
        up=True,
        default_route=False,
        uppers=(),
        speed_mbps=100_000,
        mtu=9000,
        carrier_changes=2,
    )


def test_virtual_interfaces_are_left_out(tmp_path: Path) -> None:
    tree = interface("bond0", "/sys/devices/virtual/net") | interface("rail0")
    assert one(tmp_path, tree).name == "rail0"


def test_infiniband_is_left_out(tmp_path: Path) -> None:
    assert read(tmp_path, interface("ib0", type="32")).devices == ()


def test_a_virtio_interface_belongs_to_its_pci_function(tmp_path: Path) -> None:
    folder = f"/sys/devices/pci0000:59/{ADDRESS}/virtio2/net"
    tree = interface("eth0", folder, speed="-1")
    found = one(tmp_path, tree, pci(nic(ADDRESS, rdma=False)))
    assert found.address == ADDRESS
    assert found.speed_mbps == Absent("unsupported", "the driver names no speed")


def test_an_interface_without_a_pci_function(tmp_path: Path) -> None:
    """Hyper-V's bus, or virtio over MMIO."""
    found = one(tmp_path, interface("eth0", "/sys/devices/LNXSYSTM:00/VMBUS:01/net"))
    assert (found.address, found.model, found.rdma) == (None, None, False)


def test_virtual_functions_of_guests_are_left_out(tmp_path: Path) -> None:
    vf = nic(ADDRESS, virtual_function=True)
    assert read(tmp_path, interface("rail0v0"), pci(vf)).devices == ()


def test_representors_are_left_out(tmp_path: Path) -> None:
    tree = interface("rail0", phys_port_name="p0") | interface("rep", phys_port_name="pf0vf3")
    assert one(tmp_path, tree).name == "rail0"


def test_the_default_route_through_vlan_on_bond(tmp_path: Path) -> None:
    bond = "/sys/devices/virtual/net"
    tree = interface("rail0") | interface("bond0", bond)
    tree |= {f"{HOME}/rail0/upper_bond0": Link("x"), f"{bond}/bond0/upper_vlan7": Link("x")}
    found = one(tmp_path, tree, None, Routes(default=frozenset({"vlan7"}), subnets={}))
    assert (found.uppers, found.bond) == (("bond0", "vlan7"), None)
    tree |= {f"{bond}/bond0/bonding/mode": "802.3ad 4\n"}
    assert one(tmp_path / "2", tree).bond == "bond0"
    assert found.upper_mtus == (("bond0", 9000),)
    assert found.default_route


@pytest.mark.parametrize(
    ("state", "up"), [("up", True), ("unknown", True), ("down", False), (None, None)]
)
def test_states(tmp_path: Path, state: str | None, up: bool | None) -> None:
    assert one(tmp_path, interface("rail0", operstate=state)).up is up


@pytest.mark.parametrize(("text", "kind"), [("garbage", "failed"), (None, "missing")])
def test_numbers_that_cannot_be_read(tmp_path: Path, text: str | None, kind: str) -> None:
    found = one(tmp_path, interface("rail0", mtu=text, carrier_changes=text))
    for value in (found.mtu, found.carrier_changes):
        assert isinstance(value, Absent)
        assert value.kind == kind


def test_a_speed_that_the_driver_does_not_know(tmp_path: Path) -> None:
    """The kernel answers EINVAL, which a recording keeps as a gap."""
    make_host(tmp_path, interface("rail0", speed=None))
    manifest = tmp_path / "manifest.json"
    known = json.loads(manifest.read_text())
    gap = {"kind": "unsupported", "reason": "Invalid argument"}
    manifest.write_text(json.dumps(known | {"gaps": {f"{HOME}/rail0/speed": gap}}))
    host = Host.snapshot(str(tmp_path))
    (found,) = net_devices(host, pci(nic(ADDRESS, rdma=False)), NO_ROUTES).devices
    assert found.speed_mbps == Absent("unsupported", "Invalid argument")


def test_the_carrier_is_counted(tmp_path: Path) -> None:
    tree = interface("rail0", carrier_changes="7") | interface("rail1", carrier_changes=None)
    assert read(tmp_path, tree).counters() == {"rail0": {"carrier-changes": 7}}


def test_no_interface_is_an_answer(tmp_path: Path) -> None:
    found = read(tmp_path, {"/sys/class/net": None})
    with pytest.raises(NotApplicable):
        _ = found.data


def test_an_image_has_no_interfaces(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable):
        read(tmp_path, {"/etc/hostname": "x"}, source="image")


def test_interfaces_that_were_not_recorded(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as caught:
        read(tmp_path, {"/etc/hostname": "x"}, source="plain")
    assert caught.value.kind == "not-recorded"


def test_a_recording_that_left_out_the_state_does_not_say_no(tmp_path: Path) -> None:
    found = read(tmp_path, interface("rail0", operstate=None))
    with pytest.raises(Unavailable, match="the state of rail0"):
        _ = found.data
