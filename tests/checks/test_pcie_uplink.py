# SPDX-License-Identifier: Apache-2.0
"""GPUs that share a link, and what each gets when all move."""

from pathlib import Path

import pytest
from pcitree import BARE_METAL, GPU, GUEST, NIC, End, Files, function, port
from pciwords import findings
from trees import make_host

from gpuaudit.check import NotApplicable, Verdict
from gpuaudit.engine import Facts
from gpuaudit.facts.base import Absent
from gpuaudit.facts.pci import PciDevices
from gpuaudit.topology import at_once_gb_per_s, shared_uplinks

CHECK = "pcie_uplink/pcie-shared-uplink"
ROOT, UP = "pci0000:15/0000:15:01.0", "0000:16:00.0"
LINK = "0000:15:01.0 -> 0000:16:00.0"
GEN4 = End("16.0 GT/s PCIe", "16", "16.0 GT/s PCIe", "16")


def chassis(gpus: int, *, uplink: End = End(), own: End = End(), nics: int = 0) -> Files:  # noqa: B008 - a NamedTuple cannot change
    """A switch with so many GPUs and NICs below."""
    files = {**port(ROOT, link=uplink), **port(f"{ROOT}/{UP}", link=uplink)}
    for i in range(gpus + nics):
        below = f"{ROOT}/{UP}/0000:17:{i:02x}.0"
        place = f"{below}/0000:{0x20 + i:02x}:00.0"
        files |= port(below, link=own)
        files |= function(place, GPU, link=own) if i < gpus else adapter(place)
    return files


def adapter(place: str) -> Files:
    more: Files = {"infiniband/mlx5_0/node_type": "1: CA\n"}
    return function(place, NIC, vendor=0x15B3, device=0x1021, driver="mlx5_core", more=more)


def test_two_gpus_of_an_hgx_board(tmp_path: Path) -> None:
    found = findings(CHECK, tmp_path, chassis(2, nics=2))
    assert found[LINK].verdict is Verdict.PASS
    assert found[LINK].observed == "2 GPUs behind Gen5 x16: 31.5 GB/s each at once"
    assert found[LINK].evidence == tuple(f"0000:2{i}:00.0" for i in range(4))


@pytest.mark.parametrize(("gpus", "verdict"), [(4, Verdict.PASS), (8, Verdict.WARN)])
def test_many_gpus_behind_one_uplink(tmp_path: Path, gpus: int, verdict: Verdict) -> None:
    found = findings(CHECK, tmp_path, chassis(gpus))
    assert found[LINK].verdict is verdict


def test_what_it_costs(tmp_path: Path) -> None:
    finding = findings(CHECK, tmp_path, chassis(2), min_share_percent=60)[LINK]
    assert finding.verdict is Verdict.WARN
    assert finding.message == "2 GPUs share one uplink and keep 50 % of their rate"
    assert finding.cost == (
        "31.5 instead of 63.0 GB/s each way for each GPU when all copy to the host"
    )


def test_an_uplink_of_an_older_generation(tmp_path: Path) -> None:
    finding = findings(CHECK, tmp_path, chassis(4, uplink=GEN4))[LINK]
    assert finding.verdict is Verdict.WARN
    assert "keep 12 %" in finding.message or "keep 13 %" in finding.message


def test_gpus_at_rest_change_nothing(tmp_path: Path) -> None:
    resting = End("2.5 GT/s PCIe", "16", "32.0 GT/s PCIe", "16")
    found = findings(CHECK, tmp_path, chassis(2, uplink=resting, own=resting))
    assert found[LINK].observed == "2 GPUs behind Gen5 x16: 31.5 GB/s each at once"


def test_ends_that_disagree(tmp_path: Path) -> None:
    files = {**chassis(2), **port(f"{ROOT}/{UP}", link=GEN4)}
    finding = findings(CHECK, tmp_path, files)[LINK]
    assert finding.verdict is Verdict.UNKNOWN
    assert "disagree" in finding.message


def test_a_port_that_a_switch_made_up(tmp_path: Path) -> None:
    made_up = End("32.0 GT/s PCIe", "16", "5.0 GT/s PCIe", "16")
    files = {**chassis(2), **port(f"{ROOT}/{UP}", link=made_up)}
    finding = findings(CHECK, tmp_path, files)[LINK]
    assert finding.verdict is Verdict.UNKNOWN
    assert "made up" in finding.message


def test_where_nothing_is_shared(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable):
        findings(CHECK, tmp_path / "a", chassis(1, nics=1))
    with pytest.raises(NotApplicable):
        findings(CHECK, tmp_path / "b", chassis(2), GUEST)
    with pytest.raises(NotApplicable):
        findings(CHECK, tmp_path / "c", port(ROOT))


def devices_of(folder: Path, files: Files) -> PciDevices:
    found: PciDevices = Facts(make_host(folder, {**BARE_METAL, **files})).get(PciDevices)
    return found


def test_rates_for_the_topology(tmp_path: Path) -> None:
    devices = devices_of(tmp_path, chassis(2, nics=1))
    (uplink,) = shared_uplinks(devices)
    assert uplink.hop.name == LINK
    assert [d.role for d in (*uplink.gpus, *uplink.others)] == ["gpu", "gpu", "nic"]
    assert uplink.share == pytest.approx(0.5)
    assert uplink.each_gb_per_s == pytest.approx(31.5, abs=0.1)
    gpu = devices.by_address["0000:20:00.0"]
    assert at_once_gb_per_s(devices, gpu) == pytest.approx(31.5, abs=0.1)


def test_a_gpu_beside_a_nic_keeps_its_rate(tmp_path: Path) -> None:
    devices = devices_of(tmp_path, chassis(1, nics=1))
    (uplink,) = shared_uplinks(devices)
    assert (len(uplink.gpus), len(uplink.others), uplink.share) == (1, 1, 1.0)
    gpu = devices.by_address["0000:20:00.0"]
    assert at_once_gb_per_s(devices, gpu) == pytest.approx(63.0, abs=0.1)


def test_a_rate_nobody_tells(tmp_path: Path) -> None:
    silent = End("Unknown", "0", "Unknown", "0")
    devices = devices_of(tmp_path, chassis(2, own=silent))
    (uplink,) = shared_uplinks(devices)
    assert isinstance(uplink.share, Absent)
    assert isinstance(uplink.each_gb_per_s, Absent)
    gpu = devices.by_address["0000:20:00.0"]
    assert isinstance(at_once_gb_per_s(devices, gpu), Absent)
