# SPDX-License-Identifier: Apache-2.0
"""What keeps the node busy: load, pressure, and processes that hang or were not buried."""

import re
from typing import NamedTuple

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.counters import Counted, Totals
from gpuaudit.facts.cpu import number_of, text_of
from gpuaudit.facts.kernellog import KernelLog, Line, kernel_log
from gpuaudit.facts.services import Processes
from gpuaudit.host import Host, NotApplicable, Process, Unavailable

PRESSURE = "/proc/pressure"
KTHREADD = 2
SWITCHES = "context-switches"
CTXT = r"(?m)^(?:non)?voluntary_ctxt_switches:\s*([0-9]{1,18})$"
HUNG_TASK = "/proc/sys/kernel/hung_task"
BLOCKED = ("blocked for more than", "blocked in I/O wait for more than")
REPORTED = r":([0-9]{1,7}) blocked "
USUAL_TIMEOUT_S = 120
ROUNDS = 3
"""khungtaskd looks every timeout and reports what still waits again, until it falls silent."""

FROZEN = "__refrigerator"
"""Where tasks of a frozen control group (v1) stand, in state D (Linux kernel/freezer.c)."""
TOP = 20
"""Processes in one state that are looked at one by one; a hung file system holds up hundreds."""


class Load(Fact, frozen=True, kw_only=True):
    """/proc/loadavg (the mean of one minute) and /proc/pressure/{cpu,memory,io}.

    `pressure`: percent of the last minute in which some task waited for a CPU, and in which all
    of them waited for memory or for disks (Linux Documentation/accounting/psi.rst).
    """

    one_minute: float
    pressure: dict[str, float | Absent]


class Hanging(NamedTuple):
    """A process in state D. `switches`: how often it was switched, None where it is gone."""

    pid: int
    name: str
    waits_in: str
    switches: int | None

    @property
    def subject(self) -> str:
        """As in the state file."""
        return f"process {self.pid}"


class StuckProcesses(Counted, frozen=True, kw_only=True):
    """User processes in state D (process table), with /proc/PID/{status,wchan} of the first 20.

    A process that was in state D before and was not switched since has waited all the while.
    `reported`: the PIDs that the kernel's log calls blocked to the end; Absent where its silence
    proves nothing (khungtaskd reports what waits for kernel.hung_task_timeout_secs). Those of a
    frozen control group are left out.
    """

    hanging: tuple[Hanging, ...]
    count: int
    reported: frozenset[int] | Absent

    def counters(self) -> Totals:
        """How often each was switched."""
        known = (one for one in self.hanging if one.switches is not None)
        return {one.subject: {SWITCHES: one.switches or 0} for one in known}


class Zombies(Fact, frozen=True, kw_only=True):
    """Processes in state Z by the name of their parent.

    `alive`: those of the first 20 whose other threads live on (/proc/PID/task), so that their
    memory, that of the GPU too, is still held.
    """

    by_parent: dict[str, int]
    alive: tuple[Process, ...]


@probe
def load(host: Host) -> Load:
    """Read the files. Raises Unavailable without the load."""
    words = host.read("/proc/loadavg").split()
    try:
        one_minute = float(words[0])
    except (IndexError, ValueError):
        raise Unavailable(f"/proc/loadavg reads {' '.join(words)[:40]!r}", "garbled") from None
    lines = {"cpu": "some", "memory": "full", "io": "full"}
    return Load(
        one_minute=one_minute,
        pressure={name: pressure(host, name, line) for name, line in lines.items()},
    )


def pressure(host: Host, name: str, line: str) -> float | Absent:
    """avg60 of one line: `full avg10=0.00 avg60=1.20 avg300=0.50 total=123`."""
    path = f"{PRESSURE}/{name}"
    text = text_of(host, path)
    if isinstance(text, Absent):
        return text
    row = next((row for row in text.splitlines() if row.startswith(f"{line} ")), "")
    fields = dict(word.partition("=")[::2] for word in row.split()[1:])
    try:
        return float(fields["avg60"])
    except (KeyError, ValueError):
        return Absent("failed", f"{path} reads {text[:60]!r}")


@probe
def stuck_processes(host: Host, table: Processes) -> StuckProcesses:
    """Look at the processes in state D. Kernel threads wait there by design and are left out."""
    mine = [p for p in table.processes if p.state == "disk-sleep" and not of_kernel(p)]
    first = [hanging(host, process) for process in mine[:TOP]]
    found = tuple(one for one in first if one.waits_in != FROZEN)
    pids = frozenset(one.pid for one in found)
    return StuckProcesses(
        hanging=found,
        count=len(mine) - len(first) + len(found),
        reported=told_by_kernel(host, pids) if found else pids,
    )


def told_by_kernel(host: Host, pids: frozenset[int]) -> frozenset[int] | Absent:
    """Those of the PIDs that the kernel reports, and did not stop to report.

    After hung_task_warnings lines khungtaskd falls silent (Linux kernel/hung_task.c).
    """
    timeout = number_of(host, f"{HUNG_TASK}_timeout_secs", 1 << 62)
    try:
        log = kernel_log(host)
        lines = log.matching(*BLOCKED)
    except (Unavailable, NotApplicable) as absent:
        return Absent("failed", absent.reason)
    silent = host.optional(f"{HUNG_TASK}_warnings") == "0"
    every_s = USUAL_TIMEOUT_S if isinstance(timeout, Absent) else timeout
    if found := pids & to_the_end(log, lines, every_s, silent=silent):
        return found
    if not timeout or isinstance(timeout, Absent) or silent:
        return Absent("failed", "the kernel does not report processes that hang")
    why = log.lacks(timeout / 3600)
    return found if why is None else Absent("failed", why)


def to_the_end(
    log: KernelLog, lines: tuple[Line, ...], every_s: int, *, silent: bool
) -> frozenset[int]:
    """PIDs of lines such as `INFO: task python:4242 blocked for more than 120 seconds`.

    A report that was not repeated is over. Where the kernel fell silent those count that it had
    reported more than once, and in its last round too: a single wait may have ended since.
    """
    ages: dict[int, list[float]] = {}
    for line in lines:
        match, age = re.search(REPORTED, line.text), log.age_s(line)
        if match and age is not None:
            ages.setdefault(int(match[1]), []).append(age)
    last = min((min(one) for one in ages.values()), default=0.0)
    return frozenset(
        pid
        for pid, one in ages.items()
        if min(one) <= ROUNDS * every_s or (silent and len(one) > 1 and min(one) - last < every_s)
    )


def of_kernel(process: Process) -> bool:
    """A kernel thread: a child of kthreadd, or that itself."""
    return KTHREADD in {process.pid, process.parent}


def hanging(host: Host, process: Process) -> Hanging:
    """One process. Its command line and environment are not touched: they take its lock."""
    folder = f"/proc/{process.pid}"
    switches = re.findall(CTXT, host.optional(f"{folder}/status") or "")
    where = host.optional(f"{folder}/wchan") or ""
    return Hanging(
        pid=process.pid,
        name=process.name,
        waits_in="" if where == "0" else where,
        switches=sum(map(int, switches)) if switches else None,
    )


@probe
def zombies(host: Host, table: Processes) -> Zombies:
    """Count them by parent, and see which of them still live in part."""
    names = {process.pid: process.name for process in table.processes}
    dead = [process for process in table.processes if process.state == "zombie"]
    by_parent: dict[str, int] = {}
    for process in dead:
        parent = names.get(process.parent or 0, "an unseen process")
        by_parent[parent] = by_parent.get(parent, 0) + 1
    alive = [p for p in dead[:TOP] if len(host.names(f"/proc/{p.pid}/task")) > 1]
    return Zombies(by_parent=by_parent, alive=tuple(alive))
