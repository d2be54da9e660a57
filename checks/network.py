# SPDX-License-Identifier: Apache-2.0
"""Ethernet interfaces that carry data. See also network_*.py; InfiniBand is in rdma*.py."""

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from gpuaudit.check import (
    DAY,
    HOUR,
    Expectations,
    Finding,
    Severity,
    Verdict,
    check,
    expect_at_least,
    expect_rate,
    fails,
    not_applicable,
    passes,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.counters import Earlier, Growth
from gpuaudit.facts.netcounters import InterfaceErrors
from gpuaudit.facts.netdev import NetDevice, NetDevices
from gpuaudit.facts.node import Machine

Findings = Iterator[Finding]
Mtu = Annotated[int, msgspec.Meta(ge=576, le=65535)]


class NetworkExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of data interfaces."""

    mtu_min: Mtu
    mtu_min_rdma: Mtu
    mtu_min_by_hypervisor: dict[str, Mtu]
    speed_min_gbps: Annotated[float, msgspec.Meta(gt=0, le=3200)] | None
    slower_than_siblings: Literal["warn", "fail"]
    carrier_changes_max_per_day: Annotated[int, msgspec.Meta(ge=0)]
    carrier_changes_at_boot: Annotated[int, msgspec.Meta(ge=0)]
    errors_max_per_hour: Annotated[int, msgspec.Meta(ge=0)]


@check("network-mtu", severity=Severity.MEDIUM)
def mtu(interfaces: NetDevices, machine: Machine, want: NetworkExpectations) -> Findings:
    """Every data interface sends frames as large as the policy wants.

    ## Why it matters
    TCP costs CPU time for each packet, and RoCE takes its path MTU from the interface: with 1500
    bytes it sends 1024 of payload at a time instead of 4096.

    ## Evidence
    /sys/class/net/X/mtu of interfaces that are up and run at 40 Gb/s or more, or have an RDMA
    device. Others of the same PCI model count too, and bonds, VLANs and bridges on top of them.

    ## How it is judged
    At least `network.mtu_min`, or what `network.mtu_min_by_hypervisor` names for this cloud;
    `network.mtu_min_rdma` is enough with an RDMA device. Less is a warning: whether the switches
    carry such frames cannot be seen from here.

    ## Exceptions
    Not applicable without such an interface: InfiniBand, management networks, virtio NICs that name
    no speed. A slow interface with the default route is taken for management, and so is a VLAN on
    top with it, by IPv4 only. What the next boot will set is not read: network configuration may
    hold passwords.

    ## What to do
    Run `ip link set dev X mtu 9000`, set the same in netplan, NetworkManager or systemd-networkd,
    and on every switch port and peer first: a frame that is too large is dropped silently.

    ## References
    - https://www.ibm.com/docs/en/linux-on-systems?topic=functions-set-mtu
    - https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/network_mtu.html
    - https://cloud.google.com/vpc/docs/mtu
    - https://learn.microsoft.com/azure/virtual-network/how-to-virtual-machine-mtu
    """
    usual = want.mtu_min_by_hypervisor.get(machine.hypervisor or "", want.mtu_min)
    roce = min(usual, want.mtu_min_rdma)
    below = {one.name: roce if one.rdma else usual for one in interfaces.data}
    own = {one.name: (one.mtu, below[one.name]) for one in interfaces.data}
    upper = {n: (m, below[one.name]) for one in interfaces.data for n, m in one.upper_mtus}
    for name, (value, least) in (own | upper).items():
        cost = None
        if isinstance(value, int) and 0 < value < least:
            cost = f"{least / value:.1f} times as many packets for the same data ({least} / MTU)"
        yield expect_at_least(
            value,
            least,
            of=name,
            unit="bytes",
            message=f"its MTU is {value} bytes",
            cost=cost,
            otherwise=Verdict.WARN,
        )


@check("network-link-speed", severity=Severity.HIGH)
def link_speed(interfaces: NetDevices, want: NetworkExpectations) -> Findings:
    """Every data interface runs as fast as the others of its model.

    ## Why it matters
    A collective operation is as fast as its slowest link. A bad cable or transceiver often brings
    up a link at a lower speed, and nothing else complains.

    ## Evidence
    /sys/class/net/X/speed of data interfaces; their PCI vendor and device IDs.

    ## How it is judged
    The fastest interface of each PCI model is what the others are held to; a slower one gets
    `network.slower_than_siblings`. Below `network.speed_min_gbps`, if that is set, it fails.

    ## Exceptions
    An interface that is the only one of its model, unless the policy names a speed. Interfaces that
    are down and the one with the default route are not compared; ports of one card on two networks
    may differ by design. Drivers of virtual machines may name no speed.

    ## What to do
    Compare `ethtool X` on both ends, reseat or swap cable and transceiver, and check that speed and
    FEC are not fixed on the switch port.

    ## References
    - https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-class-net
    """
    for one in interfaces.data:
        if isinstance(one.speed_mbps, Absent):
            yield expect_at_least(one.speed_mbps, 0, of=one.name)
        else:
            yield judge_speed(one, one.speed_mbps, siblings(one, interfaces.data), want)


def siblings(one: NetDevice, data: tuple[NetDevice, ...]) -> list[int]:
    """The speeds of the others of its model."""
    others = (d.speed_mbps for d in data if one.model and d.model == one.model and d != one)
    return [speed for speed in others if isinstance(speed, int)]


def judge_speed(one: NetDevice, mbps: int, others: list[int], want: NetworkExpectations) -> Finding:
    """One interface whose speed is known."""
    seen = f"{mbps / 1000:g} Gb/s"
    if want.speed_min_gbps is not None and mbps < want.speed_min_gbps * 1000:
        return fails(one.name, f"runs at {seen}", seen, expected=f"{want.speed_min_gbps:g} Gb/s")
    best = max(others, default=mbps)
    if mbps < best:
        answer = fails if want.slower_than_siblings == "fail" else warns
        message = f"runs at {seen}, another of its model ({one.model}) at {best / 1000:g} Gb/s"
        cost = f"{(best - mbps) / 8000:g} GB/s less than its sibling ({best - mbps} Mbit/s / 8)"
        return answer(one.name, message, seen, expected=f"{best / 1000:g} Gb/s", cost=cost)
    if not others and want.speed_min_gbps is None:
        return not_applicable(one.name, "no other interface of its model to compare with", seen)
    return passes(one.name, seen)


@check("network-link-flaps", severity=Severity.HIGH)
def link_flaps(interfaces: NetDevices, earlier: Earlier, want: NetworkExpectations) -> Findings:
    """The links of data interfaces stay up.

    ## Why it matters
    Each flap costs seconds without traffic. Longer than NCCL's or RDMA's retries it ends the job on
    all nodes. Optics that flap once a day will flap in the next long run.

    ## Evidence
    /sys/class/net/X/carrier_changes: each loss and each return of the carrier counts one. The
    operstate of the members of bonds.

    ## How it is judged
    At most `network.carrier_changes_max_per_day` since the earlier reading, or it fails. Without
    one `network.carrier_changes_at_boot` pass, and more only warns by the mean since boot: it may
    be one bad hour of long ago. A member that is down of a bond that is up by another one warns.

    ## Exceptions
    Interfaces that are down, management networks and InfiniBand ports (they have counters of their
    own). Reloading the driver starts the count again. Each change of MTU, rings or queues takes the
    link of many drivers down and up, so a boot brings a dozen.

    ## What to do
    Look for "Link down" of the interface in `dmesg`, clean or swap transceiver and cable, compare
    the switch port's log, and update the NIC's firmware.

    ## References
    - https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-class-net
    """
    for member in interfaces.lost_members():
        message = f"down, and {member.bond} goes on without it"
        yield warns(member.name, message, "down", expected="up", cost="its share of the bond")
    for one in interfaces.data:
        total = one.carrier_changes
        growth = (
            total
            if isinstance(total, Absent)
            else earlier.growth(one.name, "carrier-changes", total, since_boot=True)
        )
        alone = isinstance(growth, Growth) and growth.before is None
        if alone and isinstance(total, int) and total <= want.carrier_changes_at_boot:
            expected = f"at most {want.carrier_changes_at_boot} from the boot"
            yield passes(one.name, f"{total} since boot", expected=expected)
            continue
        yield expect_rate(
            growth,
            want.carrier_changes_max_per_day,
            per_s=DAY,
            of=one.name,
            what="changes of the carrier (link up or down)",
            otherwise=Verdict.WARN if alone else Verdict.FAIL,
        )


@check("network-errors", severity=Severity.MEDIUM)
def errors(found: InterfaceErrors, earlier: Earlier, want: NetworkExpectations) -> Findings:
    """Data interfaces receive and send without errors.

    ## Why it matters
    A frame with an error is sent again after a timeout: TCP halves its speed, and RoCE goes back to
    the first lost packet. A few in a million cost most of the bandwidth.

    ## Evidence
    Columns errs and fifo of /proc/net/dev, /sys/class/net/X/statistics/rx_missed_errors.

    ## How it is judged
    Each total may grow by at most `network.errors_max_per_hour`. More is a warning: the sender, the
    cable and this node are all suspects.

    ## Exceptions
    The column drop is not judged: it counts frames of protocols that nobody here speaks. RoCE
    traffic bypasses these counters; rdma-* checks have those of RDMA.

    ## What to do
    For receive-errors swap cable or transceiver (`ethtool -S X | grep -i -e crc -e symbol`). For
    missed frames and overruns raise the ring (`ethtool -G X rx N`) and spread the interrupts.

    ## References
    - https://docs.kernel.org/networking/statistics.html
    """
    for name, totals in found.by_name.items():
        if isinstance(totals, Absent):
            yield expect_rate(totals, 0, per_s=HOUR, of=name, what="errors")
            continue
        for what, total in totals.items():
            yield expect_rate(
                earlier.growth(name, what, total, since_boot=True),
                want.errors_max_per_hour,
                per_s=HOUR,
                of=f"{name} {what}",
                what="frames with this error",
                otherwise=Verdict.WARN,
            )
