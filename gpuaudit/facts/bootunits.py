# SPDX-License-Identifier: Apache-2.0
"""systemd units that the next boot starts, and services that run now.

Sources: systemd.unit(5) on .wants and .requires folders and on masks; bootup(7) on the targets of
a boot. A service that runs has a control group named after it (systemd.slice(5)).
"""

from gpuaudit.facts import systemd
from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.boot import boots_elsewhere
from gpuaudit.facts.present import target_if_there
from gpuaudit.facts.sysctl import names_in
from gpuaudit.host import Host, NotApplicable, Unavailable

ETC = "/etc/systemd/system"
FOLDERS = (ETC, "/usr/lib/systemd/system", "/lib/systemd/system")
GROUPS = ("/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/systemd/system.slice")
TARGETS = frozenset(
    {
        "basic.target",
        "default.target",
        "getty.target",
        "multi-user.target",
        "network-online.target",
        "network.target",
        "paths.target",
        "remote-fs.target",
        "sockets.target",
        "sysinit.target",
        "timers.target",
    }
)
"""Reached at every boot. bluetooth.target and printer.target wait for the device."""

GRAPHICAL = "graphical.target"
SCREEN = "display-manager.service"


class BootUnits(Fact, frozen=True, kw_only=True):
    """{/etc,/usr/lib}/systemd/system/*.{wants,requires}; /sys/fs/cgroup/system.slice.

    `enabled` leaves out what is masked. The login screen of a graphical boot is in it by the name
    of its unit and as display-manager.service.
    """

    enabled: frozenset[str]
    running: frozenset[str] | Absent


@probe
def boot_units(host: Host) -> BootUnits:
    """List the folders. Raises NotApplicable in a container, Unavailable when they are unread."""
    if (elsewhere := boots_elsewhere(host)) is not None:
        raise NotApplicable(elsewhere.reason)
    targets = reached(host)
    tops = {folder: names_in(host, folder) for folder in FOLDERS}
    if not any(tops.values()):
        raise NotApplicable("systemd is not installed: it has no units")
    holders = [
        f"{folder}/{name}"
        for folder, names in tops.items()
        for name in names
        if name.endswith((".wants", ".requires")) and name.rpartition(".")[0] in targets
    ]
    wanted = {unit for holder in holders for unit in host.list(holder)} | screen(host, targets)
    masked = {unit for unit in wanted.intersection(tops[ETC]) if is_masked(host, unit)}
    return BootUnits(enabled=frozenset(wanted - masked), running=running(host))


def is_masked(host: Host, unit: str) -> bool:
    """True for a link to /dev/null in /etc."""
    return systemd.is_masked(host, f"{ETC}/{unit}")


def reached(host: Host) -> frozenset[str]:
    """The targets of the next boot; graphical.target only where it is the default."""
    paths = (f"{folder}/default.target" for folder in FOLDERS)
    default = next((found for path in paths if (found := target_if_there(host, path))), "")
    return TARGETS | {GRAPHICAL} if default.endswith(f"/{GRAPHICAL}") else TARGETS


def screen(host: Host, targets: frozenset[str]) -> set[str]:
    """The login screen: graphical.target wants what this alias leads to."""
    found = target_if_there(host, f"{ETC}/{SCREEN}") if GRAPHICAL in targets else None
    if not found or found == "/dev/null":
        return set()
    unit = found.rpartition("/")[2]
    masked = unit in names_in(host, ETC) and is_masked(host, unit)
    return set() if masked else {SCREEN, unit}


def running(host: Host) -> frozenset[str] | Absent:
    """Services with a control group."""
    found = Absent("unsupported", "systemd does not run this machine: no service has its group")
    for folder in GROUPS:
        try:
            return frozenset(name for name in host.list(folder) if name.endswith(".service"))
        except NotApplicable as absent:
            return Absent("unsupported", absent.reason)
        except Unavailable as absent:
            if absent.kind != "missing":
                found = Absent("missing", absent.reason)
    return found
