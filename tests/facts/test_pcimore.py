# SPDX-License-Identifier: Apache-2.0
"""Error counts, windows, and what may sleep: files as sysfs has them, and as it should not."""

from pathlib import Path

import pytest
from pcitree import BARE_METAL, GUEST, Files, function
from pciwords import AER, EVERYWHERE, GPU_AT, NIC_AT, ROOT, TREE, attribute, errors, place
from trees import Source, make_host

from gpuaudit.engine import Facts
from gpuaudit.facts.base import Absent
from gpuaudit.facts.pciaer import FIRMWARE, NO_CAPABILITY, Errors, PciErrors
from gpuaudit.facts.pcibars import Bar, PciBars, parse
from gpuaudit.facts.pcipower import POLICY, AspmPolicy, PciPower
from gpuaudit.host import NotApplicable

TEXT = "RxErr 3\nBadTLP 0\nReceiver Overflow 4\nTOTAL_ERR_COR 7\n"


def facts(
    folder: Path, files: Files, platform: Files = BARE_METAL, source: Source = "snapshot"
) -> Facts:
    return Facts(make_host(folder, {**platform, **files}, source=source))


def test_counts_by_kind(tmp_path: Path) -> None:
    found = facts(tmp_path, errors(TREE, GPU_AT, correctable=TEXT)).get(PciErrors)
    errors_ = found.by_address[GPU_AT]["correctable"]
    assert errors_ == Errors(7, {"RxErr": 3, "BadTLP": 0, "Receiver Overflow": 4})
    assert errors_.leading == "Receiver Overflow 4, RxErr 3"
    assert found.counters()[GPU_AT] == {"aer-correctable": 7, "aer-nonfatal": 0, "aer-fatal": 0}
    assert set(found.counters()) == set(EVERYWHERE)


def test_requests_nobody_answers_are_not_kept_as_errors(tmp_path: Path) -> None:
    text = "CmpltTO 1\nUnsupReq 9\nTOTAL_ERR_NONFATAL 10\n"
    found = facts(tmp_path, errors(TREE, GPU_AT, nonfatal=text)).get(PciErrors)
    assert found.counters()[GPU_AT]["aer-nonfatal"] == 1


def test_a_guest_reads_no_counts(tmp_path: Path) -> None:
    assert facts(tmp_path, TREE, GUEST).get(PciErrors).by_address == {}


def test_nobody_runs_the_service(tmp_path: Path) -> None:
    bare = {k: v for k, v in TREE.items() if not k.startswith(AER)}
    found = facts(tmp_path / "known", bare).get(PciErrors).by_address
    assert {e for one in found.values() for e in one.values()} == {FIRMWARE}
    found = facts(tmp_path / "plain", bare, source="plain").get(PciErrors).by_address
    kinds = {e.kind for one in found.values() for e in one.values() if isinstance(e, Absent)}
    assert kinds == {"missing"}


def test_services_of_other_ports_are_not_taken_for_root_ports(tmp_path: Path) -> None:
    names = {k: v for k, v in TREE.items() if not k.startswith(AER)}
    names |= {f"{AER}/{ROOT}:pcie004": "", f"{AER}/bind": "", f"{AER}/module": ""}
    found = facts(tmp_path, names).get(PciErrors).by_address
    assert found[ROOT]["fatal"] == FIRMWARE


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, NO_CAPABILITY.reason),
        ("RxErr\nTOTAL_ERR_COR 1\n", "aer counts read 'RxErr'"),
        ("RxErr -1\nTOTAL_ERR_COR 1\n", "aer counts read 'RxErr -1'"),
        ("RxErr 1\n", "has no total"),
        ("TOTAL_ERR_COR 1\nTOTAL_ERR_COR2 1\n", "has no total"),
    ],
)
def test_counts_that_cannot_be_had(tmp_path: Path, text: str | None, reason: str) -> None:
    path = f"{place(TREE, GPU_AT)}/aer_dev_correctable"
    files = {k: v for k, v in TREE.items() if k != path}
    if text is not None:
        files[path] = text
    found = facts(tmp_path, files).get(PciErrors).by_address[GPU_AT]["correctable"]
    assert isinstance(found, Absent)
    assert reason in found.reason


def test_an_image_has_no_devices(tmp_path: Path) -> None:
    for kind in (PciErrors, PciPower, PciBars):
        with pytest.raises(NotApplicable):
            facts(tmp_path / kind.__name__, {}, source="image").get(kind)
    assert facts(tmp_path / "policy", {}, source="image").get(AspmPolicy).now is None


def test_windows() -> None:
    lines = ["0x0 0xffffff 0x40200", "0x0 0x0 0x0", "0x1000000000 0x1fffffffff 0x2014220c"]
    bars = parse("\n".join([*lines, *["0x0 0x0 0x0"] * 10]))
    assert not isinstance(bars, Absent)
    assert bars[0] == Bar(0, 0, 1 << 24, 0x40200)
    assert (bars[1].size, bars[1].window) == (0, False)
    assert (bars[2].size, bars[2].window, bars[2].unset) == (1 << 36, True, True)
    assert len(bars) == 6


@pytest.mark.parametrize("text", ["", "0x0 0x0\n" * 6, "a b c\n" * 5, "x y z\n" * 6])
def test_windows_that_make_no_sense(text: str) -> None:
    assert isinstance(parse(text), Absent)


def test_windows_of_a_node_without_gpus(tmp_path: Path) -> None:
    bare = {k: v for k, v in TREE.items() if GPU_AT not in k}
    with pytest.raises(NotApplicable):
        facts(tmp_path, bare).get(PciBars)


def test_nothing_more_is_asked_of_what_is_kept_awake(tmp_path: Path) -> None:
    files = attribute(TREE, GPU_AT, power__runtime_status="active\n")
    found = facts(tmp_path, files).get(PciPower).by_address
    assert set(found) == {GPU_AT, NIC_AT}
    assert isinstance(found[GPU_AT].status, Absent)


def test_nothing_in_use_may_sleep(tmp_path: Path) -> None:
    place_ = "pci0000:00/0000:00:03.0"
    plain = function(place_, 0x020000, vendor=0x8086, device=0x1521, driver="igb")
    with pytest.raises(NotApplicable):
        facts(tmp_path, plain).get(PciPower)


def test_a_power_file_without_the_line(tmp_path: Path) -> None:
    files = attribute(TREE, GPU_AT, power__control="auto\n", power__runtime_status="active\n")
    files = {**files, f"/proc/driver/nvidia/gpus/{GPU_AT}/power": "Video Memory: Active\n"}
    found = facts(tmp_path, files).get(PciPower).by_address[GPU_AT].rtd3
    assert isinstance(found, Absent)


@pytest.mark.parametrize(
    ("text", "now"),
    [
        ("[default] performance powersave powersupersave \n", "default"),
        ("default performance [powersave] powersupersave \n", "powersave"),
        ("", None),
        ("default\n", None),
    ],
)
def test_the_policy_in_brackets(tmp_path: Path, text: str, now: str | None) -> None:
    found = facts(tmp_path, {POLICY: text}).get(AspmPolicy).now
    assert (found == now) if now else isinstance(found, Absent)


@pytest.mark.parametrize(("source", "kind"), [("snapshot", "unsupported"), ("plain", "missing")])
def test_a_kernel_without_aspm(tmp_path: Path, source: Source, kind: str) -> None:
    found = facts(tmp_path, {"/proc/uptime": "1 1\n"}, {}, source).get(AspmPolicy).now
    assert isinstance(found, Absent)
    assert found.kind == kind
