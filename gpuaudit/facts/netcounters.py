# SPDX-License-Identifier: Apache-2.0
"""Running totals of the network: errors of interfaces, TCP segments, packets the kernel dropped."""

from gpuaudit.facts.base import Absent, probe
from gpuaudit.facts.counters import Counted, Totals
from gpuaudit.facts.limits import absence
from gpuaudit.facts.netdev import FOLDER, NetDevices
from gpuaudit.host import Host, NotApplicable, Unavailable

COLUMNS = {"receive-errors": 2, "receive-overruns": 4, "send-errors": 10}
"""Of /proc/net/dev (Linux net/core/net-procfs.c). Its column "drop" counts frames nobody wanted."""

MISSED = "receive-missed"


class InterfaceErrors(Counted, frozen=True, kw_only=True):
    """/proc/net/dev, and rx_missed_errors of /sys/class/net/X/statistics of data interfaces.

    Meaning: Linux Documentation/networking/statistics.rst.
    """

    by_name: dict[str, dict[str, int] | Absent]

    def counters(self) -> Totals:
        """What could be read."""
        return {name: one for name, one in self.by_name.items() if isinstance(one, dict)}


class TcpSegments(Counted, frozen=True, kw_only=True):
    """OutSegs and RetransSegs of the line Tcp of /proc/net/snmp (RFC 1213)."""

    sent: int
    sent_again: int

    def counters(self) -> Totals:
        """Both, for the share of one in the other."""
        return {"tcp": {"segments-sent": self.sent, "segments-sent-again": self.sent_again}}


class SoftnetDrops(Counted, frozen=True, kw_only=True):
    """Second column of /proc/net/softnet_stat, all CPUs together: packets found no room."""

    dropped: int

    def counters(self) -> Totals:
        """One total."""
        return {"softnet": {"dropped": self.dropped}}


@probe
def interface_errors(host: Host, interfaces: NetDevices) -> InterfaceErrors:
    """Read the totals of data interfaces. Raises Unavailable, NotApplicable."""
    data = interfaces.data
    rows = (line.partition(":") for line in host.read("/proc/net/dev").splitlines())
    table = {name.strip(): row.split() for name, colon, row in rows if colon}
    return InterfaceErrors(
        by_name={one.name: totals(host, one.name, table.get(one.name)) for one in data}
    )


def totals(host: Host, name: str, row: list[str] | None) -> dict[str, int] | Absent:
    """One interface."""
    if row is None or len(row) < 16 or not all(word.isdecimal() for word in row):
        return Absent("failed", f"/proc/net/dev has no readable line for {name}")
    found = {what: int(row[column]) for what, column in COLUMNS.items()}
    try:
        found[MISSED] = host.read_int(f"{FOLDER}/{name}/statistics/rx_missed_errors")
    except (Unavailable, NotApplicable) as absent:
        return absence(absent)
    return found


@probe
def tcp_segments(host: Host) -> TcpSegments:
    """The line of names and the line of numbers. Raises Unavailable."""
    lines = [line.split() for line in host.read("/proc/net/snmp").splitlines()]
    pair = [words[1:] for words in lines if words[:1] == ["Tcp:"]]
    values = dict(zip(*pair, strict=False)) if len(pair) == 2 else {}
    try:
        return TcpSegments(sent=int(values["OutSegs"]), sent_again=int(values["RetransSegs"]))
    except (KeyError, ValueError):
        raise Unavailable("/proc/net/snmp names no TCP segments", "garbled") from None


@probe
def softnet_drops(host: Host) -> SoftnetDrops:
    """One line a CPU, hexadecimal. Raises Unavailable."""
    rows = [line.split() for line in host.read("/proc/net/softnet_stat").splitlines()]
    try:
        dropped = [int(row[1], 16) for row in rows]
    except (IndexError, ValueError):
        dropped = []
    if not dropped:
        raise Unavailable("/proc/net/softnet_stat has no readable line", "garbled")
    return SoftnetDrops(dropped=sum(dropped))
