# SPDX-License-Identifier: Apache-2.0
"""Which RDMA ports jobs use: that there are some, and that they go together."""

from collections import Counter
from collections.abc import Iterator
from typing import Literal

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    check,
    expect,
    fails,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.rdmaports import RdmaPort, RdmaPorts, tcp_instead
from gpuaudit.topology.rdmaroles import RdmaRoles, selected

RAILS = "compute ports"
NO_COMPUTE = "which RDMA ports are for compute is not known"


class RdmaSelectionExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of the ports that jobs use."""

    link_layer: Literal["any", "InfiniBand", "Ethernet"]


@check("rdma-ports-alike", severity=Severity.HIGH)
def ports_alike(ports: RdmaPorts, roles: RdmaRoles) -> Finding:
    """The compute ports have one link layer and are of one adapter model.

    ## Why it matters
    NCCL cannot join an InfiniBand port of one node with an Ethernet port of another, and a slower
    model holds back all rails. A VPI adapter set to the wrong protocol is found here.

    ## Evidence
    /sys/class/infiniband/*/hca_type and ports/*/link_layer of the compute ports.

    ## How it is judged
    Two link layers fail, or warn where NCCL_IB_HCA selects them; two models warn. Where
    NCCL_IB_HCA is not set, compute ports are of one model by definition.

    ## Exceptions
    Not applicable with fewer than two compute ports. Ports taken for compute by likeness are
    alike by definition.

    ## What to do
    Set the protocol of the odd one: `mlxconfig -d DEVICE set LINK_TYPE_P1=1` (1 InfiniBand,
    2 Ethernet) and reboot; or name the right ports in NCCL_IB_HCA.

    ## References
    - https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-hca
    - https://github.com/NVIDIA/nccl/blob/master/src/transport/net_ib/init.cc
    """
    compute = roles.compute(ports)
    if len(compute) < 2:
        raise NotApplicable("fewer than two compute ports" if compute else NO_COMPUTE)
    lost = [p.link_layer for p in compute if isinstance(p.link_layer, Absent)]
    if lost:
        return unknown(RAILS, lost[0].reason)
    layers = Counter(str(port.link_layer) for port in compute)
    models = Counter(port.model or "unnamed" for port in compute)
    seen = f"{len(compute)} {' and '.join(layers)} ports of {' and '.join(models)}"
    if len(layers) > 1:
        blame = warns if roles.selections else fails
        return blame(RAILS, f"two link layers: {named(layers, compute, 'link_layer')}", seen)
    if len(models) > 1:
        return warns(RAILS, f"two models: {named(models, compute, 'model')}", seen)
    return passes(RAILS, seen)


def named(counts: Counter[str], compute: tuple[RdmaPort, ...], field: str) -> str:
    """7 InfiniBand, and Ethernet: mlx5_3 port 1."""
    common, number = counts.most_common(1)[0]
    odd = [p for p in compute if (getattr(p, field) or "unnamed") != common]
    listed = ", ".join(f"{port.name} ({getattr(port, field) or 'unnamed'})" for port in odd)
    return f"{number} {common}, and {listed}"


@check("rdma-link-layer", severity=Severity.HIGH)
def link_layer(
    ports: RdmaPorts, roles: RdmaRoles, want: RdmaSelectionExpectations
) -> Iterator[Finding]:
    """The compute ports speak what the policy asks for, InfiniBand or Ethernet.

    ## Why it matters
    A VPI adapter comes up with the protocol its firmware was last told. With the wrong one the
    port finds no partner, or a whole node joins no fabric.

    ## Evidence
    /sys/class/infiniband/*/ports/*/link_layer of the compute ports.

    ## How it is judged
    Equal to `rdma_selection.link_layer`. Not applicable while that is `any`.

    ## Exceptions
    EFA calls itself neither. Guests see the link layer of the virtual function.

    ## What to do
    `mlxconfig -d DEVICE set LINK_TYPE_P1=1` (1 InfiniBand, 2 Ethernet), then reboot.

    ## References
    - https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband
    - https://docs.nvidia.com/networking/display/mftv4301/mlxconfig
    """
    if want.link_layer == "any":
        raise NotApplicable("the policy asks for no link layer")
    compute = roles.compute(ports)
    if not compute:
        raise NotApplicable(NO_COMPUTE)
    for port in compute:
        yield expect(port.link_layer, want.link_layer, of=port.name)


@check("rdma-hca-selection", severity=Severity.HIGH)
def hca_selection(ports: RdmaPorts, roles: RdmaRoles) -> Iterator[Finding]:
    """NCCL_IB_HCA, where it is set, selects ports that are there.

    ## Why it matters
    NCCL says nothing when no port matches: it falls back to TCP sockets, many times slower. Names
    change with the kernel, the driver and udev rules (mlx5_0, rocep1s0f0, ibp1s0).

    ## Evidence
    NCCL_IB_HCA in the environment of the audit, /etc/nccl.conf, /etc/environment, profile.d and
    the units that start jobs; the names in /sys/class/infiniband.

    ## How it is judged
    Each value that is set selects at least one port.

    ## Exceptions
    Not applicable where nothing sets it: NCCL then takes every active port. What a job script or a
    container sets is not visible.

    ## What to do
    Write names that `ls /sys/class/infiniband` shows into the file named here.

    ## References
    - https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-hca
    - https://github.com/NVIDIA/nccl/blob/master/src/misc/utils.cc
    """
    if not roles.selections and roles.unread:
        yield unknown("NCCL_IB_HCA", roles.unread)
        return
    if not roles.selections:
        raise NotApplicable("NCCL_IB_HCA is not set: NCCL takes every active port")
    for value, where in roles.selections:
        yield selecting(value, where, ports)


def selecting(value: str, where: str, ports: RdmaPorts) -> Finding:
    """One value against the ports that are there."""
    of = f"NCCL_IB_HCA={value}"
    if picked := selected(value, ports.ports):
        return passes(of, ", ".join(port.name for port in picked), evidence=(where,))
    present = ", ".join(sorted({port.device for port in ports.ports}))
    message = f"set in {where}, it selects none of {present}"
    cost = tcp_instead(ports.hardware)
    return fails(of, message, "no port", evidence=(where,), cost=cost)
