# SPDX-License-Identifier: Apache-2.0
"""RDMA ports: up, at full rate and full width. See also rdma_selection, rdma_errors, rdma_roce."""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    check,
    expect_at_least,
    fails,
    not_applicable,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.rdmaports import ETHERNET, INFINIBAND, RdmaPort, RdmaPorts, RdmaRate
from gpuaudit.topology.rdmaroles import RdmaRoles, Role

NO_PORT = "no port of an RDMA adapter carries jobs"
FULL_WIDTH = 4
SPLIT_SPEEDS = frozenset({"HDR", "NDR", "XDR"})
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


@check("rdma-port-state", severity=Severity.CRITICAL)
def port_state(ports: RdmaPorts, roles: RdmaRoles) -> Iterator[Finding]:
    """Every RDMA port that jobs use is active.

    ## Why it matters
    NCCL leaves out a port that is not active, without a word. The job then has less bandwidth, or
    hangs because another node uses the port.

    ## Evidence
    /sys/class/infiniband/*/ports/*/{state,phys_state,rate,link_layer}. What a port is for:
    NCCL_IB_HCA where the node sets it, else PCIe switches shared with a GPU.

    ## How it is judged
    Compute ports are ACTIVE. INIT and ARMED wait for the subnet manager.

    ## Exceptions
    A port without a link that is for storage, management or nothing known may be unused: not
    judged. In a guest, and where no PCI tree is known, four or more adapters alike count as
    compute, and one of them that is down only warns. Virtual functions on their host and software
    devices (rxe, siw) are left out. Rails without a cable on purpose: name the others in
    NCCL_IB_HCA in /etc/nccl.conf.

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
    cost = share(roles.compute(ports))
    for port in carriers:
        yield state_of(port, roles.of(port), cost)


def state_of(port: RdmaPort, role: Role, cost: str) -> Finding:
    """One port."""
    if isinstance(port.state, Absent):
        return unknown(port.name, port.state.reason)
    if port.active:
        return passes(port.name, f"ACTIVE, {described(port)}, {purpose(role)}")
    seen = f"{port.state}, {port.phys_state}"
    if role.kind != "compute" and port.state == "DOWN":
        return not_applicable(port.name, "without a link, and nothing says that jobs use it", seen)
    blame = fails if role.kind == "compute" and role.sure else warns
    message = WAITING.get(port.state) or f"the port is {port.state}: {why_down(port)}"
    lost = cost if role.kind == "compute" else None
    return blame(port.name, f"{message} ({purpose(role)})", seen, expected="ACTIVE", cost=lost)


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
    port by likeness only warns. Ethernet rates are the driver's translation of the link's speed.

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


@check("rdma-port-width", severity=Severity.HIGH)
def port_width(ports: RdmaPorts, roles: RdmaRoles) -> Iterator[Finding]:
    """Every InfiniBand link uses all its lanes.

    ## Why it matters
    A link that lost lanes to a bad cable or a dirty connector works, at a fraction of its rate.

    ## Evidence
    The width in /sys/class/infiniband/*/ports/*/rate of active InfiniBand ports.

    ## How it is judged
    At least 4X; from HDR on 2X as well, which is one half of a split cable (HDR100, NDR200).
    That a port has fewer lanes than the others of its kind is for rdma-port-rate to say.

    ## Exceptions
    Not for Ethernet, where width is a way to write the speed. Virtual functions on their host and
    software devices are left out.

    ## What to do
    Reseat or replace the cable; `mlxlink -d DEVICE -m` shows each lane.

    ## References
    - https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband
    - https://github.com/torvalds/linux/blob/master/drivers/infiniband/hw/mlx5/main.c
    """
    carriers = [port for port in ports.ports if roles.of(port).kind != "none"]
    found = [port for port in carriers if port.link_layer == INFINIBAND and port.active]
    if not found:
        raise NotApplicable("no InfiniBand port is active")
    for port in found:
        rate = port.rate
        if isinstance(rate, Absent):
            yield unknown(port.name, rate.reason)
            continue
        least = 2 if rate.speed in SPLIT_SPEEDS else FULL_WIDTH
        full = rate.gb_per_s * FULL_WIDTH / rate.width
        lost = f"{rate.gb_per_s:.1f} instead of {full:.1f} GB/s each way"
        yield expect_at_least(
            rate.width,
            least,
            of=port.name,
            unit="lanes",
            message=f"the link runs on {rate.width} of {FULL_WIDTH} lanes",
            cost=lost,
        )
