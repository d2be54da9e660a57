# SPDX-License-Identifier: Apache-2.0
"""TCP: buffers, congestion control, segments sent again, the backlog."""

from typing import Any

import pytest
from judging import judge, verdicts
from netfacts import first_reading, rails, since

from gpuaudit.check import NotApplicable
from gpuaudit.facts.base import Absent
from gpuaudit.facts.netcounters import SoftnetDrops, TcpSegments
from gpuaudit.facts.netsysctl import AVAILABLE, BUFFERS, CONGESTION, NetSetting, TcpSettings
from gpuaudit.facts.sysctl import SysctlSetting

LARGE, SMALL = "4096\t131072\t268435456", "4096 131072 1048576"
IMAGE = Absent("unsupported", "an image has no running kernel")
LOST = Absent("failed", "not recorded")


def line(value: str) -> SysctlSetting:
    return SysctlSetting(key="x", value=value, file="/etc/sysctl.d/90-x.conf", line=3)


def settings(**running: Any) -> TcpSettings:
    """Names: rmem, wmem, cc and so on; a pair is running and configured."""
    keys = {
        "rmem": BUFFERS[0],
        "wmem": BUFFERS[1],
        "core_r": "net.core.rmem_max",
        "core_w": "net.core.wmem_max",
        "cc": CONGESTION,
        "available": AVAILABLE,
    }
    usual: dict[str, Any] = {
        "rmem": LARGE,
        "wmem": LARGE,
        "core_r": "212992",
        "core_w": "212992",
        "cc": "cubic",
        "available": "reno cubic",
    }
    pairs = {n: v if isinstance(v, tuple) else (v, None) for n, v in (usual | running).items()}
    return TcpSettings(by_key={keys[name]: NetSetting(*pair) for name, pair in pairs.items()})


@pytest.mark.parametrize(
    ("rmem", "expected"),
    [
        (LARGE, ["pass", "pass"]),
        (SMALL, ["warn", "pass"]),
        ("4096 131072 6291456", ["pass", "pass"]),  # the kernel's own
        ("4096 131072 4194304", ["pass", "pass"]),
        ("4096 131072 3125000", ["pass", "pass"]),
        ("4096 131072 3124999", ["warn", "pass"]),
        ((LARGE, line(SMALL)), ["pass", "warn", "pass"]),
        ((SMALL, line(SMALL)), ["warn", "pass"]),
        ((SMALL, line("nonsense")), ["warn", "pass"]),
        ((LARGE, LOST), ["pass", "pass"]),
        ("nonsense", ["unknown", "pass"]),
        (LOST, ["unknown", "pass"]),
    ],
)
def test_buffers(rmem: Any, expected: list[str]) -> None:
    found = judge("network_tcp/network-tcp-buffers", settings(rmem=rmem), rails({}))
    assert [one.verdict.value for one in found] == expected


def test_buffers_grow_with_the_speed() -> None:
    """As far as one connection can follow."""
    middle = settings(rmem="4096 131072 33554432")
    for speed, most, needed in (
        (400_000, 400, "50000000"),
        (100_000, 400, None),
        (400_000, 50, None),
    ):
        facts = middle, rails({"speed_mbps": speed})
        found = judge(
            "network_tcp/network-tcp-buffers", *facts, round_trip_ms=1.0, connection_gbps_max=most
        )
        cost = f"(33554432 of {needed} bytes a round trip)"
        assert found[0].cost == (
            needed and f"a connection runs at 67 % of its speed at most {cost}"
        )


def test_core_buffers_only_when_asked() -> None:
    found = judge(
        "network_tcp/network-tcp-buffers", settings(), rails({}), core_buffer_min_kib=16384
    )
    assert [one.verdict.value for one in found] == ["pass", "pass", "warn", "warn"]


def test_buffers_without_a_speed() -> None:
    nameless = rails({"speed_mbps": Absent("unsupported", "virtio")})
    with pytest.raises(NotApplicable):
        judge("network_tcp/network-tcp-buffers", settings(), nameless)


@pytest.mark.parametrize(
    ("found", "wanted", "expected"),
    [
        ("cubic", ["cubic", "bbr"], ["pass"]),
        ("cubic", ["bbr"], ["warn"]),
        (("bbr", line("bbr")), [], ["pass"]),
        (("cubic", line("bbr")), [], ["warn"]),
        (("cubic", line("bbr")), ["bbr"], ["warn", "warn"]),
        (("cubic", LOST), ["cubic"], ["pass", "unknown"]),
        ((IMAGE, line("bbr")), ["bbr"], ["notapplicable", "pass"]),
        ((IMAGE, line("bbr")), ["cubic"], ["notapplicable", "warn"]),
        (LOST, ["cubic"], ["unknown"]),
    ],
)
def test_congestion_control(found: Any, wanted: list[str], expected: list[str]) -> None:
    seen = judge(
        "network_tcp/network-congestion-control", settings(cc=found), congestion_control=wanted
    )
    assert [one.verdict.value for one in seen] == expected


def test_congestion_control_that_nobody_asks_for() -> None:
    with pytest.raises(NotApplicable):
        judge("network_tcp/network-congestion-control", settings())


def test_a_missing_module_is_named() -> None:
    (found,) = judge("network_tcp/network-congestion-control", settings(cc=("cubic", line("bbr"))))
    assert found.message == (
        "/etc/sysctl.d/90-x.conf:3 asks for bbr, cubic runs; available are reno cubic"
    )


@pytest.mark.parametrize(
    ("sent", "again", "earlier", "verdict"),
    [
        (1_000_000, 100, first_reading(), "pass"),
        (1_000_000, 30_000, first_reading(), "warn"),
        (
            1_000_000,
            30_000,
            since(60, {"tcp": {"segments-sent": 900_000, "segments-sent-again": 29_999}}),
            "pass",
        ),
        (
            1_000_000,
            30_000,
            since(60, {"tcp": {"segments-sent": 900_000, "segments-sent-again": 0}}),
            "warn",
        ),
    ],
)
def test_retransmits(sent: int, again: int, earlier: Any, verdict: str) -> None:
    counted = TcpSegments(sent=sent, sent_again=again)
    assert verdicts(judge("network_tcp/network-retransmits", counted, earlier)) == [
        ("tcp", verdict)
    ]


def test_few_segments_tell_nothing() -> None:
    with pytest.raises(NotApplicable, match="999 segments"):
        judge(
            "network_tcp/network-retransmits", TcpSegments(sent=999, sent_again=9), first_reading()
        )


@pytest.mark.parametrize(
    ("dropped", "earlier", "verdict"),
    [
        (0, first_reading(), "pass"),
        (5000, first_reading(), "unknown"),
        (5000, since(3600, {"softnet": {"dropped": 4990}}), "pass"),
        (5000, since(3600, {"softnet": {"dropped": 0}}), "warn"),
    ],
)
def test_backlog(dropped: int, earlier: Any, verdict: str) -> None:
    found = judge("network_tcp/network-backlog-drops", SoftnetDrops(dropped=dropped), earlier)
    assert verdicts(found) == [("softnet", verdict)]
