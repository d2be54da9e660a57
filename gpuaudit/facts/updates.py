# SPDX-License-Identifier: Apache-2.0
"""Automatic updates, and what keeps them from the NVIDIA driver.

Sources: README of unattended-upgrades, apt.conf(5), apt_preferences(5), dpkg(1) on the selection
"hold"; the manual of dnf-automatic; the plugin versionlock of dnf.
"""

import re

from gpuaudit.facts.base import Fact, probe
from gpuaudit.facts.bootunits import BootUnits
from gpuaudit.facts.driver import DriverLibraries
from gpuaudit.facts.present import text_if_there
from gpuaudit.facts.sysctl import names_in
from gpuaudit.host import Host, NotApplicable

APT_TIMER = "apt-daily-upgrade.timer"
APT_PROGRAM = "/usr/bin/unattended-upgrade"
DNF_TIMERS = ("dnf-automatic-install.timer", "dnf-automatic.timer", "dnf5-automatic.timer")
DNF_SETTINGS = "/etc/dnf/automatic.conf"
OF_PACKAGES = "/usr/lib"
UNINSTALL = "/usr/bin/nvidia-uninstall"
"""NVIDIA's own installer (.run) leaves it; no package has it (nvidia-installer, README)."""

LOCKS = ("/etc/dnf/plugins/versionlock.list", "/etc/dnf/versionlock.toml")
PACKAGE = r"(?m)^Package: ((?:lib)?nvidia-\S+)\n(?:Essential: \S+\n)?Status: (\S+) ok installed$"
DRIVER = r"(lib)?nvidia-(driver|dkms|kernel|open|compute|ml|fabricmanager|headless)"
PERIODIC = r'Unattended-Upgrade\s+"([^"]*)"\s*;'
BLACKLIST = r"Package-Blacklist\s*\{([^}]*)\}"


class AutomaticUpdates(Fact, frozen=True, kw_only=True):
    """What may replace the driver by itself, and what forbids that.

    /etc/apt/apt.conf.d, /etc/apt/preferences.d, /var/lib/dpkg/status; /etc/dnf. `by` is None where
    nothing installs updates by itself. `kept_by` names the first thing that holds the driver back.
    """

    by: str | None
    kept_by: str | None
    packages: tuple[str, ...] = ()
    """Driver packages of Debian's package manager; rpm's are not read."""


@probe
def automatic_updates(host: Host, units: BootUnits, libraries: DriverLibraries) -> AutomaticUpdates:
    """Read the settings. Raises NotApplicable where no driver is installed, Unavailable."""
    if not any(path.startswith(OF_PACKAGES) for path in libraries.versions):
        raise NotApplicable(
            "no NVIDIA driver is in the usual library folders: no update can replace it"
        )
    if APT_TIMER in units.enabled and host.exists(APT_PROGRAM):
        settings = apt_settings(host)
        if (re.findall(PERIODIC, settings) or ["0"])[-1] not in {"", "0"}:
            return of_apt(host, settings)
    timer = next((name for name in DNF_TIMERS if name in units.enabled), None)
    if timer is None or not applies(host, timer):
        return AutomaticUpdates(by=None, kept_by=None)
    by_installer = "nvidia-installer, no package" if host.exists(UNINSTALL) else None
    return AutomaticUpdates(by=timer, kept_by=by_installer or dnf_lock(host))


def apt_settings(host: Host) -> str:
    """Apt's settings in the order they take effect, without comments."""
    folder = "/etc/apt/apt.conf.d"
    paths = [f"{folder}/{name}" for name in names_in(host, folder) if is_apt_name(name, ".conf")]
    texts = [text_if_there(host, path) or "" for path in (*paths, "/etc/apt/apt.conf")]
    return re.sub(r"^[ \t]*(//|#(?!clear|include)).*$", "", "\n".join(texts), flags=re.MULTILINE)


def is_apt_name(name: str, suffix: str) -> bool:
    """Apt reads names without a dot, and those with its own suffix."""
    return "." not in name or name.endswith(suffix)


def of_apt(host: Host, settings: str) -> AutomaticUpdates:
    """unattended-upgrades: what is held, listed as forbidden, or pinned."""
    status = text_if_there(host, "/var/lib/dpkg/status") or ""
    found = {name: state for name, state in re.findall(PACKAGE, status) if re.match(DRIVER, name)}
    held = [name for name, state in found.items() if state == "hold"]
    kept = f"hold on {held[0]}" if held else forbidden(settings, found) or pinned(host)
    return AutomaticUpdates(by="unattended-upgrades", kept_by=kept, packages=tuple(sorted(found)))


def forbidden(settings: str, packages: dict[str, str]) -> str | None:
    """A pattern of Unattended-Upgrade::Package-Blacklist that names a driver package."""
    words = [
        w for block in re.findall(BLACKLIST, settings) for w in re.findall(r'"([^"]+)"', block)
    ]
    for word in words:
        plain = word.lstrip("^").rstrip("$*.")
        if plain and any(name.startswith(plain) for name in packages):
            return f"Package-Blacklist {word}"
    return None


def pinned(host: Host) -> str | None:
    """A pin in apt's preferences that fixes the version of NVIDIA packages or forbids them."""
    folder = "/etc/apt/preferences.d"
    paths = [f"{folder}/{name}" for name in names_in(host, folder) if is_apt_name(name, ".pref")]
    for path in (*paths, "/etc/apt/preferences"):
        for stanza in (text_if_there(host, path) or "").split("\n\n"):
            names = re.search(r"^Package:.*nvidia", stanza, re.MULTILINE)
            fixed = re.search(r"^Pin: version|^Pin-Priority: -", stanza, re.MULTILINE)
            if names and fixed:
                return path
    return None


def applies(host: Host, timer: str) -> bool:
    """dnf-automatic only downloads unless it is told to install."""
    text = text_if_there(host, DNF_SETTINGS) or ""
    told = re.search(r"(?im)^[ \t]*apply_updates\s*=\s*(yes|true|1|on)\s*$", text)
    return timer == DNF_TIMERS[0] or told is not None


def dnf_lock(host: Host) -> str | None:
    """A version lock or an exclude line that names NVIDIA packages."""
    for path in LOCKS:
        lines = (text_if_there(host, path) or "").splitlines()
        if any("nvidia" in line and not line.startswith(("#", "!")) for line in lines):
            return path
    for path in ("/etc/dnf/dnf.conf", DNF_SETTINGS):
        text = text_if_there(host, path) or ""
        if re.search(r"^[ \t]*(exclude|excludepkgs)[ \t]*=.*nvidia", text, re.MULTILINE):
            return path
    return None
