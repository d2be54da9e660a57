# SPDX-License-Identifier: Apache-2.0
"""Settings of the network below /proc/sys/net, and what the next boot makes of them.

Meaning: Linux Documentation/networking/ip-sysctl.rst, Documentation/admin-guide/sysctl/net.rst.
"""

from typing import NamedTuple

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.boot import boots_elsewhere, in_container
from gpuaudit.facts.limits import absence
from gpuaudit.facts.netdev import NetDevices
from gpuaudit.facts.netroute import Routes
from gpuaudit.facts.sysctl import SysctlSetting, sysctl_files
from gpuaudit.host import Host, NotApplicable, Unavailable

BUFFERS = ("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem")
CORE_BUFFERS = ("net.core.rmem_max", "net.core.wmem_max")
CONGESTION = "net.ipv4.tcp_congestion_control"
AVAILABLE = "net.ipv4.tcp_available_congestion_control"
RAIL_KEYS = ("rp_filter", "arp_ignore", "arp_announce", "arp_filter")
OTHER_NAMESPACE = Absent("unsupported", "this network namespace does not have the setting")


class NetSetting(NamedTuple):
    """The running value, and the one of sysctl.d: None where no file sets it."""

    running: str | Absent
    next_boot: SysctlSetting | Absent | None


class TcpSettings(Fact, frozen=True, kw_only=True):
    """/proc/sys/net/{core,ipv4} and sysctl.d: buffers and congestion control by key."""

    by_key: dict[str, NetSetting]


class RailSettings(Fact, frozen=True, kw_only=True):
    """/proc/sys/net/ipv4/conf/{all,X} of data interfaces that share an IPv4 network with another.

    The greater of both values counts for each of the four keys (ip-sysctl.rst); this is that value.
    """

    by_name: dict[str, dict[str, int | Absent]]


@probe
def tcp_settings(host: Host) -> TcpSettings:
    """Read every key; never raises."""
    keys = (*BUFFERS, *CORE_BUFFERS, CONGESTION, AVAILABLE)
    return TcpSettings(by_key={key: setting(host, key) for key in keys})


def setting(host: Host, key: str) -> NetSetting:
    """One key, running and configured."""
    configured: SysctlSetting | Absent | None = boots_elsewhere(host)
    try:
        configured = configured or sysctl_files(host).effective(key)
    except (Unavailable, NotApplicable) as absent:
        configured = absence(absent)
    return NetSetting(running(host, f"/proc/sys/{key.replace('.', '/')}"), configured)


def running(host: Host, path: str) -> str | Absent:
    """The value. net.core.* are missing in network namespaces but the first."""
    try:
        return host.read(path)
    except (Unavailable, NotApplicable) as absent:
        is_missing = isinstance(absent, Unavailable) and absent.kind == "missing"
        return OTHER_NAMESPACE if is_missing and in_container(host) else absence(absent)


@probe
def rail_settings(host: Host, interfaces: NetDevices, routes: Routes) -> RailSettings:
    """Read them only where two rails share a network. Raises Unavailable, NotApplicable."""
    rails = frozenset(name for one in interfaces.data for name in (one.name, *one.uppers))
    if routes.why:
        raise Unavailable(routes.why, "not-recorded")
    shared = routes.shared(rails)
    if not shared:
        raise NotApplicable("no two data interfaces share an IPv4 network")
    return RailSettings(
        by_name={name: {key: greater(host, name, key) for key in RAIL_KEYS} for name in shared}
    )


def greater(host: Host, name: str, key: str) -> int | Absent:
    """The value in force for one interface."""
    texts = [running(host, f"/proc/sys/net/ipv4/conf/{where}/{key}") for where in ("all", name)]
    lost = next((text for text in texts if isinstance(text, Absent)), None)
    if lost is not None:
        return lost
    numbers = [int(t) for t in texts if isinstance(t, str) and t.isdecimal() and len(t) < 20]
    if len(numbers) != 2:
        return Absent("failed", f"net.ipv4.conf.{name}.{key} is no number")
    return max(numbers)
