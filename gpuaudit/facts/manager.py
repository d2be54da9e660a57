# SPDX-License-Identifier: Apache-2.0
"""The limits that systemd gives to services without limits of their own."""

from gpuaudit.facts import systemd
from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.limits import Limit, Limits, Reading, absence
from gpuaudit.host import Host, NotApplicable, Unavailable

PROPERTIES = (
    "DefaultLimitMEMLOCK",
    "DefaultLimitMEMLOCKSoft",
    "DefaultLimitNOFILE",
    "DefaultLimitNOFILESoft",
)
RESOURCES = ("MEMLOCK", "NOFILE")
BUILT_IN = Limits(memlock=Limit(8 << 20, 8 << 20), nofile=Limit(1024, 524288))
NEXT_BOOT = "system.conf at the next boot"
BUILT_IN_NAME = "systemd's built-in default"
INSTALLED = ("/usr/lib/systemd/systemd", "/lib/systemd/systemd", "/etc/systemd")


class DefaultLimits(Fact, frozen=True, kw_only=True):
    """DefaultLimitMEMLOCK and DefaultLimitNOFILE of systemd.

    `running` is what `systemctl show` answers, `next_boot` what system.conf and its drop-ins say.
    Unset they are 8 MiB and 1024:524288 (systemd-system.conf(5) since v250 and v240); before, the
    kernel's, which are smaller: 64 KiB or 8 MiB, and 1024:4096.
    """

    running: Reading
    next_boot: Reading


@probe
def default_limits(host: Host) -> DefaultLimits:
    """Read both. Raises NotApplicable where systemd does not run, Unavailable when unknown."""
    if host.source != "image" and not host.exists("/run/systemd/system"):
        raise NotApplicable("systemd does not run this machine: /run/systemd/system is not there")
    if host.source == "image" and not any(host.exists(path) for path in INSTALLED):
        raise NotApplicable("systemd is not installed in this image")
    memlock, nofile = shown(host, "MEMLOCK"), shown(host, "NOFILE")
    running = Reading(
        subject="running systemd",
        memlock=memlock,
        nofile=nofile,
        now=True,
        evidence=("systemctl show",),
    )
    return DefaultLimits(running=running, next_boot=configured(host))


def shown(host: Host, name: str) -> Limit | Absent:
    """The running manager's default, as `systemctl show` prints it."""
    try:
        output = host.run("systemctl", "show", f"--property={','.join(PROPERTIES)}")
    except (Unavailable, NotApplicable) as absent:
        return absence(absent)
    found = dict(line.partition("=")[::2] for line in output.stdout.split("\n"))
    words = (found.get(f"DefaultLimit{name}{kind}", "").strip() for kind in ("Soft", ""))
    value = ":".join(words).replace(str(systemd.RLIM_INFINITY), "infinity")
    setting = systemd.Setting(section="", key=name, value=value, where="systemctl show")
    try:
        return systemd.parse_limit(setting)
    except Unavailable as absent:
        if output.returncode:
            return Absent("failed", f"systemctl show failed: {output.stderr.strip()[:80]}")
        return absence(absent)


def configured(host: Host) -> Reading:
    """The default of the next boot."""
    try:
        settings = systemd.config(host, "system.conf")
    except Unavailable as absent:
        return Reading(
            subject=NEXT_BOOT, memlock=absence(absent), nofile=absence(absent), now=False
        )
    found = {name: systemd.last(settings, "Manager", f"DefaultLimit{name}") for name in RESOURCES}
    return Reading(
        subject=NEXT_BOOT,
        memlock=limit_of(found["MEMLOCK"], BUILT_IN.memlock),
        nofile=limit_of(found["NOFILE"], BUILT_IN.nofile, of_bytes=False),
        now=False,
        evidence=tuple(s.where for s in found.values() if s) or (BUILT_IN_NAME,),
    )


def limit_of(
    setting: systemd.Setting | None, otherwise: Limit | Absent, *, of_bytes: bool = True
) -> Limit | Absent:
    """The limit a setting gives, or the one that holds without it."""
    if setting is None:
        return otherwise
    try:
        return systemd.parse_limit(setting, of_bytes=of_bytes)
    except Unavailable as absent:
        return absence(absent)


def of_unit(unit: systemd.Unit, defaults: Reading) -> Reading:
    """What a unit's processes get at the next boot: its own limits or systemd's defaults."""
    found = {name: unit.last("Service", f"Limit{name}") for name in RESOURCES}
    return Reading(
        subject=f"{unit.name} at the next boot",
        memlock=limit_of(found["MEMLOCK"], defaults.memlock),
        nofile=limit_of(found["NOFILE"], defaults.nofile, of_bytes=False),
        now=False,
        evidence=tuple(dict.fromkeys((unit.path, *(s.where for s in found.values() if s)))),
    )
