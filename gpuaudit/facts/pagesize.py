# SPDX-License-Identifier: Apache-2.0
"""The kernel's page size, and whether this is an NVIDIA Grace CPU."""

import re
import struct

from gpuaudit.facts.base import Fact, probe
from gpuaudit.facts.node import Machine
from gpuaudit.host import Host, NotApplicable, Unavailable

AUXV = "/proc/self/auxv"
AT_NULL, AT_PAGESZ = 0, 6  # Linux include/uapi/linux/auxvec.h
# Arm Neoverse V2, MIDR_EL1 implementer 0x41 and part 0xd4f (Linux
# arch/arm64/include/asm/cputype.h); no other CPU with it is sold with NVIDIA GPUs.
NEOVERSE_V2 = r"(?ms)^CPU implementer\s*: 0x41$.*?^CPU part\s*: 0xd4f$"


class PageSize(Fact, frozen=True, kw_only=True):
    """AT_PAGESZ of /proc/self/auxv, and the CPU of /proc/cpuinfo."""

    kib: int
    grace: bool


@probe
def page_size(host: Host, machine: Machine) -> PageSize:
    """Read both. Raises NotApplicable where the architecture leaves no choice."""
    if machine.architecture == "x86_64":
        raise NotApplicable("x86 has pages of 4 KiB only")
    size = page_size_in(host.read_bytes(AUXV))
    grace = re.search(NEOVERSE_V2, host.optional("/proc/cpuinfo") or "") is not None
    return PageSize(kib=size // 1024, grace=grace)


def page_size_in(data: bytes) -> int:
    """The page size in an auxiliary vector of 64-bit words (getauxval(3)). Raises Unavailable."""
    for kind, value in struct.iter_unpack("<QQ", data[: len(data) // 16 * 16]):
        if kind == AT_PAGESZ and value >= 1024:
            return int(value)
        if kind == AT_NULL:
            break
    raise Unavailable(f"{AUXV} names no page size", "garbled")
