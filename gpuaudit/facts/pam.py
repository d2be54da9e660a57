# SPDX-License-Identifier: Apache-2.0
"""The limits that a user gets who logs in by SSH."""

import re
from typing import NamedTuple

import msgspec

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.daemons import JobDaemons
from gpuaudit.facts.limits import Limit, Reading, absence
from gpuaudit.facts.systemd import drop_ins
from gpuaudit.host import Host, Unavailable

LIMITS_CONF = "/etc/security/limits.conf"
LIMITS_FOLDER = "/etc/security/limits.d"
PAM_FOLDERS = ("/etc/pam.d", "/usr/lib/pam.d", "/usr/etc/pam.d")
SSHD_CONFIGS = ("/etc/ssh/sshd_config", "/usr/etc/ssh/sshd_config")
UNLIMITED = frozenset({"-1", "-", "unlimited", "infinity"})
UNITS = {"memlock": 1024, "nofile": 1}
KINDS = frozenset({"soft", "hard", "-"})
FIRST_UID = 1000  # of ordinary users: UID_MIN of login.defs(5)
RULE = re.compile(r"-?(\S+)\s+(\[[^\]]*\]|\S+)\s+(\S+)\s*(.*)")
MAX_DEPTH = 8


class Entry(NamedTuple):
    """One line of limits.conf(5) about one item."""

    domain: str
    kind: str
    item: str
    value: str
    where: str


class LoginLimits(Fact, frozen=True, kw_only=True):
    """limits.conf and limits.d, as pam_limits applies them to an SSH login of an ordinary user.

    They count only where sshd says `UsePAM yes` and the session part of /etc/pam.d/sshd, with all
    it includes, names pam_limits.so. What they leave unset is inherited from sshd. Lines for single
    users and groups are named as evidence only.
    """

    readings: tuple[Reading, ...] | Absent


@probe
def login_limits(host: Host, daemons: JobDaemons) -> LoginLimits:
    """Lay the lines for ordinary users over the limits of sshd; never raises."""
    sshd = daemons.contexts["sshd"]
    if isinstance(sshd, Absent):
        return LoginLimits(readings=sshd)
    try:
        applied = uses_pam(host) and has_pam_limits(host, "sshd")
        entries = limits_lines(host) if applied else ()
    except Unavailable as absent:
        why = absence(absent)
        holes = tuple(msgspec.structs.replace(r, memlock=why, nofile=why) for r in sshd)
        return LoginLimits(readings=tuple(map(as_login, holes)))
    found = tuple(as_login(overlay(reading, entries)) for reading in sshd)
    if applied:
        return LoginLimits(readings=found)
    note = "sshd does not use pam_limits: limits.conf has no effect"
    return LoginLimits(
        readings=tuple(msgspec.structs.replace(r, evidence=(*r.evidence, note)) for r in found)
    )


def as_login(reading: Reading) -> Reading:
    """The reading of sshd as that of a login through it."""
    when = "" if reading.now else " at the next boot"
    return msgspec.structs.replace(reading, subject=f"SSH login{when}")


def overlay(reading: Reading, entries: tuple[Entry, ...]) -> Reading:
    """The limits of sshd with the lines of limits.conf on top."""
    mine = [entry for entry in entries if is_ordinary(entry.domain)]
    places = [
        e.where if is_ordinary(e.domain) else f"not for every user: {e.where}" for e in entries
    ]
    return msgspec.structs.replace(
        reading,
        memlock=laid(reading.memlock, mine, "memlock"),
        nofile=laid(reading.nofile, mine, "nofile"),
        evidence=(*reading.evidence, *dict.fromkeys(places)),
    )


def laid(base: Limit | Absent, entries: list[Entry], item: str) -> Limit | Absent:
    """One limit after pam_limits. A soft limit above the hard one is cut (setup_limits)."""
    try:
        soft, hard = (decided(entries, item, kind) for kind in ("soft", "hard"))
    except Unavailable as absent:
        return absence(absent)
    if isinstance(base, Absent) and not (soft and hard):
        return base
    below = base if isinstance(base, Limit) else Limit(None, None)
    top = hard[0] if hard else below.hard
    low = soft[0] if soft else below.soft
    cut = low if top is None else top if low is None else min(low, top)
    return Limit(cut, top)


def decided(entries: list[Entry], item: str, kind: str) -> tuple[int | None] | None:
    """The value of the line that decides, None when none does.

    A uid range outranks `*`; among equals the last line wins (pam_limits.c, process_limit).
    Raises Unavailable naming the line when its value is no number.
    """
    mine = [e for e in entries if e.item == item and e.kind in {kind, "-"}]
    if not mine:
        return None
    entry = max(enumerate(mine), key=lambda pair: (pair[1].domain != "*", pair[0]))[1]
    if entry.value in UNLIMITED:
        return (None,)
    # strtoul() reads the digits in front: 64M is 64, in KiB.
    digits = re.match(r"[0-9]{1,18}", entry.value)
    if not digits:
        raise Unavailable(f"{entry.where}: {item} {entry.value[:30]} is no limit", "garbled")
    return (int(digits[0]) * UNITS[item],)


def is_ordinary(domain: str) -> bool:
    """True for `*` and for a range of user IDs that takes in every ordinary user."""
    match = re.fullmatch(r"([0-9]{1,9}):([0-9]{0,10})", domain)
    if not match:
        return domain == "*"
    return int(match[1]) <= FIRST_UID and (not match[2] or int(match[2]) >= 60000)


def limits_lines(host: Host) -> tuple[Entry, ...]:
    """limits.conf, then limits.d/*.conf in C order. Raises Unavailable."""
    main = [LIMITS_CONF] if host.exists(LIMITS_CONF) else []
    paths = (*main, *drop_ins(host, [LIMITS_FOLDER]))
    return tuple(entry for path in paths for entry in parse_limits_conf(read(host, path), path))


def parse_limits_conf(text: str, path: str) -> tuple[Entry, ...]:
    """The lines about memlock and nofile; a line needs four words, more are passed over."""
    found = []
    for number, raw in enumerate(re.split(r"\r\n|[\n\r]", text), 1):
        words = raw.partition("#")[0].split()
        if len(words) >= 4 and words[2].lower() in UNITS and words[1].lower() in KINDS:
            kind, item, value = (word.lower() for word in words[1:4])
            found.append(Entry(words[0], kind, item, value, f"{path}:{number}"))
    return tuple(found)


def read(host: Host, path: str) -> str:
    """A file with its first lines kept, so that line numbers are right. Raises Unavailable."""
    return host.read_bytes(path).decode("utf-8", "replace")


def uses_pam(host: Host) -> bool:
    """UsePAM of sshd_config(5): the first value counts, the default is no. Raises Unavailable."""
    path = next((path for path in SSHD_CONFIGS if host.exists(path)), SSHD_CONFIGS[0])
    found = keyword(host, path, "usepam", 0)
    return found is not None and found.lower() == "yes"


def keyword(host: Host, path: str, name: str, depth: int) -> str | None:
    """The first value of a keyword before any Match block, with includes. Raises Unavailable."""
    if depth > MAX_DEPTH or not host.exists(path):
        return None
    for raw in re.split(r"\r\n|[\n\r]", read(host, path)):
        words = re.split(r"[\s=]+", raw.partition("#")[0].strip(), maxsplit=1)
        key, value = words[0].lower(), words[1].strip('" ') if len(words) > 1 else ""
        if key == "match":
            return None
        files = included(host, value) if key == "include" else []
        inner = (keyword(host, file, name, depth + 1) for file in files)
        found = value if key == name else next((v for v in inner if v is not None), None)
        if found is not None:
            return found
    return None


def included(host: Host, pattern: str) -> list[str]:
    """The files of an Include line: FOLDER/*.conf or one file, below /etc/ssh if relative."""
    path = pattern if pattern.startswith("/") else f"/etc/ssh/{pattern}"
    return drop_ins(host, [path.removesuffix("/*.conf")]) if path.endswith("/*.conf") else [path]


def has_pam_limits(host: Host, service: str, depth: int = 0) -> bool:
    """True when the session stack of a service reaches pam_limits.so. Raises Unavailable."""
    path = next((f"{f}/{service}" for f in PAM_FOLDERS if host.exists(f"{f}/{service}")), None)
    if path is None or depth > MAX_DEPTH:
        return False
    return any(reaches_limits(host, line, depth) for line in re.split(r"[\r\n]+", read(host, path)))


def reaches_limits(host: Host, raw: str, depth: int) -> bool:
    """One line of a PAM file (pam.conf(5)); @include is Debian's."""
    line = raw.partition("#")[0].strip()
    if line.startswith("@include"):
        return has_pam_limits(host, line.removeprefix("@include").strip(), depth + 1)
    match = RULE.fullmatch(line)
    if not match or match[1].lower() != "session":
        return False
    if match[2] in {"include", "substack"}:
        return has_pam_limits(host, match[3], depth + 1)
    return match[3].rpartition("/")[2] == "pam_limits.so"
