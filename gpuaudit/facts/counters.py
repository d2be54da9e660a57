# SPDX-License-Identifier: Apache-2.0
"""Running totals, and what they were at an earlier moment of the same boot.

A total says nothing about today: nine PCIe replays may be nine since this morning or nine since
spring. The earlier reading is /var/lib/gpuaudit/counters.json, which the nightly profile writes
after each run, or what `--interval` read in the same run.
"""

from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from gpuaudit.facts.base import Fact, probe
from gpuaudit.host import Host, Unavailable

STATE_FILE = "/var/lib/gpuaudit/counters.json"
SCHEMA = "gpuaudit.counters/1"
Totals = dict[str, dict[str, int]]
"""Subject -> name -> total."""


class Counted(Fact, frozen=True, kw_only=True):
    """A fact with running totals in it."""

    def counters(self) -> Totals:
        """Every total that a rate may be made of."""
        raise NotImplementedError


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The totals of one moment, as the state file keeps them.

    `uptime_s` is the kernel's clock (/proc/uptime): it knows no time zone and no leap second.
    """

    schema: str
    boot_id: str
    uptime_s: Annotated[float, Meta(ge=0)]
    written_at: str
    counters: dict[str, dict[str, Annotated[int, Meta(ge=0)]]]


class Growth(NamedTuple):
    """One total now, what it was, and the seconds in between.

    Without an earlier reading `before` is None; then `seconds` is how long the kernel has counted,
    or None where the device counts since a moment nobody knows. `stuck` is a counter at its end.
    """

    now: int
    before: int | None
    seconds: float | None
    why: str = ""
    stuck: bool = False

    @property
    def by(self) -> int:
        """How much it grew; all of it where nothing earlier is known."""
        return self.now - (self.before or 0)


class Earlier(Fact, frozen=True, kw_only=True):
    """The earlier reading of this boot (the state file), or why there is none.

    `uptime_s` is the time since boot (/proc/uptime), None when it was not recorded.
    """

    reading: Reading | None
    why: str
    uptime_s: float | None

    def growth(
        self, subject: str, name: str, now: int, *, since_boot: bool, ceiling: int | None = None
    ) -> Growth:
        """How a total grew. One that is smaller than before was reset in between.

        `since_boot`: the kernel counts it, so it was 0 at boot. `ceiling`: it goes no further.
        """
        stuck = ceiling is not None and now >= ceiling
        before = self.reading.counters.get(subject, {}).get(name) if self.reading else None
        if before is not None and before <= now and self.reading and self.uptime_s is not None:
            return Growth(now, before, self.uptime_s - self.reading.uptime_s, stuck=stuck)
        counted_s = self.uptime_s if since_boot else None
        why = self.why if before is None else "the counter was reset since the earlier reading"
        return Growth(now, None, counted_s, why or "it was not read earlier", stuck)


@probe
def earlier(host: Host) -> Earlier:
    """The state file, if it is of this boot. Nothing in it can fail an audit."""
    uptime_s = uptime(host)
    try:
        found = decoded(host.read_bytes(STATE_FILE))
        boot_id = host.read("/proc/sys/kernel/random/boot_id")
    except Unavailable as absent:
        missing = absent.kind in {"missing", "not-recorded"}
        why = "there is no earlier reading" if missing else absent.reason
        return Earlier(reading=None, why=why, uptime_s=uptime_s)
    why = unfit(found, boot_id, uptime_s)
    return Earlier(reading=None if why else found, why=why, uptime_s=uptime_s)


def uptime(host: Host) -> float | None:
    """Seconds since boot."""
    word = next(iter((host.optional("/proc/uptime") or "").split()), "")
    return float(word) if word.replace(".", "", 1).isdecimal() and len(word) < 20 else None


def decoded(content: bytes) -> Reading:
    """The state file. Raises Unavailable (garbled), naming it."""
    if not content:
        raise Unavailable(f"{STATE_FILE} is empty", "missing")
    try:
        found = msgspec.json.decode(content, type=Reading)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Unavailable(f"{STATE_FILE} is damaged: {error}", "garbled") from None
    if found.schema != SCHEMA:
        raise Unavailable(f"{STATE_FILE} is of another version: {found.schema[:40]}", "garbled")
    return found


def unfit(reading: Reading, boot_id: str, uptime_s: float | None) -> str:
    """Why an earlier reading cannot be compared with, or nothing."""
    if reading.boot_id != boot_id:
        return "the node was rebooted since the earlier reading"
    if uptime_s is None:
        return "how long the node runs was not recorded"
    if not uptime_s - reading.uptime_s > 0:
        return f"{STATE_FILE} is of a later moment than this audit"
    return ""
