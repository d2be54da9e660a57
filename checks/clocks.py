# SPDX-License-Identifier: Apache-2.0
"""What holds the clocks of the GPUs down."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    Severity,
    check,
    expect,
    fails,
    not_applicable,
    passes,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpu import Gpu, Gpus
from gpuaudit.facts.gpuload import even_load

IDLE, APPLICATION, POWER_CAP = 0x1, 0x2, 0x4
HARMLESS = {
    IDLE: "idle",
    APPLICATION: "application clocks",
    POWER_CAP: "power cap",
    0x10: "sync boost",
    0x100: "display clocks",
}
SLOWDOWN = 0x8
HARMFUL = {
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
LIMITS = {0x200: "board limit", 0x400: "reliability limit"}
NAMES = {**HARMLESS, SLOWDOWN: "hardware slowdown", **HARMFUL, **LIMITS}
HALF = "the clock is halved or worse, and every GPU of the job waits for this one"
READINGS_OF_A_LOCK = (
    *("clock_reasons", "sm_clock", "sm_clock_max", "compute_pids"),
    *("clock_reasons_later", "sm_clock_later"),
)
Percent = Annotated[float, msgspec.Meta(gt=0, le=100)]


class ClocksExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of the clocks."""

    busy_min_percent: Percent
    busy_from_utilization_percent: Annotated[int, msgspec.Meta(ge=1, le=100)]
    even_load_power_swing_percent: Percent


def names_of(reasons: int) -> str:
    """The set bits as words; bits that a newer driver added as a number."""
    words = [word for bit, word in NAMES.items() if reasons & bit]
    if rest := reasons & ~sum(NAMES):
        words.append(f"unknown {rest:#x}")
    return ", ".join(words) or "none"


@check("clocks-throttle-reasons", severity=Severity.HIGH)
def throttle_reasons(gpus: Gpus) -> Iterator[Finding]:
    """No GPU is slowed down by heat, power supply or hardware protection.

    ## Why it matters
    A hardware slowdown halves the clock or worse, and one slow GPU slows the whole job.

    ## Evidence
    nvmlDeviceGetCurrentClocksEventReasons, one bit a reason, asked twice: first among the other
    questions and again after them.

    ## How it is judged
    Software thermal 0x20, hardware thermal 0x40 and power brake 0x80 fail when seen once, and
    hardware slowdown 0x8 when seen twice while a program computes. Idle 0x1, application clocks
    0x2, power cap 0x4, sync boost 0x10 and display 0x100 are harmless here.

    ## Exceptions
    A working GPU is meant to be capped by its power limit: power-limit-default judges the limit,
    whoever set it. A cap at low power is no sign of another one: in 152 audits of eight H200s whose
    load came in bursts it showed so three times. Hardware slowdown alone also shows while the
    clocks change, for example when a GPU at rest is opened: without a compute process, or seen
    once, it warns. Board limit 0x200, reliability limit 0x400 and unknown bits warn.

    ## What to do
    Thermal: clean filters, check fans, air flow or coolant. Power brake: check power supplies and
    the BMC's power cap. Then look at `nvidia-smi -q -d PERFORMANCE` under load again.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
    """
    for gpu in gpus.asked():
        early, late = gpu.clock_reasons, gpu.clock_reasons_later
        if isinstance(early, Absent):
            yield expect(early, None, of=gpu.subject)
        else:
            yield of_reasons(gpu, early, early if isinstance(late, Absent) else late)


def of_reasons(gpu: Gpu, early: int, late: int) -> Finding:
    """One GPU, by what was seen at either time and what was seen both times."""
    either, both = early | late, early & late
    seen = names_of(either)
    if either & sum(HARMFUL) or (both & SLOWDOWN and gpu.computes is not False):
        return fails(gpu.subject, f"slowed down: {seen}", seen, cost=HALF)
    if either & SLOWDOWN:
        return warns(gpu.subject, "slowed down for a moment: perhaps a change of clocks", seen)
    if either & (sum(LIMITS) | ~sum(NAMES)):
        return warns(gpu.subject, f"slowed down: {seen}", seen)
    return passes(gpu.subject, seen)


def is_even(gpu: Gpu, want: ClocksExpectations) -> bool:
    """Whether one moment of the GPU stands for others."""
    return even_load(
        gpu,
        busy_from_percent=want.busy_from_utilization_percent,
        swing_percent=want.even_load_power_swing_percent,
    )


@check("clocks-application-default", severity=Severity.MEDIUM)
def application_default(gpus: Gpus) -> Iterator[Finding]:
    """Application clocks are not below the defaults of the product.

    ## Why it matters
    Lowered application clocks are a common leftover of a benchmark or a power test.

    ## Evidence
    nvmlDeviceGetApplicationsClock and nvmlDeviceGetDefaultApplicationsClock, graphics and memory.

    ## How it is judged
    Neither of the two is below its default.

    ## Exceptions
    Higher ones pass: some sites raise them on purpose. Not applicable on drivers that no longer
    have application clocks (seen with 590), and on GPUs without them.

    ## What to do
    Run `nvidia-smi -i INDEX -rac`, and look for the script that set them.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
    """
    for gpu in gpus.asked():
        yield of_application(gpu)


def of_application(gpu: Gpu) -> Finding:
    """One GPU, graphics and memory."""
    now = (gpu.sm_clock_applied, gpu.memory_clock_applied)
    default = (gpu.sm_clock_default, gpu.memory_clock_default)
    known = [value for value in (*now, *default) if isinstance(value, int)]
    if len(known) < 4:
        absent = next(value for value in (*now, *default) if isinstance(value, Absent))
        return expect(absent, None, of=gpu.subject)
    seen, wanted = (f"{known[at]}/{known[at + 1]} MHz" for at in (0, 2))
    if known[0] >= known[2] and known[1] >= known[3]:
        return passes(gpu.subject, seen, expected=wanted)
    return fails(gpu.subject, f"application clocks {seen}", seen, expected=wanted)


@check("clocks-locked", severity=Severity.MEDIUM)
def locked(gpus: Gpus, want: ClocksExpectations) -> Iterator[Finding]:
    """No busy GPU runs below its clock without a reason that NVML names.

    ## Why it matters
    Clocks locked with `nvidia-smi -lgc` stay until someone resets them, and NVML cannot be asked
    for them.

    ## Evidence
    nvmlDeviceGetClockInfo and nvmlDeviceGetMaxClockInfo of the SMs, application clocks, reasons,
    nvmlDeviceGetComputeRunningProcesses, utilization and power; clock, reasons and power twice.

    ## How it is judged
    By inference, and therefore a warning at most: a program computes and loads the GPU evenly, NVML
    names no reason at either time, and both times the clock is the same and below
    `clocks.busy_min_percent` of what it may be.

    ## Exceptions
    Nothing can be told of an idle GPU, of one that is throttled (clocks-throttle-reasons), of one
    whose load or clock changes while it is asked. A GPU without compute processes counts as idle:
    not every driver says so in the reasons.

    ## What to do
    Run `nvidia-smi -i INDEX -rgc` and `-rmc`, and look for the unit or prolog that locks clocks.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceCommands.html
    """
    for gpu in gpus.asked():
        absent = next(
            (v for n in READINGS_OF_A_LOCK if isinstance(v := getattr(gpu, n), Absent)), None
        )
        yield of_lock(gpu, want) if absent is None else expect(absent, None, of=gpu.subject)


def of_lock(gpu: Gpu, want: ClocksExpectations) -> Finding:
    """One GPU of which all is known."""
    clocks = sorted({known(gpu.sm_clock), known(gpu.sm_clock_later)})
    seen = ", ".join(f"{clock} MHz" for clock in clocks)
    applied, most = gpu.sm_clock_applied, known(gpu.sm_clock_max)
    allowed = min(most, applied) if isinstance(applied, int) and applied else most
    if why := why_no_lock(gpu):
        return not_applicable(gpu.subject, why)
    if clocks[-1] * 100 >= allowed * want.busy_min_percent:
        return passes(gpu.subject, seen, expected=f"{allowed} MHz")
    if len(clocks) > 1 or not is_even(gpu, want):
        return not_applicable(gpu.subject, f"its load or clock changes while it is asked: {seen}")
    cost = f"{100 - clocks[0] * 100 // allowed} % of its clock"
    text = f"{seen} under load, though nothing holds it down: probably locked"
    return warns(gpu.subject, text, seen, expected=f"{allowed} MHz", cost=cost)


def why_no_lock(gpu: Gpu) -> str:
    """Why the clock of a GPU is what it is without a lock, or ""."""
    reasons = known(gpu.clock_reasons) | known(gpu.clock_reasons_later)
    if reasons & IDLE or not gpu.computes:
        return "the GPU is idle: a lock shows under load only"
    if reasons & ~APPLICATION:
        return f"something else holds it down: {names_of(reasons)}"
    return ""


def known(reading: int | Absent) -> int:
    """A reading that locked() has found to be there."""
    assert not isinstance(reading, Absent)  # noqa: S101 - locked() looked
    return reading
