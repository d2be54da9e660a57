# SPDX-License-Identifier: Apache-2.0
"""What the active tuned profile sets.

Source: tuned-profiles(7), tuned-main.conf(5). Files in /etc win over /usr/lib, a profile wins over
those it includes, and with `reapply_sysctl` (the default) sysctl.d wins over tuned.
"""

from gpuaudit.facts.base import Fact, probe
from gpuaudit.facts.present import target_if_there, text_if_there
from gpuaudit.facts.sysctl import names_in
from gpuaudit.host import Host, Unavailable

ACTIVE = "/etc/tuned/active_profile"
FOLDERS = ("/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned")
UNIT = "/etc/systemd/system/multi-user.target.wants/tuned.service"
MOST_PROFILES = 32
Sections = dict[str, dict[str, str]]


class TunedSetting(Fact, frozen=True, kw_only=True):
    """One value and the profile file it stands in."""

    value: str
    file: str


class Tuned(Fact, frozen=True, kw_only=True):
    """/etc/tuned/active_profile and the files of its profiles.

    Keys of `settings` are (section, key), for example ("sysctl", "kernel.numa_balancing"). It has
    nothing when tuned is not enabled at boot.
    """

    profiles: tuple[str, ...]
    enabled: bool
    settings: dict[tuple[str, str], TunedSetting]
    missing: tuple[str, ...] = ()
    """Profiles without a file."""


@probe
def tuned(host: Host) -> Tuned:
    """Read the profile and what it includes, which may be none. Raises Unavailable."""
    profiles = tuple((text_if_there(host, ACTIVE) or "").split())
    if len(profiles) > MOST_PROFILES:
        raise Unavailable(f"{ACTIVE} names {len(profiles)} profiles", "garbled")
    enabled = is_named(host, UNIT)
    settings: dict[tuple[str, str], TunedSetting] = {}
    for profile in profiles if enabled else ():
        settings |= settings_of(host, profile, frozenset())
    missing = tuple(one for one in profiles if enabled and profile_file(host, one) is None)
    return Tuned(profiles=profiles, enabled=enabled, settings=settings, missing=missing)


def profile_file(host: Host, profile: str) -> str | None:
    """The file that counts of those that a profile may have."""
    paths = (f"{folder}/{profile}/tuned.conf" for folder in FOLDERS if "/" not in profile)
    return next((path for path in paths if target_if_there(host, path)), None)


def is_named(host: Host, path: str) -> bool:
    """Whether a folder has this name, wherever the link leads."""
    folder, _, name = path.rpartition("/")
    return name in names_in(host, folder)


def settings_of(
    host: Host, profile: str, seen: frozenset[str]
) -> dict[tuple[str, str], TunedSetting]:
    """Settings of a profile over those of the profiles it includes. A circle ends where it met.

    Raises Unavailable.
    """
    if not profile or profile in seen or "/" in profile:
        return {}
    path = profile_file(host, profile)
    if path is None:
        return {}
    sections = parse_profile(text_if_there(host, path) or "")
    settings: dict[tuple[str, str], TunedSetting] = {}
    parents = sections.get("main", {}).get("include", "").replace(";", ",").split(",")
    if len(seen) * len(parents) > MOST_PROFILES:
        raise Unavailable(f"{path} includes too many profiles", "garbled")
    for parent in parents:
        settings |= settings_of(host, parent.strip().removeprefix("-"), seen | {profile})
    own = {(s, k): v for s, pairs in sections.items() for k, v in pairs.items() if s != "main"}
    return settings | {place: TunedSetting(value=v, file=path) for place, v in own.items()}


def parse_profile(text: str) -> Sections:
    """[section] and key=value lines; # and ; start comments at the start of a line."""
    sections: Sections = {}
    current: dict[str, str] = {}
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("[") and line.endswith("]"):
            current = sections.setdefault(line[1:-1].strip(), {})
        elif line and line[0] not in "#;":
            key, _, value = line.partition("=")
            current[key.strip()] = value.strip()
    return sections
