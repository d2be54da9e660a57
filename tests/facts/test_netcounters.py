# SPDX-License-Identifier: Apache-2.0
"""Totals of the network, and the routing table."""

from pathlib import Path

import pytest
from netfacts import rails
from trees import Tree, make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.netcounters import (
    SoftnetDrops,
    TcpSegments,
    interface_errors,
    softnet_drops,
    tcp_segments,
)
from gpuaudit.facts.netroute import Routes, routes
from gpuaudit.host import NotApplicable, Unavailable

HEAD = "Inter-| Receive | Transmit\n face |bytes packets\n"
LINE = "rail0: 1000 20 3 99 4 5 0 6 2000 30 7 98 8 0 9 0\n"
MISSED = {"/sys/class/net/rail0/statistics/rx_missed_errors": "12\n"}
TCP = "Ip: Forwarding\nIp: 1\nTcp: InSegs OutSegs RetransSegs\nTcp: 5 900 7\nTcpExt: x\n"
ROUTES = """\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eno1\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0
eno1\t0001A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0
rail0\t000A640A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
rail1\t000A640A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
rail1\t000B640A\t010A640A\t0003\t0\t0\t0\t00FFFFFF\t0\t0\t0
rail2\t000A640A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
damaged
"""


def test_errors_of_data_interfaces(tmp_path: Path) -> None:
    host = make_host(tmp_path, {"/proc/net/dev": HEAD + LINE, **MISSED})
    found = interface_errors(host, rails({}))
    assert found.by_name == {
        "rail0": {
            "receive-errors": 3,
            "receive-overruns": 4,
            "send-errors": 7,
            "receive-missed": 12,
        }
    }
    assert found.counters() == found.by_name


@pytest.mark.parametrize(
    ("line", "missed"),
    [("other: 1\n", MISSED), ("rail0: 1 2 x\n", MISSED), (LINE, {})],
    ids=["no-line", "damaged", "not-missed"],
)
def test_errors_that_cannot_be_read(tmp_path: Path, line: str, missed: Tree) -> None:
    host = make_host(tmp_path, {"/proc/net/dev": HEAD + line, **missed})
    found = interface_errors(host, rails({}))
    assert isinstance(found.by_name["rail0"], Absent)
    assert found.counters() == {}


def test_without_data_interfaces_nothing_is_read(tmp_path: Path) -> None:
    host = make_host(tmp_path, {}, source="plain")
    with pytest.raises(NotApplicable):
        interface_errors(host, rails({"up": False}))


def test_tcp_segments(tmp_path: Path) -> None:
    found = tcp_segments(make_host(tmp_path, {"/proc/net/snmp": TCP}))
    assert found == TcpSegments(sent=900, sent_again=7)
    assert found.counters() == {"tcp": {"segments-sent": 900, "segments-sent-again": 7}}


@pytest.mark.parametrize(
    "text", ["", "Tcp: OutSegs\n", "Tcp: OutSegs\nTcp: 1\n", TCP.replace("900", "many")]
)
def test_damaged_tcp_segments(tmp_path: Path, text: str) -> None:
    with pytest.raises(Unavailable) as caught:
        tcp_segments(make_host(tmp_path, {"/proc/net/snmp": text}))
    assert caught.value.kind == "garbled"


def test_drops_of_all_cpus(tmp_path: Path) -> None:
    text = "00ff 00000010 0 0\n00ff 00000001 0 0\n"
    found = softnet_drops(make_host(tmp_path, {"/proc/net/softnet_stat": text}))
    assert found == SoftnetDrops(dropped=17)
    assert found.counters() == {"softnet": {"dropped": 17}}


@pytest.mark.parametrize("text", ["", "00ff\n", "00ff zz\n"])
def test_damaged_drops(tmp_path: Path, text: str) -> None:
    with pytest.raises(Unavailable) as caught:
        softnet_drops(make_host(tmp_path, {"/proc/net/softnet_stat": text}))
    assert caught.value.kind == "garbled"


def test_routes(tmp_path: Path) -> None:
    found = routes(make_host(tmp_path, {"/proc/net/route": ROUTES}))
    assert found.default == {"eno1"}
    assert found.shared(frozenset({"rail0", "rail1", "rail2"})) == ("rail0", "rail1")
    assert found.shared(frozenset({"rail0", "rail2"})) == ()
    assert found.shared(frozenset({"eno1"})) == ()


def test_routes_that_were_not_recorded(tmp_path: Path) -> None:
    found = routes(make_host(tmp_path, {}, source="plain"))
    assert found == Routes(default=frozenset(), subnets={}, why=found.why)
    assert "was not recorded" in found.why
