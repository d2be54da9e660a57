# SPDX-License-Identifier: Apache-2.0
"""Texts without identifiers: those known by their place, and those known by their form."""

import re
from collections.abc import Callable

from gpuaudit.snapshot.disguise import Disguise
from gpuaudit.snapshot.identifiers import Identifiers, distinctive, identifying
from gpuaudit.snapshot.patterns import FLAGS, FORMS, PATTERN, guid, recased, replacement


class Scrubber:
    """Replaces identifiers in the texts of one recording."""

    def __init__(self, known: Identifiers) -> None:
        """`known` are the identifiers that only their place gives away."""
        self.disguise = Disguise()
        self._known = known
        self._patterns: dict[tuple[str, ...], re.Pattern[str]] = {(): PATTERN}
        self._seen: dict[tuple[str, bool], str] = {}

    def text(self, text: str, *, versions: bool = False) -> str:
        """A text without identifiers."""
        if text.isascii():
            return self._latin(text, versions)
        return self.bytes(text.encode(), versions=versions).decode("utf-8", "replace")

    def bytes(self, data: bytes, *, versions: bool = False) -> bytes:
        """The same for what may not be UTF-8: every byte is a character."""
        return self._latin(data.decode("latin-1"), versions).encode("latin-1")

    def whole(self, text: str, change: Callable[[str], str]) -> str:
        """A field that is an identifier as a whole, with the white space around it kept."""
        bare = text.strip("\0 \t\r\n")
        return text.replace(bare, change(bare), 1) if bare else text

    def serial(self, text: str, path: str = "") -> str:
        """The value of a field made for a serial number: as elsewhere, else as one word."""
        bare = identifying(text, path)
        if not bare:
            return text
        return self.whole(text, self.text if distinctive(bare) else self.disguise.word)

    def host(self, text: str) -> str:
        """The value of a field made for a host name."""
        return self.whole(text, self.disguise.domain)

    def _latin(self, text: str, versions: bool) -> str:  # noqa: FBT001 - only the two above call it
        """Short texts are met again and again; what has less than four letters holds nothing."""
        if len(text) < 4:
            return text
        if len(text) > 256:
            return self._replaced(text, versions)
        key = (text, versions)
        if key not in self._seen:
            self._seen[key] = self._replaced(text, versions)
        return self._seen[key]

    def _replaced(self, text: str, versions: bool) -> str:  # noqa: FBT001 - only _latin() calls it
        lowered = text.lower()
        present = tuple(one for one in self._known.everywhere if one in lowered)
        plain = tuple(f"={one}" for one in self._known.hosts if f"name={one}" in lowered)
        if (present + plain) not in self._patterns:
            self._patterns[present + plain] = compiled(present, self._known, plain)
        pattern = self._patterns[present + plain]
        return pattern.sub(lambda match: self._one(match, versions), text)

    def _one(self, match: re.Match[str], versions: bool) -> str:  # noqa: FBT001 - only _replaced() calls it
        if match.lastgroup == "literal":
            return self._literal(match[0])
        if match.lastgroup == "field":
            return match[0][: -len(match["value"])] + self.disguise.domain(match["value"])
        return replacement(match, self.disguise, versions=versions)

    def _literal(self, text: str) -> str:
        value = text.lower()
        kind = self._known.everywhere[value]
        if kind == "mac":
            return recased(self.disguise.mac(value), text)
        if kind == "guid":
            return recased(guid(value, self.disguise), text)
        if kind == "host":
            return self.disguise.domain(text)
        if self._is_hex_of_serial(value):
            return self.disguise.word(bytes.fromhex(value).decode("latin-1")).encode().hex()
        return self.disguise.word(text)

    def _is_hex_of_serial(self, value: str) -> bool:
        try:
            inside = bytes.fromhex(value).decode("latin-1").lower()
        except ValueError:
            return False
        return inside in self._known.everywhere


def compiled(
    present: tuple[str, ...], known: Identifiers, plain: tuple[str, ...]
) -> re.Pattern[str]:
    """FORMS, and before them the identifiers that stand in the text, the longest first."""
    words = sorted(present, key=len, reverse=True)
    literals = "|".join(bounded(one, known) for one in words)
    fields = "|".join(re.escape(one[1:]) for one in plain)
    parts = [f"(?P<literal> {literals} )"] if literals else []
    if fields:
        parts.append(rf"(?P<field> (?:host|node)[_-]?name= (?P<value> {fields} ) (?![\w-]) )")
    return re.compile("|".join([*parts, FORMS]), FLAGS)


def bounded(value: str, known: Identifiers) -> str:
    """Where a value may stand: long serial numbers also inside other words (an NQN holds one)."""
    kind, escaped = known.everywhere[value], re.escape(value)
    inside = kind != "host" and len(value) >= 8 and not value.isdigit()
    return escaped if inside else rf"(?<![0-9a-z]) {escaped} (?![0-9a-z])"
