# SPDX-License-Identifier: Apache-2.0
"""The kernel's log since boot.

Looked through by needle, as bytes: lines are split and parsed only where a needle was found.
"""

from collections.abc import Iterator

from gpuaudit.facts.base import Fact, probe
from gpuaudit.facts.kernelfiles import YEAR_S, Kept, from_files, moment, with_earlier
from gpuaudit.facts.kernelline import Line, parsed
from gpuaudit.host import Host, Unavailable

__all__ = ["WATCHED", "KernelLog", "Line", "kernel_log"]

RING = "/dev/kmsg"
HOUR_S = 3600.0
LAST_BYTES = 8192

WATCHED = frozenset(
    {
        # xid-*
        "NVRM: Xid",
        "NVRM: loading NVIDIA",
        "SXid (",
        "fallen off the bus",
        "The NVIDIA GPU ",
        # kernel-out-of-memory
        "ut of memory",
        # kernel-machine-checks
        "[Hardware Error]: ",
        "due to hardware memory corruption",
        "Memory failure: 0x",
        # kernel-hung-tasks
        "blocked for more than",
        "blocked in I/O wait for more than",
        "soft lockup - CPU#",
        "hard LOCKUP",
        "rcu: INFO: ",
        # kernel-oops
        "Oops: ",
        "kernel BUG at ",
        "BUG: unable to handle",
        "BUG: Bad page ",
        "BUG: KFENCE: ",
        "Internal error: ",
        # pcie-aer-uncorrectable
        "AER: aer_status: 0x",
        "AER: aer_uncor_severity: 0x",
        # pcie-hotplug-events
        "): Link Down",
        "): Card not present",
        "containment event, status",
        "device recovery failed",
    }
)
"""Every needle that a check looks for. `gpuaudit record --scrub` keeps the lines that hold one and
no other, so matching() refuses what does not stand here: it would find nothing in such a recording.
"""


KEEP = ": boot with log_buf_len=16M, or let rsyslog keep the kernel's log"


class KernelLog(Fact, frozen=True, kw_only=True):
    """/dev/kmsg, with what /var/log/{kern.log,messages,syslog} kept of this boot before that.

    `complete`: the first lines of this boot stand in it; None when that cannot be told. `span`: the
    times of its first line and of now, or of its last line where now is not known; in seconds since
    boot, or in seconds of a clock where the lines have none.
    """

    data: bytes
    source: str
    complete: bool | None
    span: tuple[float, float] | None = None

    def matching(self, *needles: str) -> tuple[Line, ...]:
        """The lines whose text holds one of the needles, in their order."""
        if not WATCHED.issuperset(needles):
            raise ValueError(f"{sorted(set(needles) - WATCHED)} is not in kernellog.WATCHED")
        starts = {at for needle in needles for at in line_starts(self.data, needle.encode())}
        lines = (parsed(self.data[at : line_end(self.data, at)]) for at in sorted(starts))
        return tuple(one for one in lines if one and any(needle in one.text for needle in needles))

    def lacks(self, hours: float) -> str | None:
        """Why finding nothing proves nothing for the last `hours`; None when it does prove it.

        A log that goes back to the boot always proves it.
        """
        if self.complete:
            return None
        if self.span is None:
            return (
                f"{self.source} does not hold the boot, and how far it goes back is not known{KEEP}"
            )
        reach_h = (self.span[1] - self.span[0]) / HOUR_S
        if reach_h >= hours:
            return None
        return (
            f"{self.source} does not hold the boot: it goes back {reach_h:.1f} h, "
            f"{hours:g} h are asked for{KEEP}"
        )

    @property
    def scope(self) -> str:
        """What it speaks for, where it lacks nothing."""
        if self.complete or self.span is None:
            return "since boot"
        return f"in the last {(self.span[1] - self.span[0]) / HOUR_S:.0f} h"

    def age_s(self, line: Line) -> float | None:
        """Seconds since a line was written, None where that cannot be told."""
        at = time_of(line)
        if self.span is None or at is None:
            return None
        age = self.span[1] - at
        return age if age >= 0 else age + YEAR_S if line.seconds is None else 0.0


@probe
def kernel_log(host: Host) -> KernelLog:
    """The ring buffer; where it is not to be had or overwritten, files. Raises Unavailable."""
    try:
        kept = with_earlier(host, host.read_bytes(RING))
    except Unavailable as absent:
        kept = from_files(host, absent)
    return log_of(kept, uptime_s(host))


def log_of(kept: Kept, uptime: float | None = None) -> KernelLog:
    """The fact of a log that begins where it should. Raises Unavailable for what is no log."""
    first = next(lines_of(kept.data), None)
    if first is None:
        raise Unavailable(f"{kept.source} holds no line of a kernel's log", "garbled")
    return KernelLog(
        data=kept.data,
        source=kept.source,
        complete=kept.complete,
        span=None if kept.complete is None else span_of(kept, first, uptime),
    )


def span_of(kept: Kept, first: Line, uptime: float | None) -> tuple[float, float] | None:
    """From the first line until now. What syslog wrote may lack the seconds that the ring has."""
    last = last_of(kept.data) or first
    if first.seconds is None and last.seconds is not None:
        first = next(lines_of(kept.data[kept.ring_at :]), first)
    begins, ends = time_of(first), time_of(last)
    if begins is None or ends is None or (first.seconds is None) != (last.seconds is None):
        return None
    if first.seconds is None:
        return begins, ends if ends >= begins else ends + YEAR_S
    return begins, max(ends, (uptime or 0.0) if kept.is_current else 0.0)


def time_of(line: Line) -> float | None:
    """Seconds since boot, else those of its clock."""
    return moment(line.clock) if line.seconds is None else line.seconds


def uptime_s(host: Host) -> float | None:
    """The first number of /proc/uptime."""
    words = (host.optional("/proc/uptime") or "").split()
    return float(words[0]) if words and words[0].replace(".", "", 1).isdecimal() else None


def lines_of(data: bytes) -> Iterator[Line]:
    """Every line with a time, from the first one on."""
    at = 0
    while at < len(data):
        end = line_end(data, at)
        line = parsed(data[at:end])
        if line and (line.seconds is not None or line.clock):
            yield line
        at = end + 1


def last_of(data: bytes) -> Line | None:
    """The last line with a time."""
    whole = data[-LAST_BYTES:]
    if len(data) > LAST_BYTES:
        whole = whole.partition(b"\n")[2]
    return next(reversed(list(lines_of(whole))), None)


def line_starts(data: bytes, needle: bytes) -> Iterator[int]:
    """Where the lines begin that hold the needle."""
    at = data.find(needle)
    while at >= 0:
        yield data.rfind(b"\n", 0, at) + 1
        at = data.find(needle, line_end(data, at))


def line_end(data: bytes, at: int) -> int:
    """Where the line ends that `at` stands in."""
    end = data.find(b"\n", at)
    return len(data) if end < 0 else end
