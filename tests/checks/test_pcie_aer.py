# SPDX-License-Identifier: Apache-2.0
"""PCIe errors, counted by the kernel and by GPUs."""

from pathlib import Path

import pytest
from judging import judge
from pcitree import GUEST, NIC, Files, function
from pciwords import AER, EVERYWHERE, GPU_AT, NIC_AT, OVER_GPU, ROOT, TREE, errors, findings, words
from pciwords import verdicts as by_subject
from trees import Link

from gpuaudit.check import NotApplicable, Verdict
from gpuaudit.facts.base import Absent
from gpuaudit.facts.counters import Earlier, Reading
from gpuaudit.facts.gpureplays import GpuReplays

CORRECTABLE, UNCORRECTABLE = "pcie_aer/pcie-aer-correctable", "pcie_aer/pcie-aer-uncorrectable"
UPTIME = {"/proc/uptime": "36000.00 1.00\n"}
REPORTS_FATAL_ONLY, REPORTS_NOTHING = 0x5934, 0x5930


def read_earlier(**totals: dict[str, int]) -> Earlier:
    reading = Reading(
        schema="gpuaudit.counters/1",
        boot_id="boot",
        uptime_s=0.0,
        written_at="",
        counters={GPU_AT: totals["gpu"]},
    )
    return Earlier(reading=reading, why="", uptime_s=7200.0)


def count(**kinds: int) -> str:
    lines = [f"{kind} {number}" for kind, number in kinds.items()]
    return "\n".join([*lines, f"TOTAL_ERR {sum(kinds.values())}"]) + "\n"


def no_service() -> Files:
    return {k: v for k, v in TREE.items() if not k.startswith(AER)}


@pytest.mark.parametrize("check", [CORRECTABLE, UNCORRECTABLE])
def test_no_errors_pass_on_every_step_of_the_way(tmp_path: Path, check: str) -> None:
    found = findings(check, tmp_path, TREE)
    assert by_subject(found) == dict.fromkeys(EVERYWHERE, "pass")


def test_more_corrected_errors_than_an_hour_may_bring(tmp_path: Path) -> None:
    files = errors(TREE, OVER_GPU, correctable=count(RxErr=100, BadTLP=9000, Rollover=0))
    found = findings(CORRECTABLE, tmp_path, {**files, **UPTIME})
    assert found[OVER_GPU].verdict is Verdict.WARN
    assert found[OVER_GPU].evidence == ("since boot: BadTLP 9000, RxErr 100",)
    assert found[GPU_AT].verdict is Verdict.PASS


def test_a_few_corrected_errors_pass(tmp_path: Path) -> None:
    found = findings(CORRECTABLE, tmp_path, errors(TREE, GPU_AT, correctable=count(RxErr=9)))
    assert found[GPU_AT].verdict is Verdict.PASS


@pytest.mark.parametrize("check", [CORRECTABLE, UNCORRECTABLE])
def test_a_zero_that_nobody_would_have_counted(tmp_path: Path, check: str) -> None:
    silent = words(TREE, GPU_AT, control=REPORTS_NOTHING)
    found = findings(check, tmp_path, silent)
    assert found[GPU_AT].verdict is Verdict.NOT_APPLICABLE
    assert "not told to report" in found[GPU_AT].message


@pytest.mark.parametrize("check", [CORRECTABLE, UNCORRECTABLE])
def test_without_root_a_zero_proves_nothing(tmp_path: Path, check: str) -> None:
    cut: Files = {k: v[:64] if isinstance(v, bytes) else v for k, v in TREE.items()}
    found = findings(check, tmp_path, cut)
    assert {f.verdict for f in found.values()} == {Verdict.UNKNOWN}
    assert "root" in found[GPU_AT].message


def test_only_fatal_errors_are_reported(tmp_path: Path) -> None:
    found = findings(UNCORRECTABLE, tmp_path, words(TREE, GPU_AT, control=REPORTS_FATAL_ONLY))
    assert found[GPU_AT].verdict is Verdict.PASS
    assert "non-fatal ones are not reported" in (found[GPU_AT].observed or "")


@pytest.mark.parametrize("check", [CORRECTABLE, UNCORRECTABLE])
def test_where_the_firmware_handles_errors(tmp_path: Path, check: str) -> None:
    with pytest.raises(NotApplicable, match="firmware"):
        findings(check, tmp_path, no_service())


def of_firmware(address: str, status: int, *, corrected: bool = False) -> str:
    """What the kernel wrote of an error at a root port in a message to linux-pci."""
    lines = [
        f"{{1}}[Hardware Error]:   device_id: {address}",
        f"pcieport {address}: AER: aer_status: {status:#010x}, aer_mask: 0x00100020",
        f"pcieport {address}:    [21] ACSViol                (First)",
        f"pcieport {address}: AER: aer_layer=Transaction Layer, aer_agent=Receiver ID",
    ]
    severity = [] if corrected else [f"pcieport {address}: AER: aer_uncor_severity: 0x00463010"]
    return "".join(f"3,{n},{n}000000,-;{text}\n" for n, text in enumerate([*lines, *severity]))


def test_an_error_that_firmware_handed_to_the_kernel(tmp_path: Path) -> None:
    files = {**no_service(), "/dev/kmsg": of_firmware(ROOT, 0x200000).encode()}
    found = findings(UNCORRECTABLE, tmp_path / "a", files)
    assert found[ROOT].verdict is Verdict.WARN
    assert found[ROOT].evidence == (
        f"pcieport {ROOT}: AER: aer_status: 0x00200000, aer_mask: 0x00100020",
    )
    assert found[GPU_AT].verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    "log",
    [
        of_firmware(ROOT, 0x1000, corrected=True),
        of_firmware(ROOT, 0x100000),  # UnsupReq
        of_firmware("0000:99:00.0", 0x200000),
        "3,1,1,-;AER: aer_status: 0xhex, aer_mask: \n3,2,2,-;AER: aer_uncor_severity: 0x1\n",
    ],
)
def test_reports_of_firmware_that_do_not_count(tmp_path: Path, log: str) -> None:
    with pytest.raises(NotApplicable, match="firmware"):
        findings(UNCORRECTABLE, tmp_path, {**no_service(), "/dev/kmsg": log.encode()})


@pytest.mark.parametrize("check", [CORRECTABLE, UNCORRECTABLE])
def test_a_guest_counts_nothing(tmp_path: Path, check: str) -> None:
    with pytest.raises(NotApplicable, match="host"):
        findings(check, tmp_path, TREE, GUEST)


def test_a_function_without_the_capability(tmp_path: Path) -> None:
    bare = {k: v for k, v in TREE.items() if not (NIC_AT in k and "aer_dev" in k)}
    found = findings(CORRECTABLE, tmp_path, bare)
    assert found[NIC_AT].verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize("text", ["", "BadTLP many\n", "BadTLP 3\n"])
def test_counts_that_make_no_sense(tmp_path: Path, text: str) -> None:
    found = findings(CORRECTABLE, tmp_path, errors(TREE, GPU_AT, correctable=text))
    assert found[GPU_AT].verdict is Verdict.UNKNOWN


def test_a_fatal_error_fails(tmp_path: Path) -> None:
    found = findings(UNCORRECTABLE, tmp_path, errors(TREE, GPU_AT, fatal=count(MalfTLP=1)))
    assert found[GPU_AT].verdict is Verdict.FAIL
    assert "MalfTLP 1" in found[GPU_AT].message


def test_a_lost_transfer_warns(tmp_path: Path) -> None:
    files = errors(TREE, GPU_AT, nonfatal=count(CmpltTO=2, UnsupReq=5))
    found = findings(UNCORRECTABLE, tmp_path, {**files, **UPTIME})
    assert found[GPU_AT].verdict is Verdict.WARN
    assert found[GPU_AT].observed == "2 since boot"


def test_requests_that_nobody_answers_are_shown(tmp_path: Path) -> None:
    found = findings(UNCORRECTABLE, tmp_path, errors(TREE, GPU_AT, nonfatal=count(UnsupReq=5)))
    assert found[GPU_AT].verdict is Verdict.PASS
    assert found[GPU_AT].observed == "0 since boot but UnsupReq 5"


def test_a_drive_that_was_pulled(tmp_path: Path) -> None:
    files: Files = {
        k.replace(GPU_AT, "0000:18:00.0"): "PCI_CLASS=10802\nPCI_ID=144D:A80A\nDRIVER=nvme\n"
        if k.endswith(f"{GPU_AT}/uevent")
        else v
        for k, v in TREE.items()
    }
    pulled = errors(files, OVER_GPU, fatal=count(SDES=1))
    assert findings(UNCORRECTABLE, tmp_path / "a", pulled)[OVER_GPU].verdict is Verdict.WARN
    broken = errors(files, OVER_GPU, fatal=count(SDES=1, DLP=1))
    assert findings(UNCORRECTABLE, tmp_path / "b", broken)[OVER_GPU].verdict is Verdict.FAIL
    above = errors(files, ROOT, fatal=count(SDES=1))
    assert findings(UNCORRECTABLE, tmp_path / "c", above)[ROOT].verdict is Verdict.FAIL


def test_a_device_on_the_root_bus(tmp_path: Path) -> None:
    inside = errors(function("pci0000:15/0000:15:09.0", NIC), "0000:15:09.0")
    found = findings(CORRECTABLE, tmp_path, {**TREE, **inside})
    assert found["0000:15:09.0"].verdict is Verdict.NOT_APPLICABLE
    assert "root bus" in found["0000:15:09.0"].message
    assert found[GPU_AT].verdict is Verdict.PASS


def test_only_some_root_ports_are_the_kernels(tmp_path: Path) -> None:
    files = {**no_service(), f"{AER}/0000:97:01.0:pcie002": Link("../elsewhere")}
    with pytest.raises(NotApplicable):
        findings(CORRECTABLE, tmp_path, files)


def replays(now: int | Absent, earlier: Earlier) -> Verdict:
    fact = GpuReplays(by_subject={"GPU 0 at 18": (GPU_AT, now)})
    (found,) = judge("pcie_replay/pcie-replay-rate", fact, earlier)
    return found.verdict


def test_replays_by_rate() -> None:
    two_hours_ago = read_earlier(gpu={"pcie-replays": 9})
    assert replays(9, two_hours_ago) is Verdict.PASS
    assert replays(900, two_hours_ago) is Verdict.PASS
    assert replays(2000, two_hours_ago) is Verdict.WARN
    never = Earlier(reading=None, why="there is no earlier reading", uptime_s=7200.0)
    assert replays(9, never) is Verdict.PASS
    assert replays(2000, never) is Verdict.UNKNOWN
    assert replays(Absent("unsupported", "none"), never) is Verdict.NOT_APPLICABLE


def test_replays_of_gpus_are_kept() -> None:
    fact = GpuReplays(by_subject={"GPU 0": (GPU_AT, 9), "GPU 1": ("x", Absent("failed", "lost"))})
    assert fact.counters() == {GPU_AT: {"pcie-replays": 9}}
