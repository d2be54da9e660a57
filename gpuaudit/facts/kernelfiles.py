# SPDX-License-Identifier: Apache-2.0
"""Where else the kernel's log of this boot is kept: what syslog wrote, and files others recorded.

The ring buffer forgets its oldest lines. A file continues it backwards only where the two overlap,
and stands in for it only when its last boot is this one.
"""

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from gpuaudit.facts.kernelline import parsed
from gpuaudit.host import Host, Unavailable

RING = "/dev/kmsg"
BOOT = b"Linux version "
OF_KERNEL = b" kernel:"
SYSLOG = ("/var/log/kern.log", "/var/log/messages", "/var/log/syslog")
RECORDED = ("/dmesg", "/dmesg.txt")
AT_BOOT = "/var/log/dmesg"
"""Distributions that have it write it once, at boot: it says nothing of the time since."""

TRIES = 64
ANY_ZONE_S = 15 * 3600
YEAR_S = 366 * 86400
MEAN_YEAR_S = 31_556_952
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
MOMENT = (
    r"(?:([0-9]{4})-([0-9]{2})-([0-9]{2})|([A-Z][a-z]{2}) +([0-9]{1,2}))"
    r"[T ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:.* ([0-9]{4})$)?"
)
LEAP_YEAR = 2024


class Kept(NamedTuple):
    """A log of one boot: its bytes, where they are from, whether the boot itself stands in it.

    `is_current` is False for a file that may have ended long ago; at `ring_at` the ring begins.
    """

    data: bytes
    source: str
    complete: bool | None
    is_current: bool = False
    ring_at: int = 0


def with_earlier(host: Host, ring: bytes) -> Kept:
    """The ring buffer, and before it what a file kept of the same boot.

    Record 0 is the first of a boot.
    """
    if ring.partition(b";")[0].split(b",")[1:2] == [b"0"] or boot_at(ring) >= 0:
        return Kept(ring, RING, complete=True, is_current=True)
    for path in SYSLOG:
        older = before(host, path, ring)
        if older:
            start = boot_at(older)
            kept = older[max(start, 0) :]
            source = f"{path} and {RING}"
            return Kept(kept + ring, source, start >= 0, is_current=True, ring_at=len(kept))
    return Kept(ring, RING, complete=False, is_current=True)


def from_files(host: Host, absent: Unavailable) -> Kept:
    """The first file that holds this boot. Raises `absent` when there is none."""
    for path in (*(RECORDED if host.source == "snapshot" else ()), *SYSLOG):
        data = contents(host, path) if path in RECORDED else rotated(host, path)
        if data and boot_at(data) >= 0:
            data = data[boot_at(data) :]
            if is_this_boot(host, data):
                return Kept(data, path, complete=True)
        elif data and path in RECORDED:
            return Kept(data, path, complete=False)
    if data := contents(host, AT_BOOT):
        return Kept(data, f"{AT_BOOT}, which is written at boot", complete=None)
    raise absent


def contents(host: Host, path: str) -> bytes:
    """A file; nothing when it cannot be had."""
    try:
        return host.read_bytes(path)
    except Unavailable:
        return b""


def rotated(host: Host, path: str) -> bytes:
    """The kernel's lines of a file of syslog, with the file before it where the boot needs it."""
    data = of_kernel(contents(host, path))
    return data if boot_at(data) >= 0 else of_kernel(contents(host, f"{path}.1")) + data


def of_kernel(data: bytes) -> bytes:
    """Without what other programs logged."""
    return b"".join(line for line in data.splitlines(keepends=True) if OF_KERNEL in line)


def boot_at(data: bytes) -> int:
    """Where the last boot begins, -1 when none does."""
    at = len(data)
    while (at := data.rfind(BOOT, 0, at)) >= 0:
        start, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
        line = parsed(data[start : end if end >= 0 else len(data)])
        if line and line.text.startswith(BOOT.decode()):
            return start
        at = start
    return -1


def before(host: Host, path: str, ring: bytes) -> bytes:
    """What a file holds before the oldest lines of the ring; nothing when those are not in it."""
    texts = tuple(islice(texts_of(ring), 3))
    for name in (path, f"{path}.1"):
        data = of_kernel(contents(host, path))
        if name != path:
            data = of_kernel(contents(host, name)) + data
        at = overlap(data, texts) if len(texts) == 3 else -1
        if at >= 0 and (name != path or boot_at(data[:at]) >= 0):
            return data[:at]
    return b""


def texts_of(ring: bytes) -> Iterator[bytes]:
    """The texts of the oldest records."""
    lines = (parsed(raw) for raw in ring[:16384].split(b"\n"))
    return (line.text.encode() for line in lines if line and line.text)


def overlap(data: bytes, texts: tuple[bytes, ...]) -> int:
    """Where the last run of lines with these texts begins, -1 when there is none."""
    at = len(data)
    for _ in range(TRIES):
        at = data.rfind(texts[0], 0, at)
        if at < 0:
            break
        lines = data[at:].split(b"\n", len(texts))[: len(texts)] if at else []
        if len(lines) == len(texts) and all(map(bytes.endswith, lines, texts)):
            return data.rfind(b"\n", 0, at) + 1
    return -1


def is_this_boot(host: Host, data: bytes) -> bool:
    """Whether the boot the log begins with is the one that btime of /proc/stat tells of.

    The time zone of the log is not known. Without either time there is nothing to compare.
    """
    stat = host.optional("/proc/stat") or ""
    told = next((line for line in stat.splitlines() if line.startswith("btime ")), "")
    line = parsed(data.partition(b"\n")[0])
    if not told[6:].isdecimal() or len(told) > 20 or line is None or moment(line.clock) is None:
        return True
    booted = int(told[6:])
    apart = [abs((moment(line.clock, year) or 0.0) - booted) for year in years_near(booted)]
    return min(apart) <= ANY_ZONE_S


def years_near(epoch: int) -> tuple[int, ...]:
    """The year of a time, and its neighbours: a log is written in local time."""
    year = 1970 + epoch // MEAN_YEAR_S
    return year - 1, year, year + 1


def moment(clock: str, year: int = LEAP_YEAR) -> float | None:
    """A time of day of a log as seconds, as though it were UTC; `year` is for those without one."""
    found = re.search(MOMENT, clock)
    if not found or not (found[1] or found[4] in MONTHS):
        return None
    import calendar

    month = int(found[2]) if found[1] else MONTHS.index(found[4]) + 1
    day = int(found[3] or found[5])
    at = (int(found[1] or found[9] or year), month, day, *map(int, found.group(6, 7, 8)))
    try:
        return float(calendar.timegm((*at, 0, 0, 0)))
    except ValueError:  # month 13, year 0
        return None
