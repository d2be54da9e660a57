# SPDX-License-Identifier: Apache-2.0
"""Decode PCI config space: the PCI Express, ACS and ATS capabilities.

Offsets and bits: PCI Express Base Specification 5.0, sections 7.5.1.1.11 (capabilities pointer),
7.5.3 (PCI Express capability), 7.6.3 (extended capability header), 7.7.8 (ACS), 10.5.1 (ATS); the
same numbers stand in Linux include/uapi/linux/pci_regs.h (PCI_CAP_ID_EXP, PCI_EXP_*,
PCI_EXT_CAP_ID_ACS, PCI_ACS_*, PCI_EXT_CAP_ID_ATS, PCI_ATS_CTRL).
"""

from typing import Literal, NamedTuple

from gpuaudit.facts.base import Absent, Fact, unread
from gpuaudit.host import Host, Unavailable

PortType = Literal["endpoint", "root port", "upstream port", "downstream port", "other"]

STATUS, STATUS_CAP_LIST, CAPABILITY_POINTER = 0x06, 0x10, 0x34
EXPRESS, ACS, ATS = 0x10, 0x000D, 0x000F
HEADER_SIZE, CONVENTIONAL_SIZE, FULL_SIZE = 64, 256, 4096
SOURCE_VALIDATION, TRANSLATION_BLOCKING, UPSTREAM_FORWARDING, DIRECT_TRANSLATED = 1, 2, 0x10, 0x40
REQUEST_REDIRECT, COMPLETION_REDIRECT, EGRESS_CONTROL = 0x04, 0x08, 0x20
ACS_NAMES = {1: "SV", 2: "TB", 4: "RR", 8: "CR", 0x10: "UF", 0x20: "EC", 0x40: "DT"}
PORT_TYPES: dict[int, PortType] = {
    0x0: "endpoint",
    0x1: "endpoint",
    0x4: "root port",
    0x5: "upstream port",
    0x6: "downstream port",
    0x9: "endpoint",
}
SPEEDS_GT_PER_S = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
NEEDS_ROOT = Absent(
    "denied",
    "config space is cut at 64 bytes: needs root with CAP_SYS_ADMIN (sudo gpuaudit run, or record)",
)
NO_EXTENDED = Absent(
    "failed",
    "config space is cut at 256 bytes: no extended registers here (no ECAM)",
)
NO_ANSWER = Absent("failed", "config space reads all ones: the device does not answer")
NO_EXPRESS = Absent("unsupported", "it has no PCI Express capability")
NOT_CONFIG = Absent("failed", "config space starts with zeros: this is not what the device said")
NO_REASON = Absent("failed", "extended registers without a PCI Express capability")
BROKEN = "the list of its capabilities breaks off at {:#x}"


class Express(Fact, frozen=True, kw_only=True):
    """The PCI Express capability: port type, Device Control, link registers.

    Speeds are None where the register holds no speed of PCI Express 6.0 or older.
    """

    port_type: PortType
    max_payload_bytes: int
    max_payload_supported_bytes: int
    max_read_request_bytes: int
    relaxed_ordering: bool
    max_speed_gt_per_s: float | None
    max_width: int
    speed_gt_per_s: float | None
    width: int
    target_speed_gt_per_s: float | None
    """Link Control 2: the highest speed software allows; explains a link that trains lower."""


class Acs(Fact, frozen=True, kw_only=True):
    """Access Control Services: what the port offers and what is on."""

    capability: int
    control: int

    @property
    def redirects(self) -> int:
        """The bits that send peer-to-peer traffic up to the root complex (or block it)."""
        return self.control & (REQUEST_REDIRECT | COMPLETION_REDIRECT | EGRESS_CONTROL)


class ConfigSpace(Fact, frozen=True, kw_only=True):
    """One function's registers: /sys/bus/pci/devices/A/config.

    `acs` and `ats_enabled` are "unsupported" where the function has no such capability.
    """

    express: Express | Absent
    acs: Acs | Absent
    ats_enabled: bool | Absent


def read_config(host: Host, path: str) -> ConfigSpace | Absent:
    """Read and decode; Absent when nothing can be read."""
    try:
        space = host.read_bytes(f"{path}/config")
    except Unavailable as absent:
        return unread(absent)
    return decode(space)


def decode(space: bytes) -> ConfigSpace | Absent:
    """Config space of any length. Nothing is concluded from bytes that are not there."""
    if len(space) < HEADER_SIZE:
        return Absent("failed", f"config space holds only {len(space)} bytes")
    if space[:4] in {b"\xff\xff\xff\xff", b"\0\0\0\0"}:
        return NO_ANSWER if space[0] else NOT_CONFIG
    return ConfigSpace(
        express=decode_express(space), acs=decode_acs(space), ats_enabled=decode_ats(space)
    )


def word(space: bytes, offset: int) -> int:
    """A 16-bit register."""
    return int.from_bytes(space[offset : offset + 2], "little")


def double(space: bytes, offset: int) -> int:
    """A 32-bit register."""
    return int.from_bytes(space[offset : offset + 4], "little")


class Chain(NamedTuple):
    """Offset of each capability by its id, and where the list breaks off, zero when it does not."""

    at: dict[int, int]
    broken_at: int


def capabilities(space: bytes) -> Chain:
    """The list in the first 256 bytes: it ends at zero; what it names twice is a circle."""
    end = min(len(space), CONVENTIONAL_SIZE) - 4
    offset, seen, found = 0, set[int](), dict[int, int]()
    if word(space, STATUS) & STATUS_CAP_LIST:
        offset = space[CAPABILITY_POINTER] & 0xFC
    while HEADER_SIZE <= offset <= end and offset not in seen:
        seen.add(offset)
        found.setdefault(space[offset], offset)
        offset = space[offset + 1] & 0xFC
    return Chain(found, offset)


def extended_capabilities(space: bytes) -> Chain:
    """The list from 256 on. Where there is none its first header is zero."""
    end = min(len(space), FULL_SIZE) - 4
    offset, seen, found = CONVENTIONAL_SIZE, set[int](), dict[int, int]()
    while CONVENTIONAL_SIZE <= offset <= end and offset not in seen:
        seen.add(offset)
        header = double(space, offset)
        if header == 0 and offset == CONVENTIONAL_SIZE:
            return Chain({}, 0)
        if header in {0, 0xFFFFFFFF}:
            break
        found.setdefault(header & 0xFFFF, offset)
        offset = header >> 20 & 0xFFC
    return Chain(found, offset)


def find(chain: Chain, wanted: int, none: Absent) -> int | Absent:
    """Offset of a capability; `none` only when the whole list was seen."""
    if wanted in chain.at:
        return chain.at[wanted]
    return Absent("failed", BROKEN.format(chain.broken_at)) if chain.broken_at else none


def find_extended(space: bytes, wanted: int, length: int) -> int | Absent:
    """Offset of an extended capability of `length` bytes, or why there is none."""
    if len(space) <= HEADER_SIZE:
        return NEEDS_ROOT
    if len(space) <= CONVENTIONAL_SIZE:
        return NO_EXTENDED
    if isinstance(express := find(capabilities(space), EXPRESS, NO_REASON), Absent):
        return express
    none = Absent("unsupported", f"it has no extended capability {wanted:#06x}")
    found = find(extended_capabilities(space), wanted, none)
    if isinstance(found, int) and found + length > len(space):
        return Absent("failed", f"config space ends inside the capability at {found:#x}")
    return found


def decode_acs(space: bytes) -> Acs | Absent:
    """Capability at +4, control at +6."""
    at = find_extended(space, ACS, 8)
    if isinstance(at, Absent):
        return at
    return Acs(capability=word(space, at + 4), control=word(space, at + 6))


def decode_ats(space: bytes) -> bool | Absent:
    """Bit 15 of the control register at +6."""
    at = find_extended(space, ATS, 8)
    return at if isinstance(at, Absent) else bool(word(space, at + 6) & 0x8000)


def decode_express(space: bytes) -> Express | Absent:
    """The capability with id 0x10. Link Control 2 exists from version 2 on."""
    if len(space) <= HEADER_SIZE:
        return NEEDS_ROOT
    at = find(capabilities(space), EXPRESS, NO_EXPRESS)
    if isinstance(at, Absent):
        return at
    if at + 0x32 > len(space):
        return Absent("failed", f"config space ends inside the capability at {at:#x}")
    flags, control = word(space, at + 2), word(space, at + 8)
    link, status = double(space, at + 0x0C), word(space, at + 0x12)
    target = word(space, at + 0x30) & 0xF if flags & 0xF >= 2 else 0
    return Express(
        port_type=PORT_TYPES.get(flags >> 4 & 0xF, "other"),
        max_payload_bytes=128 << (control >> 5 & 7),
        max_payload_supported_bytes=128 << (double(space, at + 4) & 7),
        max_read_request_bytes=128 << (control >> 12 & 7),
        relaxed_ordering=bool(control & 0x10),
        max_speed_gt_per_s=SPEEDS_GT_PER_S.get(link & 0xF),
        max_width=link >> 4 & 0x3F,
        speed_gt_per_s=SPEEDS_GT_PER_S.get(status & 0xF),
        width=status >> 4 & 0x3F,
        target_speed_gt_per_s=SPEEDS_GT_PER_S.get(target),
    )


def bit_names(control: int) -> str:
    """0x1d -> 'SV+RR+CR+UF'."""
    return "+".join(name for bit, name in ACS_NAMES.items() if control & bit) or "none"
