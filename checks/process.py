# SPDX-License-Identifier: Apache-2.0
"""Processes that hang in the kernel, and processes that nobody buried."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from gpuaudit.check import (
    HOUR,
    Expectations,
    Finding,
    Severity,
    check,
    fails,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.counters import Earlier
from gpuaudit.facts.load import SWITCHES, Hanging, StuckProcesses, Zombies
from gpuaudit.facts.services import Processes

HIDDEN = "only some processes are seen: this is a container, or /proc hides those of others"
TWICE = "run gpuaudit run --interval 150 to see whether they go on"
LOST = "it cannot be killed, and what it holds, a GPU too, is lost until a reboot"


class ProcessExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy accepts of processes."""

    hangs_after_s: Annotated[int, msgspec.Meta(ge=1, le=86_400)]
    max_zombies: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


@check("process-uninterruptible", severity=Severity.HIGH)
def uninterruptible(
    stuck: StuckProcesses, table: Processes, earlier: Earlier, want: ProcessExpectations
) -> Iterator[Finding]:
    """No process hangs in the kernel.

    ## Why it matters
    A process in state D takes no signal. One that hangs in a GPU driver or a file system keeps its
    GPU and its memory, and the next job on the node waits behind the same lock.

    ## Evidence
    The process table; of processes in state D the context switches in /proc/PID/status and the
    function in /proc/PID/wchan; lines "blocked for more than" of the kernel's log.

    ## How it is judged
    Fails for a process that was not switched once since an earlier reading of at least
    `process.hangs_after_s` ago, and for one that the kernel goes on to report, or reported until it
    fell silent. A log without such a line passes where it would hold one; otherwise what one
    reading shows is unknown.

    ## Exceptions
    Any process is in state D for moments. Kernel threads may wait there by design and are left
    out, and so are frozen control groups. The kernel does not report waits that a signal can end
    (NFS); threads but the first of a process are kernel-hung-tasks' matter. A container sees only
    its own processes.

    ## What to do
    Find what it waits for (`cat /proc/PID/stack`, `dmesg | grep -A20 "blocked for"`), restore the
    file server or reset the GPU; drain and reboot the node if it stays.

    ## References
    - https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
    - https://docs.kernel.org/admin-guide/sysctl/kernel.html#hung-task-timeout-secs
    - https://github.com/torvalds/linux/blob/master/kernel/hung_task.c
    """
    for one in stuck.hanging:
        if why := hangs(one, stuck, earlier, want.hangs_after_s):
            where = f" in {one.waits_in}" if one.waits_in else ""
            yield fails(f"PID {one.pid} ({one.name})", f"{why}{where}", "state D", cost=LOST)
    of, seen = "processes", f"{stuck.count} in state D"
    told = stuck.reported
    moving = all(passed_on(one, earlier) for one in stuck.hanging)
    if not stuck.count and not table.complete:
        yield unknown(of, HIDDEN, seen)
    elif not stuck.count or (moving and stuck.count == len(stuck.hanging)):
        yield passes(of, seen)
    elif isinstance(told, Absent):
        yield unknown(of, f"for how long is not known: {told.reason}; {TWICE}", seen)
    else:
        yield passes(of, f"{seen}, {len(told)} reported by the kernel")


def hangs(one: Hanging, stuck: StuckProcesses, earlier: Earlier, after_s: int) -> str:
    """Why this process hangs and does not only wait for a moment; "" where that is not shown."""
    if one.switches is not None:
        growth = earlier.growth(one.subject, SWITCHES, one.switches, since_boot=False)
        seconds = growth.seconds or 0.0
        if growth.before is not None and growth.by == 0 and seconds >= after_s:
            return f"has waited for more than {seconds / HOUR:.1f} hours"
        if growth.before is not None and growth.by:
            return ""
    if isinstance(stuck.reported, frozenset) and one.pid in stuck.reported:
        return "was reported by the kernel as blocked, and still waits"
    return ""


def passed_on(one: Hanging, earlier: Earlier) -> bool:
    """Whether it ran since an earlier reading, or is gone."""
    if one.switches is None:
        return True
    growth = earlier.growth(one.subject, SWITCHES, one.switches, since_boot=False)
    return growth.before is not None and growth.by > 0


@check("process-zombies", severity=Severity.LOW)
def no_zombies(zombies: Zombies, table: Processes, want: ProcessExpectations) -> Iterator[Finding]:
    """Few processes are zombies, and none of them still holds memory.

    ## Why it matters
    A zombie whose other threads live on keeps its memory, on the GPU too. Many plain ones show a
    launcher or agent that does not wait for its children, and use up process IDs.

    ## Evidence
    State and parent of each process in the process table; /proc/PID/task of zombies.

    ## How it is judged
    At most `process.max_zombies` zombies; more warn, as does one with living threads.

    ## Exceptions
    A process is a zombie for moments between its end and its parent's wait. A container sees only
    its own processes; there the first process has to bury the orphans.

    ## What to do
    Restart the parent that is named: its zombies go with it. In a container start an init process
    (`docker run --init`).

    ## References
    - https://man7.org/linux/man-pages/man2/wait.2.html
    - https://man7.org/linux/man-pages/man5/proc_pid_task.5.html
    """
    for one in zombies.alive:
        message = "its first thread ended, others live on and hold its memory"
        yield warns(f"PID {one.pid} ({one.name})", message, "zombie")
    number, of = sum(zombies.by_parent.values()), "zombies"
    most = f"at most {want.max_zombies}"
    if number > want.max_zombies:
        worst = sorted(zombies.by_parent.items(), key=lambda pair: -pair[1])[:3]
        parents = ", ".join(f"{count} of {parent}" for parent, count in worst)
        yield warns(of, f"not buried: {parents}", number, expected=most)
    elif not table.complete:
        yield unknown(of, HIDDEN, number)
    else:
        yield passes(of, number, expected=most)
