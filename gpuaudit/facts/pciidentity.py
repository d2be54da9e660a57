# SPDX-License-Identifier: Apache-2.0
"""What a PCI function is and which driver it has, from whichever source a recording holds.

Class codes: PCI Code and ID Assignment Specification 1.11, section 1; Linux
include/linux/pci_ids.h. The uevent file: pci_uevent() in Linux drivers/pci/pci-driver.c.
"""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from gpuaudit.host import Host, NotApplicable, Unavailable

Role = Literal["gpu", "nic", "nvme", "nvswitch", "accelerator", "storage", "bridge", "other"]
NVIDIA, MELLANOX = 0x10DE, 0x15B3
DISPLAY = 0x03
MODALIAS = re.compile(
    r"pci:v(?P<vendor>[0-9A-F]{8})d(?P<device>[0-9A-F]{8})sv[0-9A-F]+sd[0-9A-F]+"
    r"bc(?P<base>[0-9A-F]{2})sc(?P<sub>[0-9A-F]{2})i(?P<interface>[0-9A-F]{2})"
)
HEX = re.compile(r"(0x)?[0-9a-fA-F]{1,8}")
FILES = ("vendor", "device", "class")
BY_CLASS: dict[int, Role] = {
    0x0200: "nic",  # Ethernet
    0x0207: "nic",  # InfiniBand
    0x0208: "nic",  # host fabric (Omni-Path)
    0x0C06: "nic",  # InfiniBand as a serial bus (older host channel adapters)
    0x0108: "nvme",
    0x0100: "storage",  # SCSI, also virtio
    0x0104: "storage",  # RAID
    0x0106: "storage",  # SATA
    0x0107: "storage",  # SAS
    0x0302: "accelerator",  # 3D controllers of other vendors
    0x0380: "accelerator",
    0x0B40: "accelerator",  # coprocessor
    0x1200: "accelerator",  # processing accelerator
    0x0604: "bridge",
}


class Identity(NamedTuple):
    """Vendor, device and class code; None where no source tells it."""

    vendor: int | None
    device: int | None
    class_code: int | None


NAMELESS = Identity(None, None, None)


class Driver(NamedTuple):
    """The bound driver; `known` is False when nothing tells whether there is one."""

    name: str | None
    known: bool


def read_uevent(host: Host, path: str) -> dict[str, str]:
    """KEY=value lines of the uevent file; none when it cannot be read."""
    lines = (host.optional(f"{path}/uevent") or "").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def read_identity(host: Host, path: str, uevent: Mapping[str, str]) -> Identity:
    """From uevent, else the single files, else modalias, else config space, else the driver."""
    vendor, _, device = uevent.get("PCI_ID", "").partition(":")
    known = identity(vendor, device, uevent.get("PCI_CLASS"))
    sources = (identity_of_files, identity_of_modalias, identity_of_header, identity_of_driver)
    for source in sources:
        if known.vendor is not None and known.class_code is not None:
            break
        other = source(host, path)
        known = Identity(*(b if a is None else a for a, b in zip(known, other, strict=True)))
    return known


def identity(vendor: str | None, device: str | None, class_code: str | None) -> Identity:
    """From hex numbers. No vendor has 0 or ffff, which a device that is not there reads."""
    number = hexadecimal(vendor, 0xFFFE)
    return Identity(number or None, hexadecimal(device, 0xFFFF), hexadecimal(class_code, 0xFFFFFF))


def identity_of_files(host: Host, path: str) -> Identity:
    """The files vendor, device and class."""
    vendor, device, kind = (host.optional(f"{path}/{name}") for name in FILES)
    return identity(vendor, device, kind)


def identity_of_modalias(host: Host, path: str) -> Identity:
    """pci:v000010DEd00002330sv...sd...bc03sc02i00 (Linux Documentation/ABI, modalias)."""
    match = MODALIAS.match(host.optional(f"{path}/modalias") or "")
    if not match:
        return NAMELESS
    class_code = match["base"] + match["sub"] + match["interface"]
    return identity(match["vendor"], match["device"], class_code)


def identity_of_driver(host: Host, path: str) -> Identity:
    """The NVIDIA driver has a folder for each of its GPUs (kernel-open/nvidia/nv-procfs.c)."""
    address = path.rpartition("/")[2].lower()
    try:
        listed = host.exists(f"/proc/driver/nvidia/gpus/{address}")
    except (NotApplicable, Unavailable):
        listed = False
    return NAMELESS._replace(vendor=NVIDIA) if listed else NAMELESS


def identity_of_header(host: Host, path: str) -> Identity:
    """Bytes 0 to 11 of config space; all ones when the device does not answer."""
    try:
        head = host.read_bytes(f"{path}/config")[:12]
    except Unavailable:
        head = b""
    if len(head) < 12 or head[:4] in {b"\xff\xff\xff\xff", b"\0\0\0\0"}:
        return NAMELESS
    vendor, device, class_code = (part[::-1].hex() for part in (head[:2], head[2:4], head[9:12]))
    return identity(vendor, device, class_code)


def hexadecimal(text: str | None, most: int) -> int | None:
    """A hex number with or without 0x, None for nothing or nonsense."""
    number = int(text, 16) if HEX.fullmatch(text or "") and text else None
    return number if number is not None and number <= most else None


def read_driver(host: Host, path: str, uevent: Mapping[str, str]) -> Driver:
    """DRIVER of uevent, which the kernel writes when one is bound; else the `driver` link."""
    if "PCI_ID" in uevent:  # the kernel always writes it, DRIVER= only when one is bound
        return Driver(uevent.get("DRIVER"), known=True)
    try:
        return Driver(host.resolve(f"{path}/driver").rpartition("/")[2], known=True)
    except Unavailable as absent:
        return Driver(None, known=absent.kind == "missing")


def is_told(found: Identity, role: Role) -> bool:
    """False when what was recorded leaves open whether this is a GPU, a NIC or a drive."""
    may_be_nvidia = found.vendor is None and (found.class_code or 0) >> 16 == DISPLAY
    return found.class_code is not None and (role == "gpu" or not may_be_nvidia)


def role_of(vendor: int, class_code: int, driver: str | None = None) -> Role:
    """What a function is for the audit. 10de is also NVSwitch, audio, USB and bridges.

    A recording without vendor IDs still says `nvidia` by the driver.
    """
    kind = class_code >> 8
    is_nvidia = vendor == NVIDIA or (not vendor and driver == "nvidia")
    if is_nvidia and kind >> 8 == DISPLAY:
        return "gpu"
    if vendor == NVIDIA and kind == 0x0680:
        return "nvswitch"
    if vendor == MELLANOX and kind == 0x0280:
        return "nic"  # ConnectX-3 in InfiniBand mode says "other network controller"
    return BY_CLASS.get(kind, "other")
