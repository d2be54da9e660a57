# SPDX-License-Identifier: Apache-2.0
"""The device files of the driver."""

from collections.abc import Iterator
from typing import Literal

from gpuaudit.check import (
    Expectations,
    Finding,
    Severity,
    check,
    fails,
    not_applicable,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.devicenodes import MAJORS, NEEDED, DeviceNodes, Status, Wanted

READ_WRITE, GROUP, OTHERS = 0o666, 0o060, 0o006
Findings = Iterator[Finding]


class DriverDevicesExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of device files."""

    access: Literal["as-configured", "everyone"]


@check("driver-device-nodes", severity=Severity.HIGH)
def device_nodes(devices: DeviceNodes, want: DriverDevicesExpectations) -> Findings:
    """Users can open the device files of the driver.

    ## Why it matters
    A job opens /dev/nvidiactl, /dev/nvidia-uvm and the file of each of its GPUs. When one is
    missing, closed or left over from an earlier driver, CUDA finds no device or ends in error 999.

    ## Evidence
    Mode, owner and device number of /dev/nvidia*; DeviceFileMode, UID and GID in
    /proc/driver/nvidia/params; /proc/devices; nvidia-modprobe with set-user-ID.

    ## How it is judged
    A file fails when it is no device, has another major number than the driver, or less permission
    than the driver's parameters give; more permission warns, and so does a file that is left to a
    group of users, as udev rules of a site do. With `driver_devices.access: everyone`
    all must be open to everyone. A missing nvidiactl or nvidia-uvm fails where nvidia-modprobe
    cannot make it for users, a missing nvidia-uvm-tools, which profilers need, warns.

    ## Exceptions
    The file of a GPU that is missing is the matter of gpu-count: in a container and in a job only
    some are there. A container for `utility` alone is not given nvidia-uvm: what is missing in a
    container is not judged. Not applicable in an image. Device files of MIG instances are not
    judged. Who may open a file is also up to the device cgroup, which cannot be read.

    ## What to do
    Run `nvidia-modprobe -u -c 0` as root, and set NVreg_DeviceFileMode (and NVreg_DeviceFileGID) in
    /etc/modprobe.d if not everyone is to use the GPUs.

    ## References
    - https://download.nvidia.com/XFree86/Linux-x86_64/570.86.16/README/faq.html
    - https://man.archlinux.org/man/nvidia-modprobe.1
    """
    for name, found in devices.nodes.items():
        if not isinstance(found, Absent):
            yield judge(name, found, devices, want)
        elif found.kind == "missing" and name in NEEDED:
            yield judge_missing(name, devices)
        elif found.kind != "missing":
            yield unknown(f"/dev/{name}", found.reason)


def judge_missing(name: str, devices: DeviceNodes) -> Finding:
    """A file that is not there; the first program that needs it may have it made."""
    of = f"/dev/{name}"
    if devices.in_container:
        return not_applicable(of, "this container was not given it")
    if isinstance(devices.makes_them, Absent):
        return unknown(of, f"it is not there, and {devices.makes_them.reason}")
    if devices.makes_them:
        return passes(of, "made when a program needs it")
    if name == "nvidia-uvm-tools":
        return warns(of, "it is not there: profilers do not work", "missing")
    return fails(
        of, "it is not there and users cannot have it made: CUDA does not start", "missing"
    )


def judge(
    name: str, found: Status, devices: DeviceNodes, want: DriverDevicesExpectations
) -> Finding:
    """One file that is there."""
    of, shown = f"/dev/{name}", f"{found.mode & 0o777:04o}, {found.uid}:{found.gid}"
    if found.kind != "char":
        return fails(of, "it is no character device", found.kind)
    if (major := major_of(name, devices.majors)) not in {None, found.major}:
        message = f"its number is {found.major} and the driver has {major}: it is left over"
        return fails(of, message, found.major, expected=major)
    if want.access == "everyone":
        good = found.mode & OTHERS == OTHERS
        message = "not every user can open it"
        return passes(of, shown) if good else fails(of, message, shown, expected="0666")
    if isinstance(devices.wanted, Absent):
        return unknown(of, devices.wanted.reason, shown)
    return judge_mode(of, found, devices.wanted, shown)


def major_of(name: str, majors: dict[str, int] | Absent) -> int | None:
    """The driver's number for a file, None when /proc/devices does not tell."""
    known = {} if isinstance(majors, Absent) else majors
    kind = "nvidia-uvm" if name.startswith("nvidia-uvm") else "nvidiactl"
    return next((known[one] for one in MAJORS[kind] if one in known), None)


def judge_mode(of: str, found: Status, wanted: Wanted, shown: str) -> Finding:
    """Mode and owner against the driver's parameters; without them somebody has to get in."""
    mode, least = found.mode & READ_WRITE, wanted.mode & READ_WRITE
    if not wanted.modify:
        open_to_some = mode & OTHERS == OTHERS or (mode & GROUP == GROUP and found.gid != 0)
        message = "only root can open it"
        return passes(of, shown) if open_to_some else fails(of, message, shown)
    expected = f"{wanted.mode:04o}, {wanted.uid}:{wanted.gid}"
    group = least & OTHERS != OTHERS and mode & OTHERS != OTHERS and found.gid != wanted.gid
    if least & ~mode or group:
        by_rule = mode & GROUP == GROUP and found.gid != 0
        some = f"only group {found.gid} can open it, unlike what the driver is told"
        message = some if by_rule else "users cannot open it as the driver wants"
        return (warns if by_rule else fails)(of, message, shown, expected=expected)
    if mode & ~least:
        message = "more users can open it than the driver's parameters allow"
        return warns(of, message, shown, expected=expected)
    return passes(of, shown, expected=expected)
