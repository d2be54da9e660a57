# SPDX-License-Identifier: Apache-2.0
"""The node's clock: what it ticks by, and whether something keeps it right."""

import msgspec

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.boot import in_container
from gpuaudit.facts.bootunits import BootUnits
from gpuaudit.facts.counters import uptime
from gpuaudit.facts.cpu import text_of
from gpuaudit.facts.limits import absence
from gpuaudit.facts.services import COMM_BYTES
from gpuaudit.host import Host, NotApplicable, Unavailable

SOURCES = "/sys/devices/system/clocksource/clocksource0"
PROGRAMS = (
    *("chronyd", "systemd-timesyncd", "ntpd", "ntpd-rs", "ntp-daemon", "openntpd"),
    *("ptp4l", "phc2sys", "timemaster", "ptpd", "ptpd2", "sptp", "sfptpd", "timebeat"),
)
UNITS = (
    *("chronyd", "chrony", "systemd-timesyncd", "ntp", "ntpd", "ntpsec", "openntpd", "ntpd-rs"),
    *("ptp4l", "phc2sys", "timemaster"),
)
HIDDEN = Absent("unsupported", "a container does not see the services of its host")
PHASE_LIMIT_US = 16_000_000
"""MAXPHASE: the kernel lets its error grow by 500 ppm and gives up on the clock here (Linux
include/linux/timex.h, NTP_PHASE_LIMIT). STA_UNSYNC says the same, but chronyd without `rtcsync`
leaves that bit set, so systemd looks at the error too (src/basic/time-util.c, ntp_synced)."""


class ClockSource(Fact, frozen=True, kw_only=True):
    """/sys/devices/system/clocksource/clocksource0/{current,available}_clocksource."""

    current: str
    available: tuple[str, ...]


class TimeService(Fact, frozen=True, kw_only=True):
    """Which time services run (process table), and whether systemd runs the machine.

    `systemd` is False where /run/systemd/system is known not to be there (sd_booted(3)), and None
    in an image. `corrected`: what adjtimex(2) says of the clock, None where that is not known.
    """

    running: tuple[str, ...] | Absent
    systemd: bool | None
    corrected: bool | None = None


class KernelClock(Fact, frozen=True, kw_only=True):
    """adjtimex(2): how far off the clock is at most, as the kernel was told and has let it grow.

    The error grows by 500 ppm from one correction to the next: 1.8 s an hour. `uptime_s`:
    /proc/uptime.
    """

    max_error_us: int
    uptime_s: float | None

    @property
    def synchronised(self) -> bool:
        """False where nobody corrected the clock for nine hours, or ever."""
        return self.max_error_us < PHASE_LIMIT_US


@probe
def clock_source(host: Host) -> ClockSource:
    """Read both files. Raises Unavailable: the current source is one of those available."""
    available = text_of(host, f"{SOURCES}/available_clocksource")
    words = () if isinstance(available, Absent) else tuple(available.split())
    current = host.read(f"{SOURCES}/current_clocksource")
    if not current.isprintable() or current not in (words or (current or None,)):
        raise Unavailable(f"{SOURCES}/current_clocksource reads {current[:40]!r}", "garbled")
    return ClockSource(current=current, available=words)


@probe
def time_service(host: Host) -> TimeService:
    """Look for processes and for systemd; never raises."""
    try:
        running: tuple[str, ...] | Absent = running_services(host)
    except (Unavailable, NotApplicable) as absent:
        running = absence(absent)
    corrected = is_corrected(host) if running == () else None
    return TimeService(running=running, systemd=runs_systemd(host), corrected=corrected)


def is_corrected(host: Host) -> bool | None:
    """Whether something corrects the clock, by whatever name."""
    try:
        return kernel_clock(host).synchronised
    except (Unavailable, NotApplicable):
        return None


def runs_systemd(host: Host) -> bool | None:
    """Whether systemd started this machine; None in an image, True where nothing tells."""
    try:
        return host.exists("/run/systemd/system")
    except NotApplicable:
        return None
    except Unavailable:
        return True


def running_services(host: Host) -> tuple[str, ...] | Absent:
    """Time services in the process table, unless that shows a container or one user only."""
    table = host.processes()
    short = {name[:COMM_BYTES]: name for name in PROGRAMS}
    found = {short[p.name[:COMM_BYTES]] for p in table if p.name[:COMM_BYTES] in short}
    if found:
        return tuple(sorted(found))
    if in_container(host):
        return HIDDEN
    if all(process.pid != 1 for process in table):
        return Absent("denied", "the processes of other users are hidden: needs root")
    return ()


def at_boot(units: BootUnits) -> tuple[str, ...]:
    """The time services among the units that a boot starts; ptp4l@ens1f0.service is one."""
    names = {unit: unit.removesuffix(".service").partition("@")[0] for unit in units.enabled}
    return tuple(sorted(u for u, name in names.items() if name in UNITS and u.endswith(".service")))


@probe
def kernel_clock(host: Host) -> KernelClock:
    """Ask the kernel. Raises Unavailable."""
    said = host.run("@adjtimex")
    if said.returncode:
        raise Unavailable(f"adjtimex: {said.stderr}", "unsupported")
    try:
        max_error = msgspec.json.decode(said.stdout, type=dict[str, int])["max_error_us"]
    except (msgspec.MsgspecError, KeyError, RecursionError):
        raise Unavailable(f"adjtimex answered {said.stdout[:60]!r}", "garbled") from None
    if not 0 <= max_error < 1 << 63:
        raise Unavailable(f"adjtimex answered {said.stdout[:60]!r}", "garbled")
    return KernelClock(max_error_us=max_error, uptime_s=uptime(host))
