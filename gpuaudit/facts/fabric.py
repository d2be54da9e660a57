# SPDX-License-Identifier: Apache-2.0
"""NVIDIA Fabric Manager: the process, its unit at the next boot, its version."""

import re
from typing import Literal

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.driver import DriverLibraries, version_of
from gpuaudit.facts.gpuscan import GpuScan
from gpuaudit.host import Host, NotApplicable, Unavailable

UNIT = "nvidia-fabricmanager.service"
UNIT_FOLDERS = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
COMM = "nv-fabricmanage"
"""The kernel cuts names at 15 bytes (TASK_COMM_LEN, Linux include/linux/sched.h)."""

HIDDEN = Absent("denied", "the processes of other users are hidden: needs root")
"""The mount option hidepid= of /proc also hides process 1 from users (proc(5))."""

ELSEWHERE = Absent("unsupported", "Fabric Manager runs without its unit, as in a driver container")
"""NVIDIA's GPU Operator starts it in the container of the driver."""

PACKAGE = re.compile(r"^Package: nvidia-fabricmanager(-\d+)?$", re.MULTILINE)
UnitState = Literal["enabled", "disabled", "masked", "not installed"]
RELEASE = re.compile(r"\b(\d{3,4}\.\d+(?:\.\d+)?)")


class FabricProcess(Fact, frozen=True, kw_only=True):
    """Whether nv-fabricmanager is in the process table."""

    running: bool | Absent


class FabricUnit(Fact, frozen=True, kw_only=True):
    """nvidia-fabricmanager.service: its file, and the links that start it at the next boot."""

    state: UnitState | Absent


class FabricVersion(Fact, frozen=True, kw_only=True):
    """Version of Fabric Manager and of the driver that it has to equal.

    `nv-fabricmanager --version` (Fabric Manager User Guide, section 2.6), else the package in
    /var/lib/dpkg/status; the driver's from /proc/driver/nvidia/version or, in an image and where
    the two differ (driver-library-match), from the name of its library.
    """

    manager: str | Absent
    driver: str | Absent


@probe
def fabric_process(host: Host, scan: GpuScan) -> FabricProcess:
    """Look for the process. Raises NotApplicable in an image and where there is no GPU."""
    del scan
    try:
        table = host.processes()
    except Unavailable as absent:
        return FabricProcess(running=Absent("missing", absent.reason))
    running = any(one.name.startswith(COMM) for one in table)
    hidden = not running and all(one.pid != 1 for one in table)
    return FabricProcess(running=HIDDEN if hidden else running)


@probe
def fabric_unit(host: Host) -> FabricUnit:
    """Read the unit's files as systemd does (man systemd.unit, section unit file load path)."""
    try:
        state = unit_state(host)
    except Unavailable as absent:
        return FabricUnit(state=Absent("missing", absent.reason))
    return FabricUnit(state=ELSEWHERE if state == "not installed" and runs(host) else state)


def runs(host: Host) -> bool:
    """Whether Fabric Manager is to be seen in the process table."""
    try:
        return any(one.name.startswith(COMM) for one in host.processes())
    except (Unavailable, NotApplicable):
        return False


def unit_state(host: Host) -> UnitState:
    """The word of `systemctl is-enabled`, as far as files tell it. Raises Unavailable."""
    if is_masked(host):
        return "masked"
    if not any(host.exists(f"{folder}/{UNIT}") for folder in UNIT_FOLDERS):
        return "not installed"
    return "enabled" if is_wanted(host, UNIT) else "disabled"


def is_masked(host: Host) -> bool:
    """A unit in /etc that is a link to /dev/null, which images and snapshots do not hold."""
    folder = UNIT_FOLDERS[0]
    try:
        return host.resolve(f"{folder}/{UNIT}") == "/dev/null"
    except Unavailable as absent:
        return absent.kind == "missing" and UNIT in host.names(folder)


def is_wanted(host: Host, unit: str) -> bool:
    """Whether a .wants or .requires folder of /etc/systemd/system names the unit."""
    folder = "/etc/systemd/system"
    if not host.exists(folder):
        return False
    holders = [n for n in host.list(folder) if n.endswith((".wants", ".requires"))]
    return any(unit in host.list(f"{folder}/{holder}") for holder in holders)


@probe
def fabric_version(
    host: Host, scan: GpuScan, libraries: DriverLibraries, unit: FabricUnit
) -> FabricVersion:
    """Ask the program; where it cannot run, the package."""
    named = sorted(set(libraries.versions.values()))
    if scan.image:
        driver: str | Absent = named[0] if named else Absent("missing", "no driver in the image")
        manager = package_version(host)
        if isinstance(manager, Absent) and unit.state != "not installed":
            manager = Absent("failed", f"{UNIT} is there, but {manager.reason}")
        return FabricVersion(manager=manager, driver=driver)
    line = (host.optional("/proc/driver/nvidia/version") or "").partition("\n")[0]
    loaded = version_of(host, line)
    # After an update without a reboot the libraries show what the next driver will be.
    driver = loaded if isinstance(loaded, Absent) or not named or loaded in named else named[0]
    version = program_version(host)
    elsewhere = isinstance(version, Absent) and unit.state == ELSEWHERE
    return FabricVersion(manager=ELSEWHERE if elsewhere else version, driver=driver)


def program_version(host: Host) -> str | Absent:
    """'Fabric Manager version is : 570.86.15' -> 570.86.15."""
    try:
        output = host.run("nv-fabricmanager", "--version")
    except Unavailable as absent:
        known = package_version(host)
        return Absent("missing", absent.reason) if isinstance(known, Absent) else known
    match = RELEASE.search(output.stdout)
    if output.returncode == 0 and match:
        return match[1]
    return Absent("failed", f"nv-fabricmanager --version said {output.stdout[:60]!r}")


def package_version(host: Host) -> str | Absent:
    """Version of the Debian package, without its revision."""
    for stanza in (host.optional("/var/lib/dpkg/status") or "").split("\n\n"):
        if PACKAGE.search(stanza) and "\nStatus: install ok installed" in stanza:
            match = re.search(r"^Version: (?:\d+:)?(\d[\d.]*)", stanza, re.MULTILINE)
            if match:
                return match[1]
    return Absent("missing", "no package nvidia-fabricmanager in /var/lib/dpkg/status")
