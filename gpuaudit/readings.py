# SPDX-License-Identifier: Apache-2.0
"""Take the running totals of a node, so that a later audit can tell how fast they grow."""

import datetime as dt
from collections.abc import Iterable

import msgspec

from gpuaudit.check import Check
from gpuaudit.engine import Facts
from gpuaudit.facts.base import PROBES
from gpuaudit.facts.counters import SCHEMA, STATE_FILE, Counted, Reading, Totals, uptime
from gpuaudit.host import Host, Unavailable


def first_reading(checks: Iterable[Check]) -> bytes | None:
    """The totals of this machine now, as the state file holds them; None when it has none.

    Only what the checks compare is read, by a Host of its own: the audit reads it again.
    """
    host = Host.live()
    facts = Facts(host)
    for kind in counted(checks):
        facts.find(kind)
    found = taken(facts)
    host.close()
    return found


def counted(checks: Iterable[Check]) -> list[type[Counted]]:
    """The kinds of totals that checks need, directly or through other facts."""
    seen: dict[type, None] = {}
    waiting = [kind for one in checks for kind in one.needs]
    while waiting:
        kind = waiting.pop()
        if kind in seen or kind not in PROBES:
            continue
        seen[kind] = None
        waiting += [v for k, v in PROBES[kind].__annotations__.items() if k != "return"]
    return [kind for kind in seen if issubclass(kind, Counted)]


def taken(facts: Facts) -> bytes | None:
    """The totals that were read, for the state file; None when there is nothing to compare."""
    totals: Totals = {}
    for fact in facts.known(Counted):
        for subject, values in fact.counters().items():
            totals.setdefault(subject, {}).update(values)
    uptime_s = uptime(facts.host)
    try:
        boot_id = facts.host.read("/proc/sys/kernel/random/boot_id")
    except Unavailable:
        return None
    if uptime_s is None or not totals:
        return None
    reading = Reading(
        schema=SCHEMA,
        boot_id=boot_id,
        uptime_s=uptime_s,
        written_at=dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
        counters=totals,
    )
    return msgspec.json.format(msgspec.json.encode(reading), indent=1)


def compare_with(host: Host, reading: bytes) -> None:
    """Let `host` find this reading where it looks for the earlier one."""
    host.give(STATE_FILE, reading)
