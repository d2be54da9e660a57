# SPDX-License-Identifier: Apache-2.0
"""Which CPUs are possible, present and online.

Source: Linux Documentation/admin-guide/cputopology.rst.
"""

import re
from typing import Literal, TypeVar

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.cpusets import format_list, parse_list, parse_mask
from gpuaudit.host import Host, Unavailable

FOLDER = "/sys/devices/system/cpu"
T = TypeVar("T")
KINDS: dict[str, Literal["unsupported", "denied", "missing"]] = {
    "missing": "unsupported",
    "denied": "denied",
    "not-recorded": "missing",
}
CPU = re.compile(r"cpu([0-9]{1,5})")


class CpuSets(Fact, frozen=True, kw_only=True):
    """/sys/devices/system/cpu/{possible,present,online}. possible > present: empty sockets."""

    possible: frozenset[int] | Absent
    present: frozenset[int] | Absent
    online: frozenset[int] | Absent


@probe
def cpu_sets(host: Host) -> CpuSets:
    """Read the three lists. Old recordings tell only by folders which CPUs are online."""
    online = read_cpu_set(host, f"{FOLDER}/online") or Absent("failed", "no CPU is online")
    if isinstance(online, Absent):
        online = online_folders(host, online)
    present = read_cpu_set(host, f"{FOLDER}/present")
    if isinstance(present, Absent):
        present = present_folders(host, online, present)
    possible = read_cpu_set(host, f"{FOLDER}/possible")
    return CpuSets(possible=possible, present=present, online=online)


def read_cpu_set(host: Host, list_path: str, mask_path: str = "") -> frozenset[int] | Absent:
    """A set of CPUs from a list file or, where only that is there, from a hex mask file."""
    text, parse = text_of(host, list_path), parse_list
    if isinstance(text, Absent) and mask_path:
        text, parse = text_of(host, mask_path), parse_mask
    if isinstance(text, Absent):
        return text
    try:
        return parse(text)
    except ValueError as error:
        return Absent("failed", f"{list_path}: {error}")


def cpu_folders(host: Host) -> frozenset[int]:
    """CPUs that have a folder: the present ones, unless a recording left some out."""
    found = (CPU.fullmatch(name) for name in host.names(FOLDER))
    return frozenset(int(match[1]) for match in found if match)


def online_folders(host: Host, otherwise: Absent) -> frozenset[int] | Absent:
    """CPUs whose folder says that they are online. One that says nothing leaves all unknown."""
    states = {cpu: is_online(host, f"{FOLDER}/cpu{cpu}") for cpu in cpu_folders(host)}
    on = frozenset(cpu for cpu, state in states.items() if state)
    return otherwise if None in states.values() or not on else on


def present_folders(
    host: Host, online: frozenset[int] | Absent, otherwise: Absent
) -> frozenset[int] | Absent:
    """CPUs with a folder, where some of them are offline.

    A recording may have left others out: that all in it are online says nothing of those.
    """
    folders = cpu_folders(host)
    return otherwise if isinstance(online, Absent) or folders <= online else folders


def is_online(host: Host, folder: str) -> bool | None:
    """By `online`, which the boot CPU often lacks, else by `topology`, which goes with the CPU.

    Linux drivers/base/cpu.c (register_cpu) and drivers/base/topology.c (topology_remove_dev).
    """
    state = host.optional(f"{folder}/online")
    if state in {"0", "1"}:
        return state == "1"
    return True if "topology" in host.names(folder) else None


class Smt(Fact, frozen=True, kw_only=True):
    """/sys/devices/system/cpu/smt/control: on, off, forceoff, notsupported, notimplemented.

    Powerpc also prints the number of threads in use (Documentation/ABI/testing/
    sysfs-devices-system-cpu).
    """

    control: str | Absent


@probe
def smt(host: Host) -> Smt:
    """Read the switch. Kernels before 4.19 have none."""
    return Smt(control=text_of(host, f"{FOLDER}/smt/control"))


def known(cpus: T | Absent) -> T:
    """The value. Raises Unavailable when it could not be told."""
    if isinstance(cpus, Absent):
        raise Unavailable(cpus.reason, "denied" if cpus.kind == "denied" else "not-recorded")
    return cpus


def text_of(host: Host, path: str) -> str | Absent:
    """A file of the kernel. Known to be missing is "unsupported": this kernel has no such thing."""
    try:
        return host.read(path)
    except Unavailable as absent:
        return Absent(KINDS.get(absent.kind, "failed"), absent.reason)


def number_of(host: Host, path: str, most: int = 1 << 31) -> int | Absent:
    """Like text_of, for a file that holds one integer from zero to `most`."""
    try:
        number = host.read_int(path)
    except Unavailable as absent:
        return Absent(KINDS.get(absent.kind, "failed"), absent.reason)
    if not 0 <= number <= most:
        return Absent("failed", f"{path} holds {number}, which cannot be")
    return number


def named(cpus: frozenset[int]) -> str:
    """CPUs as a subject of findings: "CPU 3", "CPUs 0-19"."""
    return f"CPU {format_list(cpus)}" if len(cpus) == 1 else f"CPUs {format_list(cpus)}"
