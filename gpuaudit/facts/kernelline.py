# SPDX-License-Identifier: Apache-2.0
"""One line of the kernel's log, in any of the forms in which people keep it.

Records of /dev/kmsg (Linux Documentation/ABI/testing/dev-kmsg), what dmesg(1) prints plain and
with -r, -T and -x, journalctl(1) -k in its short forms and as JSON, and what syslog writes.
"""

import re
from typing import NamedTuple

import msgspec

LEVELS = ("emerg", "alert", "crit", "err", "warn", "notice", "info", "debug")
RECORD = re.compile(rb"([0-9]{1,6}),[0-9]+,([0-9]{1,18}),[^;]*;(.*)", re.DOTALL)
ESCAPED = rb"\\x([0-9a-f]{2})"
DECODED = r"[a-z0-9]+ *:([a-z]+) *: "
RAW_LEVEL = r"<([0-9]{1,5})>"
CALLER = r" ?\[ *[TC][0-9]+\]"
CLOCK = r"[0-9]:[0-9]{2}:[0-9]{2}"
OF_KERNEL = " kernel:"
LONGEST_HEAD = 160
LONG_TIMES = ((86400, "days"), (3600, "hours"), (60, "minutes"))
LONGEST_LINE = 8192  # CONSOLE_EXT_LOG_MAX: no kernel since 4.2 writes a longer one


class Line(NamedTuple):
    """A line: seconds since boot, level from 0 (emergency) to 7, and the text without those.

    `clock` is the time of day as the log writes it, where it does.
    """

    seconds: float | None
    level: int | None
    text: str
    clock: str = ""

    @property
    def when(self) -> str:
        """The time as people look for it in the same log."""
        if self.clock:
            return self.clock
        if self.seconds is None:
            return "an unknown time"
        for unit_s, unit in LONG_TIMES:
            if self.seconds >= 2 * unit_s:
                number = self.seconds / unit_s
                long = f"{number:.1f}".removesuffix(".0") if number < 10 else f"{number:.0f}"
                return f"{self.seconds:.0f} s ({long} {unit}) after boot"
        return f"{self.seconds:.0f} s after boot"


def parsed(raw: bytes) -> Line | None:
    """The line; None for what is none: nothing, or the properties behind a record of the ring."""
    if not raw or (raw[:1] == b" " and b"=" in raw):
        return None
    if raw[:1] == b"{":
        return from_journal(raw)
    raw = raw[:LONGEST_LINE]
    if raw[:1].isdigit() and (record := RECORD.fullmatch(raw)):
        text = re.sub(ESCAPED, lambda match: bytes([int(match[1], 16)]), record[3])
        return Line(int(record[2]) / 1e6, int(record[1]) & 7, clean(text))
    return from_text(clean(raw))


def clean(raw: bytes) -> str:
    """Text that a terminal can be given: names of processes are anybody's to choose."""
    text = raw[:LONGEST_LINE].decode("utf-8", "replace").strip("\r\n\0")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c in "\t\n" else "?" for c in text)


def from_journal(raw: bytes) -> Line | None:
    """A line of journalctl -o json (systemd.journal-fields(7))."""
    try:
        told = msgspec.json.decode(raw, type=dict[str, object])
        since = told.get("_SOURCE_MONOTONIC_TIMESTAMP")
        seconds = None if since is None else int(str(since)) / 1e6
        level = told.get("PRIORITY")
        text = clean(said(told.get("MESSAGE", "")))
        return Line(seconds, None if level is None else int(str(level)), text)
    except (ValueError, OverflowError, RecursionError):  # msgspec's own are ValueErrors too
        return None


def said(message: object) -> bytes:
    """A text; what is not UTF-8 stands there as a list of bytes. Raises ValueError."""
    if isinstance(message, list):
        return bytes(one if isinstance(one, int) else 0 for one in message)
    return str(message).encode()


def from_text(text: str) -> Line:
    """A line of dmesg, of journalctl in a short form, or of syslog."""
    clock, text = without_host(text)
    level, text = without_level(text)
    seconds, said, text = without_time(text)
    return Line(seconds, level, text, said or clock)


def without_host(text: str) -> tuple[str, str]:
    """Time of day, then the rest behind `host kernel:`; a time in brackets is left in front."""
    at = text.find(OF_KERNEL, 0, LONGEST_HEAD)
    head, space, host = text[:at].rpartition(" ")
    rest = text[at + len(OF_KERNEL) :].removeprefix(" ")
    if at < 0 or not space or (text[0] == "[" and not text[1:].lstrip()[:1].isdigit()):
        return "", text
    if head.startswith("[") and head.endswith("]"):
        return "", f"{head} {rest}"
    return (head, rest) if re.search(CLOCK, head) and host else ("", text)


def without_level(text: str) -> tuple[int | None, str]:
    """The level that dmesg prints with -r (<6>) or -x (kern  :info  :)."""
    if found := re.match(RAW_LEVEL, text):
        return int(found[1]) & 7, text[found.end() :]
    found = re.match(DECODED, text)
    if found and found[1] in LEVELS:
        return LEVELS.index(found[1]), text[found.end() :]
    return None, text


def without_time(text: str) -> tuple[float | None, str, str]:
    """Seconds since boot and time of day that stand in brackets in front, and the rest."""
    inside, closed, rest = text[1:].partition("]")
    word = inside.split()[:1] if text.startswith("[") and closed else []
    if not word:
        return None, "", text
    is_number = word[0].replace(".", "", 1).isdecimal()
    if not is_number and not re.search(CLOCK, inside) and not word[0].startswith("+"):
        return None, "", text
    if caller := re.match(CALLER, rest):
        rest = rest[caller.end() :]
    clock = "" if is_number or word[0].startswith("+") else inside.strip()
    return float(word[0]) if is_number else None, clock, rest.removeprefix(" ")
