# SPDX-License-Identifier: Apache-2.0
"""Ethernet interfaces of hardware, and which of them carry a job's data."""

import re
from typing import NamedTuple

from gpuaudit.facts.base import Absent, probe
from gpuaudit.facts.counters import Counted, Totals
from gpuaudit.facts.limits import absence
from gpuaudit.facts.netroute import Routes
from gpuaudit.facts.pci import PciDevices
from gpuaudit.facts.pciplace import ADDRESS
from gpuaudit.host import Host, NotApplicable, Unavailable

FOLDER = "/sys/class/net"
ETHERNET, ETHERNET_CLASS = 1, 0x0200
"""ARPHRD_ETHER of Linux include/uapi/linux/if_arp.h; the PCI class of Ethernet controllers."""

FAST_MBPS = 40_000
"""Tells roles apart, judges nothing: management networks end at 25 Gb/s (IEEE 802.3by)."""

REPRESENTOR = re.compile(r"(c\d+)?pf\d+(vf|sf)\d+")
NO_DATA = "no Ethernet interface here carries a job's data"


class NetDevice(NamedTuple):
    """One interface. `address` is the PCI function, `model` its vendor:device; None without one.

    `uppers` are the bonds, VLANs and bridges on top of it, `upper_mtus` those of them without a
    default route. `rdma` is None when untold. `bond` is the one of `uppers` that is a bond.
    """

    name: str
    address: str | None
    model: str | None
    driver: str | None
    rdma: bool | None
    up: bool | None
    default_route: bool
    uppers: tuple[str, ...]
    speed_mbps: int | Absent
    mtu: int | Absent
    carrier_changes: int | Absent
    upper_mtus: tuple[tuple[str, int | Absent], ...] = ()
    bond: str | None = None

    @property
    def fast(self) -> bool:
        """At least 40 Gb/s, as far as the driver says."""
        return isinstance(self.speed_mbps, int) and self.speed_mbps >= FAST_MBPS


class NetDevices(Counted, frozen=True, kw_only=True):
    """Ethernet interfaces with a device: /sys/class/net/*/{type,operstate,speed,mtu,...}.

    Source: Linux Documentation/ABI/testing/sysfs-class-net. Virtual functions on their host and
    representors of a switch in the NIC are left out.
    """

    devices: tuple[NetDevice, ...]

    @property
    def data(self) -> tuple[NetDevice, ...]:
        """Those that are up and fast or have an RDMA device, and others of the same model.

        A slow one with the default route is the management network's. Raises NotApplicable.
        """
        up = [one for one in self.devices if one.up]
        clear = [one for one in up if one.fast or (one.rdma and not one.default_route)]
        models = {one.model for one in clear if one.model}
        alike = [one for one in up if one.model in models and not one.default_route]
        found = tuple(one for one in up if one in clear or one in alike)
        if not found:
            self.refuse_untold()
            raise NotApplicable(NO_DATA)
        return found

    def lost_members(self) -> tuple[NetDevice, ...]:
        """Those that are down, of bonds that a data interface keeps up."""
        bonds = {one.bond for one in self.data if one.bond}
        return tuple(one for one in self.devices if one.up is False and one.bond in bonds)

    def refuse_untold(self) -> None:
        """Raise Unavailable when an interface may carry data and nothing says so."""
        for one in self.devices:
            if one.up is None:
                raise Unavailable(f"the state of {one.name} was not recorded", "not-recorded")
            if (
                one.up
                and isinstance(one.speed_mbps, Absent)
                and one.speed_mbps.kind != "unsupported"
            ):
                raise Unavailable(f"{one.name}: {one.speed_mbps.reason}", "not-recorded")

    def counters(self) -> Totals:
        """How often the carrier came or went."""
        return {
            one.name: {"carrier-changes": one.carrier_changes}
            for one in self.devices
            if isinstance(one.carrier_changes, int)
        }


@probe
def net_devices(host: Host, pci: PciDevices, routes: Routes) -> NetDevices:
    """Read every interface that has hardware. Raises Unavailable."""
    places = {name: place(host, name) for name in host.list(FOLDER)}
    real = {name: path for name, path in places.items() if path}
    found = [described(host, pci, routes, *item) for item in real.items()]
    known = [one for one in found if one is not None]
    shared = [one.address for one in known if one.address]
    return NetDevices(
        devices=tuple(
            one
            for one in known
            if shared.count(one.address or "") < 2 or not is_representor(host, real[one.name])
        )
    )


def place(host: Host, name: str) -> str | None:
    """The canonical folder, None for an interface without hardware."""
    try:
        path = host.resolve(f"{FOLDER}/{name}")
    except Unavailable:
        return None
    if path.startswith("/sys/devices/"):
        return None if path.startswith("/sys/devices/virtual/") else path
    return path if "device" in host.names(path) else None


def described(
    host: Host, pci: PciDevices, routes: Routes, name: str, path: str
) -> NetDevice | None:
    """One interface, or None for what is no Ethernet or belongs to a guest."""
    address = next((p.lower() for p in path.split("/")[::-1] if ADDRESS.fullmatch(p.lower())), None)
    device = pci.by_address.get(address or "")
    if (device and device.virtual_function) or not is_ethernet(
        host, path, device.class_code if device else 0
    ):
        return None
    above = uppers(host, path, 2)
    return NetDevice(
        name=name,
        address=device.address if device else None,
        model=device.id if device else None,
        driver=device.driver if device else None,
        rdma=device.rdma if device else False,
        up=is_up(host, path),
        default_route=not routes.default.isdisjoint({name, *above}),
        uppers=above,
        speed_mbps=speed(host, path),
        mtu=number(host, f"{path}/mtu"),
        carrier_changes=number(host, f"{path}/carrier_changes"),
        upper_mtus=tuple(
            (one, number(host, f"{FOLDER}/{one}/mtu")) for one in above if one not in routes.default
        ),
        bond=next((one for one in above if "bonding" in host.names(f"{FOLDER}/{one}")), None),
    )


def is_ethernet(host: Host, path: str, class_code: int) -> bool:
    """By the interface's own type, else by the kind of PCI device."""
    kind = number(host, f"{path}/type")
    return kind == ETHERNET if isinstance(kind, int) else class_code >> 8 == ETHERNET_CLASS


def is_up(host: Host, path: str) -> bool | None:
    """RFC 2863's state; a driver without one says unknown and means up (operstates.rst)."""
    state = host.optional(f"{path}/operstate")
    return None if state is None else state in {"up", "unknown"}


def speed(host: Host, path: str) -> int | Absent:
    """Mbit/s. The kernel prints -1 where the driver does not know."""
    value = number(host, f"{path}/speed")
    if isinstance(value, int) and value <= 0:
        return Absent("unsupported", "the driver names no speed")
    return value


def number(host: Host, path: str) -> int | Absent:
    """A number of sysfs; reading one that the driver lacks is an error, EINVAL or EOPNOTSUPP."""
    try:
        return host.read_int(path)
    except Unavailable as absent:
        lacking = absent.kind == "unsupported"
        return Absent("unsupported", absent.reason) if lacking else absence(absent)


def uppers(host: Host, path: str, depth: int) -> tuple[str, ...]:
    """Names of the interfaces on top: links upper_NAME (Linux net/core/dev.c)."""
    names = [n.removeprefix("upper_") for n in host.names(path) if n.startswith("upper_")]
    above = [up for n in names if depth > 1 for up in uppers(host, f"{FOLDER}/{n}", depth - 1)]
    return tuple(dict.fromkeys((*names, *above)))


def is_representor(host: Host, path: str) -> bool:
    """The host's end of a guest's port: phys_port_name reads pf0vf3 (switchdev.rst)."""
    return bool(REPRESENTOR.fullmatch(host.optional(f"{path}/phys_port_name") or ""))
