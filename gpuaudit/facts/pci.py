# SPDX-License-Identifier: Apache-2.0
"""PCI functions, their place in the tree and both ends of their links, from sysfs.

Attribute meaning: Linux Documentation/ABI/testing/sysfs-bus-pci.
"""

import re
from collections.abc import Mapping

from msgspec.structs import replace

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.cpusets import CpuSetError, parse_list, parse_mask
from gpuaudit.facts.pciidentity import (
    NVIDIA,
    Role,
    is_told,
    read_driver,
    read_identity,
    read_uevent,
    role_of,
)
from gpuaudit.facts.pcilink import LinkEnd, read_link, reading
from gpuaudit.facts.pciplace import ADDRESS, bridge_span, place_by_buses, place_of_path
from gpuaudit.host import Host, Unavailable

__all__ = [
    "ENDPOINTS",
    "NVIDIA",
    "LinkEnd",
    "PciDevice",
    "PciDevices",
    "Role",
    "pci_devices",
    "reading",
]

FOLDER = "/sys/bus/pci/devices"
ENDPOINTS: frozenset[Role] = frozenset({"gpu", "nic", "nvme", "nvswitch", "accelerator", "storage"})
NOT_READ = Absent("unsupported", "not a GPU, NIC, drive or accelerator, nor above one")
NODE = re.compile(r"-1|[0-9]{1,5}")


class PciDevice(Fact, frozen=True, kw_only=True):
    """One PCI function: /sys/bus/pci/devices/A/uevent and its canonical sysfs path."""

    address: str
    path: str
    vendor: int
    device: int
    class_code: int
    role: Role
    driver: str | None
    virtual_function: bool
    parents: tuple[str, ...]
    """Bridges between the root complex and this function, root port first."""

    root: str
    """Name of the host bridge folder, for example pci0000:15; "" when it cannot be told."""

    link: LinkEnd | Absent
    numa_node: int | Absent
    local_cpus: frozenset[int] | Absent
    driver_known: bool = True
    """False when nothing recorded says whether a driver is bound."""

    known: bool = True
    """False when nothing recorded says whether this is a GPU, a NIC or a drive."""

    rdma: bool | None = False
    """A NIC with an InfiniBand device (its folder holds `infiniband`); None when untold."""

    power_state: str | None = None
    """D0, D3hot and so on; read only where the link is slower than it could be."""

    @property
    def id(self) -> str:
        """vendor:device in hex, for example 10de:2330."""
        return f"{self.vendor:04x}:{self.device:04x}"

    @property
    def unbound(self) -> bool:
        """True when it is known that no driver is bound."""
        return self.driver_known and self.driver is None

    @property
    def slot(self) -> str:
        """The address without the function: the functions of one slot share one link."""
        return self.address.rpartition(".")[0]


class PciDevices(Fact, frozen=True, kw_only=True):
    """Every PCI function: /sys/bus/pci/devices. `by_address` keys are lower case."""

    by_address: dict[str, PciDevice]

    @property
    def untold(self) -> tuple[str, ...]:
        """Addresses of which nothing recorded says what stands there."""
        return tuple(d.address for d in self.by_address.values() if not d.known)

    def of(self, *roles: Role) -> tuple[PciDevice, ...]:
        """All physical functions of these roles, in address order. Raises Unavailable."""
        if self.untold:
            raise Unavailable(f"nothing says what kind of device {self.untold[0]} is", "garbled")
        return self.seen(*roles)

    def rdma_nics(self) -> tuple[PciDevice, ...]:
        """NICs with an InfiniBand device. Raises Unavailable when there may be one unseen."""
        nics = self.of("nic")
        found = tuple(nic for nic in nics if nic.rdma)
        if not found and (lost := [nic.address for nic in nics if nic.rdma is None]):
            raise Unavailable(f"whether {lost[0]} has an RDMA driver was not recorded")
        return found

    def seen(self, *roles: Role) -> tuple[PciDevice, ...]:
        """Like of(), without those that nothing could identify."""
        found = (d for d in self.by_address.values() if d.role in roles)
        return tuple(d for d in found if not d.virtual_function)

    def function_0(self, device: PciDevice) -> PciDevice:
        """Function 0 of its slot, or the device itself where that is not visible."""
        return self.by_address.get(f"{device.slot}.0", device)


@probe
def pci_devices(host: Host) -> PciDevices:
    """Read every PCI function once; links and locality only of what an audit judges."""
    names = sorted((n for n in host.list(FOLDER) if ADDRESS.fullmatch(n.lower())), key=in_bus_order)
    if not names:
        # Known to be empty is an answer. A recording that never held the folder raises here.
        host.exists(f"{FOLDER}/0000:00:00.0")
    found = with_places(host, {name.lower(): identified(host, name) for name in names})
    found |= {a: with_locality(host, d) for a, d in found.items() if d.role in ENDPOINTS}
    ends = link_ends(PciDevices(by_address=found))
    return PciDevices(
        by_address={a: with_link(host, d) if a in ends else d for a, d in found.items()}
    )


def in_bus_order(name: str) -> tuple[int, str]:
    """Domains may have more than four digits: order them as numbers."""
    return int(name.partition(":")[0], 16), name.lower()


def identified(host: Host, name: str) -> PciDevice:
    """One function by identity and place; link and locality are not read yet."""
    try:
        path = host.resolve(f"{FOLDER}/{name}")
    except Unavailable:
        path = f"{FOLDER}/{name}"
    uevent = read_uevent(host, path)
    identity, driver = read_identity(host, path, uevent), read_driver(host, path, uevent)
    place = place_of_path(path)
    vendor, class_code = identity.vendor or 0, identity.class_code or 0
    role = role_of(vendor, class_code, driver.name)
    return PciDevice(
        address=name.lower(),
        path=path,
        vendor=vendor,
        device=identity.device or 0,
        class_code=class_code,
        role=role,
        known=is_told(identity, role),
        driver=driver.name,
        driver_known=driver.known,
        virtual_function=False,
        parents=place.parents,
        root=place.root,
        link=NOT_READ,
        numa_node=NOT_READ,
        local_cpus=NOT_READ,
    )


def with_places(host: Host, found: Mapping[str, PciDevice]) -> dict[str, PciDevice]:
    """Places by bus numbers for functions whose path does not say it."""
    lost = [d for d in found.values() if not d.root]
    if not lost:
        return dict(found)
    bridges = (d for d in found.values() if d.class_code >> 8 == 0x0604)
    spans = [bridge_span(host, d.address, d.path) for d in bridges]
    known = tuple(span for span in spans if span is not None)
    if len(known) < len(spans):
        return dict(found)
    places = {d.address: place_by_buses(d.address, known) for d in lost}
    moved = {a: replace(found[a], root=p.root, parents=p.parents) for a, p in places.items()}
    return {**found, **moved}


def with_locality(host: Host, device: PciDevice) -> PciDevice:
    """NUMA node, local CPUs, and what the names in its folder tell."""
    names = host.names(device.path)
    return replace(
        device,
        virtual_function="physfn" in names,
        rdma=device.role == "nic" and ("infiniband" in names or has_rdma(host, device.path)),
        numa_node=read_node(host, device.path),
        local_cpus=read_cpus(host, device.path),
    )


def has_rdma(host: Host, path: str) -> bool | None:
    """Whether the folder `infiniband` is there; None when that was not recorded."""
    try:
        return host.exists(f"{path}/infiniband")
    except Unavailable:
        return None


def link_ends(devices: PciDevices) -> frozenset[str]:
    """Every function that is an end of a link between the root complex and a judged device."""
    judged = devices.seen(*ENDPOINTS)
    above = (p for d in judged for p in d.parents)
    ports = [devices.by_address[a] for a in above if a in devices.by_address]
    ends = {devices.function_0(d).address for d in (*judged, *ports)}
    return frozenset(ends | {d.address for d in (*judged, *ports)})


def with_link(host: Host, device: PciDevice) -> PciDevice:
    """Its end of the link, and its power state where that may explain a slow link."""
    link = read_link(host, device.path)
    if isinstance(link, Absent) or device.role not in ENDPOINTS:
        return replace(device, link=link)
    slow = link.speed_gt_per_s != link.max_speed_gt_per_s
    state = host.optional(f"{device.path}/power_state") if slow else None
    return replace(device, link=link, power_state=state)


def read_node(host: Host, path: str) -> int | Absent:
    """numa_node; -1 is kept: firmware said nothing."""
    text = reading(host, f"{path}/numa_node")
    if isinstance(text, Absent):
        return text
    if not NODE.fullmatch(text):
        return Absent("failed", f"numa_node reads {text[:40]!r}")
    return int(text)


def read_cpus(host: Host, path: str) -> frozenset[int] | Absent:
    """local_cpulist, or the hex mask local_cpus where only that was recorded."""
    text, parse = reading(host, f"{path}/local_cpulist"), parse_list
    if isinstance(text, Absent):
        text, parse = reading(host, f"{path}/local_cpus"), parse_mask
    if isinstance(text, Absent):
        return text
    try:
        return parse(text)
    except CpuSetError as error:
        return Absent("failed", str(error))
