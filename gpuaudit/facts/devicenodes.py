# SPDX-License-Identifier: Apache-2.0
"""The device files of the NVIDIA driver, and what the driver wants of them."""

from typing import NamedTuple

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.gpuscan import GpuScan
from gpuaudit.facts.limits import absence
from gpuaudit.host import Host, NotApplicable, Status, Unavailable

__all__ = ["MAJORS", "NEEDED", "DeviceNodes", "Status", "Wanted", "device_nodes"]

DEV = "/dev"
PARAMS = "/proc/driver/nvidia/params"
MODPROBE = "/usr/bin/nvidia-modprobe"
NEEDED = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
SET_USER_ID = 0o4000
MAJORS = {"nvidiactl": ("nvidiactl", "nvidia-frontend", "nvidia"), "nvidia-uvm": ("nvidia-uvm",)}


class Wanted(NamedTuple):
    """Mode and owner that the driver gives to the files it makes; `modify`: it keeps them so."""

    mode: int
    uid: int
    gid: int
    modify: bool


class DeviceNodes(Fact, frozen=True, kw_only=True):
    """/dev/nvidia*, DeviceFile* of /proc/driver/nvidia/params, majors of /proc/devices.

    Parameters: NVreg_DeviceFileMode and its like (NVIDIA driver README, chapter on device files;
    kernel-open/nvidia/nv-reg.h). The mode is printed as a decimal number.
    """

    nodes: dict[str, Status | Absent]
    """Name -> its status; `missing` for one of NEEDED that is known not to be there."""

    wanted: Wanted | Absent
    majors: dict[str, int] | Absent
    makes_them: bool | Absent
    """Whether nvidia-modprobe may make missing ones: it is there with set-user-ID root."""

    in_container: bool = False


@probe
def device_nodes(host: Host, scan: GpuScan) -> DeviceNodes:
    """Look at every file. Raises NotApplicable in an image and without the driver."""
    if scan.image:
        raise NotApplicable("an image has no device files")
    if not host.exists("/proc/driver/nvidia/version"):
        raise NotApplicable("the NVIDIA kernel driver is not loaded")
    names = [name for name in host.list(DEV) if name.startswith("nvidia") and name[6:].isdigit()]
    return DeviceNodes(
        nodes={name: status(host, f"{DEV}/{name}") for name in (*names, *NEEDED)},
        wanted=wanted(host),
        majors=majors(host),
        makes_them=makes_them(host),
        in_container=scan.in_container,
    )


def status(host: Host, path: str) -> Status | Absent:
    """What stat says, or why it says nothing."""
    try:
        return host.status(path)
    except Unavailable as absent:
        return absence(absent)


def wanted(host: Host) -> Wanted | Absent:
    """The parameters of the loaded driver."""
    try:
        pairs = (line.partition(":") for line in host.read(PARAMS).splitlines())
        values = {key.strip(): value.strip() for key, _, value in pairs}
        mode = int(values["DeviceFileMode"])
        uid, gid = (int(values.get(f"DeviceFile{name}", "0")) for name in ("UID", "GID"))
        return Wanted(mode, uid, gid, values.get("ModifyDeviceFiles") != "0")
    except Unavailable as absent:
        return absence(absent)
    except (KeyError, ValueError):
        return Absent("failed", f"{PARAMS} names no DeviceFileMode")


def majors(host: Host) -> dict[str, int] | Absent:
    """Name -> major number of the character devices."""
    try:
        text = host.read("/proc/devices").partition("Block devices")[0]
    except Unavailable as absent:
        return absence(absent)
    rows = (line.split() for line in text.splitlines())
    return {row[1]: int(row[0]) for row in rows if len(row) == 2 and row[0].isdigit()}


def makes_them(host: Host) -> bool | Absent:
    """Whether the helper that makes device files for users is there."""
    try:
        found = host.status(MODPROBE)
    except Unavailable as absent:
        return False if absent.kind == "missing" else absence(absent)
    return bool(found.mode & SET_USER_ID) and found.uid == 0
