# SPDX-License-Identifier: Apache-2.0
"""Error counters of RDMA ports that carry traffic: those that a check judges, and no other.

counters/ is the PortCounters attribute of InfiniBand's performance management (InfiniBand
Architecture Specification 1.4, section 16.1.3.5): it sticks at the end of its few bits (widths in
Linux drivers/infiniband/core/sysfs.c, PORT_PMA_ATTR). hw_counters/ is the driver's.
"""

import msgspec

from gpuaudit.facts.base import Absent, probe
from gpuaudit.facts.counters import Counted, Totals
from gpuaudit.facts.rdma import FOLDER
from gpuaudit.facts.rdmaports import ETHERNET, INFINIBAND, RdmaPort, RdmaPorts
from gpuaudit.host import Host, Unavailable

CEILINGS = {
    "symbol_error": 65535,
    "link_error_recovery": 255,
    "link_downed": 255,
    "port_rcv_errors": 65535,
}
"""Counters of InfiniBand links. Those with four bits (local_link_integrity_errors,
excessive_buffer_overrun_errors) stick at 15 and say nothing of a rate."""

TIMEOUTS = frozenset({"local_ack_timeout_err", "to_retransmits", "retrans_timeout_events"})
"""An acknowledgement did not come: mlx5 (hw/mlx5/counters.c), bnxt_re (hw/bnxt_re/hw_counters.c)
and efa (hw/efa/efa_verbs.c) in Linux drivers/infiniband."""

SEQUENCE = frozenset({"out_of_sequence", "packet_seq_err", "oos_drop_count", "seq_err_naks_rcvd"})
"""A packet was missing: mlx5 and bnxt_re. Congestion marks (np_cnp_sent and others) are how RoCE
works, and a late receiver (rnr_nak_retry_err) is the program's."""

TRANSPORT = TIMEOUTS | SEQUENCE


class RdmaCounters(Counted, frozen=True, kw_only=True):
    """Port name -> counter -> total: /sys/class/infiniband/*/ports/*/{counters,hw_counters}/*.

    `gaps`: port name and folder ("counters" or "hw_counters") -> why nothing, or not all, was read.
    """

    totals: Totals
    gaps: dict[tuple[str, str], Absent]
    linked: dict[str, bool] = msgspec.field(default_factory=dict)
    """Port that is down -> whether it had a link since its adapter began to count, if that is told:
    link_downed and port_rcv_packets, and carrier_up_count of /sys/class/net."""

    def counters(self) -> Totals:
        """See Counted. A counter that is stuck is kept as well."""
        return self.totals


@probe
def rdma_counters(host: Host, ports: RdmaPorts) -> RdmaCounters:
    """Read the counters of active ports."""
    gaps: dict[tuple[str, str], Absent] = {}
    carriers = [port for port in ports.hardware if port.active and not port.virtual_function]
    down = [port for port in ports.hardware if port.active is False and not port.virtual_function]
    linked = {port.name: had_link(host, port) for port in down}
    return RdmaCounters(
        totals={p.name: totals_of(host, p, gaps) for p in carriers},
        gaps=gaps,
        linked={name: had for name, had in linked.items() if had is not None},
    )


def had_link(host: Host, port: RdmaPort) -> bool | None:
    """Whether a port that is down was up before; None when nothing tells."""
    folder = f"{FOLDER}/{port.device}/ports/{port.number}/counters"
    paths = [f"{folder}/link_downed", f"{folder}/port_rcv_packets"]
    if port.link_layer == ETHERNET:
        paths = [f"/sys/class/net/{port.netdev}/carrier_up_count"] if port.netdev else []
    told = [value for value in (number(host, path) for path in paths) if isinstance(value, int)]
    return any(told) if told else None


def totals_of(host: Host, port: RdmaPort, gaps: dict[tuple[str, str], Absent]) -> dict[str, int]:
    """Every counter of one port that can be read as a number."""
    folders = [("hw_counters", TRANSPORT)]
    if port.link_layer == INFINIBAND:
        folders.append(("counters", frozenset(CEILINGS)))
    found: dict[str, int] = {}
    for folder, names in folders:
        path = f"{FOLDER}/{port.device}/ports/{port.number}/{folder}"
        try:
            present = host.list(path)
        except Unavailable as absent:
            gaps[port.name, folder] = gap(absent)
            continue
        reads = {name: number(host, f"{path}/{name}") for name in present if name in names}
        found |= {name: value for name, value in reads.items() if isinstance(value, int)}
        if lost := gap_in(list(reads.values())):
            gaps[port.name, folder] = lost
    return found


def gap_in(reads: list[int | Absent]) -> Absent | None:
    """Why counters that are there were not read; a driver that refuses all of them has none."""
    failed = next((v for v in reads if isinstance(v, Absent) and v.kind == "failed"), None)
    if failed is None and not any(isinstance(value, int) for value in reads):
        return Absent("unsupported", "the driver counts nothing of this kind")
    return failed


def gap(absent: Unavailable) -> Absent:
    """A folder that is known not to be there is a driver without these counters."""
    kind = "unsupported" if absent.kind == "missing" else "failed"
    return Absent(kind, absent.reason)  # type: ignore[arg-type]  # two of its four words


def number(host: Host, path: str) -> int | Absent:
    """Unsupported for `N/A (no PMA)` and for what the driver refuses to tell."""
    try:
        return max(host.read_int(path), 0)
    except Unavailable as absent:
        refused = absent.kind in {"garbled", "unsupported", "missing"}
        return Absent("unsupported" if refused else "failed", absent.reason)
