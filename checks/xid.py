# SPDX-License-Identifier: Apache-2.0
"""What the NVIDIA driver reported since boot: Xids of the GPUs, SXids of the NVSwitches."""

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    Unavailable,
    check,
    fails,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.gpuscan import GpuScan
from gpuaudit.facts.kernellog import HOUR_S, KernelLog
from gpuaudit.facts.xid import RECOVERY_CHANGED, Xid, Xids, of_kind, on_bus
from gpuaudit.facts.xidrecovery import RecoveryActions, with_recovered

Judge = Callable[[str, list[Xid]], Finding]
Count = Annotated[int, msgspec.Meta(ge=0)]
Findings = Iterator[Finding]
LOG = "kernel log"
SHOWN = 3


class XidExpectations(Expectations, frozen=True, kw_only=True):
    """How far back the log must reach, and how much of what is harmless alone is too much."""

    log_hours: Annotated[float, msgspec.Meta(ge=0)]
    past_after_hours: Annotated[float, msgspec.Meta(gt=0)] | None
    application_max_per_gpu: Count
    nvswitch_nonfatal_max: Count


@check("xid-fatal", severity=Severity.CRITICAL)
def fatal(
    scan: GpuScan, log: KernelLog, found: Xids, now: RecoveryActions, want: XidExpectations
) -> Findings:
    """No GPU reported an error since boot that asks for a reset or more.

    ## Why it matters
    After such an error (fallen off the bus, uncontained memory error, silent system processor) the
    GPU computes nothing, or hangs the next job at its first collective with all its other nodes.

    ## Evidence
    The lines `NVRM: Xid` of the kernel's log since boot, NVML field 230. What a code means is in
    `gpuaudit explain xid 79`.

    ## How it is judged
    Fails for codes whose catalogue row asks for a reset, a reboot or a repair, for NVLink errors of
    Blackwell (144 to 150) that call themselves fatal, and while the driver's last word (154) on a
    GPU is another recovery action than none. Warns when it is past: the driver was loaded again
    since, 154 or NVML took the demand back, or it is older than `xid.past_after_hours`. A GPU
    without such a line passes when the log holds the boot or the last `xid.log_hours`.

    ## Exceptions
    48 warns where 94 says each time that only one program was hit. Drivers before 565 ask with no
    154: after nvidia-smi --gpu-reset load them again, or set `xid.past_after_hours`. A container
    sees the log of its host, if any. Not applicable to an image and without a GPU.

    ## What to do
    Drain the node and do what the message names for the code. Keep the output of
    `nvidia-bug-report.sh` before a reset or reboot wipes the traces.

    ## References
    - https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
    - https://docs.nvidia.com/deploy/gpu-debug-guidelines/index.html
    """

    def judged(device: str, rows: list[Xid]) -> Finding:
        grave = [one for one in rows if not past(one, log, want)]
        answer = fails if grave else warns
        return answer(device, message(grave or rows, log, want), seen(rows), evidence=lines(rows))

    told = of_kind(with_recovered(found.gpus, now), "fail")
    yield from per_device(told, on_bus(scan), log, want, judged)


@check("xid-worth-watching", severity=Severity.MEDIUM)
def watched(scan: GpuScan, log: KernelLog, found: Xids, want: XidExpectations) -> Findings:
    """No GPU reported an error since boot that is worth watching.

    ## Why it matters
    Replaced memory rows, contained memory errors and exceptions of a copy engine come before the
    failures that end a job of a thousand GPUs.

    ## Evidence
    The lines `NVRM: Xid` of the kernel's log since boot.

    ## How it is judged
    Warns for codes that the catalogue marks so, and for codes that it does not know.

    ## Exceptions
    What asks for a reset is judged by xid-fatal, what programs cause by xid-application.
    A container sees the log of its host, if any. Not applicable to an image and without a GPU.

    ## What to do
    Look up the code with `gpuaudit explain xid CODE`, and look whether the same GPU reports it
    again after the next reset.

    ## References
    - https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
    """

    def judged(device: str, rows: list[Xid]) -> Finding:
        return warns(device, message(rows, log, want), seen(rows), evidence=lines(rows))

    yield from per_device(of_kind(found.gpus, "warn", "unknown"), on_bus(scan), log, want, judged)


@check("xid-application", severity=Severity.LOW)
def application(scan: GpuScan, log: KernelLog, found: Xids, want: XidExpectations) -> Findings:
    """No GPU saw an unusual number of program errors since boot.

    ## Why it matters
    Page faults and exceptions (13, 31, 43, 45) come from programs. A great many on one GPU and few
    on its neighbours can also be a GPU that lets sound programs fail.

    ## Evidence
    The lines `NVRM: Xid` of the kernel's log since boot.

    ## How it is judged
    Warns when a GPU saw more than `xid.application_max_per_gpu`, where lines of one code within ten
    seconds of each other count once: one failing kernel writes dozens. All lines are shown.

    ## Exceptions
    A container sees the log of its host, if any. Not applicable to an image and without a GPU.

    ## What to do
    Find the program by its name in the log. If it runs well elsewhere, run `dcgmi diag -r 3` here.

    ## References
    - https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
    """

    def judged(device: str, rows: list[Xid]) -> Finding:
        most, total = want.application_max_per_gpu, sum(one.bursts for one in rows)
        limit = f"at most {most}"
        if total <= most:
            return passes(device, seen(rows), expected=limit)
        text = f"{total} errors caused by programs since boot"
        return warns(device, text, seen(rows), expected=limit, evidence=lines(rows))

    yield from per_device(of_kind(found.gpus, "application"), on_bus(scan), log, want, judged)


@check("xid-nvswitch", severity=Severity.CRITICAL)
def nvswitch(scan: GpuScan, log: KernelLog, found: Xids, want: XidExpectations) -> Findings:
    """No NVSwitch reported a fatal error since boot.

    ## Why it matters
    A fatal error takes links away from every GPU behind the switch: CUDA ends the programs on them,
    and collectives over NVLink hang or fall back to PCIe.

    ## Evidence
    The lines `nvidia-nvswitch…: SXid` of the kernel's log since boot, which say fatal or non-fatal.

    ## How it is judged
    Fatal ones fail; they warn when the driver was loaded again since, or when they are older than
    `xid.past_after_hours`. Warns for non-fatal ones that the catalogue marks (heat, bad link), and
    for more than `xid.nvswitch_nonfatal_max` of the others on one switch.

    ## Exceptions
    Not applicable without an NVSwitch on this machine's bus: those of B200 and GB200 boards report
    elsewhere, those of a guest to its host. A container sees the log of its host, if any.

    ## What to do
    Drain the node and reset all GPUs and NVSwitches together, or reboot where the
    message says so. Look up the code with `gpuaudit explain sxid CODE`.

    ## References
    - https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/
    """
    if not scan.switches and not found.switches:
        if scan.functions is None:
            raise Unavailable("what is on the PCI bus was not recorded", "not-recorded")
        raise NotApplicable("no NVSwitch on the PCI bus")

    def judged(device: str, rows: list[Xid]) -> Finding:
        grave = [one for one in rows if one.kind == "fail" and not past(one, log, want)]
        marked = [one for one in rows if one.kind in {"fail", "warn"}]
        if grave or marked:
            answer = fails if grave else warns
            text = message(grave or marked, log, want)
            return answer(device, text, seen(rows), evidence=lines(rows))
        most, total = want.nvswitch_nonfatal_max, sum(one.times for one in rows)
        if total <= most:
            return passes(device, seen(rows), expected=f"at most {most} non-fatal ones")
        return warns(device, f"{total} non-fatal errors since boot", seen(rows))

    yield from per_device(found.switches, scan.switches, log, want, judged)


def per_device(
    rows: Iterable[Xid],
    known: Iterable[str],
    log: KernelLog,
    want: XidExpectations,
    judge: Judge,
) -> Findings:
    """What was reported is judged; silence passes only where the log would hold a report."""
    reported: dict[str, list[Xid]] = {}
    for one in rows:
        reported.setdefault(one.device.partition(" ")[0], []).append(one)
    for device, its in reported.items():
        yield judge(device, its)
    silent = [device for device in known if device not in reported]
    if (reason := log.lacks(want.log_hours)) is not None:
        yield unknown(LOG, reason)
        return
    for device in silent or ([] if reported else [LOG]):
        yield passes(device, f"none {log.scope}")


def past(one: Xid, log: KernelLog, want: XidExpectations) -> str:
    """Why it does not count any more; nothing while it does."""
    age, most = log.age_s(one.last), want.past_after_hours
    if one.settled or most is None or age is None or age <= most * HOUR_S:
        return one.settled
    return f"the last one is {age / HOUR_S:.0f} h old"


def message(rows: list[Xid], log: KernelLog, want: XidExpectations) -> str:
    """The gravest code with what to do, and how many others."""
    first = rows[0]
    because = past(first, log, want)
    more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
    what = first.meaning.meaning
    if first.meaning.code == RECOVERY_CHANGED:
        what = first.detail
    times = "once" if first.times == 1 else f"{first.times} times"
    action = f"it is past: {because}" if because else first.advice
    return f"{first.label} {times}, last {first.last.when}{more}: {what}; {action}"


def seen(rows: list[Xid]) -> str:
    """'79 x 1, 154 x 2'."""
    return ", ".join(f"{one.meaning.code} x {one.times}" for one in rows)


def lines(rows: list[Xid]) -> tuple[str, ...]:
    """The last line of each code, for the first few."""
    return tuple(f"{one.last.when}: {one.last.text}" for one in rows[:SHOWN])
