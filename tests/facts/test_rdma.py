# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import pytest
from rdmaparts import PCI, adapter
from trees import Link, Source, Tree, make_host

from gpuaudit.engine import Facts
from gpuaudit.facts.base import Absent
from gpuaudit.facts.rdmacounters import RdmaCounters
from gpuaudit.facts.rdmaports import RdmaPort, RdmaPorts, RdmaRate, rate_of, worded
from gpuaudit.host import NotApplicable, Unavailable

CLASS = "/sys/class/infiniband"


def get(folder: Path, tree: Tree, kind: type, source: Source = "snapshot") -> Any:
    return Facts(make_host(folder, tree, source=source)).get(kind)


def ports(folder: Path, tree: Tree, source: Source = "snapshot") -> tuple[RdmaPort, ...]:
    found: RdmaPorts = get(folder, tree, RdmaPorts, source)
    return found.ports


def test_a_port_and_its_device(tmp_path: Path) -> None:
    (port,) = ports(tmp_path, adapter())
    assert (port.name, port.place, port.active) == ("mlx5_0 port 1", "0000:19:00.0", True)
    assert (port.model, port.board, port.firmware) == ("MT4129", "X", "1.2")
    assert (port.rate, str(port.rate)) == (RdmaRate(400, 4, "NDR"), "400 Gb/s 4X NDR")
    assert (port.slot, port.socket) == ("0000:19:00", ("0", 1))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2.5 Gb/sec (1X)", RdmaRate(2.5, 1, "SDR")),
        ("10 Gb/sec (4X SDR)", RdmaRate(10, 4, "SDR")),
        ("56 Gb/sec (4X FDR)", RdmaRate(56, 4, "FDR")),
        ("40 Gb/sec (4X FDR10)", RdmaRate(40, 4, "FDR10")),
        ("800 Gb/sec (4X XDR)", RdmaRate(800, 4, "XDR")),
    ],
)
def test_rates(text: str, wanted: RdmaRate) -> None:
    assert rate_of(text) == wanted
    assert wanted.told == (wanted.speed != "SDR")


@pytest.mark.parametrize("text", ["", "400", "400 Gb/sec", "400 Gb/sec (X NDR)", "NaN Gb/sec (4X)"])
def test_garbled_rates(text: str) -> None:
    assert isinstance(rate_of(text), Absent)


def test_states() -> None:
    assert worded("7: Phy Test") == "Phy Test"
    assert worded("9: <unknown>") == "<unknown>"
    assert isinstance(worded("ACTIVE"), Absent)


def test_the_order_is_that_of_people(tmp_path: Path) -> None:
    tree = {**adapter("mlx5_10"), **adapter("mlx5_9"), **adapter("mlx4_0")}
    assert [port.device for port in ports(tmp_path, tree)] == ["mlx4_0", "mlx5_9", "mlx5_10"]


@pytest.mark.parametrize(
    ("name", "where", "place"),
    [
        ("rxe0", "/sys/devices/virtual", ""),
        ("siw_eth0", PCI, ""),
        ("efa_0", "/sys/devices/pci0000:00/0000:00:1D.0", "0000:00:1d.0"),
    ],
)
def test_what_a_device_is_on(tmp_path: Path, name: str, where: str, place: str) -> None:
    (port,) = ports(tmp_path, adapter(name, where))
    assert port.place == place


def test_a_copy_names_its_place_by_the_uevent_of_its_parent(tmp_path: Path) -> None:
    tree = {
        f"{CLASS}/mlx5_0/ports/1/state": "1: DOWN\n",
        f"{CLASS}/mlx5_0/device/uevent": "DRIVER=mlx5_core\nPCI_SLOT_NAME=0000:AF:00.1\n",
        f"{CLASS}/mlx5_1/ports/1/state": "4: ACTIVE\n",
    }
    first, second = ports(tmp_path, tree, "plain")
    assert (first.place, second.place) == ("0000:af:00.1", None)
    assert (first.active, second.active) == (False, True)
    assert isinstance(first.rate, Absent)


def test_a_virtual_function(tmp_path: Path) -> None:
    tree = {**adapter(), f"{PCI}/physfn": Link("../0000:19:01.0")}
    (port,) = ports(tmp_path, tree)
    assert port.virtual_function


def test_the_interface_of_an_ethernet_port(tmp_path: Path) -> None:
    here = f"{PCI}/infiniband/mlx5_0"
    one = {**adapter(link_layer="Ethernet"), f"{here}/device": Link("../.."), f"{PCI}/net/a/x": ""}
    assert ports(tmp_path / "1", one)[0].netdev == "a"
    two = {**one, f"{PCI}/net/b/x": ""}
    assert ports(tmp_path / "2", two)[0].netdev is None
    bond = {**two, f"{here}/ports/1/gid_attrs/ndevs/0": "bond0\n"}
    assert ports(tmp_path / "3", bond)[0].netdev == "bond0"


def test_no_device_is_an_answer_and_no_evidence_is_none(tmp_path: Path) -> None:
    for place, tree in (("1", {}), ("2", {CLASS: None}), ("3", {f"{CLASS}/scif0/uevent": ""})):
        with pytest.raises(NotApplicable):
            ports(tmp_path / place, tree)
    with pytest.raises(Unavailable):
        ports(tmp_path / "4", {}, "plain")
    with pytest.raises(NotApplicable, match="no running kernel"):
        ports(tmp_path / "5", {}, "image")


def test_a_device_whose_ports_are_not_recorded_is_named(tmp_path: Path) -> None:
    tree = {**adapter(), f"{CLASS}/scif0/uevent": ""}
    found: RdmaPorts = get(tmp_path, tree, RdmaPorts, "plain")
    assert list(found.unread) == ["scif0"]
    assert len(found.ports) == 1


def totals(folder: Path, tree: Tree, source: Source = "snapshot") -> RdmaCounters:
    found: RdmaCounters = get(folder, tree, RdmaCounters, source)
    return found


def test_counters(tmp_path: Path) -> None:
    port = f"{PCI}/infiniband/mlx5_0/ports/1"
    files = {
        "counters/symbol_error": "7",
        "counters/link_downed": "N/A (no PMA)",
        "counters/port_xmit_data": "123",
        "hw_counters/out_of_sequence": "5",
        "hw_counters/np_cnp_sent": "9",
        "hw_counters/lifespan": "10",
    }
    tree = {**adapter(), **{f"{port}/{name}": f"{text}\n" for name, text in files.items()}}
    found = totals(tmp_path / "1", tree)
    assert found.counters() == {"mlx5_0 port 1": {"symbol_error": 7, "out_of_sequence": 5}}
    assert found.gaps == {}
    tree = {**tree, f"{port}/link_layer": "Ethernet\n"}
    assert totals(tmp_path / "2", tree).totals == {"mlx5_0 port 1": {"out_of_sequence": 5}}
    tree = {**tree, f"{port}/state": "1: DOWN\n"}
    assert totals(tmp_path / "3", tree).totals == {}


def test_counters_that_hang_are_no_counters_that_are_missing(tmp_path: Path) -> None:
    port = f"{PCI}/infiniband/mlx5_0/ports/1"
    tree = {**adapter(), f"{port}/hw_counters/out_of_sequence": "5\n"}
    host = make_host(tmp_path, {**tree, f"{port}/counters/symbol_error": "0\n"})
    for name in ("hw_counters/out_of_sequence", "counters/symbol_error"):
        host.evidence.files[f"{port}/{name}"] = Unavailable("did not answer within 2 s", "hung")
    found: RdmaCounters = Facts(host).get(RdmaCounters)
    assert {gap.kind for gap in found.gaps.values()} == {"failed"}


@pytest.mark.parametrize(("source", "kind"), [("snapshot", "unsupported"), ("plain", "failed")])
def test_a_driver_without_counters(tmp_path: Path, source: Source, kind: str) -> None:
    gaps = totals(tmp_path, adapter(), source).gaps
    assert {gap.kind for gap in gaps.values()} == {kind}
    assert {folder for _, folder in gaps} == {"counters", "hw_counters"}
