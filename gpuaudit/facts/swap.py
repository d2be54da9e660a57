# SPDX-License-Identifier: Apache-2.0
"""Swap: what is on now, and what the next boot turns on."""

import re

from gpuaudit.facts import systemd
from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.boot import boots_elsewhere
from gpuaudit.facts.fstab import fstab, plain
from gpuaudit.facts.limits import absence
from gpuaudit.host import Host, NotApplicable, Unavailable

GENERATOR = "zram-generator"
GENERATOR_FOLDERS = tuple(f"{f}/system-generators" for f in systemd.CONFIG_FOLDERS)
# Units of zram-tools (Debian), zram-config (Ubuntu) and dphys-swapfile.
SERVICES = frozenset({"zramswap.service", "zram-config.service", "dphys-swapfile.service"})
PULLS = (".wants", ".requires")


class Swap(Fact, frozen=True, kw_only=True):
    """Swap areas.

    `running`: the names in /proc/swaps. `next_boot`: the places that turn one on: lines of
    /etc/fstab without noauto, *.swap units and zram services that a target pulls in, sections of
    zram-generator.conf. A swap partition that systemd-gpt-auto-generator finds by its type is not
    among them.
    """

    running: tuple[str, ...] | Absent
    next_boot: tuple[str, ...] | Absent


@probe
def swap(host: Host) -> Swap:
    """Read both; never raises."""
    elsewhere = boots_elsewhere(host)
    try:
        now: tuple[str, ...] | Absent = running(host)
    except (Unavailable, NotApplicable) as absent:
        now = absence(absent)
    try:
        return Swap(running=now, next_boot=elsewhere or configured(host))
    except Unavailable as absent:
        return Swap(running=now, next_boot=absence(absent))


def running(host: Host) -> tuple[str, ...]:
    """The first column of /proc/swaps. A kernel without swap has no such file."""
    try:
        lines = host.read("/proc/swaps").split("\n")
    except Unavailable as absent:
        if absent.kind == "missing":
            return ()
        raise
    if not lines[0].startswith("Filename"):
        raise Unavailable(f"/proc/swaps starts with {lines[0][:40]!r}", "garbled")
    return tuple(plain(line.split()[0]) for line in lines[1:] if line.split())


def configured(host: Host) -> tuple[str, ...]:
    """Every place that turns swap on at boot. Raises Unavailable."""
    lines = (line for line in fstab(host) if line.type == "swap" and "noauto" not in line.options)
    return (*(line.where for line in lines), *units(host), *zram(host))


def units(host: Host) -> tuple[str, ...]:
    """Swap units and zram services that some target or service pulls in, unless masked."""
    found: dict[str, str] = {}
    for folder in systemd.UNIT_FOLDERS:
        for pull in (name for name in systemd.names(host, folder) if name.endswith(PULLS)):
            for name in systemd.names(host, f"{folder}/{pull}"):
                if name.endswith(".swap") or name in SERVICES:
                    found.setdefault(name, f"{folder}/{pull}/{name}")
    return tuple(path for name, path in found.items() if can_start(host, name))


def can_start(host: Host, name: str) -> bool:
    """True when the unit is there and not masked."""
    unit = systemd.unit(host, name)
    return unit is not None and not unit.masked


def zram(host: Host) -> tuple[str, ...]:
    """Sections of zram-generator.conf that make swap, where the generator is installed.

    A section with another fs-type or with a mount-point makes a file system, and zram-size = 0
    makes nothing (zram-generator.conf(5)).
    """
    if not any(GENERATOR in systemd.names(host, folder) for folder in GENERATOR_FOLDERS):
        return ()
    settings = systemd.config(host, f"{GENERATOR}.conf")
    devices = dict.fromkeys(s.section for s in settings if re.fullmatch(r"zram\d{1,4}", s.section))
    return tuple(f"{GENERATOR}.conf [{name}]" for name in devices if makes_swap(settings, name))


def makes_swap(settings: tuple[systemd.Setting, ...], section: str) -> bool:
    """True unless the section says what else it makes."""
    values = {s.key: s.value for s in settings if s.section == section}
    other = values.get("fs-type", "swap") not in {"", "swap"} or bool(values.get("mount-point"))
    return not other and values.get("zram-size", "") != "0"
