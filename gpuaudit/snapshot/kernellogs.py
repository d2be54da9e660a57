# SPDX-License-Identifier: Apache-2.0
"""A kernel log as a scrubbed recording may hold it: the lines that checks look at and no other.

What is left out names disks, users, other machines and command lines in forms without number.
The first and the last line stay without their text, so that the replay knows how far the log goes.
"""

import re
from collections.abc import Iterator
from itertools import islice

from gpuaudit.facts.kernelfiles import AT_BOOT, BOOT, RECORDED, RING, SYSLOG
from gpuaudit.facts.kernelline import Line, parsed
from gpuaudit.facts.kernellog import WATCHED

LOGS = frozenset({RING, AT_BOOT, *RECORDED, *SYSLOG, *(f"{path}.1" for path in SYSLOG)})
NEEDLES = tuple(needle.encode() for needle in WATCHED)
LEFT_OUT = b"(left out)"
SYSLOG_HOST = re.compile(rb"^([^\[]{1,60} |\[[^\]]{1,40}\] )\S+( kernel:)")
BOOT_TEXT = re.compile(rb"(Linux version [0-9][\w.+-]*).*")
SERIAL = re.compile(rb"(serial(?: number)?[:= ]+)[\w.-]+", re.IGNORECASE)
NUMBER_OF_CPU = re.compile(rb"(PPIN:? *)(?:0x)?[0-9a-fA-F]+")


def is_log(path: str) -> bool:
    """True for a file that holds the kernel's log."""
    return path in LOGS


def harmless(data: bytes) -> bytes:
    """The log with what checks look at."""
    lines = data.split(b"\n")
    numbers = range(len(lines))
    ends = {
        at
        for order in (numbers, reversed(numbers))
        for at in islice((at for at in order if has_time(parsed(lines[at]))), 1)
    }
    return b"".join(one + b"\n" for one in kept(lines, ends))


def has_time(line: Line | None) -> bool:
    """It tells when it was written."""
    return line is not None and (line.seconds is not None or bool(line.clock))


def kept(lines: list[bytes], ends: set[int]) -> Iterator[bytes]:
    """The lines to keep, without what identifies the machine."""
    for at, raw in enumerate(lines):
        one = SYSLOG_HOST.sub(rb"\1node\2", raw.rstrip(b"\r"))
        if BOOT in one:
            yield BOOT_TEXT.sub(rb"\1", one)
        elif any(needle in one for needle in NEEDLES):
            yield SERIAL.sub(rb"\g<1>0", NUMBER_OF_CPU.sub(rb"\g<1>0", one))
        elif at in ends:
            yield without_text(one)


def without_text(raw: bytes) -> bytes:
    """The head of a line: number, level and time."""
    line = parsed(raw)
    text = line.text.encode() if line else b""
    if b";" in raw and raw[:1].isdigit():
        return raw.partition(b";")[0] + b";" + LEFT_OUT
    return raw.removesuffix(text) + LEFT_OUT if text and raw.endswith(text) else LEFT_OUT
