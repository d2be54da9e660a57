# SPDX-License-Identifier: Apache-2.0
"""Replacements for identifiers: the same value gives the same one, of the same form and length.

They are drawn at random and remembered only while one recording is written, so nothing that is
kept leads back. Two values never share a replacement, and networks stay networks: what two
addresses have in common in front, their replacements have in common too.
"""

import ipaddress
import random
import string
from collections.abc import Callable, Iterator

HEX = "0123456789abcdef"
TRIES = 1000
FIRST_OCTETS = tuple(n for n in range(1, 224) if n not in {10, 100, 127, 169, 172, 192, 198, 203})
"""None of them begins a private or reserved range (RFC 6890): no address is mistaken for real."""


class Disguise:
    """Replacements of one recording."""

    def __init__(self) -> None:
        """Each recording has its own; the source of randomness is the kernel's."""
        self._random = random.SystemRandom()
        self._made: dict[tuple[str, object], object] = {}
        self._taken: dict[str, set[object]] = {}

    def word(self, text: str) -> str:
        """A serial number or a name: a letter for a letter, a digit for a digit."""
        drawn = str(
            self._once("word", text.lower(), lambda: "".join(map(self._char, text.lower())))
        )
        pairs = zip(drawn, text, strict=True)
        return "".join(new.upper() if old.isupper() else new for new, old in pairs)

    def domain(self, name: str) -> str:
        """A host name label by label, so that short and full names fit; the top label is kept."""
        labels = name.split(".")
        kept = len(labels) - 1 if len(labels) > 1 else len(labels)
        return ".".join([*map(self.word, labels[:kept]), *labels[kept:]])

    def uuid(self, digits: str) -> str:
        """32 hex digits; version and variant are kept (RFC 9562, section 4)."""
        if len(set(digits)) == 1:
            return digits
        text = str(self._once("uuid", digits.lower(), lambda: self._hex(32)))
        return text[:12] + digits[12].lower() + text[13:16] + digits[16].lower() + text[17:]

    def mac(self, digits: str) -> str:
        """12 hex digits; group addresses and zero are nobody's."""
        first = int(digits[:2], 16)
        if first & 1 or not int(digits, 16):
            return digits
        local = first & 2

        def draw() -> str:
            return f"{self._random.randrange(0, 256, 4) | local:02x}{self._hex(10)}"

        return str(self._once("mac", digits.lower(), draw))

    def guid(self, value: int) -> int:
        """64 bits: an InfiniBand GUID, an EUI-64, the lower half of an IPv6 address."""
        return joined(self._groups("guid", split(value, 4)))

    def ip6(self, value: int) -> int:
        """128 bits. Loopback, none, the prefix of link-local and of multicast are kept."""
        if value <= 1:
            return value
        if value >> 32 == 0xFFFF:
            return value & ~0xFFFFFFFF | self._ip4(value & 0xFFFFFFFF)
        upper, lower = value >> 64, value & ((1 << 64) - 1)
        if ipaddress.IPv6Address(value).is_multicast:
            return upper << 64 | (self.guid(lower) if lower >> 16 else lower)
        if upper >> 54 != 0xFE80 >> 6:
            upper = joined(self._groups("net", split(upper, 4)))
        return upper << 64 | self.guid(lower)

    def ip4(self, text: str) -> str:
        """Dotted; loopback, none, masks and group addresses are kept."""
        return str(ipaddress.IPv4Address(self._ip4(int(ipaddress.IPv4Address(text)))))

    def _ip4(self, value: int) -> int:
        octets = tuple(value.to_bytes(4, "big"))
        if octets[0] in {0, 127} or octets[0] >= 224:
            return value
        kept = 2 if octets[:2] == (169, 254) else 0
        new = [
            self._part(f"ip4 {octets[:at]}", octets[at], octet_range(octets[at], at))
            for at in range(kept, 4)
        ]
        return int.from_bytes(bytes([*octets[:kept], *new]), "big")

    def _groups(self, kind: str, groups: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(
            self._part(f"{kind} {groups[:at]}", group, hex_range(group))
            for at, group in enumerate(groups)
        )

    def _part(self, where: str, value: int, choices: range | tuple[int, ...]) -> int:
        """One part of an address, another for each value in the same place."""
        if value == 0:
            return value
        return int(str(self._once(where, value, lambda: self._random.choice(choices))))

    def _once(self, kind: str, value: object, draw: Callable[[], object]) -> object:
        """The replacement of `value`, drawn when first asked: never another's.

        Nor the value itself, unless nothing else is left (the tenth of ten digits).
        """
        if (kind, value) not in self._made:
            taken = self._taken.setdefault(kind, set())
            other = (new for new in self._drawn(draw) if new != value and new not in taken)
            same = (new for new in self._drawn(draw) if new not in taken)
            new = next(other, None) or next(same, None) or draw()
            taken.add(new)
            self._made[kind, value] = new
        return self._made[kind, value]

    def _drawn(self, draw: Callable[[], object]) -> Iterator[object]:
        return (draw() for _ in range(TRIES))

    def _char(self, old: str) -> str:
        if old.isdigit():
            return self._random.choice(string.digits)
        if old.isalpha():
            return self._random.choice(string.ascii_lowercase)
        return old

    def _hex(self, count: int) -> str:
        return "".join(self._random.choice(HEX) for _ in range(count))


def split(value: int, count: int) -> tuple[int, ...]:
    """A number as groups of 16 bits, the highest first."""
    return tuple((value >> 16 * at) & 0xFFFF for at in reversed(range(count)))


def joined(groups: tuple[int, ...]) -> int:
    """The number of these groups of 16 bits."""
    value = 0
    for group in groups:
        value = value << 16 | group
    return value


def hex_range(value: int) -> range:
    """Numbers with as many hex digits, so that a shortened address keeps its length."""
    digits = len(f"{value:x}")
    return range(16 ** (digits - 1), 16**digits)


def octet_range(value: int, at: int) -> range | tuple[int, ...]:
    """Octets with as many decimal digits."""
    low, high = {1: (1, 10), 2: (10, 100), 3: (100, 256)}[len(str(value))]
    return tuple(n for n in FIRST_OCTETS if low <= n < high) if at == 0 else range(low, high)
