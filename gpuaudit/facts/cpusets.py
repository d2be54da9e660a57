# SPDX-License-Identifier: Apache-2.0
"""The two spellings of a CPU set in the kernel: lists (0-3,8) and hex masks (ff,00000000).

Sources: Linux lib/bitmap.c, bitmap_parselist() and bitmap_parse().
"""

import re

PART = r"[0-9]{1,6}(-[0-9]{1,6}(:[0-9]{1,6}/[0-9]{1,6})?)?"
LIST = re.compile(f"{PART}(,{PART})*")
MASK = re.compile(r"(0x)?[0-9a-f]{1,8}(,[0-9a-f]{8})*|(0x)?[0-9a-f]{9,}", re.IGNORECASE)
MAX_CPU = 1 << 14  # Linux is built for at most 8192 (NR_CPUS)
MAX_MASK = MAX_CPU // 4 + MAX_CPU // 32  # hex digits, and a comma after every eight


class CpuSetError(ValueError):
    """A text that is neither a CPU list nor a mask."""


def parse_list(text: str) -> frozenset[int]:
    """'0-3,8' -> {0, 1, 2, 3, 8}. Raises CpuSetError."""
    text = text.strip()
    if not text:
        return frozenset()
    if not LIST.fullmatch(text):
        raise CpuSetError(f"{text[:40]!r} is no CPU list")
    parts = [parse_part(part) for part in text.split(",")]
    # The kernel names no CPU twice; a file that does costs minutes to add up.
    if sum(map(len, parts)) > MAX_CPU:
        raise CpuSetError(f"{text[:40]!r} names more than {MAX_CPU} CPUs")
    return frozenset(cpu for part in parts for cpu in part)


def parse_part(part: str) -> range | list[int]:
    """One range of a list: 7, 0-3, or 0-31:2/8 (the first 2 of every 8)."""
    span, _, stride = part.partition(":")
    first, _, last = span.partition("-")
    start, stop = int(first), int(last or first)
    if stop < start or stop >= MAX_CPU:
        raise CpuSetError(f"{part!r} is no CPU range")
    if not stride:
        return range(start, stop + 1)
    used, _, group = stride.partition("/")
    if not int(group):
        raise CpuSetError(f"{part!r} has groups of no size")
    return [cpu for cpu in range(start, stop + 1) if (cpu - start) % int(group) < int(used)]


def parse_mask(text: str) -> frozenset[int]:
    """'ff,00000000' -> {32, ..., 39}. Raises CpuSetError."""
    text = text.strip()
    if len(text) > MAX_MASK or not MASK.fullmatch(text):
        raise CpuSetError(f"{text[:40]!r} is no CPU mask")
    bits = bin(int(text.replace(",", ""), 16))
    return frozenset(cpu for cpu, bit in enumerate(reversed(bits)) if bit == "1")


def format_list(cpus: frozenset[int] | set[int]) -> str:
    """{0, 1, 2, 8} -> '0-2,8', as the kernel writes it."""
    ordered = sorted(cpus)
    firsts = [cpu for cpu in ordered if cpu - 1 not in cpus]
    lasts = [cpu for cpu in ordered if cpu + 1 not in cpus]
    spans = zip(firsts, lasts, strict=True)
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
