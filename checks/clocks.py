# SPDX-License-Identifier: Apache-2.0
"""What holds the clocks of the GPUs down."""

from collections.abc import Iterator

from gpuaudit.check import (
    Finding,
    Severity,
    check,
    expect,
    fails,
    passes,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpu import Gpu, Gpus
from gpuaudit.facts.gpuload import at_rest
from gpuaudit.facts.gpureasons import HARMFUL, LIMITS, NAMES, SLOWDOWN, names_of

HALF = "the clock is halved or worse, and every GPU of the job waits for this one"


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
    hardware slowdown 0x8 when seen twice by a GPU that is not at rest. Idle 0x1, application clocks
    0x2, power cap 0x4, sync boost 0x10 and display 0x100 are harmless here.

    ## Exceptions
    A working GPU is meant to be capped by its power limit: power-limit-default judges the limit,
    whoever set it. A cap at low power is no sign of another one: in 152 audits of eight H200s whose
    load came in bursts it showed so three times. Hardware slowdown alone also shows while the
    clocks change, for example when a GPU at rest is opened: at rest, or seen once, it warns. Board
    limit 0x200, reliability limit 0x400 and unknown bits warn.

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
    if either & sum(HARMFUL) or (both & SLOWDOWN and not at_rest(gpu)):
        return fails(gpu.subject, f"slowed down: {seen}", seen, cost=HALF)
    if either & SLOWDOWN:
        return warns(gpu.subject, "slowed down for a moment: perhaps a change of clocks", seen)
    if either & (sum(LIMITS) | ~sum(NAMES)):
        return warns(gpu.subject, f"slowed down: {seen}", seen)
    return passes(gpu.subject, seen)


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
    return fails(
        gpu.subject,
        f"application clocks below the default: {seen} (SM/memory)",
        seen,
        expected=wanted,
        cost=f"{max(100 - 100 * known[at] // known[at + 2] for at in (0, 1))} % of a clock",
    )
