# SPDX-License-Identifier: Apache-2.0
"""Ports of RDMA devices: state, rate, link layer, and what device they belong to.

Attribute meaning: Linux Documentation/ABI/stable/sysfs-class-infiniband; the texts of state,
phys_state, rate and link_layer: drivers/infiniband/core/sysfs.c.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.pcilink import reading
from gpuaudit.facts.pciplace import ADDRESS
from gpuaudit.facts.rdma import FOLDER, InfinibandDevices
from gpuaudit.host import Host, NotApplicable, Unavailable

INFINIBAND, ETHERNET = "InfiniBand", "Ethernet"
NO_DEVICE = "no RDMA device: none is there, or its driver is not loaded"
NO_PORT = "no RDMA device has a port"
SOFTWARE = ("rxe", "siw")
"""Names that rdma(8) examples and rdma-core give to software devices on kernels that put them
below the PCI function of their interface."""

NOT_READ = Absent("missing", "not read")
NUMBERED = re.compile(r"[0-9]+: *(.+)")
RATE = re.compile(r"([0-9]+(?:\.5)?) Gb/sec \(([0-9]+)X ?([A-Z]+[0-9]*)?\)")


class RdmaRate(NamedTuple):
    """`400 Gb/sec (4X NDR)`. Older kernels leave out the word SDR."""

    gbps: float
    width: int
    speed: str

    @property
    def told(self) -> bool:
        """False for SDR: that is what a kernel says of every speed it does not know."""
        return self.speed != "SDR"

    @property
    def gb_per_s(self) -> float:
        """Bytes, without line code: the kernel's number is the data rate from EDR on."""
        return self.gbps / 8

    def __str__(self) -> str:
        """400 Gb/s 4X NDR."""
        return f"{self.gbps:g} Gb/s {self.width}X {self.speed}"


class RdmaPort(NamedTuple):
    """One port with its device: /sys/class/infiniband/D/{hca_type,board_id,fw_ver}, ports/P."""

    device: str
    number: int
    place: str | None
    """PCI address; "" for a software device; None when it was not recorded."""

    virtual_function: bool
    model: str | None
    """hca_type, such as MT4129; drivers but mlx4, mlx5 and a few more have none."""

    board: str | Absent
    """board_id: with NVIDIA adapters the PSID, which says what the firmware was built for."""

    firmware: str | Absent
    link_layer: str | Absent
    """InfiniBand, Ethernet (RoCE, iWARP), or Unknown (EFA)."""

    state: str | Absent
    phys_state: str | Absent
    rate: RdmaRate | Absent
    netdev: str | None
    """The interface of an Ethernet port; with bonding that is the bond."""

    peers: int
    """How many ports its device has."""

    @property
    def name(self) -> str:
        """The subject of findings."""
        return f"{self.device} port {self.number}"

    @property
    def active(self) -> bool | None:
        """True when it carries data; None when that is not known."""
        return None if isinstance(self.state, Absent) else self.state == "ACTIVE"

    @property
    def slot(self) -> str:
        """The PCI address without the function: the ports of one card share it."""
        return (self.place or self.device).rpartition(".")[0] or self.device

    @property
    def socket(self) -> tuple[str, int]:
        """Which port of its card it is: the function, and the number below it."""
        return (self.place or "").rpartition(".")[2], self.number


class RdmaPorts(Fact, frozen=True, kw_only=True):
    """Every port of every RDMA device, in order of their names.

    `unread`: devices of which it is not known whether they have ports, and why.
    """

    ports: tuple[RdmaPort, ...]
    unread: dict[str, str]

    @property
    def hardware(self) -> tuple[RdmaPort, ...]:
        """Ports of adapters; also where it is not known what they are on."""
        return tuple(port for port in self.ports if port.place != "")

    @property
    def devices(self) -> tuple[RdmaPort, ...]:
        """The first port of each adapter."""
        first = {port.device: port for port in reversed(self.hardware)}
        return tuple(reversed(first.values()))


@probe
def rdma_ports(host: Host, devices: InfinibandDevices) -> RdmaPorts:
    """Read each device and its ports. Raises NotApplicable when there is known to be none."""
    if isinstance(devices.names, Absent):
        if devices.names.kind == "unsupported":
            raise NotApplicable(devices.names.reason)
        raise Unavailable(devices.names.reason, "not-recorded")
    if not devices.names:
        raise NotApplicable(NO_DEVICE)
    unread: dict[str, str] = {}
    names = sorted(devices.names, key=natural)
    found = [port for name in names for port in ports_of(host, name, unread)]
    if not found and not unread:
        raise NotApplicable(NO_PORT)
    return RdmaPorts(ports=tuple(found), unread=unread)


def natural(name: str) -> tuple[str | int, ...]:
    """mlx5_2 before mlx5_10."""
    parts = re.split(r"([0-9]+)", name)
    return tuple(int(part[:18]) if part.isdecimal() else part for part in parts)


def ports_of(host: Host, device: str, unread: dict[str, str]) -> list[RdmaPort]:
    """The ports of one device; none for what is known to have none (Intel's scif0)."""
    folder = f"{FOLDER}/{device}"
    try:
        names = host.list(f"{folder}/ports")
        numbers = sorted(int(n) for n in names if n.isdecimal() and len(n) < 4)
    except Unavailable as absent:
        if absent.kind != "missing":
            unread[device] = absent.reason
        return []
    path = class_path(host, folder)
    place = place_of(host, device, path)
    parent = path.partition("/infiniband/")[0]
    known = RdmaPort(
        device=device,
        number=0,
        place=place,
        virtual_function=bool(place) and "physfn" in host.names(parent),
        model=host.optional(f"{folder}/hca_type"),
        board=told(host, f"{folder}/board_id"),
        firmware=told(host, f"{folder}/fw_ver"),
        link_layer=NOT_READ,
        state=NOT_READ,
        phys_state=NOT_READ,
        rate=NOT_READ,
        netdev=None,
        peers=len(numbers),
    )
    return [port_of(host, known, number) for number in numbers]


def class_path(host: Host, folder: str) -> str:
    """Where the class link leads; the class folder itself in a recording without links."""
    try:
        return host.resolve(folder)
    except Unavailable:
        return folder


def place_of(host: Host, device: str, path: str) -> str | None:
    """The PCI address by the device's path, or by the uevent of its parent where that is a copy."""
    if "/virtual/" in path or device.startswith(SOFTWARE):
        return ""
    parts = (part.lower() for part in reversed(path.split("/")))
    address = next((part for part in parts if ADDRESS.fullmatch(part)), None)
    if address:
        return address
    lines = (host.optional(f"{FOLDER}/{device}/device/uevent") or "").split()
    slots = (line.partition("=")[2].lower() for line in lines if line.startswith("PCI_SLOT_NAME="))
    return next(slots, None)


def told(host: Host, path: str) -> str | Absent:
    """A text that not every driver tells."""
    try:
        return host.read(path)
    except Unavailable as absent:
        kind = absent.kind == "missing"
        return Absent("unsupported" if kind else "failed", absent.reason)


def port_of(host: Host, device: RdmaPort, number: int) -> RdmaPort:
    """One port of a device."""
    folder = f"{FOLDER}/{device.device}/ports/{number}"
    layer = reading(host, f"{folder}/link_layer")
    return device._replace(
        number=number,
        link_layer=layer,
        state=worded(reading(host, f"{folder}/state")),
        phys_state=worded(reading(host, f"{folder}/phys_state")),
        rate=rate_of(reading(host, f"{folder}/rate")),
        netdev=netdev_of(host, device.device, folder) if layer == ETHERNET else None,
    )


def worded(text: str | Absent) -> str | Absent:
    """The word of `4: ACTIVE`."""
    if isinstance(text, Absent):
        return text
    match = NUMBERED.fullmatch(text)
    return match[1] if match else Absent("failed", f"the port's state reads {text[:40]!r}")


def rate_of(text: str | Absent) -> RdmaRate | Absent:
    """The parts of `400 Gb/sec (4X NDR)`."""
    if isinstance(text, Absent):
        return text
    match = RATE.fullmatch(text)
    if match is None:
        return Absent("failed", f"the port's rate reads {text[:40]!r}")
    return RdmaRate(float(match[1]), int(match[2]), match[3] or "SDR")


def tcp_instead(ports: Iterable[RdmaPort]) -> str:
    """What is lost where programs cannot use these ports: the rates of those that are active."""
    rates = [p.rate.gb_per_s for p in ports if p.active and isinstance(p.rate, RdmaRate)]
    return "TCP instead of RDMA" + (f" at up to {sum(rates):.1f} GB/s each way" if rates else "")


def netdev_of(host: Host, device: str, folder: str) -> str | None:
    """The interface of the first GID, or the only one of the device."""
    if name := host.optional(f"{folder}/gid_attrs/ndevs/0"):
        return name
    names = host.names(f"{FOLDER}/{device}/device/net")
    return names[0] if len(names) == 1 else None
