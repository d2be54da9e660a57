# SPDX-License-Identifier: Apache-2.0
"""Several data interfaces in one IPv4 network: who answers, and which answers are believed."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from gpuaudit.check import Expectations, Finding, Severity, Verdict, check, expect, passes
from gpuaudit.facts.base import Absent
from gpuaudit.facts.netsysctl import RailSettings

Findings = Iterator[Finding]
Level = Annotated[int, msgspec.Meta(ge=0, le=8)]


class NetworkRailsExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of rails that share a network."""

    reverse_path: tuple[Level, ...]
    arp_ignore: tuple[Level, ...]
    arp_announce: tuple[Level, ...]


@check("network-reverse-path", severity=Severity.MEDIUM)
def reverse_path(rails: RailSettings, want: NetworkRailsExpectations) -> Findings:
    """Rails in one network accept packets whatever route leads back.

    ## Why it matters
    The kernel has one best route to a shared network, by one of the rails. With strict filtering
    the others drop what they receive: RDMA connections time out on all rails but one.

    ## Evidence
    /proc/net/route tells which data interfaces share a network; the greater of
    net.ipv4.conf.all.rp_filter and net.ipv4.conf.X.rp_filter is in force.

    ## How it is judged
    It must be one of `network_rails.reverse_path`: off (0) or loose (2). Strict (1) is a warning,
    since rules of policy routing may put it right.

    ## Exceptions
    Not applicable where each rail has a network of its own, to InfiniBand, and to one data
    interface. IPv6 has no such filter in the kernel.

    ## What to do
    Write `net.ipv4.conf.all.rp_filter = 2` to /etc/sysctl.d/90-rails.conf and run
    `sysctl --system`: 2 wins over any 1 or 0 of a single interface.

    ## References
    - https://docs.kernel.org/networking/ip-sysctl.html
    - https://www.rfc-editor.org/rfc/rfc3704
    """
    for name, values in rails.by_name.items():
        message = "strict reverse path filtering on a rail that shares its network with others"
        yield expect(
            values["rp_filter"],
            want.reverse_path,
            of=f"{name} rp_filter",
            message=message,
            otherwise=Verdict.WARN,
        )


@check("network-arp", severity=Severity.MEDIUM)
def arp(rails: RailSettings, want: NetworkRailsExpectations) -> Findings:
    """Each rail answers ARP for its own address alone.

    ## Why it matters
    By default any interface answers for all addresses of the node. Peers then send the traffic of
    several rails to one NIC, which becomes the bottleneck, and RoCE meets a wrong address.

    ## Evidence
    The greater of net.ipv4.conf.all and net.ipv4.conf.X for arp_ignore, arp_announce, arp_filter;
    /proc/net/route.

    ## How it is judged
    arp_ignore is one of `network_rails.arp_ignore` and arp_announce one of
    `network_rails.arp_announce`. arp_filter = 1 serves instead of arp_ignore. Else it is a warning.

    ## Exceptions
    Not applicable where each rail has a network of its own, which needs none of this, to InfiniBand
    and to one data interface.

    ## What to do
    Write `net.ipv4.conf.all.arp_ignore = 1` and `net.ipv4.conf.all.arp_announce = 2` to
    /etc/sysctl.d/90-rails.conf and run `sysctl --system`.

    ## References
    - https://docs.kernel.org/networking/ip-sysctl.html
    """
    wanted = {"arp_ignore": want.arp_ignore, "arp_announce": want.arp_announce}
    for name, values in rails.by_name.items():
        for key, right in wanted.items():
            if key == "arp_ignore" and is_filtered(values):
                yield passes(f"{name} {key}", f"{values[key]}, with arp_filter = 1")
                continue
            message = f"{key} is {values[key]}: rails answer or speak for each other"
            of = f"{name} {key}"
            yield expect(values[key], right, of=of, message=message, otherwise=Verdict.WARN)


def is_filtered(values: dict[str, int | Absent]) -> bool:
    """True when the routing table decides who answers, and arp_ignore is known."""
    return values["arp_filter"] == 1 and isinstance(values["arp_ignore"], int)
