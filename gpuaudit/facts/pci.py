# SPDX-License-Identifier: Apache-2.0
"""PCI functions, their place in the tree and both ends of their links, from sysfs.

Attribute meaning: Linux Documentation/ABI/testing/sysfs-bus-pci. Class codes: PCI Code and ID
Assignment Specification 1.11, section 1.
"""

import re
from typing import Literal

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.cpusets import CpuSetError, parse_list, parse_mask
from gpuaudit.host import Host, Unavailable

FOLDER = "/sys/bus/pci/devices"
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]")
SPEED = re.compile(r"(\d+(?:\.\d+)?)\s*GT/s")
NVIDIA = 0x10DE
GENERATION_OF_GT_PER_S = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
WIDTHS = frozenset({1, 2, 4, 8, 12, 16, 32})

Role = Literal["gpu", "nic", "nvme", "nvswitch", "bridge", "other"]


class LinkEnd(Fact, frozen=True, kw_only=True):
    """One end's view of a link: /sys/bus/pci/devices/A/{current,max}_link_{speed,width}.

    Speeds are GT/s a lane, widths lanes. Unreadable or impossible values are Absent.
    """

    speed_gt_per_s: float | Absent
    max_speed_gt_per_s: float | Absent
    width: int | Absent
    max_width: int | Absent


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
    """Name of the host bridge folder, for example pci0000:15."""

    link: LinkEnd | Absent
    numa_node: int | Absent
    local_cpus: frozenset[int] | Absent

    @property
    def id(self) -> str:
        """vendor:device in hex, for example 10de:2330."""
        return f"{self.vendor:04x}:{self.device:04x}"


class PciDevices(Fact, frozen=True, kw_only=True):
    """Every PCI function: /sys/bus/pci/devices. `by_address` keys are lower case."""

    by_address: dict[str, PciDevice]

    def of(self, *roles: Role) -> tuple[PciDevice, ...]:
        """Physical functions of these roles, in address order."""
        found = (d for d in self.by_address.values() if d.role in roles)
        return tuple(d for d in found if not d.virtual_function)


@probe
def pci_devices(host: Host) -> PciDevices:
    """Read every PCI function once; links and locality only of what an audit judges."""
    addresses = [name.lower() for name in host.list(FOLDER) if ADDRESS.fullmatch(name.lower())]
    return PciDevices(by_address={a: read_device(host, a) for a in addresses})


def read_device(host: Host, address: str) -> PciDevice:
    """One function. Identity falls back from uevent to the single files to modalias."""
    path = host.resolve(f"{FOLDER}/{address}")
    parts = path.split("/")
    identity = read_identity(host, path)
    role = role_of(identity["vendor"], identity["class"])
    wanted = role != "other"
    return PciDevice(
        address=address,
        path=path,
        vendor=identity["vendor"],
        device=identity["device"],
        class_code=identity["class"],
        role=role,
        driver=read_driver(host, path),
        virtual_function=wanted and "physfn" in host.names(path),
        parents=tuple(p for p in parts[:-1] if ADDRESS.fullmatch(p)),
        root=next((p for p in parts if p.startswith("pci") and ":" in p), ""),
        link=read_link(host, path) if wanted else NOT_READ,
        numa_node=read_node(host, path) if wanted else NOT_READ,
        local_cpus=read_cpus(host, path) if wanted else NOT_READ,
    )


NOT_READ = Absent("unsupported", "not a GPU, NIC, NVMe drive or bridge")


def role_of(vendor: int, class_code: int) -> Role:
    """What a function is for the audit. 10de is also NVSwitch, audio, USB and bridges."""
    major, minor = class_code >> 16, (class_code >> 8) & 0xFF
    if vendor == NVIDIA and major == 0x03:
        return "gpu"
    if vendor == NVIDIA and (major, minor) == (0x06, 0x80):
        return "nvswitch"
    by_class: dict[tuple[int, int], Role] = {
        (0x02, 0x00): "nic",
        (0x02, 0x07): "nic",
        (0x01, 0x08): "nvme",
        (0x06, 0x04): "bridge",
    }
    return by_class.get((major, minor), "other")


def read_identity(host: Host, path: str) -> dict[str, int]:
    """vendor, device and class as numbers; zero where the recording holds none of the sources."""
    pairs = dict(
        line.split("=", 1) for line in (host.optional(f"{path}/uevent") or "").splitlines() if "=" in line
    )
    if "PCI_ID" in pairs and "PCI_CLASS" in pairs:
        vendor, _, device = pairs["PCI_ID"].partition(":")
        return {
            "vendor": hexadecimal(vendor),
            "device": hexadecimal(device),
            "class": hexadecimal(pairs["PCI_CLASS"]),
        }
    return {name: hexadecimal(host.optional(f"{path}/{name}")) for name in ("vendor", "device", "class")}


def hexadecimal(text: str | None) -> int:
    """A hex number with or without 0x; zero for nothing."""
    try:
        return int(text or "0", 16)
    except ValueError:
        return 0


def read_driver(host: Host, path: str) -> str | None:
    """The bound driver: target of the `driver` link."""
    try:
        return host.resolve(f"{path}/driver").rpartition("/")[2]
    except Unavailable:
        return None


def reading(host: Host, path: str) -> str | Absent:
    """A text, or why there is none."""
    try:
        return host.read(path)
    except Unavailable as absent:
        return Absent("denied" if absent.kind == "denied" else "missing", absent.reason)


def read_link(host: Host, path: str) -> LinkEnd | Absent:
    """This function's view of its link; Absent when sysfs shows none (no PCIe capability)."""
    current = reading(host, f"{path}/current_link_speed")
    if isinstance(current, Absent):
        return current
    return LinkEnd(
        speed_gt_per_s=parse_speed(current),
        max_speed_gt_per_s=parse_speed(reading(host, f"{path}/max_link_speed")),
        width=parse_width(reading(host, f"{path}/current_link_width")),
        max_width=parse_width(reading(host, f"{path}/max_link_width")),
    )


def parse_speed(text: str | Absent) -> float | Absent:
    """'16.0 GT/s PCIe', '8 GT/s', 'Unknown speed' -> GT/s a lane."""
    if isinstance(text, Absent):
        return text
    match = SPEED.match(text)
    speed = float(match[1]) if match else 0.0
    if speed not in GENERATION_OF_GT_PER_S:
        return Absent("failed", f"the link speed reads {text!r}")
    return speed


def parse_width(text: str | Absent) -> int | Absent:
    """'16' -> lanes; 0, 63 and 255 mean the device did not answer."""
    if isinstance(text, Absent):
        return text
    width = int(text.lstrip("x")) if text.lstrip("x").isdigit() else 0
    return width if width in WIDTHS else Absent("failed", f"the link width reads {text!r}")


def read_node(host: Host, path: str) -> int | Absent:
    """numa_node; -1 is kept: firmware said nothing."""
    text = reading(host, f"{path}/numa_node")
    if isinstance(text, Absent):
        return text
    try:
        return int(text)
    except ValueError:
        return Absent("failed", f"numa_node reads {text!r}")


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
