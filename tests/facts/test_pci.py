# SPDX-License-Identifier: Apache-2.0
"""PCI functions: identity, place, link ends, locality."""

from pathlib import Path

import pytest
from pcitree import (
    AUDIO,
    BRIDGE,
    FOLDER,
    GPU,
    NIC,
    NVME,
    End,
    Files,
    config_space,
    function,
    port,
    switch,
)
from trees import Source, make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.pci import LinkEnd, PciDevices, pci_devices
from gpuaudit.facts.pciidentity import read_identity, role_of
from gpuaudit.facts.pcilink import parse_speed, parse_width
from gpuaudit.facts.pciplace import place_of_path
from gpuaudit.host import Unavailable


def devices(folder: Path, files: Files, source: Source = "snapshot") -> PciDevices:
    return pci_devices(make_host(folder, files, source=source))


@pytest.mark.parametrize("source", ["snapshot", "plain", "live"])
def test_a_gpu_behind_a_switch(tmp_path: Path, source: Source) -> None:
    found = devices(tmp_path, switch("pci0000:15", 0x15), source)
    gpu = found.by_address["0000:18:00.0"]
    assert (gpu.role, gpu.id, gpu.driver, gpu.root) == ("gpu", "10de:2330", "nvidia", "pci0000:15")
    assert gpu.parents == ("0000:15:01.0", "0000:16:00.0", "0000:17:00.0")
    assert gpu.link == LinkEnd(speed_gt_per_s=32.0, max_speed_gt_per_s=32.0, width=16, max_width=16)
    assert (gpu.numa_node, gpu.local_cpus) == (0, frozenset(range(4)))
    nic = found.by_address["0000:19:00.0"]
    assert (nic.role, nic.rdma, nic.unbound) == ("nic", True, False)


def test_only_ports_above_judged_devices_are_read(tmp_path: Path) -> None:
    lonely = port("pci0000:00/0000:00:1d.0")
    audio = function("pci0000:00/0000:00:1f.3", AUDIO)
    host = make_host(tmp_path, {**switch("pci0000:15", 0x15), **lonely, **audio})
    found = pci_devices(host)
    assert isinstance(found.by_address["0000:00:1d.0"].link, Absent)
    assert isinstance(found.by_address["0000:17:00.0"].link, LinkEnd)
    assert not any("0000:00:1d.0/current" in path for path in host.evidence.files)
    assert not any(path.endswith("/config") for path in host.evidence.files)


def test_five_digit_domains_are_listed_last(tmp_path: Path) -> None:
    far = function("pci10000:00/10000:00:04.0", NVME, vendor=0x8086, driver="nvme")
    found = devices(tmp_path, {**far, **switch("pci0000:15", 0x15)})
    assert list(found.by_address)[-1] == "10000:00:04.0"
    assert found.by_address["10000:00:04.0"].root == "pci10000:00"


def test_a_drive_behind_vmd_belongs_to_the_inner_host_bridge() -> None:
    path = "/sys/devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0"
    assert place_of_path(path) == ("pci10000:e0", ("10000:e0:06.0",))


def test_virtual_functions_are_not_physical(tmp_path: Path) -> None:
    vf = function("pci0000:00/0000:00:02.1", NIC, vendor=0x15B3, more={"physfn/uevent": ""})
    found = devices(tmp_path, vf)
    assert found.of("nic") == ()
    assert found.by_address["0000:00:02.1"].virtual_function


def test_plain_folders_are_placed_by_bus_numbers(tmp_path: Path) -> None:
    def header(secondary: int) -> bytes:
        space = bytearray(config_space()[:64])
        space[0x19] = secondary
        return bytes(space)

    files: Files = {
        f"{FOLDER}/0000:15:01.0/class": "0x060400\n",
        f"{FOLDER}/0000:15:01.0/config": header(0x16),
        f"{FOLDER}/0000:16:00.0/class": "0x060400\n",
        f"{FOLDER}/0000:16:00.0/config": header(0x17),
        f"{FOLDER}/0000:17:00.0/modalias": (
            "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00\n"
        ),
    }
    gpu = devices(tmp_path, files, "plain").by_address["0000:17:00.0"]
    assert (gpu.role, gpu.id) == ("gpu", "10de:2330")
    assert (gpu.root, gpu.parents) == ("pci0000:15", ("0000:15:01.0", "0000:16:00.0"))


def test_plain_folders_without_bus_numbers_have_no_place(tmp_path: Path) -> None:
    files: Files = {
        f"{FOLDER}/0000:15:01.0/class": "0x060400\n",
        f"{FOLDER}/0000:16:00.0/class": "0x030200\n",
        f"{FOLDER}/0000:16:00.0/vendor": "0x10de\n",
    }
    assert devices(tmp_path, files, "plain").by_address["0000:16:00.0"].root == ""


@pytest.mark.parametrize(
    ("address", "root"), [("0000:16:00.0", ""), ("0000:00:05.0", "pci0000:00")]
)
def test_bridges_that_were_left_out_are_no_host_bridge(
    tmp_path: Path, address: str, root: str
) -> None:
    """Only the first bus is known to be a host bridge's when no bridge was recorded."""
    files: Files = {f"{FOLDER}/{address}/class": "0x030200\n"}
    assert devices(tmp_path, files, "plain").by_address[address].root == root


@pytest.mark.parametrize("source", ["plain", "live"])
def test_the_driver_knows_its_gpus(tmp_path: Path, source: Source) -> None:
    files: Files = {
        f"{FOLDER}/0004:05:00.0/class": "0x030000\n",
        f"{FOLDER}/0004:06:00.0/class": "0x030000\n",
        "/proc/driver/nvidia/gpus/0004:05:00.0/numa_status": "Node: 255\n",
    }
    found = devices(tmp_path, files, source).by_address
    assert [d.role for d in found.values()] == ["gpu", "other"]
    assert [d.known for d in found.values()] == [True, False]


def test_bridges_in_a_circle_have_no_place(tmp_path: Path) -> None:
    space = bytearray(config_space()[:64])
    files: Files = {}
    for address, secondary in (("0000:01:00.0", 2), ("0000:02:00.0", 1)):
        space[0x19] = secondary
        files[f"{FOLDER}/{address}/class"] = "0x060400\n"
        files[f"{FOLDER}/{address}/config"] = bytes(space)
    assert devices(tmp_path, files, "plain").by_address["0000:01:00.0"].root == ""


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"uevent": "PCI_CLASS=30200\nPCI_ID=10DE:2330\n"}, (0x10DE, 0x2330, GPU)),
        ({"vendor": "0x10de", "device": "0x2330", "class": "0x030200"}, (0x10DE, 0x2330, GPU)),
        ({"uevent": "PCI_CLASS=zz\nPCI_ID=\n", "class": "0x030200"}, (None, None, GPU)),
        ({"config": config_space()[:64]}, (0x1000, 0xC030, BRIDGE)),
        ({"config": b"\xff" * 64}, (None, None, None)),
        ({"config": b"\x00"}, (None, None, None)),
        ({"modalias": "usb:v1d6b"}, (None, None, None)),
    ],
)
def test_identity_falls_back(
    tmp_path: Path, files: Files, expected: tuple[int | None, ...]
) -> None:
    host = make_host(tmp_path, {f"/sys/d/{n}": v for n, v in files.items()}, source="plain")
    uevent = dict(
        line.split("=", 1) for line in (host.optional("/sys/d/uevent") or "").splitlines()
    )
    assert read_identity(host, "/sys/d", uevent) == expected


@pytest.mark.parametrize(
    ("vendor", "class_code", "driver", "role"),
    [
        (0x10DE, 0x030000, None, "gpu"),
        (0x10DE, 0x068000, None, "nvswitch"),
        (0x10DE, 0x040300, None, "other"),
        (0x10DE, 0x0C0330, None, "other"),
        (0x10DE, 0x060400, None, "bridge"),
        (0, 0x030200, "nvidia", "gpu"),
        (0x1002, 0x038000, "amdgpu", "accelerator"),
        (0x15B3, 0x028000, "mlx4_core", "nic"),
        (0x8086, 0x028000, "iwlwifi", "other"),
        (0x1077, 0x0C0600, "ib_qib", "nic"),
        (0x1BCF, 0x120000, "ve_drv", "accelerator"),
        (0x1AF4, 0x010000, "virtio-pci", "storage"),
    ],
)
def test_roles(vendor: int, class_code: int, driver: str | None, role: str) -> None:
    assert role_of(vendor, class_code, driver) == role


@pytest.mark.parametrize(
    ("text", "value"),
    [("16.0 GT/s PCIe", 16.0), ("8 GT/s", 8.0), ("2.5 GT/s", 2.5), ("64.0 GT/s PCIe", 64.0)],
)
def test_speeds(text: str, value: float) -> None:
    assert parse_speed(text) == value


@pytest.mark.parametrize("text", ["Unknown", "Unknown speed", "", "7 GT/s", "fast", "32"])
def test_no_speed(text: str) -> None:
    assert isinstance(parse_speed(text), Absent)


@pytest.mark.parametrize(("text", "value"), [("16", 16), ("x8", 8), ("1", 1), ("32", 32)])
def test_widths(text: str, value: int) -> None:
    assert parse_width(text) == value


@pytest.mark.parametrize(
    ("text", "kind"),
    [("0", "unsupported"), ("63", "failed"), ("255", "failed"), ("-4", "failed"), ("3", "failed")],
)
def test_no_width(text: str, kind: str) -> None:
    found = parse_width(text)
    assert isinstance(found, Absent)
    assert found.kind == kind


def test_the_power_state_is_read_only_for_a_slow_link(tmp_path: Path) -> None:
    slow = End(speed="2.5 GT/s PCIe")
    more: Files = {"power_state": "D3hot\n"}
    files = {
        **function("pci0000:00/0000:01:00.0", NIC, link=slow, more=more),
        **function("pci0000:00/0000:02:00.0", NIC, more=more),
    }
    host = make_host(tmp_path, files)
    found = pci_devices(host)
    assert found.by_address["0000:01:00.0"].power_state == "D3hot"
    assert found.by_address["0000:02:00.0"].power_state is None


def test_no_link_is_told_from_no_recording(tmp_path: Path) -> None:
    files = function("pci0000:00/0000:00:03.0", NIC, link=None)
    recorded = devices(tmp_path / "a", files).by_address["0000:00:03.0"].link
    plain = devices(tmp_path / "b", files, "plain").by_address["0000:00:03.0"].link
    assert isinstance(recorded, Absent)
    assert isinstance(plain, Absent)
    assert (recorded.kind, plain.kind) == ("unsupported", "missing")


@pytest.mark.parametrize(
    ("node", "cpus", "expected"),
    [
        ("-1", "0-3", (-1, True)),
        ("none", "0-3", (Absent, True)),
        (None, None, (Absent, False)),
        ("0", "0-x", (0, False)),
    ],
)
def test_locality_may_be_garbled(
    tmp_path: Path, node: str | None, cpus: str | None, expected: tuple[object, bool]
) -> None:
    place = "pci0000:00/0000:01:00.0"
    found = devices(tmp_path, function(place, GPU, node=node, cpus=cpus)).of("gpu")[0]
    wanted, has_cpus = expected
    same = found.numa_node == wanted
    assert same or (wanted is Absent and isinstance(found.numa_node, Absent))
    assert isinstance(found.local_cpus, frozenset) is has_cpus


def test_a_mask_stands_in_for_the_list(tmp_path: Path) -> None:
    more: Files = {"local_cpus": "00000001,0000000f\n"}
    files = function("pci0000:00/0000:01:00.0", GPU, cpus=None, more=more)
    assert devices(tmp_path, files).of("gpu")[0].local_cpus == frozenset({0, 1, 2, 3, 32})


def test_an_empty_bus_is_empty_only_when_that_is_known(tmp_path: Path) -> None:
    assert devices(tmp_path / "a", {FOLDER: None}).by_address == {}
    with pytest.raises(Unavailable) as caught:
        devices(tmp_path / "b", {FOLDER: None}, "plain")
    assert caught.value.kind == "not-recorded"


def test_whether_a_driver_is_bound_may_be_unknown(tmp_path: Path) -> None:
    files: Files = {f"{FOLDER}/0000:01:00.0/class": "0x020700\n"}
    plain = devices(tmp_path / "a", files, "plain").by_address["0000:01:00.0"]
    known = devices(tmp_path / "b", files).by_address["0000:01:00.0"]
    assert (plain.driver_known, plain.unbound) == (False, False)
    assert (known.driver_known, known.unbound) == (True, True)
