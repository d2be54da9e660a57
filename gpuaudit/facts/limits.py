# SPDX-License-Identifier: Apache-2.0
"""Resource limits of processes, and how much locked memory RDMA needs on this machine."""

import re

import msgspec

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.memory import TotalMemory
from gpuaudit.facts.node import Machine
from gpuaudit.facts.rdma import InfinibandDevices
from gpuaudit.host import Host, NotApplicable, Unavailable

CAP_IPC_LOCK = 14  # include/uapi/linux/capability.h
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


class Limit(msgspec.Struct, frozen=True):
    """A soft and a hard limit, memory in bytes; None is unlimited."""

    soft: int | None
    hard: int | None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The two limits that distributed jobs run into."""

    memlock: Limit
    nofile: Limit


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The limits that one starter of jobs hands down.

    `now` is False for what the configuration will give at the next boot. `advisory` says why the
    limits of this starter do not reach jobs by themselves, where that is so.
    """

    subject: str
    memlock: Limit | Absent
    nofile: Limit | Absent
    now: bool
    evidence: tuple[str, ...] = ()
    advisory: str = ""


class ProcessLimits(Fact, frozen=True, kw_only=True):
    """/proc/self/limits, and CAP_IPC_LOCK of CapEff in /proc/self/status (None: not readable)."""

    reading: Reading
    may_lock_anyway: bool | None


class RdmaNeed(Fact, frozen=True, kw_only=True):
    """What decides how much locked memory is enough.

    Only RDMA is charged: ib_umem_get() adds the pages of each registration to mm->pinned_vm and
    refuses with ENOMEM above RLIMIT_MEMLOCK unless the caller has CAP_IPC_LOCK (Linux
    drivers/infiniband/core/umem.c). Host memory that CUDA pins is allocated by NVIDIA's driver and
    is not charged. A finite limit of at least MemTotal can only be reached by registering the same
    pages several times over, so it counts as enough.
    """

    devices: tuple[str, ...] | Absent
    memory_bytes: int | Absent
    container: bool
    image: bool

    @property
    def has_devices(self) -> bool:
        """True when RDMA devices are known to be there."""
        return not isinstance(self.devices, Absent) and bool(self.devices)

    def satisfied_by(self, limit: Limit, wanted: int | None) -> bool:
        """True when soft and hard limit reach `wanted` bytes (None: unlimited) or all memory."""
        both = (limit.soft, limit.hard)
        return all(reaches(one, wanted, self.memory_bytes) for one in both)

    def cost(self, limit: Limit) -> str | None:
        """What a limit costs a job; nothing that is known of without RDMA devices."""
        if not self.has_devices:
            return None
        return f"a process cannot register more than {show_bytes(limit.soft)} for RDMA"

    def remark(self, reading: Reading, hard: int | None, wanted: int | None) -> str:
        """What a reader has to know beside the numbers."""
        remarks = (
            (reading.advisory, bool(reading.advisory)),
            ("the hard limit would do", self.satisfied_by(Limit(hard, hard), wanted)),
            ("the container's runtime sets it", self.container and reading.now),
            ("no RDMA device is here now", self.devices == ()),
        )
        return "".join(f"; {text}" for text, holds in remarks if holds)


@probe
def process_limits(host: Host) -> ProcessLimits:
    """Read the limits of the audit itself: those of whatever started it. Never raises."""
    reading = reading_of(host, "self", "this process")
    return ProcessLimits(reading=reading, may_lock_anyway=has_ipc_lock(host))


def reading_of(host: Host, pid: int | str, subject: str) -> Reading:
    """/proc/<pid>/limits. The file is readable by everyone unless /proc hides it (hidepid=)."""
    path = f"/proc/{pid}/limits"
    try:
        limits: Limits | Absent = parse_limits(host.read(path), path)
    except (Unavailable, NotApplicable) as absent:
        limits = absence(absent)
    return Reading(
        subject=subject,
        memlock=limits if isinstance(limits, Absent) else limits.memlock,
        nofile=limits if isinstance(limits, Absent) else limits.nofile,
        now=True,
        evidence=(path,),
    )


def has_ipc_lock(host: Host) -> bool | None:
    """Bit 14 of CapEff, None when it cannot be read (proc_pid_status(5))."""
    try:
        text = host.read("/proc/self/status")
    except (Unavailable, NotApplicable):
        return None
    effective = re.search(r"^CapEff:\s*([0-9a-fA-F]{1,16})\b", text, re.MULTILINE)
    return bool(int(effective[1], 16) >> CAP_IPC_LOCK & 1) if effective else None


@probe
def rdma_need(
    host: Host, devices: InfinibandDevices, memory: TotalMemory, machine: Machine
) -> RdmaNeed:
    """Put together what the limits are compared with."""
    return RdmaNeed(
        devices=devices.names,
        memory_bytes=memory.kib if isinstance(memory.kib, Absent) else memory.kib * 1024,
        container=machine.container,
        image=host.source == "image",
    )


def parse_limits(text: str, path: str) -> Limits:
    """The table of /proc/<pid>/limits (fs/proc/base.c, proc_pid_limits). Raises Unavailable."""
    return Limits(
        memlock=row(text, "Max locked memory", path), nofile=row(text, "Max open files", path)
    )


def row(text: str, name: str, path: str) -> Limit:
    """One row: soft and hard, each a number or `unlimited`. Raises Unavailable (garbled)."""
    found = re.search(
        rf"^{name}[ \t]+(unlimited|[0-9]{{1,20}})[ \t]+(unlimited|[0-9]{{1,20}})\b",
        text,
        re.MULTILINE | re.ASCII,
    )
    if not found:
        raise Unavailable(f"{path} has no readable line {name!r}", "garbled")
    soft, hard = (None if word == "unlimited" else int(word) for word in found.groups())
    return Limit(soft, hard)


def absence(reason: Unavailable | NotApplicable) -> Absent:
    """A failure to read as a value that is not there."""
    if isinstance(reason, NotApplicable):
        return Absent("unsupported", reason.reason)
    if reason.kind == "denied":
        return Absent("denied", reason.reason)
    return Absent("missing" if reason.kind == "missing" else "failed", reason.reason)


def reaches(limit: int | None, wanted: int | None, memory_bytes: int | Absent = 0) -> bool:
    """True when a limit is at least what is wanted, or at least all memory of the machine."""
    if limit is None or (wanted is not None and limit >= wanted):
        return True
    return isinstance(memory_bytes, int) and 0 < memory_bytes <= limit


def show_bytes(amount: int | None) -> str:
    """8388608 -> '8 MiB', None -> 'unlimited'."""
    if amount is None:
        return "unlimited"
    power = max((p for p in range(len(UNITS)) if amount >= 1 << 10 * p), default=0)
    return f"{amount / (1 << 10 * power):.4g} {UNITS[power]}"


def show_limit(limit: Limit, *, of_bytes: bool = True) -> str:
    """'unlimited', or both limits where they differ: 'soft 1024, hard 524288'."""
    soft, hard = (
        show_bytes(n) if of_bytes else "unlimited" if n is None else str(n)
        for n in (limit.soft, limit.hard)
    )
    return soft if soft == hard else f"soft {soft}, hard {hard}"
