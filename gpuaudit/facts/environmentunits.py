# SPDX-License-Identifier: Apache-2.0
"""Variables that systemd gives to services: to all of them, and to those that start jobs."""

import shlex
from collections.abc import Iterator

from gpuaudit.facts import systemd
from gpuaudit.facts.base import Absent
from gpuaudit.facts.daemons import CONTEXTS
from gpuaudit.facts.environmentfiles import PLAIN, Assignment, Place, file_of
from gpuaudit.facts.limits import absence
from gpuaudit.host import Host, NotApplicable, Unavailable
from gpuaudit.host.environ import matters

EVERY_SERVICE = "every service"


def units(host: Host, gaps: dict[str, Absent]) -> list[Assignment]:
    """DefaultEnvironment= of system.conf, then the units; what cannot be read goes into `gaps`."""
    found: list[Assignment] = []
    try:
        settings = systemd.config(host, "system.conf")
        found += assigned(settings, "Manager", "DefaultEnvironment", EVERY_SERVICE)
    except (Unavailable, NotApplicable) as absent:
        gaps["system.conf"] = absence(absent)
    for name in (unit for one in CONTEXTS.values() for unit in one.units):
        try:
            found += unit_of(host, name, gaps)
        except (Unavailable, NotApplicable) as absent:
            gaps[name] = absence(absent)
    return found


def unit_of(host: Host, name: str, gaps: dict[str, Absent]) -> list[Assignment]:
    """Environment= of a unit, then its EnvironmentFile=, which wins (systemd.exec(5))."""
    unit = systemd.unit(host, name)
    if unit is None or unit.masked:
        return []
    found = list(assigned(unit.settings, "Service", "Environment", name))
    for setting in in_force(unit.settings, "Service", "EnvironmentFile"):
        path = expanded(setting.value.removeprefix("-").strip('"'), name)
        if any(mark in path for mark in "*?[%"):
            gaps[setting.where] = Absent("failed", f"EnvironmentFile={path} names no single file")
            continue
        try:
            found += file_of(host, path, Place(PLAIN, name))
        except (Unavailable, NotApplicable) as absent:
            gaps[path] = absence(absent)
    return found


def assigned(
    settings: tuple[systemd.Setting, ...], section: str, key: str, reach: str
) -> Iterator[Assignment]:
    """The variables of Environment= lines: words with an equals sign, each perhaps in quotes."""
    for setting in in_force(settings, section, key):
        for word in words(setting.value):
            name, equals, value = word.partition("=")
            if equals and matters(name):
                yield Assignment(name, value, setting.where, reach)


def in_force(
    settings: tuple[systemd.Setting, ...], section: str, key: str
) -> list[systemd.Setting]:
    """The lines of a list; an empty one takes back those before it (systemd.exec(5))."""
    mine: list[systemd.Setting] = []
    for setting in settings:
        if setting.section == section and setting.key == key:
            mine = [*mine, setting] if setting.value else []
    return mine


def words(value: str) -> list[str]:
    """The words of a line of systemd, without their quotes."""
    try:
        return shlex.split(value)
    except ValueError:
        return value.split()


def expanded(path: str, unit: str) -> str:
    """The specifiers %n, %N and %p of systemd.unit(5) for a unit that is no template."""
    bare = unit.removesuffix(".service")
    return path.replace("%n", unit).replace("%N", bare).replace("%p", bare)
