# SPDX-License-Identifier: Apache-2.0
"""What the kernel itself ran into since boot: its flags, which stay set, and its log.

Flags: Linux Documentation/admin-guide/tainted-kernels.rst. Lines: mm/{oom_kill,memory-failure}.c,
kernel/{hung_task,watchdog}.c, kernel/rcu/tree_stall.h, arch/x86/kernel/cpu/mce/core.c,
drivers/edac/mce_amd.c, drivers/acpi/apei/{ghes,bert}.c, drivers/firmware/efi/cper.c.
"""

import re
from typing import NamedTuple

from gpuaudit.facts.base import Absent, Fact, probe, unread
from gpuaudit.facts.kernellog import KernelLog, Line, kernel_log
from gpuaudit.host import Host, NotApplicable, Unavailable

MACHINE_CHECK, BAD_PAGE, DIED, SOFT_LOCKUP = 4, 5, 7, 14
# Compiled when the first line turns up, by re itself: most nodes have none.
KILLED = (
    r"(Memory cgroup )?[Oo]ut of memory(?: \(oom_kill_allocating_task\))?: Kill(?:ed)? process "
    r"([0-9]+) \((.*?)\)"
)
HUNG = r"INFO: task (.*?:[0-9]+) (?:<.*> )?blocked (?:in I/O wait )?for more than ([0-9]+) seconds"
STUCK = r"BUG: soft lockup - CPU#[0-9]+ stuck for [0-9]+s! \[(.*)\]"
STALLED = r"rcu: INFO: .* (?:self-detected stall|detected (?:expedited )?stalls) on CPU"
MCE = r"\[Hardware Error\]: CPU [0-9]+: Machine Check.* Bank [0-9]+: ([0-9a-f]{16})"
UNCORRECTED_BIT = 61  # MCi_STATUS.UC, Intel SDM volume 3B, section 17.3.2.2
FIRMWARE = r"(\{[0-9]+\})?\[Hardware Error\]: event severity: (\w+)"
AMD = r"\[Hardware Error\]: (Corrected|Deferred|Uncorrected|System Fatal)[ ,]"
SECTION, PCIE = "section_type: ", "section_type: PCIe error"
HARDWARE = ("[Hardware Error]: ", "due to hardware memory corruption", "Memory failure: 0x")
MEMORY = r"due to hardware memory corruption|^Memory failure: 0x[0-9a-f]+: "


class KernelHealth(Fact, frozen=True, kw_only=True):
    """/proc/sys/kernel/tainted, whose bits stay set until the next boot, and the kernel's log."""

    tainted: int | Absent
    log: KernelLog | Absent

    def has(self, bit: int) -> bool | Absent:
        """Whether a flag is set."""
        return self.tainted if isinstance(self.tainted, Absent) else bool(self.tainted >> bit & 1)

    def lines(self, *needles: str) -> tuple[Line, ...]:
        """As KernelLog.matching; none where there is no log."""
        return () if isinstance(self.log, Absent) else self.log.matching(*needles)

    def lacks(self, hours: float) -> str | None:
        """As KernelLog.lacks."""
        return self.log.reason if isinstance(self.log, Absent) else self.log.lacks(hours)


class Kill(NamedTuple):
    """A process that the kernel killed; `job`: because its own control group was full."""

    job: bool
    process: str
    line: Line


class HardwareErrors(NamedTuple):
    """Lines by what they tell of."""

    uncorrected: tuple[Line, ...]
    corrected: tuple[Line, ...]
    before_boot: tuple[Line, ...]


@probe
def kernel_health(host: Host) -> KernelHealth:
    """Read both. Raises NotApplicable in an image, where no kernel runs."""
    return KernelHealth(tainted=flags(host), log=log_or_absent(host))


def flags(host: Host) -> int | Absent:
    """The flags, or why there are none."""
    try:
        return host.read_int("/proc/sys/kernel/tainted")
    except Unavailable as absent:
        return Absent("failed", absent.reason)


def log_or_absent(host: Host) -> KernelLog | Absent:
    """The log, or why there is none."""
    try:
        return kernel_log(host)
    except NotApplicable:
        raise
    except Unavailable as absent:
        return unread(absent)


def kills(health: KernelHealth) -> list[Kill]:
    """Every process that the kernel killed for lack of memory."""
    found = ((line, re.match(KILLED, line.text)) for line in health.lines("ut of memory"))
    return [Kill(bool(m[1]), f"{m[3]} ({m[2]})", line) for line, m in found if m]


def stalls(health: KernelHealth) -> dict[str, list[tuple[str, Line]]]:
    """What hung, by how: 'blocked tasks' -> [('python3:4711', line)]."""
    found: dict[str, list[tuple[str, Line]]] = {}
    lines = health.lines(
        "blocked for more than",
        "blocked in I/O wait for more than",
        "soft lockup - CPU#",
        "hard LOCKUP",
        "rcu: INFO: ",
    )
    for line in lines:
        if match := re.search(HUNG, line.text):
            found.setdefault("blocked task", []).append((match[1], line))
        elif match := re.search(STUCK, line.text):
            found.setdefault("soft lockup", []).append((match[1], line))
        elif "hard LOCKUP" in line.text:
            found.setdefault("hard lockup", []).append(("", line))
        elif re.search(STALLED, line.text):
            found.setdefault("RCU stall", []).append(("", line))
    return found


def hardware_errors(health: KernelHealth) -> HardwareErrors:
    """Machine checks of x86, what firmware reported, and pages taken out of use.

    Firmware numbers the errors of this boot, {1}[Hardware Error]; those without a number are of
    the boot before (drivers/acpi/apei/bert.c). Those of PCIe devices are left to other checks.
    """
    found: dict[str, list[Line]] = {"uncorrected": [], "corrected": [], "before": [], "": []}
    events: list[tuple[str, Line, set[bool]]] = []
    for line in health.lines(*HARDWARE):
        kind = hardware_error(line.text)
        if kind or "event severity: " in line.text:
            events.append((kind, line, set()))
        elif SECTION in line.text and events:
            events[-1][2].add(PCIE in line.text)
    for kind, line, of_pcie in events:
        if of_pcie != {True}:
            found[kind].append(line)
    return HardwareErrors(
        tuple(found["uncorrected"]), tuple(found["corrected"]), tuple(found["before"])
    )


def hardware_error(text: str) -> str:
    """What a line tells of; nothing for the details that follow one that does."""
    if match := re.search(FIRMWARE, text):
        kind = {"fatal": "uncorrected", "recoverable": "uncorrected", "corrected": "corrected"}
        told = kind.get(match[2], "")
        return told if match[1] else "before" if told == "uncorrected" else ""
    if match := re.search(MCE, text):
        return "uncorrected" if int(match[1], 16) >> UNCORRECTED_BIT & 1 else "corrected"
    if match := re.search(AMD, text):
        return "corrected" if match[1] == "Corrected" else "uncorrected"
    return "uncorrected" if re.search(MEMORY, text) else ""
