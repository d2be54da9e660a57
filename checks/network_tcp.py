# SPDX-License-Identifier: Apache-2.0
"""TCP: buffers, congestion control, segments sent again, packets the kernel had no room for."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from gpuaudit.check import (
    HOUR,
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    Verdict,
    check,
    expect,
    expect_at_least,
    expect_rate,
    passes,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.counters import Earlier
from gpuaudit.facts.netcounters import SoftnetDrops, TcpSegments
from gpuaudit.facts.netdev import NetDevices
from gpuaudit.facts.netsysctl import (
    AVAILABLE,
    BUFFERS,
    CONGESTION,
    CORE_BUFFERS,
    NetSetting,
    TcpSettings,
)

Findings = Iterator[Finding]


class NetworkTcpExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of TCP."""

    round_trip_ms: Annotated[float, msgspec.Meta(gt=0, le=1000)]
    connection_gbps_max: Annotated[float, msgspec.Meta(gt=0, le=3200)]
    core_buffer_min_kib: Annotated[int, msgspec.Meta(ge=1)] | None
    congestion_control: tuple[str, ...]
    sent_again_max_percent: Annotated[float, msgspec.Meta(gt=0, le=100)]
    sent_again_min_segments: Annotated[int, msgspec.Meta(ge=1)]
    backlog_drops_max_per_hour: Annotated[int, msgspec.Meta(ge=0)]


@check("network-tcp-buffers", severity=Severity.MEDIUM)
def tcp_buffers(
    settings: TcpSettings, interfaces: NetDevices, want: NetworkTcpExpectations
) -> Findings:
    """One TCP connection may keep enough data on the way to run at full speed.

    ## Why it matters
    A connection sends at most one buffer a round trip, however fast the NIC is. Tuning guides of
    slower days, and images that follow them, set less than today's kernels allow.

    ## Evidence
    The third value of net.ipv4.tcp_rmem and net.ipv4.tcp_wmem, the bound of autotuning; sysctl.d
    for the next boot; /sys/class/net/X/speed of data interfaces.

    ## How it is judged
    Each is at least the speed of the fastest data interface, but no more than
    `network_tcp.connection_gbps_max`, times `network_tcp.round_trip_ms`. Less is a warning.
    net.core.rmem_max and wmem_max are judged only where `network_tcp.core_buffer_min_kib` is set.

    ## Exceptions
    net.core.*_max only bounds programs that set their buffers by hand. The kernel's own 4 and 6 MiB
    pass: a site that reads from far away raises the policy's round trip. Not applicable without a
    data interface and in an image, whose NIC is not known. Traffic of RDMA uses no such buffer.

    ## What to do
    Write `net.ipv4.tcp_rmem = 4096 131072 N` and `net.ipv4.tcp_wmem = 4096 65536 N` with N at least
    the expected bytes to /etc/sysctl.d/90-tcp.conf and run `sysctl --system`.

    ## References
    - https://docs.kernel.org/networking/ip-sysctl.html
    - https://fasterdata.es.net/host-tuning/linux/
    """
    speeds = [d.speed_mbps for d in interfaces.data if isinstance(d.speed_mbps, int)]
    if not speeds:
        raise NotApplicable("no driver of a data interface names its speed")
    # Mbit/s times ms is 1000 bits, 125 bytes.
    needed = int(min(max(speeds), want.connection_gbps_max * 1000) * want.round_trip_ms * 125)
    for key in BUFFERS:
        yield from buffer(settings.by_key[key], needed, f"{key} (third value)", 3)
    if want.core_buffer_min_kib is not None:
        for key in CORE_BUFFERS:
            yield from buffer(settings.by_key[key], want.core_buffer_min_kib * 1024, key, 1)


def buffer(found: NetSetting, needed: int, of: str, values: int) -> Findings:
    """The running value; the next boot's only where a file sets it too low."""
    number = last_number(found.running, values)
    cost = None
    if isinstance(number, int) and number < needed:
        cost = f"a connection runs at {100 * number / needed:.0f} % of its speed at most"
        cost += f" ({number} of {needed} bytes a round trip)"
    yield expect_at_least(number, needed, of=of, unit="bytes", cost=cost, otherwise=Verdict.WARN)
    if found.next_boot is None or isinstance(found.next_boot, Absent):
        return
    later = last_number(found.next_boot.value, values)
    if isinstance(later, int) and later < needed and later != number:
        place = f"{found.next_boot.file}:{found.next_boot.line}"
        message = f"{place} sets {later} bytes at the next boot"
        expected = f"at least {needed} bytes"
        yield warns(f"{of} at the next boot", message, later, expected=expected, evidence=(place,))


def last_number(text: str | Absent, values: int) -> int | Absent:
    """The last of several numbers."""
    if isinstance(text, Absent):
        return text
    words = text.split()
    if len(words) != values or not words[-1].isdecimal() or len(words[-1]) > 19:
        return Absent("failed", f"reads {text[:40]!r}")
    return int(words[-1])


@check("network-congestion-control", severity=Severity.LOW)
def congestion_control(settings: TcpSettings, want: NetworkTcpExpectations) -> Findings:
    """TCP runs the congestion control that was configured.

    ## Why it matters
    A name in sysctl.d whose module is not loaded is refused at boot without a word that anybody
    reads, and the node runs another algorithm than its peers.

    ## Evidence
    /proc/sys/net/ipv4/{tcp_congestion_control,tcp_available_congestion_control} and sysctl.d.

    ## How it is judged
    What runs is one of `network_tcp.congestion_control`, if that names any, and what sysctl.d sets.
    Otherwise it is a warning.

    ## Exceptions
    Where neither the policy nor a file names an algorithm, nothing is asked. In a container files
    say nothing of the host. In an image only the file is compared with the policy.

    ## What to do
    Load the module at boot (`echo tcp_bbr > /etc/modules-load.d/tcp.conf` for bbr), run
    `sysctl --system`, and see what is there in tcp_available_congestion_control.

    ## References
    - https://docs.kernel.org/networking/ip-sysctl.html
    """
    found, available = settings.by_key[CONGESTION], settings.by_key[AVAILABLE].running
    set_to = found.next_boot
    if not want.congestion_control and set_to is None:
        raise NotApplicable("neither the policy nor a file asks for an algorithm")
    if want.congestion_control:
        yield expect(found.running, want.congestion_control, of=CONGESTION, otherwise=Verdict.WARN)
    if isinstance(set_to, Absent):
        yield expect(set_to, None, of=f"{CONGESTION} at the next boot")
    elif set_to is not None:
        of, place = f"{CONGESTION} of sysctl.d", f"{set_to.file}:{set_to.line}"
        image = isinstance(found.running, Absent) and found.running.kind == "unsupported"
        wanted = want.congestion_control or (set_to.value,)
        message = f"{place} asks for {set_to.value}, {found.running} runs"
        if isinstance(available, str) and set_to.value not in available.split():
            message += f"; available are {available}"
        seen = set_to.value if image else found.running
        right = wanted if image else set_to.value
        yield expect(seen, right, of=of, message=message, evidence=(place,), otherwise=Verdict.WARN)


@check("network-retransmits", severity=Severity.MEDIUM)
def retransmits(segments: TcpSegments, earlier: Earlier, want: NetworkTcpExpectations) -> Finding:
    """TCP sends few segments twice.

    ## Why it matters
    Each loss halves a connection's speed, or stops it for at least 200 ms. Within a data centre
    more than a few in a thousand mean a bad link or a switch without room.

    ## Evidence
    OutSegs and RetransSegs of /proc/net/snmp.

    ## How it is judged
    Of the segments sent since the earlier reading, else since boot, at most
    `network_tcp.sent_again_max_percent` were sent again; otherwise it is a warning.

    ## Exceptions
    Fewer than `network_tcp.sent_again_min_segments` tell nothing. The mean since boot may hide what
    happens today: the nightly audit compares with the day before. All interfaces count, also the
    way to the internet. In a container it is the container's own network.

    ## What to do
    Run `ss -ti` to see which peers are concerned, and `nstat -az TcpRetransSegs` twice; then look
    at network-errors here and there, and at the drops of the switch ports between.

    ## References
    - https://www.rfc-editor.org/rfc/rfc1213
    - https://docs.kernel.org/networking/snmp_counter.html
    """
    sent = earlier.growth("tcp", "segments-sent", segments.sent, since_boot=True)
    again = earlier.growth("tcp", "segments-sent-again", segments.sent_again, since_boot=True)
    limit = f"at most {want.sent_again_max_percent:g} %"
    if sent.by < want.sent_again_min_segments:
        raise NotApplicable(f"{sent.by} segments sent are too few to tell a share")
    share = 100 * again.by / sent.by
    since = "since boot" if sent.before is None else "since the earlier reading"
    seen = f"{share:.3g} % of {sent.by} segments {since}"
    if share > want.sent_again_max_percent:
        return warns("tcp", f"{seen} were sent again", seen, expected=limit)
    return passes("tcp", seen, expected=limit)


@check("network-backlog-drops", severity=Severity.LOW)
def backlog_drops(softnet: SoftnetDrops, earlier: Earlier, want: NetworkTcpExpectations) -> Finding:
    """The kernel drops no packets for want of room.

    ## Why it matters
    A packet that finds the queue of its CPU full is lost after the NIC has received it well, and
    TCP sends it again.

    ## Evidence
    The second column of /proc/net/softnet_stat, all CPUs together.

    ## How it is judged
    It grows by at most `network_tcp.backlog_drops_max_per_hour`; more is a warning.

    ## Exceptions
    The queue is used by virtual interfaces and by RPS; NICs that poll (NAPI) pass it by, so nodes
    without both stay at zero. The count starts with each boot.

    ## What to do
    Raise net.core.netdev_max_backlog (`sysctl -w net.core.netdev_max_backlog=250000`), and spread
    the interrupts over more CPUs.

    ## References
    - https://docs.kernel.org/admin-guide/sysctl/net.html
    - https://docs.kernel.org/networking/scaling.html
    """
    return expect_rate(
        earlier.growth("softnet", "dropped", softnet.dropped, since_boot=True),
        want.backlog_drops_max_per_hour,
        per_s=HOUR,
        of="softnet",
        what="packets dropped",
        otherwise=Verdict.WARN,
    )
