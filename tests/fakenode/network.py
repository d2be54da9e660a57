# SPDX-License-Identifier: Apache-2.0
"""Ethernet: counters, routes, settings of TCP, and what the drivers answer."""

import json
from typing import Any

from fakenode.commands import command
from fakenode.layout import MANAGEMENT_ADDRESS, STORAGE_ADDRESSES
from fakenode.pci import path_of
from fakenode.values import Files

RAILS = tuple(f"ens3f{place}np{place}" for place in range(len(STORAGE_ADDRESSES)))
RATE_NET = "000A640A", "00FFFFFF"  # 10.100.10.0/24, as the kernel prints it on x86
PRIORITY = 3
DEV_HEAD = (
    "Inter-|   Receive                                                |  Transmit\n"
    " face |bytes    packets errs drop fifo frame compressed multicast"
    "|bytes    packets errs drop fifo colls carrier compressed\n"
)
ROUTE_HEAD = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
SYSCTLS = {
    "core/rmem_max": "212992",
    "core/wmem_max": "212992",
    "core/netdev_max_backlog": "1000",
    "ipv4/tcp_rmem": "4096\t131072\t268435456",
    "ipv4/tcp_wmem": "4096\t65536\t268435456",
    "ipv4/tcp_congestion_control": "cubic",
    "ipv4/tcp_available_congestion_control": "reno cubic",
}
RAIL_SYSCTLS = {"rp_filter": 2, "arp_ignore": 1, "arp_announce": 2, "arp_filter": 0}
FEATURES = (
    "tx-tcp-segmentation",
    "tx-generic-segmentation",
    "tx-scatter-gather",
    "tx-checksum-ip-generic",
    "rx-checksum",
    "rx-gro",
)


def network_files() -> Files:
    """What no PCI device holds by itself."""
    found: Files = {
        "/proc/net/dev": DEV_HEAD + "".join(dev_line(name) for name in ("lo", "eno1", *RAILS)),
        "/proc/net/route": ROUTE_HEAD + routes(),
        "/proc/net/snmp": snmp(sent=9_000_000_000, again=900_000),
        "/proc/net/softnet_stat": "0a1b2c3d 00000000 00000003 0 0 0 0 0 0 0 0 0 0\n" * 192,
        **{f"/proc/sys/net/{name}": f"{value}\n" for name, value in SYSCTLS.items()},
    }
    for where in ("all", "default", "lo", "eno1", *RAILS):
        for key, value in RAIL_SYSCTLS.items():
            shown = value if where == "all" else 0
            found[f"/proc/sys/net/ipv4/conf/{where}/{key}"] = f"{shown}\n"
    for name, address in zip(
        ("eno1", *RAILS), (MANAGEMENT_ADDRESS, *STORAGE_ADDRESSES), strict=True
    ):
        here = f"{path_of(address)}/net/{name}"
        found[f"{here}/carrier_changes"] = "2\n"
        found[f"{here}/statistics/rx_missed_errors"] = "0\n"
        if name in RAILS:
            found |= congestion_control(here)
    return found


def congestion_control(folder: str) -> Files:
    """The files of NVIDIA's own driver: on for the priority with flow control."""
    places = [(side, number) for side in ("np", "rp") for number in range(8)]
    return {f"{folder}/ecn/roce_{s}/enable/{n}": f"{int(n == PRIORITY)}\n" for s, n in places}


def dev_line(name: str, errors: int = 0) -> str:
    """A line of /proc/net/dev; some frames that nobody wanted are normal."""
    return f"{name:>6}: 123456789 100000 {errors} 17 0 0 0 5 987654321 90000 0 0 0 0 0 0\n"


def routes() -> str:
    """The default route by the management network, and both rails in one network."""
    net, mask = RATE_NET
    rows = [
        ("eno1", "00000000", "0101A8C0", "0003", "00000000"),
        ("eno1", "0001A8C0", "00000000", "0001", "00FFFFFF"),
        *((name, net, "00000000", "0001", mask) for name in RAILS),
    ]
    return "".join(f"{i}\t{d}\t{g}\t{f}\t0\t0\t0\t{m}\t0\t0\t0\n" for i, d, g, f, m in rows)


def snmp(sent: int, again: int) -> str:
    """The lines of TCP in /proc/net/snmp."""
    return (
        "Ip: Forwarding DefaultTTL\nIp: 1 64\n"
        "Tcp: RtoAlgorithm InSegs OutSegs RetransSegs InErrs\n"
        f"Tcp: 1 8000000000 {sent} {again} 0\n"
    )


def driver_answer(**changes: Any) -> dict[str, Any]:
    """What mlx5_core answers."""
    return {
        "driver": {"name": "mlx5_core", "firmware": "26.43.2026 (EXA0000000002)"},
        "rings": {"rx": 1024, "rx_max": 8192, "tx": 1024, "tx_max": 8192},
        "channels": {"combined": 63, "combined_max": 63, "rx": 0, "rx_max": 0},
        "pause": {"rx": False, "tx": False},
        "features": dict.fromkeys(FEATURES, "on") | {"tx-checksum-ipv4": "off fixed"},
        "bridging": {"pfc": [PRIORITY], "dscp": 64},
        **changes,
    }


def network_commands() -> list[dict[str, Any]]:
    """Questions to the drivers of the rails."""
    return [ethtool(name, driver_answer()) for name in RAILS]


def ethtool(name: str, answer: dict[str, Any]) -> dict[str, Any]:
    """One answer."""
    return command("@ethtool", name, stdout=json.dumps(answer))
