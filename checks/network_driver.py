# SPDX-License-Identifier: Apache-2.0
"""What the drivers of data interfaces are set to: rings, offloads, flow control."""

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    Verdict,
    check,
    expect,
    expect_at_least,
    not_applicable,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.netdev import NetDevices
from gpuaudit.facts.netdriver import NetDriver, NetDrivers
from gpuaudit.facts.netecn import RoceEcn
from gpuaudit.facts.node import Machine

Findings = Iterator[Finding]
UNPROTECTED = "a full switch buffer drops packets, and RoCE sends again from the first lost one"


class NetworkDriverExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of the drivers of data interfaces."""

    rx_ring_min_percent: Annotated[float, msgspec.Meta(ge=0, le=100)]
    offloads: tuple[str, ...]
    roce_flow_control: Literal["any", "pfc", "pfc-or-pause"]
    roce_ecn: bool


@check("network-ring-size", severity=Severity.LOW)
def ring_size(drivers: NetDrivers, want: NetworkDriverExpectations) -> Findings:
    """The receive rings of data interfaces are not cut down.

    ## Why it matters
    A ring holds what arrives while the CPU is busy elsewhere. A short one overflows in microseconds
    at 100 Gb/s, and the lost packets come again after a timeout.

    ## Evidence
    ioctl SIOCETHTOOL, ETHTOOL_GRINGPARAM (what `ethtool -g X` shows).

    ## How it is judged
    The receive ring has at least `network_driver.rx_ring_min_percent` of what the hardware allows.
    A shorter one is a warning.

    ## Exceptions
    Rings that the driver does not show or that have one size only (virtio). RDMA traffic uses none
    of them. The send ring is not judged: a long one adds delay and prevents no loss.

    ## What to do
    Run `ethtool -G X rx N`; make it last in a systemd .link file (RxBufferSize=) or in tuned. See
    network-errors first: without missed frames a larger ring gains nothing.

    ## References
    - https://docs.kernel.org/networking/ethtool-netlink.html
    - https://www.freedesktop.org/software/systemd/man/latest/systemd.link.html
    """
    for name, said in drivers.by_name.items():
        most = 0 if isinstance(said, Absent) else said.rings.get("rx_max", 0)
        if isinstance(said, Absent) or not most:
            yield expect(said if isinstance(said, Absent) else said.lacking("rings"), None, of=name)
            continue
        now = said.rings.get("rx", 0)
        message = f"the receive ring has {now} of {most} descriptors"
        yield expect_at_least(
            100 * now / most,
            want.rx_ring_min_percent,
            of=name,
            unit="%",
            message=message,
            otherwise=Verdict.WARN,
        )


@check("network-offloads", severity=Severity.MEDIUM)
def offloads(drivers: NetDrivers, want: NetworkDriverExpectations) -> Findings:
    """The offloads that TCP needs at full speed are on.

    ## Why it matters
    Without segmentation and receive offload the CPU handles each packet alone: at 100 Gb/s and
    9000 bytes that is 1.4 million a second, more than one core can do.

    ## Evidence
    ioctl SIOCETHTOOL, ETHTOOL_GFEATURES (what `ethtool -k X` shows).

    ## How it is judged
    Each feature of `network_driver.offloads` is on. One that is off and can be changed is a
    warning; several names with | between them need one of them.

    ## Exceptions
    Features that the driver fixes, on or off, and RDMA, which needs none of them. Routers, bridges
    and captures turn GRO off on purpose.

    ## What to do
    Run `ethtool -K X tso on gso on gro on tx on rx on sg on`, and look for what turned it off:
    udev rules, tuned, NetworkManager's ethtool.feature-* or a network script.

    ## References
    - https://docs.kernel.org/networking/segmentation-offloads.html
    - https://docs.kernel.org/networking/netdev-features.html
    """
    for name, said in drivers.by_name.items():
        if isinstance(said, Absent) or not said.features:
            yield expect(
                said if isinstance(said, Absent) else said.lacking("features"), None, of=name
            )
            continue
        off = [one for one in want.offloads if turned_off(said.features, one)]
        if off:
            yield warns(name, f"off although the driver can: {', '.join(off)}", ", ".join(off))
        else:
            yield passes(name, "on, or fixed by the driver")


def turned_off(features: dict[str, str], names: str) -> bool:
    """True when none of `a|b` is on and one could be."""
    states = [features.get(name, "off fixed") for name in names.split("|")]
    return "off" in states and not any(state.startswith("on") for state in states)


@check("network-roce-flow-control", severity=Severity.MEDIUM)
def roce_flow_control(
    drivers: NetDrivers,
    interfaces: NetDevices,
    machine: Machine,
    want: NetworkDriverExpectations,
) -> Findings:
    """Flow control protects RDMA over Ethernet from loss.

    ## Why it matters
    RoCE goes back to the first lost packet. Where many senders meet at one port of a switch,
    priority flow control, or at least pause frames, keeps that loss away.

    ## Evidence
    RTM_GETDCB with DCB_CMD_IEEE_GET (what `dcb pfc show` shows) and ETHTOOL_GPAUSEPARAM
    (`ethtool -a`).

    ## How it is judged
    `network_driver.roce_flow_control`: at least one priority with flow control, or pause frames in
    both directions. Neither is a warning.

    ## Exceptions
    Not applicable without RDMA over Ethernet at 40 Gb/s or more (drivers give each port an RDMA
    device, used or not) and in guests, where the host sets it. Fabrics that run RoCE lossy, on ECN
    alone (see network-roce-ecn), set `any`. Whether the switch agrees on the priority cannot be
    seen; whether packets are sorted by DSCP or VLAN is shown, not judged.

    ## What to do
    Run `mlnx_qos -i X --trust dscp --pfc 0,0,0,1,0,0,0,0` with the priority of your fabric, or
    `dcb pfc set dev X prio-pfc 3:on`, and set the same on the switch.

    ## References
    - https://man7.org/linux/man-pages/man8/dcb-pfc.8.html
    - https://enterprise-support.nvidia.com/s/article/understanding-rocev2-congestion-management
    """
    if machine.is_vm:
        raise NotApplicable("the host of this guest sets its flow control")
    if want.roce_flow_control == "any":
        raise NotApplicable("the policy asks for nothing")
    names = [one.name for one in interfaces.data if one.rdma and one.fast]
    if not names:
        raise NotApplicable("no fast data interface has RDMA over Ethernet")
    for name in names:
        said = drivers.by_name[name]
        if isinstance(said, Absent):
            yield expect(said, None, of=name)
        else:
            yield protection(name, said, want)


def protection(name: str, said: NetDriver, want: NetworkDriverExpectations) -> Finding:
    """Priority flow control, else pause frames where the policy accepts them."""
    priorities = (said.bridging or {}).get("pfc")
    if isinstance(priorities, list) and priorities:
        trust = "DSCP" if (said.bridging or {}).get("dscp") else "VLAN priority"
        return passes(name, f"priority {', '.join(map(str, priorities))}, sorted by {trust}")
    paused = bool(said.pause) and all(said.pause.values())
    if paused and want.roce_flow_control == "pfc-or-pause":
        return passes(name, "pause frames in both directions")
    for question in ("bridging", "pause"):
        if question in said.failed:
            return unknown(name, said.failed[question])
    if said.bridging is None and not said.pause:
        return not_applicable(name, said.lacking("pause").reason)
    seen = "pause frames only" if paused else "none"
    message = "no priority has flow control" + ("" if paused else ", and pause frames are off")
    expected = want.roce_flow_control
    return warns(name, message, seen, expected=expected, cost=UNPROTECTED)


@check("network-roce-ecn", severity=Severity.LOW)
def roce_ecn(ecn: RoceEcn, want: NetworkDriverExpectations) -> Findings:
    """RDMA over Ethernet slows down when a switch marks its packets.

    ## Why it matters
    DCQCN takes back speed before buffers fill. Without it flow control stops whole links, and the
    jam spreads through the fabric.

    ## Evidence
    /sys/class/net/X/ecn/roce_np/enable/N and roce_rp/enable/N, for the priorities N with flow
    control, else for all eight.

    ## How it is judged
    Both the side that answers marks (np) and the side that slows down (rp) are on for each priority
    with flow control, or for one at least where none has it. Otherwise it is a warning.

    ## Exceptions
    Only the driver of MLNX_OFED and DOCA has these files. With the kernel's own driver, in guests
    and for other vendors it is not applicable: there the firmware decides and does not tell.
    `network_driver.roce_ecn: false` asks for nothing. Marking by the switches is not seen.

    ## What to do
    Run `echo 1 > /sys/class/net/X/ecn/roce_np/enable/3`, the same for roce_rp, with the priority of
    your fabric, from a service that runs after the driver.

    ## References
    - https://docs.nvidia.com/networking/display/mlnxofedv24103250lts/explicit+congestion+notification+(ecn)
    - https://enterprise-support.nvidia.com/s/article/understanding-rocev2-congestion-management
    """
    if not want.roce_ecn:
        raise NotApplicable("the policy asks for nothing")
    for name, sides in ecn.by_name.items():
        if isinstance(sides, Absent):
            yield expect(sides, None, of=name)
            continue
        off = [f"{side} {n}" for (side, n), on in sides.items() if not on]
        if off and (ecn.controlled[name] or not any_priority(sides)):
            message = f"congestion notification (ECN) is off for {', '.join(off)}"
            yield warns(name, message, f"off for {', '.join(off)}", expected="np and rp on")
        else:
            yield passes(name, "np and rp on", expected="np and rp on")


def any_priority(sides: dict[tuple[str, int], bool]) -> bool:
    """True when both sides are on for one priority."""
    return any(on and sides.get(("rp", n)) for (side, n), on in sides.items() if side == "np")
