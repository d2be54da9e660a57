# SPDX-License-Identifier: Apache-2.0
"""Size, order and number of requests."""

from pathlib import Path

import pytest
from pcitree import GUEST, Files
from pciwords import CONTROL, GPU_AT, NIC_AT, ROOT, TREE, findings, words
from pciwords import verdicts as by_subject

from gpuaudit.check import NotApplicable

READ = "pcie_requests/pcie-max-read-request"
ORDER = "pcie_requests/pcie-relaxed-ordering"
TAGS = "pcie_requests/pcie-read-tags"
READS_OF_512 = CONTROL & ~0x7000 | 0x2000
UNORDERED = CONTROL & ~0x0010
FIVE_BITS = CONTROL & ~0x7100 | 0x2000
ASKS_TEN, ANSWERS_TEN, TEN_ON = 1 << 17, 1 << 16, 0x1000
NO_ROOT: Files = {k: v[:64] if isinstance(v, bytes) else v for k, v in TREE.items()}


@pytest.mark.parametrize("check", [READ, ORDER, TAGS])
def test_healthy(tmp_path: Path, check: str) -> None:
    found = findings(check, tmp_path, TREE)
    gpu = "notapplicable" if check == READ else "pass"
    assert by_subject(found) == {GPU_AT: gpu, NIC_AT: "pass"}


@pytest.mark.parametrize("check", [READ, ORDER, TAGS])
def test_a_guest(tmp_path: Path, check: str) -> None:
    with pytest.raises(NotApplicable, match="hypervisor"):
        findings(check, tmp_path, TREE, GUEST)


@pytest.mark.parametrize("check", [READ, ORDER, TAGS])
def test_without_root(tmp_path: Path, check: str) -> None:
    found = findings(check, tmp_path, NO_ROOT)
    assert found[NIC_AT].verdict.value == "unknown"
    assert "root" in found[NIC_AT].message


def test_small_read_requests(tmp_path: Path) -> None:
    found = findings(READ, tmp_path, words(TREE, NIC_AT, control=READS_OF_512))
    assert by_subject(found) == {GPU_AT: "notapplicable", NIC_AT: "warn"}
    assert found[NIC_AT].cost == ("requests take 4.7 % of what is read upstream, instead of 0.6 %")


def test_a_model_the_policy_does_not_name(tmp_path: Path) -> None:
    files = words(TREE, NIC_AT, control=READS_OF_512)
    found = findings(READ, tmp_path, files, min_read_request_by_id={"15b3:101b": 4096})
    assert found[NIC_AT].verdict.value == "notapplicable"


def test_relaxed_ordering_is_off(tmp_path: Path) -> None:
    found = findings(ORDER, tmp_path, words(TREE, NIC_AT, control=UNORDERED))
    assert by_subject(found) == {GPU_AT: "pass", NIC_AT: "warn"}


def test_relaxed_ordering_of_roles_the_policy_leaves_out(tmp_path: Path) -> None:
    files = words(TREE, GPU_AT, control=UNORDERED)
    assert findings(ORDER, tmp_path / "a", files)[GPU_AT].verdict.value == "warn"
    found = findings(ORDER, tmp_path / "b", files, relaxed_ordering_roles=["nic"])
    assert by_subject(found) == {GPU_AT: "notapplicable", NIC_AT: "pass"}


def test_a_root_port_with_the_erratum(tmp_path: Path) -> None:
    broadwell = {
        k: "PCI_CLASS=60400\nPCI_ID=8086:6F04\nDRIVER=pcieport\n" if ROOT in k.split("/")[-2] else v
        for k, v in TREE.items()
        if k.endswith("/uevent")
    }
    files = words({**TREE, **broadwell}, NIC_AT, control=UNORDERED)
    found = findings(ORDER, tmp_path, files)
    assert by_subject(found) == {GPU_AT: "notapplicable", NIC_AT: "notapplicable"}


def test_too_few_tags(tmp_path: Path) -> None:
    found = findings(TAGS, tmp_path, words(TREE, GPU_AT, control=FIVE_BITS))
    assert by_subject(found) == {GPU_AT: "warn", NIC_AT: "pass"}
    assert "extended tags are off" in found[GPU_AT].message
    assert found[GPU_AT].cost == "16.4 instead of 63.0 GB/s while a read takes 1000 ns"


def test_five_bits_are_enough_for_large_reads(tmp_path: Path) -> None:
    found = findings(TAGS, tmp_path, words(TREE, GPU_AT, control=CONTROL & ~0x0100))
    assert found[GPU_AT].verdict.value == "pass"


def test_all_a_device_can_is_no_fault(tmp_path: Path) -> None:
    found = findings(TAGS, tmp_path, words(TREE, GPU_AT, control=FIVE_BITS, capability=0x01))
    assert found[GPU_AT].verdict.value == "pass"
    assert (found[GPU_AT].observed or "").endswith("all it can")


@pytest.mark.parametrize(
    ("root", "control_2", "verdict"),
    [(ANSWERS_TEN, 0, "warn"), (0, 0, "pass"), (ANSWERS_TEN, TEN_ON, "pass")],
)
def test_ten_bit_tags_where_both_ends_can(
    tmp_path: Path, root: int, control_2: int, verdict: str
) -> None:
    """With reads of 128 bytes 256 tags do not fill a Gen5 x16 link, and 768 do."""
    of_128 = CONTROL & ~0x7000
    files = words(TREE, GPU_AT, control=of_128, capability_2=ASKS_TEN, control_2=control_2)
    found = findings(TAGS, tmp_path, words(files, ROOT, capability_2=root))
    assert found[GPU_AT].verdict.value == verdict
