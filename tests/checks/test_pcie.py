# SPDX-License-Identifier: Apache-2.0
"""PCI Express link checks on made-up trees."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pcitree import BARE_METAL, GPU, GUEST, NIC, NVME, End, Files, function, port, switch
from trees import make_host

from gpuaudit.check import CHECKS, Expectations, Finding, NotApplicable, Verdict
from gpuaudit.engine import Facts, judged
from gpuaudit.packs import load_checks, sections
from gpuaudit.policy import load_policies
from gpuaudit.topology import LinkTargets

GPU_AT, NIC_AT = "0000:18:00.0", "0000:19:00.0"
TREE = switch("pci0000:15", 0x15)
ROOT, UP = "0000:15:01.0", "0000:16:00.0"
OVER_GPU = "0000:17:00.0"


def expectations(kind: type[Expectations]) -> Any:
    policies = load_policies(sections(load_checks()), ())
    return policies.for_node(()).expectations(kind)


def findings(
    check_id: str, folder: Path, files: Files, platform: Files = BARE_METAL, **want: Any
) -> dict[str, Finding]:
    load_checks()
    facts = Facts(make_host(folder, {**platform, **files}))
    check = CHECKS[check_id]
    given = [
        replace(expectations(kind), **want) if issubclass(kind, Expectations) else facts.get(kind)
        for kind in check.needs
    ]
    return {f.subject: f for f in judged(check.function(*given)).findings}


def with_link(files: Files, address: str, **texts: str) -> Files:
    """The tree with link files of one function changed."""
    names = {
        "speed": "current_link_speed",
        "width": "current_link_width",
        "max_speed": "max_link_speed",
        "max_width": "max_link_width",
    }
    wanted = {f"/{address}/{names[name]}": text for name, text in texts.items()}
    return {
        k: next((v for w, v in wanted.items() if k.endswith(w)), old) for k, old in files.items()
    }


def both(files: Files, upper: str, lower: str, **texts: str) -> Files:
    return with_link(with_link(files, upper, **texts), lower, **texts)


@pytest.mark.parametrize(
    "check_id", ["pcie-link-width", "pcie-link-speed", "pcie-path-narrowest", "pcie-slot-limit"]
)
def test_a_healthy_tree_passes(tmp_path: Path, check_id: str) -> None:
    found = findings(check_id, tmp_path, TREE)
    assert {s: f.verdict for s, f in found.items()} == {
        GPU_AT: Verdict.PASS,
        NIC_AT: Verdict.PASS,
    }


def test_half_the_lanes(tmp_path: Path) -> None:
    found = findings("pcie-link-width", tmp_path, both(TREE, OVER_GPU, GPU_AT, width="8"))
    assert found[GPU_AT].verdict is Verdict.FAIL
    assert (found[GPU_AT].observed, found[GPU_AT].expected) == ("x8", "x16")
    assert found[GPU_AT].cost == "31.5 instead of 63.0 GB/s each way"
    assert found[NIC_AT].verdict is Verdict.PASS


def test_the_same_tree_fails_nothing_else(tmp_path: Path) -> None:
    files = both(TREE, OVER_GPU, GPU_AT, width="8")
    others = ("pcie-link-speed", "pcie-path-narrowest", "pcie-slot-limit")
    for i, check_id in enumerate(others):
        found = findings(check_id, tmp_path / str(i), files)
        assert {f.verdict for f in found.values()} == {Verdict.PASS}


@pytest.mark.parametrize("width", ["0", "63", "255", "Unknown"])
def test_a_device_that_does_not_answer_is_unknown(tmp_path: Path, width: str) -> None:
    found = findings("pcie-link-width", tmp_path, with_link(TREE, GPU_AT, width=width))
    assert found[GPU_AT].verdict is Verdict.UNKNOWN


def test_ends_that_disagree_are_unknown(tmp_path: Path) -> None:
    found = findings("pcie-link-width", tmp_path, with_link(TREE, OVER_GPU, width="8"))
    assert found[GPU_AT].verdict is Verdict.UNKNOWN
    assert "disagree" in found[GPU_AT].message


def test_wiring_known_to_the_policy(tmp_path: Path) -> None:
    files = both(TREE, OVER_GPU, GPU_AT, width="8")
    found = findings("pcie-link-width", tmp_path, files, wired_width_by_id={"10de:2330": 8})
    assert found[GPU_AT].verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("width", "table", "verdict"),
    [
        ("16", {}, Verdict.PASS),
        ("8", {}, Verdict.UNKNOWN),
        ("8", {"10de:2330": 8}, Verdict.PASS),
        ("8", {"10de:2330": 16}, Verdict.FAIL),
    ],
)
def test_a_guest_has_one_real_end(
    tmp_path: Path, width: str, table: dict[str, int], verdict: Verdict
) -> None:
    files = with_link(TREE, GPU_AT, width=width)
    found = findings("pcie-link-width", tmp_path, files, GUEST, guest_width_by_id=table)
    assert found[GPU_AT].verdict is verdict


@pytest.mark.parametrize(
    ("vendor", "driver", "platform"),
    [(0x15B3, None, BARE_METAL), (0x1AF4, "virtio-pci", GUEST)],
)
def test_unused_and_emulated_devices_are_not_judged(
    tmp_path: Path, vendor: int, driver: str | None, platform: Files
) -> None:
    slow = End(speed="2.5 GT/s PCIe", width="1")
    nic = function("pci0000:00/0000:00:03.0", NIC, vendor=vendor, driver=driver, link=slow)
    found = findings("pcie-link-width", tmp_path, nic, platform)
    assert found["0000:00:03.0"].verdict is Verdict.NOT_APPLICABLE


def test_nothing_to_judge(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable):
        findings("pcie-link-width", tmp_path, port("pci0000:00/0000:00:01.0"))


def test_a_gpu_at_rest_is_unknown_not_failed(tmp_path: Path) -> None:
    files = both(TREE, OVER_GPU, GPU_AT, speed="2.5 GT/s PCIe")
    found = findings("pcie-link-speed", tmp_path, files)
    assert found[GPU_AT].verdict is Verdict.UNKNOWN
    assert "load it" in found[GPU_AT].message
    assert (found[GPU_AT].observed, found[GPU_AT].expected) == ("2.5 GT/s", "32 GT/s")


def test_a_gpu_known_to_keep_its_speed_fails(tmp_path: Path) -> None:
    files = both(TREE, OVER_GPU, GPU_AT, speed="16.0 GT/s PCIe")
    keeps = ("10de:2330",)
    found = findings("pcie-link-speed", tmp_path, files, keeps_speed_at_rest=keeps)
    assert found[GPU_AT].verdict is Verdict.FAIL
    assert found[GPU_AT].cost == "31.5 instead of 63.0 GB/s each way"


def test_a_nic_does_not_rest(tmp_path: Path) -> None:
    files = both(TREE, "0000:17:01.0", NIC_AT, speed="16.0 GT/s PCIe")
    found = findings("pcie-link-speed", tmp_path, files)
    assert found[NIC_AT].verdict is Verdict.FAIL
    assert found[GPU_AT].verdict is Verdict.PASS


def test_a_port_told_to_be_slow_is_named(tmp_path: Path) -> None:
    files = both(TREE, "0000:17:01.0", NIC_AT, speed="8.0 GT/s PCIe")
    found = findings("pcie-link-speed", tmp_path, files)
    assert "told not to exceed 16 GT/s" in found[NIC_AT].message


def test_a_healthy_tree_reads_no_registers(tmp_path: Path) -> None:
    host = make_host(tmp_path, {**BARE_METAL, **TREE})
    assert Facts(host).get(LinkTargets).by_port == {}
    assert not any(path.endswith("/config") for path in host.evidence.files)


def test_a_sleeping_drive_is_unknown(tmp_path: Path) -> None:
    place, slow = "pci0000:00/0000:00:01.0/0000:01:00.0", End(speed="2.5 GT/s PCIe")
    drive = function(place, NVME, driver="nvme", link=slow, more={"power_state": "D3hot\n"})
    files = {**port("pci0000:00/0000:00:01.0", link=slow), **drive}
    found = findings("pcie-link-speed", tmp_path, files)
    assert found["0000:01:00.0"].verdict is Verdict.UNKNOWN
    assert "D3hot" in found["0000:01:00.0"].message


def test_the_uplink_is_the_narrowest(tmp_path: Path) -> None:
    found = findings("pcie-path-narrowest", tmp_path, both(TREE, ROOT, UP, width="8"))
    assert {f.verdict for f in found.values()} == {Verdict.FAIL}
    assert f"{ROOT} -> {UP}" in found[GPU_AT].message
    assert found[GPU_AT].cost == "31.5 instead of 63.0 GB/s each way"


def test_an_uplink_built_for_less_only_warns(tmp_path: Path) -> None:
    """A BlueField-3, whose NIC sits behind a switch of its own, in a Gen4 slot."""
    built = {"speed": "16.0 GT/s PCIe", "max_speed": "16.0 GT/s PCIe"}
    found = findings("pcie-path-narrowest", tmp_path / "a", both(TREE, ROOT, UP, **built))
    assert found[GPU_AT].verdict is Verdict.WARN
    assert found[GPU_AT].cost == "31.5 instead of 63.0 GB/s each way"
    narrow = both(TREE, ROOT, UP, **built, width="8")
    found = findings("pcie-path-narrowest", tmp_path / "b", narrow)
    assert found[GPU_AT].verdict is Verdict.FAIL


def test_the_cost_on_a_board_that_wires_fewer_lanes(tmp_path: Path) -> None:
    files = both(TREE, OVER_GPU, GPU_AT, width="4")
    found = findings("pcie-link-width", tmp_path, files, wired_width_by_id={"10de:2330": 8})
    assert found[GPU_AT].cost == "15.8 instead of 31.5 GB/s each way"


def test_a_made_up_outer_port_is_unknown(tmp_path: Path) -> None:
    files = with_link(TREE, UP, speed="5.0 GT/s PCIe", max_speed="5.0 GT/s PCIe")
    found = findings("pcie-path-narrowest", tmp_path, files)
    assert {f.verdict for f in found.values()} == {Verdict.UNKNOWN}
    assert f"{ROOT} -> {UP}" in found[GPU_AT].message


def test_a_slow_uplink_of_gpus_at_rest_is_unknown(tmp_path: Path) -> None:
    alone = {k: v for k, v in TREE.items() if NIC_AT not in k}
    slow = "2.5 GT/s PCIe"
    files = both(both(alone, ROOT, UP, speed=slow), OVER_GPU, GPU_AT, speed=slow)
    found = findings("pcie-path-narrowest", tmp_path / "a", files)
    assert found[GPU_AT].verdict is Verdict.UNKNOWN
    busy = both(alone, ROOT, UP, speed=slow)
    assert findings("pcie-path-narrowest", tmp_path / "b", busy)[GPU_AT].verdict is Verdict.FAIL


def test_a_device_on_a_root_port_has_no_way_above(tmp_path: Path) -> None:
    place = "pci0000:00/0000:00:01.0/0000:01:00.0"
    files = {**port("pci0000:00/0000:00:01.0"), **function(place, GPU)}
    found = findings("pcie-path-narrowest", tmp_path, files)
    assert found["0000:01:00.0"].verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize("check_id", ["pcie-path-narrowest", "pcie-slot-limit"])
def test_a_guest_has_no_real_ports(tmp_path: Path, check_id: str) -> None:
    with pytest.raises(NotApplicable):
        findings(check_id, tmp_path, TREE, GUEST)


@pytest.mark.parametrize(("asked", "verdict"), [("warn", Verdict.WARN), ("fail", Verdict.FAIL)])
def test_a_slot_too_small(tmp_path: Path, asked: str, verdict: Verdict) -> None:
    gen4 = {"speed": "16.0 GT/s PCIe"}
    files = both(with_link(TREE, OVER_GPU, max_speed="16.0 GT/s PCIe"), OVER_GPU, GPU_AT, **gen4)
    found = findings("pcie-slot-limit", tmp_path / "a", files, too_small=asked)
    assert found[GPU_AT].verdict is verdict
    assert found[GPU_AT].cost == "31.5 instead of 63.0 GB/s each way"
    assert found[NIC_AT].verdict is Verdict.PASS
    width = findings("pcie-link-speed", tmp_path / "b", files)
    assert width[GPU_AT].verdict is Verdict.PASS


def test_slots_the_policy_accepts(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable):
        findings("pcie-slot-limit", tmp_path / "a", TREE, too_small="accept")
    found = findings("pcie-slot-limit", tmp_path / "b", TREE, roles=("nic",))
    assert found[GPU_AT].verdict is Verdict.NOT_APPLICABLE


def test_a_slot_that_does_not_tell(tmp_path: Path) -> None:
    files = with_link(TREE, OVER_GPU, max_speed="Unknown", max_width="0")
    found = findings("pcie-slot-limit", tmp_path / "a", files)
    assert found[GPU_AT].verdict is Verdict.UNKNOWN
    width = findings("pcie-link-width", tmp_path / "b", files)
    assert width[GPU_AT].verdict is Verdict.PASS


def nvml_says(generation: int, state: int, persistence: int, later: int | None) -> dict[str, Any]:
    return {
        "schema": "gpuaudit.nvml/1",
        "binding": "test",
        "init": {"v": True},
        "system": {},
        "devices": [
            {
                "nvmlDeviceGetPciInfo": {"v": {"busId": "00000000:18:00.0", "pciDeviceId": 0}},
                "nvmlDeviceGetCurrPcieLinkGeneration": {"v": generation},
                "nvmlDeviceGetCurrPcieLinkGeneration#2": {"v": later or generation},
                "nvmlDeviceGetPerformanceState": {"v": state},
                "nvmlDeviceGetPerformanceState#2": {"v": state if later is None else 0},
                "nvmlDeviceGetPersistenceMode": {"v": persistence},
            }
        ],
    }


@pytest.mark.parametrize(
    ("generation", "later", "state", "persistence", "verdict"),
    [
        (1, None, 0, 1, Verdict.FAIL),
        (1, None, 0, 0, Verdict.UNKNOWN),
        (1, None, 8, 1, Verdict.UNKNOWN),
        (1, 1, 8, 1, Verdict.UNKNOWN),  # it wakes while it is asked
        (1, 5, 8, 1, Verdict.PASS),
        (1, 5, 0, 1, Verdict.PASS),
        (5, None, 8, 1, Verdict.PASS),
        (5, None, 0, 1, Verdict.PASS),
    ],
)
def test_nvml_tells_a_gpu_at_rest_from_a_slow_one(
    tmp_path: Path,
    generation: int,
    later: int | None,
    state: int,
    persistence: int,
    verdict: Verdict,
) -> None:
    slow = both(TREE, OVER_GPU, GPU_AT, speed="2.5 GT/s PCIe")
    host = make_host(
        tmp_path, {**BARE_METAL, **slow}, nvml=nvml_says(generation, state, persistence, later)
    )
    facts, check = Facts(host), CHECKS["pcie-link-speed"]
    given = [
        expectations(kind) if issubclass(kind, Expectations) else facts.get(kind)
        for kind in check.needs
    ]
    found = {f.subject: f.verdict for f in judged(check.function(*given)).findings}
    assert found == {GPU_AT: verdict, NIC_AT: Verdict.PASS}
