# SPDX-License-Identifier: Apache-2.0
import pytest
from judging import judge, verdicts

from gpuaudit.check import Finding, NotApplicable
from gpuaudit.facts.gpuscan import GpuScan, PciGpu
from gpuaudit.facts.kernelfiles import Kept
from gpuaudit.facts.kernellog import KernelLog, log_of
from gpuaudit.facts.xid import xids
from gpuaudit.facts.xidrecovery import RecoveryActions

ONE, OTHER, SWITCH = "0000:17:00.0", "0000:18:00.0", "0000:a6:00.0"
CHECKS = ("xid-fatal", "xid-worth-watching", "xid-application", "xid-nvswitch")
LOADING = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.124.06"
FATAL_LINK = f"nvidia-nvswitch1: SXid (PCI:{SWITCH}): 20034, Fatal, Link 30 LTSSM Fault Up"


DEMAND = (
    f"NVRM: Xid (PCI:{ONE[:-2]}): 154, GPU recovery action changed from 0x0 (None) to 0x1 (Reset)"
)


def xid(code: int, device: str = ONE) -> str:
    return f"NVRM: Xid (PCI:{device[:-2]}): {code}, pid=77, name=train, text"


def scan(*addresses: str, switches: tuple[str, ...] = (SWITCH,)) -> GpuScan:
    functions = [PciGpu(address=a, id="10de:2330", driver="nvidia", dead=False) for a in addresses]
    return GpuScan(
        functions=tuple(functions), handed_out=(), switches=switches, listed=None, confined=None
    )


def log(*texts: str, complete: bool = True, now: float = 7200.0) -> KernelLog:
    data = "".join(f"3,{n},{n * 1000000},-;{text}\n" for n, text in enumerate(("begin", *texts)))
    kept = Kept(data.encode(), "/dev/kmsg", complete=complete, is_current=True)
    return log_of(kept, now)


SILENT = RecoveryActions(by_address={})


def judged(
    check: str, told: KernelLog, now: RecoveryActions = SILENT, **want: object
) -> list[Finding]:
    return judge(f"xid/{check}", scan(ONE, OTHER), told, xids(told), now, **want)


def test_silence_passes_for_each_device() -> None:
    for check in CHECKS[:3]:
        assert verdicts(judged(check, log())) == [(ONE, "pass"), (OTHER, "pass")]
    assert verdicts(judged("xid-nvswitch", log())) == [(SWITCH, "pass")]


@pytest.mark.parametrize("check", CHECKS)
def test_silence_of_a_log_that_does_not_go_back_is_unknown(check: str) -> None:
    (finding,) = judged(check, log(complete=False))
    assert (finding.subject, finding.verdict) == ("kernel log", "unknown")
    assert "2.0 h, 24 h" in finding.message
    passed = judged(check, log(complete=False), log_hours=1)
    assert {(f.verdict.value, f.observed) for f in passed} == {("pass", "none in the last 2 h")}


def test_a_gpu_that_asks_for_a_reset_fails() -> None:
    bad, good = judged("xid-fatal", log(xid(48), xid(79), xid(79)))
    assert (bad.subject, bad.verdict, bad.observed) == (ONE, "fail", "48 x 1, 79 x 2")
    assert "Xid 48 once, last 1 s after boot (and 1 more)" in bad.message
    assert "nvidia-smi --gpu-reset" in bad.message
    assert [line.partition(": ")[0] for line in bad.evidence] == [
        "1 s after boot",
        "3 s after boot",
    ]
    assert (good.subject, good.verdict) == (OTHER, "pass")


def test_what_was_found_counts_even_where_silence_would_not() -> None:
    found = judged("xid-fatal", log(xid(79), complete=False))
    assert verdicts(found) == [(ONE, "fail"), ("kernel log", "unknown")]


def test_the_recovery_the_driver_asks_for_is_told_in_its_words() -> None:
    text = "GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)"
    bad, _ = judged("xid-fatal", log(f"NVRM: Xid (PCI:{ONE[:-2]}): 154, {text}"))
    assert bad.verdict == "fail"
    assert text in bad.message


@pytest.mark.parametrize(
    ("lines", "hours", "verdict"),
    [
        ((xid(119), LOADING), None, "warn"),
        ((xid(119),), 1, "warn"),
        ((xid(119),), 3, "fail"),
        ((xid(119), LOADING, xid(119)), None, "fail"),
        ((xid(119), LOADING, xid(79)), None, "fail"),
    ],
)
def test_what_is_past_warns(lines: tuple[str, ...], hours: int | None, verdict: str) -> None:
    bad, _ = judged("xid-fatal", log(*lines), past_after_hours=hours)
    assert bad.verdict == verdict
    assert ("it is past" in bad.message) is (verdict == "warn")


def test_a_gpu_that_is_no_longer_on_the_bus_is_judged_too() -> None:
    told = log(xid(79, "0000:99:00.0"))
    assert ("0000:99:00.0", "fail") in verdicts(judged("xid-fatal", told))


def test_instances_of_one_gpu_are_one_finding() -> None:
    lines = [f"NVRM: Xid (PCI:{ONE[:-2]} GPU-I:0{n}): 46, pid=7, name=x, t" for n in (1, 2)]
    bad, _ = judged("xid-fatal", log(*lines))
    assert (bad.subject, bad.observed) == (ONE, "46 x 1, 46 x 1")


@pytest.mark.parametrize("code", [63, 92, 94, 121, 4711])
def test_worth_watching(code: int) -> None:
    told = log(xid(code))
    assert verdicts(judged("xid-worth-watching", told))[0] == (ONE, "warn")
    assert {v for _, v in verdicts(judged("xid-fatal", told))} == {"pass"}


def test_errors_of_programs_pass_until_they_are_many() -> None:
    told = log(*[xid(31)] * 3, xid(45))
    assert judged("xid-application", told)[0].observed == "31 x 3, 45 x 1"
    assert verdicts(judged("xid-application", told))[0] == (ONE, "pass")
    assert verdicts(judged("xid-application", told, application_max_per_gpu=2))[0] == (ONE, "pass")
    assert verdicts(judged("xid-application", told, application_max_per_gpu=1))[0] == (ONE, "warn")
    one_crash = log(*[xid(13)] * 264)
    assert verdicts(judged("xid-application", one_crash))[0] == (ONE, "pass")
    for check in ("xid-fatal", "xid-worth-watching"):
        assert {v for _, v in verdicts(judged(check, told))} == {"pass"}


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        ((FATAL_LINK,), "fail"),
        ((FATAL_LINK, LOADING), "warn"),
        ((f"nvidia-nvswitch1: SXid (PCI:{SWITCH}): 10004, Non-fatal, Thermal",), "warn"),
        ((f"nvidia-nvswitch1: SXid (PCI:{SWITCH}): 22013, Non-fatal, Link 60",), "pass"),
        ((f"nvidia-nvswitch1: SXid (PCI:{SWITCH}): 22013, Non-fatal, Link 60",) * 101, "warn"),
    ],
)
def test_nvswitch(lines: tuple[str, ...], verdict: str) -> None:
    assert verdicts(judged("xid-nvswitch", log(*lines))) == [(SWITCH, verdict)]


def test_without_an_nvswitch_it_does_not_apply() -> None:
    told, bare = log(), scan(ONE, switches=())
    with pytest.raises(NotApplicable):
        judge("xid/xid-nvswitch", bare, told, xids(told))
    told = log(FATAL_LINK)
    assert verdicts(judge("xid/xid-nvswitch", bare, told, xids(told))) == [(SWITCH, "fail")]


def test_where_the_bus_was_not_read_the_log_is_the_subject() -> None:
    told, blind = log(), scan()
    assert verdicts(judge("xid/xid-fatal", blind, told, xids(told), SILENT)) == [
        ("kernel log", "pass")
    ]


@pytest.mark.parametrize(
    ("actions", "lines", "verdict"),
    [
        ({ONE: 0}, (xid(95), DEMAND), "warn"),
        ({ONE: 1}, (xid(95), DEMAND), "fail"),
        ({}, (xid(95), DEMAND), "fail"),
        ({OTHER: 0}, (xid(95), DEMAND), "fail"),
        ({ONE: 0}, (xid(95),), "fail"),
        ({ONE: 0}, (DEMAND, xid(119)), "fail"),
    ],
)
def test_a_reset_that_left_no_line_shows_in_nvml(
    actions: dict[str, int], lines: tuple[str, ...], verdict: str
) -> None:
    bad, _ = judged("xid-fatal", log(*lines), RecoveryActions(by_address=actions))
    assert (bad.subject, bad.verdict) == (ONE, verdict)
