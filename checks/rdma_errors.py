# SPDX-License-Identifier: Apache-2.0
"""Errors of RDMA links and of the traffic on them, as rates."""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from gpuaudit.check import (
    DAY,
    HOUR,
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    Verdict,
    check,
    expect,
    expect_rate,
    not_applicable,
    passes,
    unknown,
)
from gpuaudit.facts.counters import Earlier, Growth
from gpuaudit.facts.rdmacounters import CEILINGS, SEQUENCE, TIMEOUTS, RdmaCounters
from gpuaudit.facts.rdmaports import INFINIBAND, RdmaPort, RdmaPorts

Limit = Annotated[int, Meta(ge=0, le=1_000_000_000)]
LINK_ERRORS = {
    "symbol_error": "symbol errors",
    "link_error_recovery": "link error recoveries",
    "port_rcv_errors": "bad packets received",
}
NO_COUNTER = "the driver counts none of these"


class RdmaErrorsExpectations(Expectations, frozen=True, kw_only=True):
    """How many errors RDMA ports may have."""

    link_errors_max_per_hour: Limit
    link_downs_max_per_day: Limit
    ack_timeouts_max_per_hour: Limit
    sequence_errors_max_per_hour: Limit | None


@check("rdma-link-errors", severity=Severity.MEDIUM)
def link_errors(
    ports: RdmaPorts, counters: RdmaCounters, earlier: Earlier, want: RdmaErrorsExpectations
) -> Iterator[Finding]:
    """InfiniBand links transmit without errors.

    ## Why it matters
    Each bad packet is sent again after a timeout, and all ranks wait for it. Errors that grow are
    a cable or transceiver about to fail.

    ## Evidence
    /sys/class/infiniband/*/ports/*/counters: symbol_error, link_error_recovery, port_rcv_errors of
    active InfiniBand ports, and the reading before.

    ## How it is judged
    None of them grows by more than `rdma_errors.link_errors_max_per_hour`. Too many only warn.

    ## Exceptions
    Totals without an earlier reading are history. A counter that stays at its end (65535, 255)
    tells nothing until it is reset. Counters of four bits are not read. Ethernet counts elsewhere.
    Virtual functions of a guest may not see the link's counters.

    ## What to do
    Clean or replace the cable and see `mlxlink -d DEVICE -c` for the error rate. A counter at its
    end: `perfquery -R -C DEVICE -P PORT` resets it.

    ## References
    - https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband
    - https://github.com/linux-rdma/rdma-core/blob/master/infiniband-diags/man/ibqueryerrors.8.in.rst
    """
    for port in infiniband(ports):
        found = [
            expect_rate(
                growth_of(port, counters, earlier, name),
                want.link_errors_max_per_hour,
                per_s=HOUR,
                of=port.name,
                what=what,
                otherwise=Verdict.WARN,
            )
            for name, what in LINK_ERRORS.items()
            if name in counters.totals.get(port.name, {})
        ]
        yield from settled(found, port, counters, "counters")


@check("rdma-link-downs", severity=Severity.HIGH)
def link_downs(
    ports: RdmaPorts, counters: RdmaCounters, earlier: Earlier, want: RdmaErrorsExpectations
) -> Iterator[Finding]:
    """InfiniBand links stay up.

    ## Why it matters
    A link that goes down for longer than the retries of NCCL ends the job.

    ## Evidence
    /sys/class/infiniband/*/ports/*/counters/link_downed of active InfiniBand ports, and the
    reading before.

    ## How it is judged
    It grows by at most `rdma_errors.link_downs_max_per_day`.

    ## Exceptions
    The adapter counts since it was powered on or reset, so a total without an earlier reading is
    history. At 255 it sticks. Ethernet ports are judged by the checks of network interfaces.

    ## What to do
    Reseat or replace the cable and look at the log of the switch port. `perfquery -R -C DEVICE -P
    PORT` resets a counter that is stuck.

    ## References
    - https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband
    - https://man7.org/linux/man-pages/man8/perfquery.8.html
    """
    for port in infiniband(ports):
        if "link_downed" not in counters.totals.get(port.name, {}):
            yield silent(port, counters, "counters")
            continue
        growth = growth_of(port, counters, earlier, "link_downed")
        limit = want.link_downs_max_per_day
        yield expect_rate(growth, limit, per_s=DAY, of=port.name, what="link downs")


@check("rdma-retransmissions", severity=Severity.MEDIUM)
def retransmissions(
    ports: RdmaPorts, counters: RdmaCounters, earlier: Earlier, want: RdmaErrorsExpectations
) -> Iterator[Finding]:
    """RDMA traffic arrives without timeouts and gaps.

    ## Why it matters
    A packet that was lost stalls its queue pair until the timeout, seconds with NCCL's default,
    and every rank of the collective with it.

    ## Evidence
    /sys/class/infiniband/*/ports/*/hw_counters of active ports: local_ack_timeout_err,
    out_of_sequence, packet_seq_err (mlx5); to_retransmits and others (bnxt_re, efa).

    ## How it is judged
    Timeouts grow by at most `rdma_errors.ack_timeouts_max_per_hour`. Gaps in the sequence count
    only where `rdma_errors.sequence_errors_max_per_hour` is set. Too many warn.

    ## Exceptions
    Adaptive routing and lossy RoCE bring gaps by design. A job that dies leaves timeouts behind.
    Congestion marks (CNP, ECN) are no error. Drivers without these counters are not judged.

    ## What to do
    RoCE: check PFC, ECN and the queue of the traffic class on both ends and the switch. InfiniBand:
    see rdma-link-errors of both nodes, then the switches (`ibqueryerrors`).

    ## References
    - https://github.com/torvalds/linux/blob/master/drivers/infiniband/hw/mlx5/counters.c
    - https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-timeout
    """
    groups = [(TIMEOUTS, want.ack_timeouts_max_per_hour, "timeouts")]
    if want.sequence_errors_max_per_hour is not None:
        groups.append((SEQUENCE, want.sequence_errors_max_per_hour, "gaps in the sequence"))
    active = [port for port in ports.hardware if port.active and not port.virtual_function]
    if not active:
        raise NotApplicable("no port of an RDMA adapter is active")
    for port in active:
        totals = counters.totals.get(port.name, {})
        found = [
            expect_rate(
                growth_of(port, counters, earlier, name),
                limit,
                per_s=HOUR,
                of=port.name,
                what=f"{what} ({name})",
                otherwise=Verdict.WARN,
            )
            for names, limit, what in groups
            for name in sorted(names & totals.keys())
        ]
        yield from settled(found, port, counters, "hw_counters")


def infiniband(ports: RdmaPorts) -> list[RdmaPort]:
    """The active InfiniBand ports. Raises NotApplicable without one."""
    found = [p for p in ports.hardware if p.active and p.link_layer == INFINIBAND]
    found = [port for port in found if not port.virtual_function]
    if not found:
        raise NotApplicable("no InfiniBand port is active")
    return found


def growth_of(port: RdmaPort, counters: RdmaCounters, earlier: Earlier, name: str) -> Growth:
    """How one counter of a port grew. Some drivers count further than the ceiling."""
    now = counters.totals[port.name][name]
    end = CEILINGS.get(name)
    ceiling = None if end is None or now > end else end
    return earlier.growth(port.name, name, now, since_boot=False, ceiling=ceiling)


def settled(
    found: list[Finding], port: RdmaPort, counters: RdmaCounters, folder: str
) -> Iterator[Finding]:
    """Every counter of a port that is not good; one pass for all of them together."""
    doubts = [finding for finding in found if finding.verdict is not Verdict.PASS]
    if doubts or not found:
        yield from doubts or [silent(port, counters, folder)]
    elif gap := counters.gaps.get((port.name, folder)):
        yield unknown(port.name, gap.reason)
    else:
        seen = ", ".join(finding.observed or "" for finding in found)
        yield passes(port.name, seen, expected=found[0].expected)


def silent(port: RdmaPort, counters: RdmaCounters, folder: str) -> Finding:
    """Why nothing was counted."""
    if gap := counters.gaps.get((port.name, folder)):
        return expect(gap, "readable", of=port.name)
    return not_applicable(port.name, NO_COUNTER)
