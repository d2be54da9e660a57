# SPDX-License-Identifier: Apache-2.0
"""RDMA ports: up, at full rate and full width. See also rdma_selection, rdma_errors, rdma_roce."""

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    check,
    fails,
    not_applicable,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.node import Machine
from gpuaudit.facts.rdmacounters import RdmaCounters
from gpuaudit.facts.rdmaports import ETHERNET, RdmaPort, RdmaPorts, RdmaRate
from gpuaudit.topology.rdmaroles import RdmaRoles, Role

NO_PORT = "no port of an RDMA adapter carries jobs"
WAITING = {
    "INIT": "the link is up and no subnet manager has set it up",
    "ARMED": "the link is up and no subnet manager has made it active",
}
NO_LINK = {
    "Polling": "nothing answers at the other end: cable, transceiver or switch port",
    "Disabled": "it is switched off",
    "Sleep": "it sleeps",
    "PortConfigurationTraining": "the link does not finish its training",
    "LinkErrorRecovery": "the link recovers from errors",
}


class RdmaExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of RDMA ports."""

    min_gbps: Annotated[float, Meta(gt=0, le=10_000)] | None
    without_fabric: Literal["warn", "fail"]


@check("rdma-port-state", severity=Severity.CRITICAL)
def port_state(
    ports: RdmaPorts,
    roles: RdmaRoles,
    counters: RdmaCounters,
    machine: Machine,
    want: RdmaExpectations,
) -> Iterator[Finding]:
    """Every RDMA port that jobs use is active.

    ## Why it matters
    NCCL leaves out a port that is not active, without a word. The job then has less bandwidth, or
    hangs because another node uses the port.

    ## Evidence
    /sys/class/infiniband/*/ports/*/{state,phys_state,rate,link_layer}, and the counters of ports
    that are down. What a port is for: NCCL_IB_HCA where the node sets it, else PCIe switches shared
    with a GPU.

    ## How it is judged
    Compute ports are ACTIVE. INIT and ARMED wait for the subnet manager.

    ## Exceptions
    A port without a link that is for storage, management or nothing known may be unused: not
    judged, or a warning if it had a link before. In a guest, and where no PCI tree is known, as
    many adapters alike as GPUs, or several times as many, count as compute; other numbers from four
    on only warn. Where no compute port has had a link since the adapters got power, and nothing but
    the PCI tree says that jobs use them, `rdma.without_fabric` decides: the node may be meant to
    stand alone. Virtual functions on their host and software devices (rxe, siw) are left out. Rails
    without a cable on purpose: name the others in NCCL_IB_HCA in /etc/nccl.conf.

    ## What to do
    Polling: reseat or replace the cable, look at the switch port. Disabled: `ip link set IF up`,
    or `ibportstate -D 0 1 enable`. INIT: start the subnet manager (opensm, UFM).

    ## References
    - https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband
    - https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-hca
    """
    yield from (unknown(device, reason) for device, reason in ports.unread.items())
    carriers = [port for port in ports.ports if roles.of(port).kind != "none"]
    if not carriers and not ports.unread:
        raise NotApplicable(NO_PORT)
    compute = roles.compute(ports)
    cost, had = share(compute), counters.linked
    alone = not (roles.selections or machine.is_vm or any(is_wired(p, had) for p in compute))
    for port in carriers:
        if alone and port in compute:
            yield unwired(port, roles.of(port), want)
        else:
            yield state_of(port, roles.of(port), cost, had=had.get(port.name, False))


def is_wired(port: RdmaPort, had: dict[str, bool]) -> bool:
    """A port that has a link, had one, or of which that is not told."""
    return port.state != "DOWN" or had.get(port.name, True)


def unwired(port: RdmaPort, role: Role, want: RdmaExpectations) -> Finding:
    """One of the compute ports, none of which has a link."""
    message = f"neither it nor another compute port has or had a link: {why_down(port)}"
    blame = fails if role.sure and want.without_fabric == "fail" else warns
    cost = "jobs over several nodes use TCP"
    return blame(port.name, message, port.state, expected="ACTIVE", cost=cost)


def state_of(port: RdmaPort, role: Role, cost: str, *, had: bool) -> Finding:
    """One port."""
    if isinstance(port.state, Absent):
        return unknown(port.name, port.state.reason)
    if port.active:
        return passes(port.name, f"ACTIVE, {described(port)}, {purpose(role)}")
    seen = f"{port.state}, {port.phys_state}"
    lost = had and role.kind in {"storage", "unknown"}
    if role.kind != "compute" and port.state == "DOWN" and not lost:
        return not_applicable(port.name, "without a link, and nothing says that jobs use it", seen)
    blame = fails if role.kind == "compute" and role.sure else warns
    message = WAITING.get(port.state) or f"the port is {port.state}: {why_down(port)}"
    price = cost if role.kind == "compute" else None
    message += f" ({purpose(role)})" + (", and it had a link before" if lost else "")
    return blame(port.name, message, seen, expected="ACTIVE", cost=price)


def why_down(port: RdmaPort) -> str:
    """What phys_state says. Ethernet drivers know only LinkUp and Disabled."""
    if isinstance(port.phys_state, Absent):
        return port.phys_state.reason
    if port.link_layer == ETHERNET:
        return f"interface {port.netdev or 'unknown'} is down or has no carrier"
    return NO_LINK.get(port.phys_state, port.phys_state)


def described(port: RdmaPort) -> str:
    """400 Gb/s 4X NDR InfiniBand."""
    words = [port.rate, port.link_layer]
    return " ".join(str(word) for word in words if not isinstance(word, Absent))


def purpose(role: Role) -> str:
    """compute: it shares a PCIe switch with a GPU."""
    kind = "role unknown" if role.kind == "unknown" else role.kind
    return f"{kind}: {role.why}" if role.why else kind


def share(compute: tuple[RdmaPort, ...]) -> str:
    """What one of the compute ports is worth."""
    rates = [port.rate for port in compute if isinstance(port.rate, RdmaRate) and port.active]
    best = max((rate.gb_per_s for rate in rates), default=0.0)
    lost = f", {best:.1f} GB/s each way" if best else ""
    return f"one of {len(compute)} compute ports{lost}"


@check("rdma-port-rate", severity=Severity.HIGH)
def port_rate(ports: RdmaPorts, roles: RdmaRoles, want: RdmaExpectations) -> Iterator[Finding]:
    """Every compute port runs at the rate of the others, and of the policy.

    ## Why it matters
    A collective over all rails is as fast as the slowest one. A link that trained down still works.

    ## Evidence
    /sys/class/infiniband/*/ports/*/rate of the compute ports that are active.

    ## How it is judged
    Not below `rdma.min_gbps`, and not below the fastest compute port of the same model and link
    layer. sysfs does not tell what an adapter could do at most.

    ## Exceptions
    Alone and without a value in the policy a port is not judged. A kernel says SDR of every speed
    it does not know (XDR on an old one): unknown where all ports say so. A port that is a compute
    port by a guess only warns. Ethernet rates are the driver's translation of the link's speed.

    ## What to do
    Compare with `ibportstate` or `ethtool` on both ends, reseat the cable, and look at the speed
    the switch port allows.

    ## References
    - https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband
    - https://github.com/torvalds/linux/blob/master/drivers/infiniband/core/sysfs.c
    """
    compute = [port for port in roles.compute(ports) if port.active]
    if not compute:
        raise NotApplicable("no compute port is active")
    for port in compute:
        yield rate_of(port, fastest(port, compute), roles.of(port), want.min_gbps)


def fastest(port: RdmaPort, compute: list[RdmaPort]) -> RdmaPort | None:
    """The fastest other port of the same model and link layer."""
    kin = (p for p in compute if p.model == port.model and p.link_layer == port.link_layer)
    others = [p for p in kin if p is not port and isinstance(p.rate, RdmaRate)]
    return max(
        others, key=lambda p: p.rate.gbps if isinstance(p.rate, RdmaRate) else 0, default=None
    )


def rate_of(port: RdmaPort, other: RdmaPort | None, role: Role, minimum: float | None) -> Finding:
    """One port against the policy and its fastest kin."""
    rate = port.rate
    if isinstance(rate, Absent):
        return unknown(port.name, rate.reason)
    best = other.rate if other and isinstance(other.rate, RdmaRate) else None
    if not rate.told and not (best and best.told):
        return unknown(port.name, "the kernel says SDR of speeds it does not know", str(rate))
    wanted = max(minimum or 0.0, best.gbps if best else 0.0)
    if not wanted:
        return not_applicable(
            port.name, "alone of its kind; set rdma.min_gbps to judge it", str(rate)
        )
    if rate.gbps >= wanted:
        return passes(port.name, str(rate), expected=f"at least {wanted:g} Gb/s")
    by_kin = other is not None and best is not None and best.gbps == wanted
    why = f"{other.name} runs at {best}" if by_kin and other else "the policy asks for more"
    return (fails if role.sure else warns)(
        port.name,
        f"it runs at {rate}; {why}",
        str(rate),
        expected=f"at least {wanted:g} Gb/s",
        cost=f"{rate.gb_per_s:.1f} instead of {wanted / 8:.1f} GB/s each way",
    )
