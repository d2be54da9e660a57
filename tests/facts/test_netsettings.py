# SPDX-License-Identifier: Apache-2.0
"""Settings of TCP and of rails, answers of drivers, adapters of clouds."""

import json
from pathlib import Path
from typing import Any

import pytest
from machines import nic, pci
from netfacts import rails
from trees import Tree, make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.netcloud import efa, google_nics
from gpuaudit.facts.netdriver import NetDriver, NetDrivers, net_drivers
from gpuaudit.facts.netecn import roce_ecn
from gpuaudit.facts.netroute import Routes
from gpuaudit.facts.netsysctl import (
    BUFFERS,
    CONGESTION,
    CORE_BUFFERS,
    rail_settings,
    tcp_settings,
)
from gpuaudit.host import NotApplicable, Unavailable

CONF = "/proc/sys/net/ipv4/conf"
SHARED = Routes(default=frozenset(), subnets={"n/m": ("rail0", "rail1")})
RMEM = {"/proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t6291456\n"}
EFA = nic("0000:00:1d.0", vendor=0x1D0F, device=0xEFA2, driver="efa", rdma=True)


def conf(**values: int) -> dict[str, str]:
    """rp_filter_all=1, rp_filter_rail0=2 and so on; what is not named is 0."""
    keys = ("rp_filter", "arp_ignore", "arp_announce", "arp_filter")
    places = ("all", "rail0", "rail1")
    return {f"{CONF}/{p}/{k}": str(values.get(f"{k}_{p}", 0)) for p in places for k in keys}


def test_running_and_configured(tmp_path: Path) -> None:
    tree = RMEM | {"/etc/sysctl.d/90-x.conf": "net.ipv4.tcp_rmem = 4096 1 2\n"}
    found = tcp_settings(make_host(tmp_path, tree)).by_key[BUFFERS[0]]
    assert found.running == "4096\t131072\t6291456"
    assert found.next_boot is not None
    assert not isinstance(found.next_boot, Absent)
    assert found.next_boot.value == "4096 1 2"


def test_a_container_does_not_have_all_settings(tmp_path: Path) -> None:
    found = tcp_settings(make_host(tmp_path, {**RMEM, "/.dockerenv": ""}))
    core = found.by_key[CORE_BUFFERS[0]]
    assert isinstance(core.running, Absent)
    assert core.running.kind == "unsupported"
    assert isinstance(core.next_boot, Absent)


def test_an_image_has_only_what_is_configured(tmp_path: Path) -> None:
    tree = {"/etc/sysctl.d/90-x.conf": "net.ipv4.tcp_congestion_control = bbr\n"}
    found = tcp_settings(make_host(tmp_path, tree, source="image")).by_key[CONGESTION]
    assert isinstance(found.running, Absent)
    assert found.running.kind == "unsupported"
    assert getattr(found.next_boot, "value", None) == "bbr"


def test_settings_that_were_not_recorded(tmp_path: Path) -> None:
    found = tcp_settings(make_host(tmp_path, {"/etc/hostname": "x"}, source="plain"))
    assert all(isinstance(one.running, Absent) for one in found.by_key.values())
    assert {one.running.kind for one in found.by_key.values()} == {"failed"}  # type: ignore[union-attr]  # the line above


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, 0),
        ({"rp_filter_all": 1}, 1),
        ({"rp_filter_all": 1, "rp_filter_rail0": 2}, 2),
        ({"rp_filter_rail0": 1}, 1),
    ],
)
def test_the_greater_value_counts(tmp_path: Path, values: dict[str, int], expected: int) -> None:
    found = rail_settings(make_host(tmp_path, conf(**values)), rails({}, {}), SHARED)
    assert found.by_name["rail0"]["rp_filter"] == expected
    assert set(found.by_name) == {"rail0", "rail1"}


def test_a_setting_that_is_no_number(tmp_path: Path) -> None:
    tree = conf() | {f"{CONF}/rail0/rp_filter": "yes"}
    found = rail_settings(make_host(tmp_path, tree), rails({}, {}), SHARED)
    assert isinstance(found.by_name["rail0"]["rp_filter"], Absent)


def test_rails_in_networks_of_their_own(tmp_path: Path) -> None:
    alone = Routes(default=frozenset(), subnets={"a/m": ("rail0",), "b/m": ("rail1",)})
    with pytest.raises(NotApplicable):
        rail_settings(make_host(tmp_path, conf()), rails({}, {}), alone)


def test_without_routes_nothing_is_known_of_rails(tmp_path: Path) -> None:
    lost = Routes(default=frozenset(), subnets={}, why="/proc/net/route was not recorded")
    with pytest.raises(Unavailable, match="was not recorded"):
        rail_settings(make_host(tmp_path, conf()), rails({}, {}), lost)


def asked(folder: Path, **answer: Any) -> NetDriver | Absent:
    said = [{"argv": ["@ethtool", "rail0"], **answer}] if answer else []
    return net_drivers(make_host(folder, {}, commands=said), rails({})).by_name["rail0"]


def test_a_driver_that_answers(tmp_path: Path) -> None:
    said = {"rings": {"rx": 1024, "rx_max": 8192}, "failed": {"pause": "Input/output error"}}
    found = asked(tmp_path, output={"returncode": 0, "stdout": json.dumps(said)})
    assert isinstance(found, NetDriver)
    assert found.rings["rx_max"] == 8192
    assert found.lacking("pause") == Absent("failed", "Input/output error")
    assert found.lacking("channels").kind == "unsupported"


@pytest.mark.parametrize(
    "answer",
    [
        {"output": {"returncode": 0, "stdout": "{"}},
        {"output": {"returncode": 0, "stdout": '{"rings": 7}'}},
        {"output": {"returncode": 5, "stdout": "", "stderr": "Input/output error"}},
        {"gap": {"kind": "hung", "reason": "did not answer"}},
        {},
    ],
    ids=["cut", "garbled", "error", "hung", "not-recorded"],
)
def test_a_driver_that_does_not(tmp_path: Path, answer: dict[str, Any]) -> None:
    found = asked(tmp_path, **answer)
    assert isinstance(found, Absent)
    assert found.kind == "failed"


@pytest.mark.parametrize(
    ("tree", "libfabric", "plugin"),
    [
        ({}, None, None),
        (
            {
                "/opt/amazon/efa/lib64/libfabric.so.1": "",
                "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net-ofi.so": "",
            },
            "/opt/amazon/efa/lib64/libfabric.so.1",
            "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net-ofi.so",
        ),
    ],
)
def test_efa(tmp_path: Path, tree: Tree, libfabric: str | None, plugin: str | None) -> None:
    found = efa(make_host(tmp_path, tree), pci(EFA))
    assert [one.driver for one in found.nics] == ["efa"]
    assert (found.libfabric, found.plugin) == (libfabric, plugin)


def test_libraries_that_were_not_recorded(tmp_path: Path) -> None:
    found = efa(make_host(tmp_path, {"/etc/hostname": "x"}, source="plain"), pci(EFA))
    assert isinstance(found.libfabric, Absent)
    assert isinstance(found.plugin, Absent)


def test_no_efa(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable):
        efa(make_host(tmp_path, {}), pci(nic("0000:00:03.0")))


def test_google_adapters() -> None:
    gve = nic("0000:00:04.0", vendor=0x1AE0, device=0x0042, driver="gve")
    old = nic("0000:00:05.0", vendor=0x1AF4, device=0x1000, driver="virtio-pci")
    found = google_nics(pci(gve, old, EFA))
    assert [one.address for one in found.gvnic] == [gve.address]
    assert [one.address for one in found.virtio] == [old.address]


ECN = "/sys/class/net/rail0/ecn"


def ecn_files(*, on: int = 3) -> dict[str, str]:
    places = [(side, number) for side in ("np", "rp") for number in range(8)]
    return {f"{ECN}/roce_{s}/enable/{n}": str(int(n == on)) for s, n in places}


def drivers(**answers: Any) -> NetDrivers:
    return NetDrivers(by_name={"rail0": NetDriver(**answers)})


def test_congestion_control_of_the_protected_priority(tmp_path: Path) -> None:
    known = drivers(bridging={"pfc": [3], "dscp": 0})
    found = roce_ecn(make_host(tmp_path, ecn_files()), rails({}), known)
    assert found.by_name == {"rail0": {("np", 3): True, ("rp", 3): True}}
    assert found.controlled == {"rail0": True}


def test_congestion_control_of_all_priorities(tmp_path: Path) -> None:
    found = roce_ecn(make_host(tmp_path, ecn_files()), rails({}), drivers())
    sides = found.by_name["rail0"]
    assert isinstance(sides, dict)
    assert sum(sides.values()) == 2
    assert len(sides) == 16
    assert found.controlled == {"rail0": False}


def test_congestion_control_that_cannot_be_read(tmp_path: Path) -> None:
    tree = ecn_files() | {f"{ECN}/roce_np/enable/5": "what"}
    found = roce_ecn(make_host(tmp_path, tree), rails({}), drivers())
    assert isinstance(found.by_name["rail0"], Absent)


@pytest.mark.parametrize("changes", [{}, {"rdma": False}], ids=["in-kernel", "no-rdma"])
def test_no_congestion_control_to_see(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(NotApplicable):
        roce_ecn(make_host(tmp_path, {}), rails(changes), drivers())
