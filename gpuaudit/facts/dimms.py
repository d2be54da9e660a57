# SPDX-License-Identifier: Apache-2.0
"""Memory modules as the firmware describes them: SMBIOS structures of type 16 and 17.

Layout: DMTF DSP0134 (SMBIOS 3.7), sections 6.1.2, 6.1.3, 7.17 and 7.18.
"""

import re
import struct
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from gpuaudit.facts.base import Fact, probe
from gpuaudit.facts.boot import in_container
from gpuaudit.facts.node import Machine
from gpuaudit.host import Host, NotApplicable, Unavailable

TABLE = "/sys/firmware/dmi/tables/DMI"
ARRAY, DEVICE, END = 16, 17, 127
SYSTEM_MEMORY = 3  # Use of a Physical Memory Array, table 74
PERSISTENT = range(4, 8)  # Memory Technology, table 79: NVDIMM-N, -F, -P and Intel Optane
HBM = frozenset({0x20, 0x21, 0x24})
"""Memory Type, table 78: HBM, HBM2, HBM3, in the package of the CPU (Xeon Max)."""

UNKNOWN_SIZE, IN_EXTENDED_SIZE, IN_KIB = 0xFFFF, 0x7FFF, 0x8000
IN_EXTENDED_SPEED = 0xFFFF
MOST_SLOTS_OF_A_CHANNEL = 3
CHANNEL = r"(?i)(.*channel[ _]?[a-z0-9])(?![a-z0-9])"
SOCKET = r"(?i)(?:cpu|proc|socket|p)[ _]?[0-9]"
BANK = r"(?i)bank[ _]?[0-9]+"
LETTER_AND_NUMBER = r"(?i)(.*[a-z])[ _]?[0-9]"
"""Compiled when first used: a guest needs none of them, and each costs 0.2 ms."""


class Dimm(NamedTuple):
    """One slot or soldered package. `size_mib` is 0 for an empty slot, None where untold.

    Speeds in MT/s, None where the firmware tells none: what the module is made for, and what it
    was set to. `channel` is what the names of its slot say, "" where they say nothing.
    """

    slot: str
    size_mib: int | None
    rank: int | None
    rated_mts: int | None
    configured_mts: int | None
    array: int
    channel: str = ""

    @property
    def filled(self) -> bool:
        """A module is in it, of whatever size."""
        return self.size_mib != 0


class Dimms(Fact, frozen=True, kw_only=True):
    """Slots of the system memory, in the firmware's order: /sys/firmware/dmi/tables/DMI.

    Persistent memory modules are left out. `channels` counts slots by channel; it is empty where
    the slots' names do not tell the channels.
    """

    slots: tuple[Dimm, ...]

    @property
    def filled(self) -> tuple[Dimm, ...]:
        """The slots with a module."""
        return tuple(one for one in self.slots if one.filled)

    @property
    def channels(self) -> dict[str, int]:
        """Channel -> modules in it, for every channel, the empty ones too."""
        modules = Counter(one.channel for one in self.filled)
        return {one.channel: modules[one.channel] for one in self.slots if one.channel}


@probe
def dimms(host: Host, machine: Machine) -> Dimms:
    """Read the table. Raises NotApplicable in guests, Unavailable where it is hidden."""
    if machine.is_vm:
        raise NotApplicable("a guest's memory modules are made up by the hypervisor")
    try:
        data = host.read_bytes(TABLE)
    except Unavailable as absent:
        if absent.kind == "missing" and not in_container(host):
            raise NotApplicable("the firmware gives no SMBIOS table") from None
        raise
    slots = tuple(with_channels(list(system_memory(data))))
    if not any(one.filled for one in slots):
        raise Unavailable(f"{TABLE} names no memory module", "garbled")
    return Dimms(slots=slots)


def structures(data: bytes) -> Iterator[tuple[bytes, list[str]]]:
    """Each structure: its formatted part, and the strings behind it, which end with two NULs."""
    at = 0
    while at + 4 <= len(data):
        kind, length = data[at], data[at + 1]
        end = data.find(b"\0\0", at + length)
        if length < 4 or end < 0:
            return
        texts = data[at + length : end].split(b"\0")
        yield data[at : at + length], [text.decode("latin-1").strip() for text in texts]
        at = end + 2
        if kind == END:
            return


def system_memory(data: bytes) -> Iterator[Dimm]:
    """The devices of arrays of system memory, but for persistent memory and HBM."""
    found = list(structures(data))
    mine = {
        struct.unpack_from("<H", part, 2)[0]
        for part, _ in found
        if part[0] == ARRAY and len(part) > 5 and part[5] == SYSTEM_MEMORY
    }
    for part, texts in found:
        if part[0] == DEVICE and len(part) >= 0x15 and word(part, 4) in mine:
            persistent = len(part) > 0x28 and part[0x28] in PERSISTENT
            if not persistent and part[0x12] not in HBM:
                yield dimm(part, texts)


def dimm(part: bytes, texts: list[str]) -> Dimm:
    """One structure of type 17. Fields beyond its length came with later releases of SMBIOS."""
    names = [text_at(part, texts, at) for at in (0x10, 0x11)]
    return Dimm(
        slot=" ".join(name for name in names if name) or f"handle {word(part, 2):#x}",
        size_mib=size_mib(part),
        rank=(part[0x1B] & 0xF) or None if len(part) > 0x1B else None,
        rated_mts=speed(part, 0x15, 0x54),
        configured_mts=speed(part, 0x20, 0x58),
        array=word(part, 4),
        channel=channel_in(*names),
    )


def channel_in(locator: str, bank: str) -> str:
    """'P0 CHANNEL A', 'P0_Node1_Channel0': the word channel, and what says which socket's."""
    found = next((m for name in (bank, locator) if (m := re.match(CHANNEL, name))), None)
    if found is None:
        return ""
    socket = re.search(SOCKET, locator)
    return f"{socket[0] if socket else ''} {re.sub(BANK, '', found[1])}".strip()


def word(part: bytes, at: int) -> int:
    """A 16-bit number, 0 where the structure is too short for it."""
    return int.from_bytes(part[at : at + 2], "little") if len(part) >= at + 2 else 0


def text_at(part: bytes, texts: list[str], at: int) -> str:
    """A string by its number, which counts from 1; 0 is none."""
    number = part[at]
    return texts[number - 1] if 0 < number <= len(texts) else ""


def size_mib(part: bytes) -> int | None:
    """Size, in KiB with the highest bit set, else in MiB; large ones in the extended field."""
    size = word(part, 0x0C)
    if size == UNKNOWN_SIZE:
        return None
    if size == IN_EXTENDED_SIZE and len(part) >= 0x20:
        return int.from_bytes(part[0x1C:0x20], "little") & 0x7FFFFFFF
    return (size & 0x7FFF) // 1024 if size & IN_KIB else size


def speed(part: bytes, at: int, extended_at: int) -> int | None:
    """A speed in MT/s, None for 0 (unknown)."""
    found = word(part, at)
    if found == IN_EXTENDED_SPEED:
        found = int.from_bytes(part[extended_at : extended_at + 4], "little") & 0x7FFFFFFF
    return found or None


def with_channels(slots: list[Dimm]) -> list[Dimm]:
    """Channels kept where every slot tells one and all of them have equally many slots.

    Boards without the word name their slots after channel and place: P1-DIMMA1, CPU0_DIMM_B2.
    Dell numbers its slots A1 to A16, a letter a socket: groups as large as that are no channels.
    """
    if not all(one.channel for one in slots):
        slots = [one._replace(channel=lettered(one.slot)) for one in slots]
    sizes = Counter(one.channel for one in slots)
    even = len(set(sizes.values())) == 1 and max(sizes.values()) <= MOST_SLOTS_OF_A_CHANNEL
    told = even and "" not in sizes and len(sizes) > 1
    return slots if told else [one._replace(channel="") for one in slots]


def lettered(slot: str) -> str:
    """The name without the number at its end: P1-DIMMA1 -> P1-DIMMA."""
    match = re.fullmatch(LETTER_AND_NUMBER, slot.split(" ", maxsplit=1)[0])
    return match[1] if match else ""
