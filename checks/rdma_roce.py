# SPDX-License-Identifier: Apache-2.0
"""RoCE: the addresses of the compute ports and the size of their packets."""

from collections.abc import Iterator
from typing import Literal

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    Unavailable,
    Verdict,
    check,
    expect_at_least,
    fails,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.environment import Environment
from gpuaudit.facts.rdmagids import ROCE_V2, Gid, RdmaGids, Roce
from gpuaudit.facts.rdmaports import RdmaPort, RdmaPorts
from gpuaudit.topology.rdmaroles import RdmaRoles, chosen, unread_conf

VARIABLE = "NCCL_IB_GID_INDEX"
WIRE_BYTES = 82
"""Of each RoCE v2 packet: preamble and gap 20, Ethernet 14 and FCS 4, IPv4 20, UDP 8, BTH 12,
ICRC 4 (InfiniBand Architecture Specification 1.4, annex A17)."""


class RdmaRoceExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of RoCE ports."""

    min_packet_bytes: Literal[256, 512, 1024, 2048, 4096]


@check("rdma-gid-roce-v2", severity=Severity.HIGH)
def gid_roce_v2(
    ports: RdmaPorts, roles: RdmaRoles, gids: RdmaGids, environment: Environment
) -> Iterator[Finding]:
    """Every RoCE compute port has a RoCE v2 address that can be routed.

    ## Why it matters
    RoCE v2 takes its address from the interface. Without one NCCL uses entry 0, RoCE v1 with the
    link-local address, which no router and no lossless class for DSCP handles.

    ## Evidence
    /sys/class/infiniband/*/ports/*/gids and gid_attrs/types, up to 16 entries a port.

    ## How it is judged
    An entry of type RoCE v2 with an IPv4 or a global IPv6 address; else the entry that
    NCCL_IB_GID_INDEX names is of type RoCE v2. A port without one fails beside one that has it, or
    where NCCL_IB_HCA selects it; else it warns.

    ## Exceptions
    Not for InfiniBand, EFA and iWARP. A port that is a compute port by a guess only warns. Where
    no port has an address, containers may bring theirs along with virtual functions, macvlan or the
    interface itself.

    ## What to do
    Give interface IF an address (`ip addr add ADDRESS/PREFIX dev IF`, and in the network
    configuration), then look at `show_gids` or `rdma link`.

    ## References
    - https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband
    - https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-gid-index
    """
    wanted = {index for index, _ in indexes(environment)}
    pairs = found(ports, roles, gids)
    used = bool(roles.selections) or any(has_address(roce) for _, roce in pairs)
    for port, roce in pairs:
        if isinstance(roce.gids, Absent):
            yield unknown(port.name, roce.gids.reason)
            continue
        best = [
            gid
            for gid in roce.gids
            if gid.routable or (gid.place in wanted and gid.version == ROCE_V2)
        ]
        if best:
            yield passes(port.name, listed(best))
        elif lost := untold(roce.gids):
            yield unknown(port.name, lost)
        else:
            blame = fails if used and roles.of(port).sure else warns
            message = (
                f"no RoCE v2 GID: interface {port.netdev or 'unknown'} has no usable IP address"
            )
            yield blame(port.name, message, listed(roce.gids) or "none", expected=ROCE_V2)


def has_address(roce: Roce) -> bool:
    """Whether one of its entries can be routed."""
    return not isinstance(roce.gids, Absent) and any(gid.routable for gid in roce.gids)


@check("rdma-gid-index", severity=Severity.HIGH)
def gid_index(
    ports: RdmaPorts, roles: RdmaRoles, gids: RdmaGids, environment: Environment
) -> Iterator[Finding]:
    """NCCL_IB_GID_INDEX, where it is set, points at a RoCE v2 GID.

    ## Why it matters
    The place of an address moves when interfaces get or lose addresses. With a wrong one NCCL
    uses RoCE v1, or fails to connect.

    ## Evidence
    NCCL_IB_GID_INDEX in the environment of the audit, /etc/nccl.conf and the files that set
    variables for everyone; the GID table of each RoCE compute port.

    ## How it is judged
    The entry is there and of type RoCE v2, for each value that is set.

    ## Exceptions
    Not applicable where nothing sets it or to -1: since 2.21 NCCL finds the entry by itself. What
    a job script sets is not visible.

    ## What to do
    Take the variable away, or set it to the place that `show_gids` shows for RoCE v2.

    ## References
    - https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-gid-index
    - https://github.com/NVIDIA/nccl/blob/master/src/transport/net_ib/connect.cc
    """
    wanted = [(index, where) for index, where in indexes(environment) if index >= 0]
    if not wanted:
        if unread := unread_conf(environment):
            raise Unavailable(unread)
        raise NotApplicable(f"{VARIABLE} is not set: NCCL finds the GID by itself")
    for port, roce in found(ports, roles, gids):
        for index, where in wanted:
            yield pointed(port, roce, index, where)


def pointed(port: RdmaPort, roce: Roce, wanted: int, where: str) -> Finding:
    """The entry that the variable names, on one port."""
    if isinstance(roce.gids, Absent):
        return unknown(port.name, roce.gids.reason)
    gid = next((gid for gid in roce.gids if gid.place == wanted), None)
    if gid is None and wanted >= roce.read:
        return unknown(port.name, f"entry {wanted} of its table was not read")
    if gid is not None and isinstance(gid.version, Absent):
        return unknown(port.name, gid.version.reason)
    if gid is not None and gid.version == ROCE_V2:
        return passes(port.name, listed([gid]), evidence=(where,))
    seen = listed([gid]) if gid else "empty"
    message = f"{VARIABLE}={wanted} (set in {where}) is no RoCE v2 GID"
    return fails(port.name, message, seen, expected=ROCE_V2, evidence=(where,))


@check("rdma-mtu", severity=Severity.MEDIUM)
def mtu(
    ports: RdmaPorts, roles: RdmaRoles, gids: RdmaGids, want: RdmaRoceExpectations
) -> Iterator[Finding]:
    """RoCE compute ports send packets of full size.

    ## Why it matters
    An RDMA packet holds 4096 bytes at most, and what fits into the interface's MTU. With an MTU of
    1500 it is 1024: four times the packets, and more of the wire for headers.

    ## Evidence
    /sys/class/net/*/mtu of the interface of each RoCE compute port. The RDMA MTU itself is not in
    sysfs: it is the largest power of two that leaves 96 bytes for headers.

    ## How it is judged
    At least `rdma_roce.min_packet_bytes`: 4096 needs an MTU of 4192 or more. Less warns, since the
    switches have to agree.

    ## Exceptions
    Not for InfiniBand (its MTU is the subnet manager's and not in sysfs), EFA and iWARP.

    ## What to do
    Set an MTU of 9000 on the interface, its bond and the switch port: `ip link set IF mtu 9000`,
    and in the network configuration.

    ## References
    - https://github.com/torvalds/linux/blob/master/include/rdma/ib_addr.h
    - https://docs.nvidia.com/networking/display/mlnxenv24100700/RDMA+over+Converged+Ethernet+(RoCE)
    """
    for port, roce in found(ports, roles, gids):
        size, least = roce.packet, want.min_packet_bytes
        lost = None
        if isinstance(size, int) and 0 < size < least:
            shares = [100 * bytes_ / (bytes_ + WIRE_BYTES) for bytes_ in (size, least)]
            lost = "{:.1f} instead of {:.1f} % of the wire is data".format(*shares)
        yield expect_at_least(
            size,
            least,
            of=port.name,
            unit="bytes",
            message=f"interface {port.netdev} has MTU {roce.mtu}: {size} bytes fit into a packet",
            cost=lost,
            otherwise=Verdict.WARN,
        )


def found(ports: RdmaPorts, roles: RdmaRoles, gids: RdmaGids) -> list[tuple[RdmaPort, Roce]]:
    """The RoCE ports among the compute ports. Raises NotApplicable without one."""
    compute = [port for port in roles.compute(ports) if port.name in gids.ports]
    pairs = [(port, gids.ports[port.name]) for port in compute]
    pairs = [(port, roce) for port, roce in pairs if not roce.warp]
    if not pairs:
        raise NotApplicable("no active compute port speaks RoCE")
    return pairs


def indexes(environment: Environment) -> list[tuple[int, str]]:
    """The values of NCCL_IB_GID_INDEX that are numbers, with their places."""
    found = ((value.strip()[:10], where) for value, where in chosen(environment, VARIABLE))
    return [(int(text), where) for text, where in found if text.removeprefix("-").isdecimal()]


def untold(gids: tuple[Gid, ...]) -> str:
    """Why the type of an entry with a routable address is not known."""
    lost = (g.version for g in gids if g.kind != "link-local" and isinstance(g.version, Absent))
    return next((version.reason for version in lost), "")


def listed(gids: tuple[Gid, ...] | list[Gid]) -> str:
    """As index 3 IPv4 RoCE v2."""
    named = (gid for gid in gids if not isinstance(gid.version, Absent))
    return ", ".join(f"index {gid.place} {gid.kind} {gid.version}" for gid in named)
