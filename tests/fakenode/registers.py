# SPDX-License-Identifier: Apache-2.0
"""4096 bytes of PCI config space, as far as an audit reads them.

Offsets: PCI Express Base Specification 5.0, sections 7.5.1 (header), 7.5.3 (PCI Express
capability), 7.7.8 (ACS), 10.5.1 (ATS); numbers as in Linux include/uapi/linux/pci_regs.h.
"""

import struct
from typing import Literal, NamedTuple

PortType = Literal["endpoint", "root", "upstream", "downstream"]
PORT_TYPE_BITS: dict[PortType, int] = {"endpoint": 0, "root": 4, "upstream": 5, "downstream": 6}
PM_CAP, EXPRESS_CAP, AER_CAP, THIRD_CAP = 0x40, 0x60, 0x100, 0x148
LNKSTA = EXPRESS_CAP + 0x12
LNKCTL2 = EXPRESS_CAP + 0x30
ACS_CONTROL = THIRD_CAP + 6
ACS_CAPABILITY = 0x005F  # SV TB RR CR UF DT, as switches of this kind offer


class Link(NamedTuple):
    """A generation (1 is 2.5 GT/s) and a number of lanes."""

    gen: int
    width: int


class Header(NamedTuple):
    """What the config space of one function is made from."""

    vendor: int
    device: int
    class_code: int
    port: PortType
    current: Link
    most: Link
    buses: tuple[int, int, int] | None
    """Primary, secondary, subordinate bus of a bridge."""


def config_space(head: Header) -> bytes:
    """The registers of one function."""
    space = bytearray(4096)
    struct.pack_into("<HHHH", space, 0, head.vendor, head.device, 0x0546, 0x0010)
    struct.pack_into("<I", space, 8, head.class_code << 8 | 0xA1)
    if head.buses:
        space[0x0E] = 1
        space[0x18:0x1B] = bytes(head.buses)
    space[0x34] = PM_CAP
    struct.pack_into("<BB", space, PM_CAP, 0x01, EXPRESS_CAP)
    put_express(space, head)
    put_extended(space, head.port)
    return bytes(space)


def put_express(space: bytearray, head: Header) -> None:
    """The PCI Express capability, version 2."""
    flags = PORT_TYPE_BITS[head.port] << 4 | 2
    struct.pack_into("<BBH", space, EXPRESS_CAP, 0x10, 0, flags)
    struct.pack_into("<IHH", space, EXPRESS_CAP + 4, 0x10008FE2, 0x5936, 0)
    struct.pack_into("<I", space, EXPRESS_CAP + 0x0C, head.most.width << 4 | head.most.gen)
    struct.pack_into("<H", space, LNKSTA, status_word(head.current))
    struct.pack_into("<I", space, EXPRESS_CAP + 0x2C, (2 << head.most.gen) - 2)
    struct.pack_into("<H", space, LNKCTL2, head.most.gen)


def put_extended(space: bytearray, port: PortType) -> None:
    """AER in everything, then ACS in root and downstream ports, ATS in endpoints."""
    third = port != "upstream"
    struct.pack_into("<I", space, AER_CAP, (THIRD_CAP if third else 0) << 20 | 2 << 16 | 0x0001)
    if port in {"root", "downstream"}:
        struct.pack_into("<IHH", space, THIRD_CAP, 1 << 16 | 0x000D, ACS_CAPABILITY, 0)
    elif port == "endpoint":
        struct.pack_into("<IHH", space, THIRD_CAP, 1 << 16 | 0x000F, 0x0020, 0)


def status_word(link: Link) -> int:
    """Link Status: speed in bits 3:0, width in bits 9:4, slot clock and link active."""
    return 0x3000 | link.width << 4 | link.gen


def patched(space: bytes, offset: int, word: int) -> bytes:
    """The same registers with another 16-bit word at `offset`."""
    return space[:offset] + struct.pack("<H", word) + space[offset + 2 :]
