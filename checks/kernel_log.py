# SPDX-License-Identifier: Apache-2.0
"""What the kernel ran into since boot: lack of memory, broken hardware, hung tasks, bugs."""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    check,
    expect,
    fails,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.kernelhealth import (
    BAD_PAGE,
    DIED,
    MACHINE_CHECK,
    SOFT_LOCKUP,
    KernelHealth,
    hardware_errors,
    kills,
    stalls,
)
from gpuaudit.facts.kernellog import Line
from gpuaudit.facts.node import Machine

LOG, FLAGS = "kernel log", "/proc/sys/kernel/tainted"
SHOWN = 3
BAD_PAGE_LINE, KFENCE = "BUG: Bad page ", "BUG: KFENCE: "
OOPS = ("Oops: ", "kernel BUG at ", "BUG: unable to handle", BAD_PAGE_LINE, "Internal error: ")


class KernelLogExpectations(Expectations, frozen=True, kw_only=True):
    """How far back the log must reach, and what of it counts."""

    hours: Annotated[float, msgspec.Meta(ge=0)]
    system_out_of_memory: Literal["warn", "fail"]
    corrected_errors_max: Annotated[int, msgspec.Meta(ge=0)]


@check("kernel-out-of-memory", severity=Severity.MEDIUM)
def out_of_memory(health: KernelHealth, want: KernelLogExpectations) -> Finding:
    """The node has not run out of memory since boot.

    ## Why it matters
    When the node as a whole runs out of memory the kernel picks a victim anywhere: a rank of
    another job, Fabric Manager, the scheduler's daemon. Before that everything waits for reclaim.

    ## Evidence
    The lines `Out of memory: Killed process` of the kernel's log since boot.

    ## How it is judged
    A kill because the node was out of memory is `kernel_log.system_out_of_memory`. A kill in a
    control group that reached its own limit is counted and passes: that job asked for too little.
    Without a kill of the node it passes when the log holds the boot or the last `kernel_log.hours`,
    else it is unknown.

    ## Exceptions
    In a container these are the kills of its host, where it sees them. Not applicable to an image.

    ## What to do
    Look at what ran then, and give jobs a memory limit (Slurm `ConstrainRAMSpace=yes`, Kubernetes
    limits) that leaves a few GiB to the system. Restart daemons that were killed.

    ## References
    - https://docs.kernel.org/admin-guide/mm/concepts.html#oom-killer
    - https://docs.kernel.org/admin-guide/cgroup-v2.html#memory
    """
    found = kills(health)
    system = [one for one in found if not one.job]
    seen = f"{len(system)} of the node, {len(found) - len(system)} of jobs at their own limit"
    if system:
        answer = fails if want.system_out_of_memory == "fail" else warns
        last = system[-1]
        text = f"the node ran out of memory, last {last.line.when}: {last.process} was killed"
        return answer(LOG, text, seen, evidence=told([one.line for one in system]))
    return silent(health, want, seen)


@check("kernel-machine-checks", severity=Severity.HIGH)
def machine_checks(health: KernelHealth, node: Machine, want: KernelLogExpectations) -> Finding:
    """CPU, memory and board reported no uncorrected error since boot.

    ## Why it matters
    An uncorrected error has cost a page or a process at the least, and comes back. Many corrected
    ones come before it and take time: each is an interrupt into the firmware.

    ## Evidence
    The lines `[Hardware Error]`, `Memory failure` and `hardware memory corruption` of the kernel's
    log since boot, and bit 4 of /proc/sys/kernel/tainted, which a machine check exception sets.

    ## How it is judged
    An uncorrected, deferred or recoverable error fails. Warns for more than
    `kernel_log.corrected_errors_max` corrected ones, for errors that firmware kept from the boot
    before, and when only the flag is left. Else it passes when the log holds the boot or the last
    `kernel_log.hours`, and is unknown otherwise.

    ## Exceptions
    Silence of a guest says nothing: its host handles such errors. There, and in an image, it does
    not apply. PCIe errors are left to the pcie checks, counts of the memory controllers to memory.

    ## What to do
    Decode the lines with `ras-mc-ctl --errors` or the board's event log, and have the part named
    there replaced.

    ## References
    - https://docs.kernel.org/admin-guide/RAS/main.html
    - https://docs.kernel.org/admin-guide/tainted-kernels.html
    """
    found = hardware_errors(health)
    seen = f"{len(found.uncorrected)} uncorrected, {len(found.corrected)} corrected"
    if found.uncorrected:
        text = f"the hardware reported an uncorrected error, last {found.uncorrected[-1].when}"
        return fails(LOG, text, seen, evidence=told(found.uncorrected))
    if health.has(MACHINE_CHECK) is True:
        text = "a machine check exception came since boot, and the log does not tell of it any more"
        return warns(FLAGS, text, f"tainted {health.tainted}")
    if found.before_boot:
        text = "firmware kept a fatal error of the boot before this one"
        return warns(LOG, text, seen, evidence=told(found.before_boot))
    if len(found.corrected) > want.corrected_errors_max:
        limit = f"at most {want.corrected_errors_max} corrected ones"
        text = f"the hardware corrected {len(found.corrected)} errors since boot"
        return warns(LOG, text, seen, expected=limit, evidence=told(found.corrected))
    if node.is_vm:
        raise NotApplicable("a guest does not see the machine checks of its host")
    return silent(health, want, seen)


@check("kernel-hung-tasks", severity=Severity.MEDIUM)
def hung_tasks(health: KernelHealth, want: KernelLogExpectations) -> Finding:
    """No task and no CPU hung since boot.

    ## Why it matters
    A task that is blocked for minutes waits for a file system, a network card or the GPU driver
    that does not answer, and a job waits for it. A CPU that is stuck holds up what is pinned to it.

    ## Evidence
    Blocked tasks, soft and hard lockups and RCU stalls in the kernel's log since boot; bit 14 of
    /proc/sys/kernel/tainted, which a soft lockup sets.

    ## How it is judged
    Any of them warns. Else it passes when the log holds the boot or the last `kernel_log.hours`,
    and is unknown otherwise. The kernel tells of the first ten blocked tasks only
    (kernel.hung_task_warnings).

    ## Exceptions
    In a guest a soft lockup is also what a pause of the whole machine looks like. In a container
    this is its host. Not applicable to an image.

    ## What to do
    Look at the stack that follows the line in the log: it names the driver or file system that did
    not answer. Reboot the node while tasks are still blocked.

    ## References
    - https://docs.kernel.org/admin-guide/lockup-watchdogs.html
    - https://docs.kernel.org/admin-guide/sysctl/kernel.html#hung-task-timeout-secs
    """
    found = stalls(health)
    if found:
        seen = ", ".join(f"{how} x {len(rows)}" for how, rows in found.items())
        every = sorted((line for rows in found.values() for _, line in rows), key=order)
        names = sorted({name for rows in found.values() for name, _ in rows if name})
        who = f": {', '.join(names[:SHOWN])}" if names else ""
        text = f"something hung, last {every[-1].when}{who}"
        return warns(LOG, text, seen, evidence=told(every))
    if health.has(SOFT_LOCKUP) is True:
        text = "a CPU was stuck since boot, and the log does not tell of it any more"
        return warns(FLAGS, text, f"tainted {health.tainted}")
    return silent(health, want, "none")


@check("kernel-oops", severity=Severity.HIGH)
def oops(health: KernelHealth) -> Finding:
    """The kernel has not crashed in part since boot.

    ## Why it matters
    After an oops or a bad page the kernel runs on with locks that nobody releases and with memory
    that it does not trust itself. What fails next can be anything: a hung file system, a lost page.

    ## Evidence
    Bits 7 (died) and 5 (bad page) of /proc/sys/kernel/tainted, which stay set until the next boot,
    and the lines that tell of it in the kernel's log.

    ## How it is judged
    Either bit fails; a bad page that was only one of KFENCE's finds warns. Without the bits it
    passes, whatever the log holds.

    ## Exceptions
    A module that is not free, such as older NVIDIA drivers, sets other bits, which do not count.
    KFENCE, which Red Hat's kernels have on, samples allocations for wrong use, sets bit 5 too, and
    lets the kernel go on unharmed. In a container this is its host. Not applicable to an image.

    ## What to do
    Keep the log (`dmesg`, `journalctl -k`), then reboot the node. A bad page without an oops is
    often memory: test it.

    ## References
    - https://docs.kernel.org/admin-guide/tainted-kernels.html
    """
    flags = {"an oops": health.has(DIED), "a bad page": health.has(BAD_PAGE)}
    met = [what for what, is_set in flags.items() if is_set is True]
    if not met:
        told_of = health.tainted if isinstance(health.tainted, Absent) else "none"
        return expect(told_of, "none", of=FLAGS)
    fence = health.lines(KFENCE)
    if fence and health.has(DIED) is False and not health.lines(BAD_PAGE_LINE):
        text = (
            f"KFENCE caught a kernel bug, last {fence[-1].when}: report it to who made the module"
        )
        return warns(FLAGS, text, f"tainted {health.tainted}", evidence=told(fence))
    text = f"the kernel ran into {' and '.join(met)} since boot: it cannot be trusted any more"
    return fails(FLAGS, text, f"tainted {health.tainted}", evidence=told(health.lines(*OOPS)))


def silent(health: KernelHealth, want: KernelLogExpectations, seen: str) -> Finding:
    """Nothing was found: a pass only where the log would hold it."""
    if (reason := health.lacks(want.hours)) is not None:
        return unknown(LOG, reason)
    scope = "" if isinstance(health.log, Absent) else health.log.scope
    return passes(LOG, f"{seen} {scope}")


def order(line: Line) -> float:
    """For sorting; lines of a log without seconds keep their order."""
    return line.seconds or 0.0


def told(lines: Sequence[Line]) -> tuple[str, ...]:
    """The last few lines with their time."""
    return tuple(f"{one.when}: {one.text}" for one in lines[-SHOWN:])
