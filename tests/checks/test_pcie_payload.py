# SPDX-License-Identifier: Apache-2.0
"""Payload sizes on the way of a device."""

from pathlib import Path

import pytest
from pcitree import GPU, GUEST, Files, function
from pciwords import CONTROL, EVERYWHERE, GPU_AT, NIC_AT, OVER_GPU, ROOT, TREE, UP, findings, words
from pciwords import verdicts as by_subject

from gpuaudit.check import NotApplicable, Verdict

CHECK = "pcie_payload/pcie-max-payload"
OF_128, OF_512 = CONTROL & ~0xE0, CONTROL & ~0xE0 | 0x40
READS_OF_256 = 0x1000
UP_TO_128, UP_TO_512 = 0x20, 0x22


def test_the_same_size_everywhere(tmp_path: Path) -> None:
    found = findings(CHECK, tmp_path, TREE)
    assert by_subject(found) == {GPU_AT: "pass", NIC_AT: "pass"}
    assert found[GPU_AT].observed == "256 bytes"


def test_a_device_that_may_send_more_than_its_port_takes(tmp_path: Path) -> None:
    files = words(TREE, GPU_AT, control=OF_512, capability=UP_TO_512)
    found = findings(CHECK, tmp_path, files)
    assert by_subject(found) == {GPU_AT: "fail", NIC_AT: "pass"}
    assert f"{GPU_AT} may send 512 bytes, {OVER_GPU} above takes 256" in found[GPU_AT].message


def test_a_switch_that_may_send_more_than_the_root_port_takes(tmp_path: Path) -> None:
    found = findings(CHECK, tmp_path, words(TREE, ROOT, control=OF_128))
    assert by_subject(found) == {GPU_AT: "fail", NIC_AT: "fail"}
    assert found[GPU_AT].observed == "128 -> 256 -> 256 -> 256 bytes"


def test_ports_set_to_more_than_the_device_takes(tmp_path: Path) -> None:
    found = findings(CHECK, tmp_path, words(TREE, GPU_AT, control=OF_128))
    assert by_subject(found) == {GPU_AT: "warn", NIC_AT: "pass"}


def test_a_device_that_asks_for_no_more_than_it_takes(tmp_path: Path) -> None:
    """What pci=pcie_bus_perf does."""
    ports = TREE
    for address in (ROOT, UP, OVER_GPU):
        ports = words(ports, address, control=OF_512, capability=UP_TO_512)
    files = words(ports, GPU_AT, control=CONTROL & ~0xF000 | READS_OF_256)
    assert findings(CHECK, tmp_path, files)[GPU_AT].verdict is Verdict.PASS


def all_of_128() -> Files:
    files = TREE
    for address in EVERYWHERE:
        files = words(files, address, control=OF_128)
    return files


def test_needlessly_small(tmp_path: Path) -> None:
    found = findings(CHECK, tmp_path, all_of_128())
    assert by_subject(found) == {GPU_AT: "warn", NIC_AT: "warn"}
    assert found[GPU_AT].cost == "at most 53.1 instead of 57.6 GB/s each way"


def test_small_since_one_device_can_do_no_more(tmp_path: Path) -> None:
    files = words(all_of_128(), NIC_AT, capability=UP_TO_128)
    found = findings(CHECK, tmp_path, files)
    assert by_subject(found) == {GPU_AT: "pass", NIC_AT: "pass"}
    assert "more does not suit" in (found[GPU_AT].observed or "")


def test_a_neighbour_that_nobody_uses_counts_too(tmp_path: Path) -> None:
    place = f"pci0000:15/{ROOT}/{UP}/0000:17:01.0/0000:19:00.1"
    silent = function(place, 0x068000, vendor=0x1234, driver=None)
    found = findings(CHECK, tmp_path, {**all_of_128(), **silent})
    assert found[GPU_AT].verdict is Verdict.UNKNOWN
    assert "0000:19:00.1" in found[GPU_AT].message


def test_the_policy_may_be_content_with_less(tmp_path: Path) -> None:
    found = findings(CHECK, tmp_path, all_of_128(), wanted_bytes=128)
    assert by_subject(found) == {GPU_AT: "pass", NIC_AT: "pass"}


def test_without_root(tmp_path: Path) -> None:
    cut: Files = {k: v[:64] if isinstance(v, bytes) else v for k, v in TREE.items()}
    found = findings(CHECK, tmp_path, cut)
    assert by_subject(found) == {GPU_AT: "unknown", NIC_AT: "unknown"}
    assert "root" in found[GPU_AT].message


def test_a_guest(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable):
        findings(CHECK, tmp_path, TREE, GUEST)


def test_a_nic_of_the_management_network_is_left_out(tmp_path: Path) -> None:
    files = {k: v for k, v in all_of_128().items() if "/infiniband/" not in k}
    assert set(findings(CHECK, tmp_path, files)) == {GPU_AT}


def test_a_gpu_on_the_root_bus(tmp_path: Path) -> None:
    found = findings(CHECK, tmp_path, function("pci0000:00/0000:00:05.0", GPU))
    assert by_subject(found) == {"0000:00:05.0": "notapplicable"}
