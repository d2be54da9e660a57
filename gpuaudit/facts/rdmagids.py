# SPDX-License-Identifier: Apache-2.0
"""RoCE addresses: the GID table of Ethernet ports, and the MTU of their interfaces.

Linux Documentation/ABI/stable/sysfs-class-infiniband (gid_attrs/types); the table is filled with
one entry for each address of the interface and each RoCE version (core/roce_gid_mgmt.c).
"""

from typing import Literal, NamedTuple

from gpuaudit.facts.base import Absent, Fact, probe, unread
from gpuaudit.facts.pcilink import reading
from gpuaudit.facts.rdma import FOLDER
from gpuaudit.facts.rdmaports import ETHERNET, RdmaPort, RdmaPorts
from gpuaudit.host import Host, Unavailable

MOST = 16
"""Entries read at most: two for the link-local address, two for each other one."""

RNIC = "4:"
HEADERS = 96
"""iboe_get_mtu() in Linux include/rdma/ib_addr.h: GRH 40, UDP 8, BTH 12, XRC 4, AtomicETH 28,
ICRC 4."""

SIZES = (4096, 2048, 1024, 512, 256)
"""What an RDMA packet may hold (enum ib_mtu in Linux include/rdma/ib_verbs.h)."""

ROCE_V2 = "RoCE v2"
Kind = Literal["IPv4", "IPv6", "link-local"]


class Gid(NamedTuple):
    """The entry at a place (GID index); the address itself is an identifier and not kept."""

    place: int
    kind: Kind
    version: str | Absent

    @property
    def routable(self) -> bool:
        """RoCE v2 with an address that NCCL takes by itself."""
        return self.version == ROCE_V2 and self.kind != "link-local"


class Roce(NamedTuple):
    """An active Ethernet port. `warp`: iWARP, which has no GIDs of this kind."""

    gids: tuple[Gid, ...] | Absent
    mtu: int | Absent
    warp: bool
    read: int = MOST
    """How many entries were looked at."""

    @property
    def packet(self) -> int | Absent:
        """The RDMA MTU that follows from the interface's."""
        if isinstance(self.mtu, Absent):
            return self.mtu
        return next((size for size in SIZES if self.mtu - HEADERS >= size), 0)


class RdmaGids(Fact, frozen=True, kw_only=True):
    """Port name -> RoCE settings, of active Ethernet ports of adapters."""

    ports: dict[str, Roce]


@probe
def rdma_gids(host: Host, ports: RdmaPorts) -> RdmaGids:
    """Read a few entries of each table: to two that are empty, once a usable one was found."""
    found = [p for p in ports.hardware if p.active and p.link_layer == ETHERNET]
    return RdmaGids(ports={p.name: roce(host, p) for p in found if not p.virtual_function})


def roce(host: Host, port: RdmaPort) -> Roce:
    """One port."""
    folder = f"{FOLDER}/{port.device}/ports/{port.number}"
    missing = Absent("missing", "which interface it belongs to is not known")
    gids, read = table(host, folder)
    return Roce(
        gids=gids,
        read=read,
        mtu=number(host, f"/sys/class/net/{port.netdev}/mtu") if port.netdev else missing,
        warp=(host.optional(f"{FOLDER}/{port.device}/node_type") or "").startswith(RNIC),
    )


def number(host: Host, path: str) -> int | Absent:
    """A number, or why there is none."""
    try:
        return host.read_int(path)
    except Unavailable as absent:
        return unread(absent)


def table(host: Host, folder: str) -> tuple[tuple[Gid, ...] | Absent, int]:
    """The entries in use, and how many were read. Absent when the first one cannot be read.

    An address that was taken away leaves its entries empty: others may follow.
    """
    found: list[Gid] = []
    empty = index = 0
    for index in range(MOST):
        text = reading(host, f"{folder}/gids/{index}")
        if isinstance(text, Absent):
            return tuple(found) if index else text, index
        kind = kind_of(text)
        if kind:
            version = reading(host, f"{folder}/gid_attrs/types/{index}")
            found.append(Gid(index, kind, version))
        empty = 0 if kind else empty + 1
        if empty > 1 and any(gid.routable for gid in found):
            break
    return tuple(found), index + 1


def kind_of(text: str) -> Kind | None:
    """What an entry holds; None for an empty or garbled one."""
    try:
        value = int(text.replace(":", ""), 16)
    except ValueError:
        return None
    if not value:
        return None
    if value >> 32 == 0xFFFF:
        return "IPv4"
    return "link-local" if value >> 118 == 0xFE80 >> 6 else "IPv6"
