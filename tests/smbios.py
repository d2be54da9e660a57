# SPDX-License-Identifier: Apache-2.0
"""SMBIOS structures made by hand (DMTF DSP0134, sections 7.17 and 7.18)."""

import struct

TABLE = "/sys/firmware/dmi/tables/DMI"
END = struct.pack("<BBH", 127, 4, 0xFEFF) + b"\0\0"
SYSTEM_MEMORY, FLASH = 3, 6
DRAM, OPTANE = 3, 7
DDR5, HBM2 = 0x22, 0x21


def structure(kind: int, handle: int, body: bytes, *texts: str) -> bytes:
    """A structure with its strings; without any, two NULs follow all the same."""
    strings = b"".join(text.encode() + b"\0" for text in texts) or b"\0"
    return struct.pack("<BBH", kind, 4 + len(body), handle) + body + strings + b"\0"


def array(handle: int, use: int = SYSTEM_MEMORY) -> bytes:
    """A physical memory array with ECC."""
    return structure(16, handle, struct.pack("<BBBIHHQ", 3, use, 6, 0x80000000, 0xFFFE, 32, 0))


def module(
    locator: str,
    bank: str = "",
    *,
    gib: int | None = 64,
    rank: int = 2,
    rated: int = 5600,
    configured: int = 5600,
    of: int = 0x1000,
    technology: int = DRAM,
    serial: str = "SERIAL",
    kind: int = DDR5,
    handle: int = 0x1100,
) -> bytes:
    """A memory device as SMBIOS 3.3 has it; `gib` 0 is an empty slot, None an unknown size."""
    size = {None: 0xFFFF, 0: 0}.get(gib, 0x7FFF)
    more = (gib or 0) * 1024
    body = struct.pack(
        "<HHHHHBBBBBHHBBBBBIHHHHBH",
        *(of, 0xFFFE, 80, 64, size, 9, 0, 1, 2, kind, 0x80, rated, 3, 4, 5, 6),
        *(rank, more, configured, 1100, 1100, 1100, technology, 0),
    )
    words = (locator, bank or "-", "Maker", serial, f"TAG-{serial}", "PART")
    return structure(17, handle, body + bytes(0x5C - 4 - len(body)), *words)


def table(*parts: bytes) -> bytes:
    """One array of system memory, the parts, and the end."""
    return array(0x1000) + b"".join(parts) + END
