# SPDX-License-Identifier: Apache-2.0
"""What holds the clocks of a GPU down: nvmlClocksEventReason... of nvml.h, one bit a reason."""

from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpurecord import Gpu

IDLE, APPLICATION, SLOWDOWN = 0x1, 0x2, 0x8
HARMLESS = {
    IDLE: "idle",
    APPLICATION: "application clocks",
    0x4: "power cap",
    0x10: "sync boost",
    0x100: "display clocks",
}
HARMFUL = {
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
LIMITS = {0x200: "board limit", 0x400: "reliability limit"}
NAMES = {**HARMLESS, SLOWDOWN: "hardware slowdown", **HARMFUL, **LIMITS}


def names_of(reasons: int) -> str:
    """The set bits as words; bits that a newer driver added as a number."""
    words = [word for bit, word in NAMES.items() if reasons & bit]
    if rest := reasons & ~sum(NAMES):
        words.append(f"unknown {rest:#x}")
    return ", ".join(words) or "none"


def either_reason(gpu: Gpu) -> int:
    """The reasons that were seen early or late."""
    told = (gpu.clock_reasons, gpu.clock_reasons_later)
    early, late = (0 if isinstance(one, Absent) else one for one in told)
    return early | late
