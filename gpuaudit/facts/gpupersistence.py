# SPDX-License-Identifier: Apache-2.0
"""Who keeps the persistence mode: the daemon or the driver's legacy mode."""

import re

from gpuaudit.facts import systemd
from gpuaudit.facts.base import Fact, probe
from gpuaudit.facts.bootunits import ETC, BootUnits
from gpuaudit.facts.driver import DriverLibraries
from gpuaudit.facts.present import text_if_there
from gpuaudit.facts.sysctl import is_there, names_in
from gpuaudit.host import Host, NotApplicable, Unavailable

UNIT = "nvidia-persistenced.service"
CONTAINER = "/run/nvidia/driver"
"""Where NVIDIA's GPU Operator mounts the root of its driver container."""

RULES = ("/etc/udev/rules.d", "/usr/lib/udev/rules.d", "/lib/udev/rules.d")
OFF = "--no-persistence-mode"
LEGACY = r"nvidia-smi\b.*(?:-pm|--persistence-mode)[= ]?(?:1|ENABLED)"

COMM = "nvidia-persiste"
"""The kernel cuts names at 15 bytes (TASK_COMM_LEN, Linux include/linux/sched.h)."""


class PersistenceDaemon(Fact, frozen=True, kw_only=True):
    """Whether nvidia-persistenced is in the process table; None when that is not to be had."""

    running: bool | None


@probe
def persistence_daemon(host: Host) -> PersistenceDaemon:
    """Look for the process."""
    try:
        table = host.processes()
    except Unavailable:
        return PersistenceDaemon(running=None)
    running = any(one.name.startswith(COMM) for one in table)
    hidden = not running and all(one.pid != 1 for one in table)
    return PersistenceDaemon(running=None if hidden else running)


class PersistenceAtBoot(Fact, frozen=True, kw_only=True):
    """What turns persistence on at the next boot.

    nvidia-persistenced.service with its drop-ins and the links or udev rules that start it; else a
    unit of the site or /etc/rc.local with `nvidia-smi -pm 1`. `by` is None where nothing does, and
    `but` says what is wrong with what is there.
    """

    by: str | None
    but: str


@probe
def persistence_at_boot(
    host: Host, units: BootUnits, libraries: DriverLibraries
) -> PersistenceAtBoot:
    """Read the unit. Raises NotApplicable where no driver is installed, Unavailable."""
    if not libraries.versions:
        raise NotApplicable("no NVIDIA driver is in the usual library folders")
    if is_there(host, CONTAINER):
        raise NotApplicable("the driver's container brings the daemon with it")
    unit = systemd.unit(host, UNIT)
    started = UNIT in units.enabled or by_udev(host) is not None
    if unit is not None and not unit.masked and started:
        command = unit.last("Service", "ExecStart")
        if command is None or OFF not in command.value.split():
            return PersistenceAtBoot(by=unit.path, but="")
        but = f"{command.where} starts the daemon with {OFF}"
    else:
        state = "not installed" if unit is None else "masked" if unit.masked else "not enabled"
        but = f"{UNIT} is {state}"
    by = by_site(host, units)
    return PersistenceAtBoot(by=by, but="" if by else but)


def by_udev(host: Host) -> str | None:
    """The rule that starts the daemon with the driver, as Ubuntu's packages have it."""
    for folder in RULES:
        for name in names_in(host, folder):
            if "nvidia" in name and name.endswith(".rules"):
                lines = (text_if_there(host, f"{folder}/{name}") or "").splitlines()
                if any("nvidia-persistenced" in line and line[:1] != "#" for line in lines):
                    return f"{folder}/{name}"
    return None


def by_site(host: Host, units: BootUnits) -> str | None:
    """A unit of the site that is enabled, or /etc/rc.local, that turns the legacy mode on."""
    names = set(names_in(host, ETC)) & units.enabled
    mine = sorted(n for n in names if n.endswith(".service") and n != UNIT)
    for path in (*(f"{ETC}/{name}" for name in mine), "/etc/rc.local"):
        lines = (text_if_there(host, path) or "").splitlines()
        if any(re.search(LEGACY, line) and line.lstrip()[:1] != "#" for line in lines):
            return path
    return None
