# SPDX-License-Identifier: Apache-2.0
"""NVMe controllers, their block devices, and software RAID."""

import re
from typing import NamedTuple

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.limits import absence
from gpuaudit.host import Host, NotApplicable, Unavailable

CONTROLLERS, BLOCKS = "/sys/class/nvme", "/sys/block"
NAMESPACE = re.compile(r"nvme\d+(c\d+)?n\d+")
ARRAY = re.compile(r"(md\S*) : (\S+)(?: \(([\w-]+)\))?(?: (raid\w+|linear|multipath|faulty))?(.*)")
MEMBERS = re.compile(r"\[(\d+)/(\d+)\] \[([U_]+)\]")
CONTAINER = re.compile(r"super external:[^/\s]+\s")
"""The metadata of Intel VROC (imsm) and DDF: a device that holds arrays, is none and never active
(mdadm(8), CONTAINER; super_show of its arrays reads external:/md127/0)."""

PROGRESS = re.compile(r"(recovery|resync|reshape|check) *= *([\d.]+%)")


class Controller(NamedTuple):
    """/sys/class/nvme/X: state, cntrltype, and how many namespaces are below it.

    `stores` is False for controllers of discovery and administration, which have no namespace.
    """

    name: str
    state: str | Absent
    namespaces: int | Absent
    stores: bool = True


class Drive(NamedTuple):
    """/sys/block/X/queue of an NVMe namespace. `scheduler` is the word in brackets."""

    name: str
    scheduler: str | Absent
    read_ahead_kib: int | Absent


class NvmeDrives(Fact, frozen=True, kw_only=True):
    """Controllers and namespaces (Linux Documentation/ABI/stable/sysfs-block)."""

    controllers: tuple[Controller, ...]
    drives: tuple[Drive, ...]


class Array(NamedTuple):
    """One array of /proc/mdstat (md(4)). `missing` of its members are; `doing` is "" at rest."""

    name: str
    state: str
    level: str
    members: int | None
    missing: int
    failed: tuple[str, ...]
    doing: str


class Arrays(Fact, frozen=True, kw_only=True):
    """/proc/mdstat."""

    arrays: tuple[Array, ...]


@probe
def nvme_drives(host: Host) -> NvmeDrives:
    """Read every controller and namespace. Raises Unavailable, NotApplicable."""
    try:
        names = host.list(CONTROLLERS)
    except Unavailable as absent:
        if absent.kind == "missing":
            raise NotApplicable("no NVMe driver is loaded") from None
        raise
    if not names:
        raise NotApplicable("no NVMe controller")
    blocks = [name for name in host.list(BLOCKS) if NAMESPACE.fullmatch(name)]
    return NvmeDrives(
        controllers=tuple(controller(host, name) for name in names),
        drives=tuple(drive(host, name) for name in blocks),
    )


def controller(host: Host, name: str) -> Controller:
    """One controller. With native multipath the namespaces hang below its subsystem."""
    folder = f"{CONTROLLERS}/{name}"
    try:
        state: str | Absent = host.read(f"{folder}/state")
    except Unavailable as absent:
        state = absence(absent)
    try:
        inside = host.list(folder)
    except Unavailable as absent:
        return Controller(name, state, absence(absent))
    number = sum(bool(NAMESPACE.fullmatch(one)) for one in inside)
    kind = None if number else host.optional(f"{folder}/cntrltype")
    return Controller(name, state, number, kind not in {"discovery", "admin"})


def drive(host: Host, name: str) -> Drive:
    """One namespace."""
    folder = f"{BLOCKS}/{name}/queue"
    try:
        text = host.read(f"{folder}/scheduler")
        found = re.search(r"\[([^\[\]]+)\]", text)
        chosen: str | Absent = found[1] if found else chosen_alone(text)
    except Unavailable as absent:
        chosen = absence(absent)
    try:
        ahead: int | Absent = host.read_int(f"{folder}/read_ahead_kb")
    except Unavailable as absent:
        ahead = absence(absent)
    return Drive(name, chosen, ahead)


def chosen_alone(text: str) -> str | Absent:
    """A device without a queue of requests prints none without brackets."""
    return text if text == "none" else Absent("failed", f"scheduler reads {text[:40]!r}")


@probe
def arrays(host: Host) -> Arrays:
    """Parse the table. Raises Unavailable, NotApplicable."""
    try:
        text = host.read("/proc/mdstat")
    except Unavailable as absent:
        if absent.kind == "missing":
            raise NotApplicable("the kernel has no software RAID loaded") from None
        raise
    if not text.startswith("Personalities"):
        raise Unavailable(f"/proc/mdstat starts with {text[:40]!r}", "garbled")
    blocks = re.split(r"\n(?=md)", text)[1:]
    blocks = [block for block in blocks if not CONTAINER.search(f"{block}\n")]
    found = tuple(one for one in map(array, blocks) if one is not None)
    if len(found) < len(blocks):
        raise Unavailable("an array in /proc/mdstat cannot be read", "garbled")
    if not found:
        raise NotApplicable("no software RAID array")
    return Arrays(arrays=found)


def array(block: str) -> Array | None:
    """'md0 : active raid1 nvme1n1p2[1] nvme0n1p2[0](F)', then '... [2/1] [U_]'."""
    head, _, rest = block.partition("\n")
    match = ARRAY.match(head)
    if not match:
        return None
    count, doing = MEMBERS.search(rest), PROGRESS.search(rest)
    failed = re.findall(r"(\S+)\[\d+\]\(F\)", match[5])
    return Array(
        name=match[1],
        state=match[2],
        level=match[4] or "",
        members=int(count[1]) if count else None,
        missing=count[3].count("_") if count else 0,
        failed=tuple(failed),
        doing=f"{doing[1]} {doing[2]}" if doing else "",
    )
