# SPDX-License-Identifier: Apache-2.0
"""By which field of a packet RDMA over Ethernet is sorted into priorities."""

from collections.abc import Iterator
from typing import Literal

from gpuaudit.check import Expectations, Finding, NotApplicable, Severity, Verdict, check, expect
from gpuaudit.facts.base import Absent
from gpuaudit.facts.netdev import NetDevices
from gpuaudit.facts.netdriver import NetDriver, NetDrivers
from gpuaudit.facts.node import Machine

UNSORTED = "RoCE shares priority 0 with all other traffic: neither flow control nor ECN is for it"


class NetworkTrustExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants packets to be sorted by."""

    roce_sorted_by: Literal["any", "dscp", "vlan-priority"]


@check("network-roce-trust", severity=Severity.MEDIUM)
def roce_trust(
    drivers: NetDrivers, interfaces: NetDevices, machine: Machine, want: NetworkTrustExpectations
) -> Iterator[Finding]:
    """RDMA over Ethernet is sorted by the field that the fabric uses.

    ## Why it matters
    The adapter puts what it receives into a priority by the DSCP of the IP header or by the VLAN
    tag. Where it looks at the tag and packets have none, all of them land in priority 0, and flow
    control of another priority protects nothing.

    ## Evidence
    RTM_GETDCB with DCB_CMD_IEEE_GET (what `dcb app show` shows): whether the driver's table has
    DSCP values.

    ## How it is judged
    As `network_trust.roce_sorted_by` says; otherwise it is a warning. Not applicable while that is
    `any`.

    ## Exceptions
    Not applicable without RDMA over Ethernet, in guests, where the host sets it, and with drivers
    that have no such table. What the switch does cannot be seen.

    ## What to do
    Run `mlnx_qos -i X --trust dscp` (or pcp for the VLAN tag), and make it last in the unit that
    sets up the network.

    ## References
    - https://man7.org/linux/man-pages/man8/dcb-app.8.html
    - https://enterprise-support.nvidia.com/s/article/understanding-rocev2-congestion-management
    """
    if want.roce_sorted_by == "any":
        raise NotApplicable("the policy asks for nothing")
    if machine.is_vm:
        raise NotApplicable("the host of this guest decides how packets are sorted")
    names = [one.name for one in interfaces.data if one.rdma]
    if not names:
        raise NotApplicable("no data interface has RDMA over Ethernet")
    for name in names:
        seen = sorted_by(drivers.by_name[name])
        text = f"packets are sorted by {seen}"
        yield expect(
            seen,
            want.roce_sorted_by,
            of=name,
            message=text,
            cost=UNSORTED,
            otherwise=Verdict.WARN,
        )


def sorted_by(said: NetDriver | Absent) -> str | Absent:
    """As the policy writes it."""
    if isinstance(said, Absent):
        return said
    if said.bridging is None:
        return said.lacking("bridging")
    return "dscp" if said.bridging.get("dscp") else "vlan-priority"
