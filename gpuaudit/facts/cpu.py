# SPDX-License-Identifier: Apache-2.0
"""Which CPUs are possible, present and online.

Source: Linux Documentation/admin-guide/cputopology.rst.
"""

import re
from typing import Literal

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.cpusets import CpuSetError, parse_list, parse_mask
from gpuaudit.host import Host, Unavailable

FOLDER = "/sys/devices/system/cpu"
KINDS: dict[str, Literal["unsupported", "denied", "missing"]] = {
    "missing": "unsupported",
    "denied": "denied",
    "not-recorded": "missing",
}
CPU = re.compile(r"cpu(\d+)")


class CpuSets(Fact, frozen=True, kw_only=True):
    """/sys/devices/system/cpu/{possible,present,online}. possible > present: empty sockets."""

    possible: frozenset[int] | Absent
    present: frozenset[int] | Absent
    online: frozenset[int] | Absent


@probe
def cpu_sets(host: Host) -> CpuSets:
    """Read the three lists; old recordings have only the folders of the CPUs."""
    online = read_cpu_set(host, f"{FOLDER}/online")
    present = read_cpu_set(host, f"{FOLDER}/present")
    return CpuSets(
        possible=read_cpu_set(host, f"{FOLDER}/possible"),
        present=cpu_folders(host) or present if isinstance(present, Absent) else present,
        online=online_folders(host) or online if isinstance(online, Absent) else online,
    )


def read_cpu_set(host: Host, list_path: str, mask_path: str = "") -> frozenset[int] | Absent:
    """A set of CPUs from a list file or, where only that is there, from a hex mask file."""
    text, parse = text_of(host, list_path), parse_list
    if isinstance(text, Absent) and mask_path:
        text, parse = text_of(host, mask_path), parse_mask
    if isinstance(text, Absent):
        return text
    try:
        return parse(text)
    except CpuSetError as error:
        return Absent("failed", f"{list_path}: {error}")


def cpu_folders(host: Host) -> frozenset[int]:
    """CPUs that have a folder: the present ones."""
    found = (CPU.fullmatch(name) for name in host.names(FOLDER))
    return frozenset(int(match[1]) for match in found if match)


def online_folders(host: Host) -> frozenset[int]:
    """CPUs with a folder that does not say it is offline (the first one often says nothing)."""
    return frozenset(
        c for c in cpu_folders(host) if host.optional(f"{FOLDER}/cpu{c}/online") != "0"
    )


class Smt(Fact, frozen=True, kw_only=True):
    """/sys/devices/system/cpu/smt/control: on, off, forceoff, notsupported, notimplemented.

    Powerpc also prints the number of threads in use (Documentation/ABI/testing/
    sysfs-devices-system-cpu).
    """

    control: str


@probe
def smt(host: Host) -> Smt:
    """Read the switch. Raises Unavailable on kernels before 4.19, which have none."""
    return Smt(control=host.read(f"{FOLDER}/smt/control"))


def text_of(host: Host, path: str) -> str | Absent:
    """A file of the kernel. Known to be missing is "unsupported": this kernel has no such thing."""
    try:
        return host.read(path)
    except Unavailable as absent:
        return Absent(KINDS.get(absent.kind, "failed"), absent.reason)


def number_of(host: Host, path: str) -> int | Absent:
    """Like text_of, for a file that holds one integer."""
    try:
        return host.read_int(path)
    except Unavailable as absent:
        return Absent(KINDS.get(absent.kind, "failed"), absent.reason)
