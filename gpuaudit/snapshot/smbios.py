# SPDX-License-Identifier: Apache-2.0
"""The firmware's SMBIOS table without what names the machine.

It holds serial numbers, asset tags and the UUID of the system, the board, the chassis and each
memory module. Only the structures of memory that an audit reads are kept (DMTF DSP0134, sections
7.17 and 7.18), and in them no serial number and no asset tag.
"""

from collections.abc import Iterator

TABLE = "/sys/firmware/dmi/tables/DMI"
KEPT = (16, 17, 127)  # arrays, modules, the end of the table
DEVICE = 17
SECRET = (0x18, 0x19)  # number of the string with the serial number, and with the asset tag


def without_identifiers(data: bytes) -> bytes:
    """The table of memory. What cannot be taken apart is left out altogether."""
    return b"".join(clean(part, texts) for part, texts in structures(data) if part[0] in KEPT)


def structures(data: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
    """The formatted part of each structure, and its strings."""
    at = 0
    while at + 4 <= len(data):
        start = at + data[at + 1]
        end = data.find(b"\0\0", start)
        if data[at + 1] < 4 or end < 0:
            return
        yield data[at:start], data[start:end].split(b"\0")
        at = end + 2


def clean(part: bytes, texts: list[bytes]) -> bytes:
    """One structure; the secret strings become as many x."""
    hidden = {part[at] - 1 for at in SECRET if part[0] == DEVICE and len(part) > at}
    kept = (b"x" * len(text) if n in hidden else text for n, text in enumerate(texts))
    return part + b"\0".join(kept) + b"\0\0"
