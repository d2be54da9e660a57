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

IDLE, APPLICATION, POWER_CAP = 0x1, 0x2, 0x4
HARMLESS = {
    IDLE: "idle",
    APPLICATION: "application clocks",
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
NAMES = {**HARMLESS, POWER_CAP: "power cap", SLOWDOWN: "hardware slowdown", **HARMFUL, **LIMITS}
HALF = "the clock is halved or worse, and every GPU of the job waits for this one"
Percent = Annotated[float, msgspec.Meta(gt=0, le=100)]


class ClocksExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of the clocks."""

    busy_min_percent: Percent
    power_cap_normal_from_percent: Percent


def names_of(reasons: int) -> str:
    """The set bits as words; bits that a newer driver added as a number."""
    words = [word for bit, word in NAMES.items() if reasons & bit]
    if rest := reasons & ~sum(NAMES):
        words.append(f"unknown {rest:#x}")
    return ", ".join(words) or "none"


@check("clocks-throttle-reasons", severity=Severity.HIGH)
def throttle_reasons(gpus: Gpus, want: ClocksExpectations) -> Iterator[Finding]:
    """No GPU is slowed down by heat, power supply or hardware protection.

    ## Why it matters
    A hardware slowdown halves the clock or worse, and one slow GPU slows the whole job.

    ## Evidence
    nvmlDeviceGetCurrentClocksEventReasons: one bit a reason.

    ## How it is judged
    Software thermal 0x20, hardware thermal 0x40 and power brake 0x80 fail, and hardware slowdown
    0x8 while a program computes. Idle 0x1, application clocks 0x2, sync boost 0x10 and display
    0x100 are harmless here. Power cap 0x4 warns while the GPU works and draws less than
    `clocks.power_cap_normal_from_percent` of its limit: something other than its own limit caps it.

    ## Exceptions
    A working GPU that draws its whole limit is meant to be capped by it. Hardware slowdown alone
    also shows while the clocks change, for example when a GPU at rest is opened: without a compute
    process it warns. Board limit 0x200, reliability limit 0x400 and unknown bits warn.

    ## What to do
    Thermal: clean filters, check fans, air flow or coolant. Power brake: check power supplies and
    the BMC's power cap. Then look at `nvidia-smi -q -d PERFORMANCE` under load again.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
    """
    for gpu in gpus.asked():
        reasons = gpu.clock_reasons
        if isinstance(reasons, Absent):
            yield expect(reasons, None, of=gpu.subject)
        else:
            yield of_reasons(gpu, reasons, want)


def of_reasons(gpu: Gpu, reasons: int, want: ClocksExpectations) -> Finding:
    """One GPU."""
    seen = names_of(reasons)
    if reasons & sum(HARMFUL) or (reasons & SLOWDOWN and gpu.computes is not False):
        return fails(gpu.subject, f"slowed down: {seen}", seen, cost=HALF)
    if reasons & SLOWDOWN:
        return warns(gpu.subject, "slowed down without load: perhaps a change of clocks", seen)
    if reasons & (sum(LIMITS) | ~sum(NAMES)):
        return warns(gpu.subject, f"slowed down: {seen}", seen)
    capped = reasons & POWER_CAP and not reasons & IDLE
    if capped and not draws_its_limit(gpu, want.power_cap_normal_from_percent):
        return warns(gpu.subject, "power-capped below its own limit", seen)
    return passes(gpu.subject, seen)


def draws_its_limit(gpu: Gpu, from_percent: float) -> bool:
    """Whether the GPU uses the power that its limit allows."""
    if isinstance(gpu.power_draw, Absent) or isinstance(gpu.power_limit, Absent):
        return False
    return gpu.power_draw * 100 >= gpu.power_limit * from_percent


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
    nvmlDeviceGetComputeRunningProcesses.

    ## How it is judged
    By inference, and therefore a warning at most: a program computes, NVML names no reason that
    holds the GPU down, and the clock is below `clocks.busy_min_percent` of what it may be.

    ## Exceptions
    Nothing can be told of an idle GPU, nor of one that is throttled (clocks-throttle-reasons). A
    GPU without compute processes counts as idle: not every driver says so in the reasons.

    ## What to do
    Run `nvidia-smi -i INDEX -rgc` and `-rmc`, and look for the unit or prolog that locks clocks.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceCommands.html
    """
    for gpu in gpus.asked():
        yield of_lock(gpu, want.busy_min_percent)


def of_lock(gpu: Gpu, percent: float) -> Finding:
    """One GPU."""
    reasons, clock, most = gpu.clock_reasons, gpu.sm_clock, gpu.sm_clock_max
    if isinstance(reasons, Absent) or isinstance(clock, Absent) or isinstance(most, Absent):
        absent = next(v for v in (reasons, clock, most) if isinstance(v, Absent))
        return expect(absent, None, of=gpu.subject)
    if isinstance(gpu.compute_pids, Absent):
        return expect(gpu.compute_pids, None, of=gpu.subject)
    if reasons & IDLE or not gpu.computes:
        return not_applicable(gpu.subject, "the GPU is idle: a lock shows under load only")
    if reasons & ~APPLICATION:
        return not_applicable(gpu.subject, f"something else holds it down: {names_of(reasons)}")
    applied = gpu.sm_clock_applied
    allowed = min(most, applied) if isinstance(applied, int) and applied else most
    if clock * 100 < allowed * percent:
        cost = f"{100 - clock * 100 // allowed} % of its clock"
        text = f"{clock} MHz under load, though nothing holds it down: probably locked"
        return warns(gpu.subject, text, f"{clock} MHz", expected=f"{allowed} MHz", cost=cost)
    return passes(gpu.subject, f"{clock} MHz", expected=f"{allowed} MHz")
