# SPDX-License-Identifier: Apache-2.0
"""Memory and memory management settings of the running kernel."""

import re

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.boot import boots_elsewhere
from gpuaudit.facts.sysctl import SysctlSetting, sysctl_files
from gpuaudit.host import Host, NotApplicable, Unavailable

THP = "/sys/kernel/mm/transparent_hugepage"
SHM = "/dev/shm"  # noqa: S108 - the file system that is audited, nothing is written there
MOUNTS = "/proc/self/mountinfo"
SUFFIXES_KIB = {"": 1 / 1024, "k": 1, "m": 1 << 10, "g": 1 << 20, "t": 1 << 30}


class TransparentHugepage(Fact, frozen=True, kw_only=True):
    """/sys/kernel/mm/transparent_hugepage/{enabled,defrag}: the word in brackets.

    `boot` is the word of transparent_hugepage= in /proc/cmdline, None without one.
    """

    enabled: str
    defrag: str
    boot: str | Absent | None


class TotalMemory(Fact, frozen=True, kw_only=True):
    """MemTotal of /proc/meminfo."""

    kib: int | Absent


class ZoneReclaim(Fact, frozen=True, kw_only=True):
    """/proc/sys/vm/zone_reclaim_mode: 0 is off, else bits 1, 2 and 4 (sysctl/vm.rst).

    `next_boot` is what the sysctl.d files set, None where none of them does.
    """

    mode: int | Absent
    next_boot: SysctlSetting | Absent | None


class SharedMemory(Fact, frozen=True, kw_only=True):
    """The mount on /dev/shm in /proc/self/mountinfo.

    `type` is None when nothing is mounted there. `size_kib` is None without an upper bound.
    `is_default` marks the kernel's own choice, half of MemTotal: it prints size= only where the
    size differs from that (Linux mm/shmem.c, shmem_show_options).
    """

    type: str | None
    size_kib: int | Absent | None
    is_default: bool


@probe
def transparent_hugepage(host: Host) -> TransparentHugepage:
    """Read the two selectors and the kernel command line."""
    return TransparentHugepage(
        enabled=selected(host, f"{THP}/enabled"),
        defrag=selected(host, f"{THP}/defrag"),
        boot=boot_word(host, "transparent_hugepage"),
    )


def selected(host: Host, path: str) -> str:
    """The chosen word of a selector file such as 'always [madvise] never'. Raises Unavailable."""
    try:
        text = host.read(path)
    except Unavailable as absent:
        if absent.kind == "missing":
            raise NotApplicable("the kernel has no transparent huge pages") from None
        raise
    match = re.search(r"\[([^\[\]]+)\]", text)
    if not match:
        raise Unavailable(f"{path} reads {text[:60]!r}, no word stands in brackets", "garbled")
    return match[1]


def boot_word(host: Host, name: str) -> str | Absent | None:
    """The last `name=` on the kernel command line; the kernel parses from left to right."""
    try:
        words = host.read("/proc/cmdline").split()
    except Unavailable as absent:
        return Absent("failed", absent.reason)
    found = [word.partition("=")[2] for word in words if word.startswith(f"{name}=")]
    return found[-1] if found else None


@probe
def total_memory(host: Host) -> TotalMemory:
    """Read MemTotal; never raises."""
    try:
        text = host.read("/proc/meminfo")
    except NotApplicable as absent:
        return TotalMemory(kib=Absent("unsupported", absent.reason))
    except Unavailable as absent:
        return TotalMemory(kib=Absent("failed", absent.reason))
    match = re.search(r"^MemTotal:\s*([0-9]{1,15}) kB", text, re.MULTILINE)
    if not match:
        return TotalMemory(kib=Absent("failed", "/proc/meminfo names no MemTotal"))
    return TotalMemory(kib=int(match[1]))


@probe
def zone_reclaim(host: Host) -> ZoneReclaim:
    """Read the mode and the configuration. A kernel without NUMA has no such file."""
    try:
        mode: int | Absent = host.read_int("/proc/sys/vm/zone_reclaim_mode")
    except NotApplicable as absent:
        mode = Absent("unsupported", absent.reason)
    except Unavailable as absent:
        if absent.kind == "missing":
            raise NotApplicable(f"the kernel has no NUMA support: {absent.reason}") from None
        mode = Absent("failed", absent.reason)
    return ZoneReclaim(
        mode=mode, next_boot=boots_elsewhere(host) or sysctl_of(host, "vm.zone_reclaim_mode")
    )


def sysctl_of(host: Host, key: str) -> SysctlSetting | Absent | None:
    """What sysctl.d sets for a key."""
    try:
        return sysctl_files(host).effective(key)
    except Unavailable as absent:
        return Absent("failed", absent.reason)


@probe
def shared_memory(host: Host, memory: TotalMemory) -> SharedMemory:
    """Find the mount that covers /dev/shm and its size. Raises Unavailable."""
    mount = last_mount(host.read(MOUNTS), SHM)
    if mount is None:
        return SharedMemory(type=None, size_kib=None, is_default=False)
    kind, options = mount
    size = re.search(r"(?:^|,)size=([^,]*)", options)
    if kind != "tmpfs" or size:
        value = (
            parse_size_kib(size[1])
            if size
            else Absent("failed", f"{kind} is mounted there, no tmpfs")
        )
        return SharedMemory(type=kind, size_kib=value, is_default=False)
    half = memory.kib // 2 if isinstance(memory.kib, int) else memory.kib
    return SharedMemory(type=kind, size_kib=half, is_default=True)


def last_mount(text: str, where: str) -> tuple[str, str] | None:
    """Type and super block options of the topmost mount on `where` (proc_pid_mountinfo(5))."""
    found, mounts = None, 0
    for line in text.split("\n"):
        front, _, back = line.partition(" - ")
        fields, kind = front.split(" "), back.split(" ")
        is_mount = len(fields) > 5 and len(kind) > 2
        mounts += is_mount
        if is_mount and fields[4] == where:
            found = kind[0], kind[2].strip()
    if not mounts:
        raise Unavailable(f"{MOUNTS} names no mount", "garbled")
    return found


def parse_size_kib(text: str) -> int | Absent | None:
    """'65536k' -> 65536, '0' -> None: without an upper bound (Linux mm/shmem.c)."""
    match = re.fullmatch(r"([0-9]{1,19})([kmgt]?)", text.lower())
    if not match:
        return Absent("failed", f"{MOUNTS}: size={text[:30]} of {SHM} is no size")
    return int(int(match[1]) * SUFFIXES_KIB[match[2]]) if int(match[1]) else None
