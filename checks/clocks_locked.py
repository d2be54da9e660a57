# SPDX-License-Identifier: Apache-2.0
"""Clocks that somebody locked."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    Severity,
    check,
    expect,
    not_applicable,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpu import Gpu, Gpus
from gpuaudit.facts.gpuload import at_full_power, at_work, evenly_at_work
from gpuaudit.facts.gpureasons import APPLICATION, IDLE, either_reason, names_of
from gpuaudit.facts.gpuvalues import P0

Percent = Annotated[float, msgspec.Meta(gt=0, le=100)]


class ClocksLockedExpectations(Expectations, frozen=True, kw_only=True):
    """How far below its clocks a GPU at work may run, percent."""

    busy_min_percent: Percent
    memory_min_percent: Percent


@check("clocks-locked", severity=Severity.MEDIUM)
def locked(gpus: Gpus, want: ClocksLockedExpectations) -> Iterator[Finding]:
    """No busy GPU runs below its clocks without a reason that NVML names.

    ## Why it matters
    Clocks locked with `nvidia-smi -lgc` or `-lmc` stay until someone resets them, and NVML cannot
    be asked for them.

    ## Evidence
    Twice, first among the other questions and again after them: nvmlDeviceGetClockInfo of SMs and
    memory, nvmlDeviceGetCurrentClocksEventReasons, nvmlDeviceGetPerformanceState, power. Once:
    nvmlDeviceGetMaxCustomerBoostClock, nvmlDeviceGetMaxClockInfo of the memory, application clocks,
    compute processes, utilization.

    ## How it is judged
    By inference, and therefore a warning at most, of a GPU that is evenly at work, and only by a
    clock that is the same both times. The memory's is below `clocks_locked.memory_min_percent` of
    its maximum in P0. The SMs' is below `clocks_locked.busy_min_percent` of the boost clock, or of
    application clocks that were lowered, while NVML names no reason and the GPU does not draw its
    whole power.

    ## Exceptions
    Nothing can be told of an idle GPU, of one that is throttled (clocks-throttle-reasons), of one
    whose load or clock changes while it is asked. Nothing is said of the SM clock of products that
    name no boost clock (GeForce, RTX): their highest clock is not reached under every load.

    ## What to do
    Run `nvidia-smi -i INDEX -rgc` and `-rmc`, and look for the unit or prolog that locks clocks.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceCommands.html
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
    """
    for gpu in gpus.asked():
        yield of_lock(gpu, want)


def of_lock(gpu: Gpu, want: ClocksLockedExpectations) -> Finding:
    """One GPU: is it at work, is its memory locked, are its SMs."""
    work = at_work(gpu)
    if work is None:
        return expect(gpu.compute_pids, None, of=gpu.subject)
    if not work or IDLE & either_reason(gpu):
        return not_applicable(gpu.subject, "the GPU is idle: a lock shows under load only")
    return of_memory(gpu, want.memory_min_percent) or of_sms(gpu, want.busy_min_percent)


def of_memory(gpu: Gpu, percent: float) -> Finding | None:
    """The finding for a memory clock that is too low; None where nothing is wrong with it."""
    clock, most = gpu.memory_clock, gpu.memory_clock_max
    same = clock == gpu.memory_clock_later and (gpu.state, gpu.state_later) == (P0, P0)
    if isinstance(clock, Absent) or isinstance(most, Absent) or not same:
        return None
    if clock * 100 >= most * percent or not evenly_at_work(gpu):
        return None
    text = f"memory at {clock} MHz under load: probably locked"
    cost = f"{100 - clock * 100 // most} % of the memory bandwidth"
    return warns(gpu.subject, text, f"memory {clock} MHz", expected=f"{most} MHz", cost=cost)


def of_sms(gpu: Gpu, percent: float) -> Finding:
    """The SM clock of a GPU at work."""
    allowed, early, reasons = allowed_clock(gpu), gpu.sm_clock, gpu.clock_reasons
    if isinstance(early, Absent) or isinstance(reasons, Absent):
        return expect(early if isinstance(early, Absent) else reasons, None, of=gpu.subject)
    if isinstance(allowed, Absent):
        return not_applicable(gpu.subject, f"it names no clock to reach: {allowed.reason}")
    late = gpu.sm_clock_later
    fastest = early if isinstance(late, Absent) else max(early, late)
    if fastest * 100 >= allowed * percent:
        return passes(gpu.subject, f"{fastest} MHz", expected=f"{allowed} MHz")
    return slow(gpu, early, allowed)


def slow(gpu: Gpu, early: int, allowed: int) -> Finding:
    """A clock below what it may be: changing, held down by something else, or locked."""
    late = gpu.sm_clock_later
    if why := other_reason(gpu):
        return not_applicable(gpu.subject, f"{early} MHz, but {why}")
    if isinstance(late, Absent) or isinstance(gpu.clock_reasons_later, Absent):
        return unknown(gpu.subject, "its clock and the reasons for it were read only once")
    if early != late:
        return not_applicable(gpu.subject, f"{early} MHz, but its clock changes to {late} MHz")
    cost = f"{100 - early * 100 // allowed} % of its clock"
    text = f"{early} MHz under load, though nothing holds it down: probably locked"
    return warns(gpu.subject, text, f"{early} MHz", expected=f"{allowed} MHz", cost=cost)


def allowed_clock(gpu: Gpu) -> int | Absent:
    """The SM clock that a GPU reaches when nothing holds it down.

    Application clocks may be below it by default (A100: 1275 of 1410 MHz) and hold nothing down
    then; once lowered they do.
    """
    boost, applied, default = gpu.clock_boost, gpu.sm_clock_applied, gpu.sm_clock_default
    if isinstance(boost, Absent) or not isinstance(applied, int) or not applied:
        return boost
    lowered = isinstance(default, int) and applied < default
    return min(boost, applied) if lowered or either_reason(gpu) & APPLICATION else boost


def other_reason(gpu: Gpu) -> str:
    """What else may hold the clock down, or ""."""
    if held := either_reason(gpu) & ~APPLICATION:
        return f"something else holds it down: {names_of(held)}"
    if at_full_power(gpu):
        return "it draws its whole power"
    return "" if evenly_at_work(gpu) else "its load changes"
