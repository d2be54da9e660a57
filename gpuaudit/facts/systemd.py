# SPDX-License-Identifier: Apache-2.0
"""systemd's configuration as the next boot will read it: its own files, units and drop-ins.

/run is left out on purpose: nothing there survives the boot. What holds now is read from the
processes and from the running manager. Order of folders: systemd.unit(5), systemd-system.conf(5).
"""

import re

import msgspec

from gpuaudit.facts.limits import Limit
from gpuaudit.host import Host, Unavailable

CONFIG_FOLDERS = ("/etc/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd", "/lib/systemd")
UNIT_FOLDERS = ("/etc/systemd/system.control", *(f"{folder}/system" for folder in CONFIG_FOLDERS))
INIT_SCRIPTS = "/etc/init.d"
SIZE = re.compile(r"([0-9]{1,20})(?:\.([0-9]{1,6}))?\s*([KMGTPE]?)B?", re.ASCII)
POWERS = {letter: 1 << 10 * power for power, letter in enumerate(("", *"KMGTPE"))}
RLIM_INFINITY = (1 << 64) - 1


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One `key=value` and where it stands ('/etc/systemd/system.conf:12').

    A section's header is one too, without a key.
    """

    section: str
    key: str
    value: str
    where: str


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """A unit with its drop-ins merged in order. `masked`: it cannot be started."""

    name: str
    path: str
    masked: bool
    settings: tuple[Setting, ...]

    def last(self, section: str, key: str) -> Setting | None:
        """The assignment that decides."""
        return last(self.settings, section, key)


def parse(text: str, path: str) -> tuple[Setting, ...]:
    """The assignments of a file, in order (systemd.syntax(7)). What is none is passed over."""
    found: list[Setting] = []
    section = ""
    for number, line in logical_lines(text):
        header = line.startswith("[") and line.endswith("]")
        section = line[1:-1] if header else section
        key, equals, value = (part.strip() for part in ("=" if header else line).partition("="))
        if equals and section:
            where = f"{path}:{number}"
            found.append(Setting(section=section, key=key, value=value, where=where))
    return tuple(found)


def logical_lines(text: str) -> list[tuple[int, str]]:
    """Lines with their number: continued ones joined, comments and empty ones left out."""
    joined: list[tuple[int, str]] = []
    open_line: tuple[int, str] | None = None
    for number, raw in enumerate(re.split(r"\r\n|[\n\r\0]", text), 1):
        line = raw.strip(" \t\ufeff")
        if line.startswith(("#", ";")):
            continue
        first, front = open_line or (number, "")
        if line.endswith("\\"):
            open_line = (first, f"{front}{line[:-1]} ")
            continue
        open_line = None
        joined.append((first, f"{front}{line}".strip()))
    return [(number, line) for number, line in (*joined, *((open_line,) if open_line else ()))]


def names(host: Host, folder: str) -> tuple[str, ...]:
    """The names in a folder, none when it is known not to be there. Raises Unavailable."""
    try:
        return host.list(folder)
    except Unavailable as absent:
        if absent.kind == "missing":
            return ()
        raise


def is_masked(host: Host, path: str) -> bool:
    """True for a link to /dev/null, to nothing, and for an empty file."""
    try:
        return host.resolve(path) == "/dev/null" or not host.read_bytes(path)
    except Unavailable as absent:
        if absent.kind == "missing":
            return True
        raise


def read_settings(host: Host, path: str) -> tuple[Setting, ...]:
    """The assignments of one file; none when it is masked. Raises Unavailable."""
    if is_masked(host, path):
        return ()
    return parse(host.read_bytes(path).decode("utf-8", "replace"), path)


def drop_ins(host: Host, folders: list[str]) -> list[str]:
    """The *.conf of several folders in name order; of equal names the first folder's counts."""
    found: dict[str, str] = {}
    for folder in folders:
        for name in names(host, folder):
            if name.endswith(".conf"):
                found.setdefault(name, f"{folder}/{name}")
    return [found[name] for name in sorted(found)]


def config(host: Host, name: str) -> tuple[Setting, ...]:
    """A file of systemd (`system.conf`), from the first folder that has it, then its drop-ins."""
    main = next((f"{f}/{name}" for f in CONFIG_FOLDERS if name in names(host, f)), None)
    paths = ([main] if main else []) + drop_ins(host, [f"{f}/{name}.d" for f in CONFIG_FOLDERS])
    return tuple(setting for path in paths for setting in read_settings(host, path))


def unit(host: Host, name: str) -> Unit | None:
    """A unit, None when there is known to be none. Raises Unavailable."""
    path = next((f"{f}/{name}" for f in UNIT_FOLDERS if name in names(host, f)), None)
    script = f"{INIT_SCRIPTS}/{name.removesuffix('.service')}"
    if path is None and script.rpartition("/")[2] not in names(host, INIT_SCRIPTS):
        return None
    masked = path is not None and is_masked(host, path)
    if masked:
        return Unit(name=name, path=path or script, masked=True, settings=())
    paths = ([path] if path else []) + drop_ins(host, drop_in_folders(host, name, path))
    settings = tuple(setting for p in paths for setting in read_settings(host, p))
    return Unit(name=name, path=path or script, masked=False, settings=settings)


def drop_in_folders(host: Host, name: str, path: str | None) -> list[str]:
    """The drop-in folders of a unit that are there, the most specific first.

    Those of its alias and of its real name, then of each prefix that ends in a dash, then those of
    the type (systemd.unit(5)).
    """
    real = host.resolve(path).rpartition("/")[2] if path else name
    aliases = dict.fromkeys((name, real if real.endswith(".service") else name))
    dashes = [m.end() for m in re.finditer("-", name.removesuffix(".service"))]
    prefixes = [f"{name[:end]}.service" for end in reversed(dashes)]
    wanted = [f"{one}.d" for one in (*aliases, *prefixes, "service")]
    return [f"{f}/{one}" for one in wanted for f in UNIT_FOLDERS if one in names(host, f)]


def last(settings: tuple[Setting, ...], section: str, key: str) -> Setting | None:
    """The assignment that decides: the last one that is not empty.

    systemd drops an empty limit like any other it cannot parse and keeps the one before
    (src/shared/conf-parser.c, config_parse_rlimit).
    """
    mine = (s for s in reversed(settings) if s.section == section and s.key == key and s.value)
    return next(mine, None)


def parse_limit(setting: Setting, *, of_bytes: bool = True) -> Limit:
    """`infinity`, `64M` or `soft:hard` (systemd.exec(5)). Raises Unavailable naming the line."""
    words = setting.value.split(":")
    numbers = [parse_number(word, of_bytes=of_bytes) for word in words]
    soft, hard = numbers[0], numbers[-1]
    in_order = hard == RLIM_INFINITY or (soft is not None and hard is not None and soft <= hard)
    if len(words) > 2 or soft is None or hard is None or not in_order:
        shown = setting.value[:40]
        raise Unavailable(f"{setting.where}: {setting.key}={shown} is no limit", "garbled")
    return Limit(*(None if n >= RLIM_INFINITY else n for n in (soft, hard)))


def parse_number(word: str, *, of_bytes: bool) -> int | None:
    """A number, RLIM_INFINITY for `infinity`, None for what is neither."""
    if word == "infinity":
        return RLIM_INFINITY
    match = SIZE.fullmatch(word.strip())
    if not match or (not of_bytes and not word.strip().isdigit()):
        return None
    value = int(float(f"0.{match[2] or 0}") * POWERS[match[3]]) + int(match[1]) * POWERS[match[3]]
    return value if value < RLIM_INFINITY else None
