# SPDX-License-Identifier: Apache-2.0
"""What sysctl configuration files will set at the next boot.

Source: sysctl.d(5) and systemd src/sysctl/sysctl.c. A file hides files of its name in later
folders, the rest applies in order of file names whatever the folder, the last assignment wins,
and an assignment of a key beats a glob that matches it. systemd-sysctl does not read
/etc/sysctl.conf; distributions that honour it link it as 99-sysctl.conf. Without systemd,
`sysctl --system` of procps reads it last (sysctl(8)).
"""

import fnmatch
import re

from gpuaudit.facts.base import Fact, probe
from gpuaudit.host import Host, NotApplicable, Unavailable

FOLDERS = (
    "/etc/sysctl.d",
    "/run/sysctl.d",
    "/usr/local/lib/sysctl.d",
    "/usr/lib/sysctl.d",
    "/lib/sysctl.d",
)
SYSTEMD = ("/usr/lib/systemd/systemd-sysctl", "/lib/systemd/systemd-sysctl")
LAST = "/etc/sysctl.conf"
GLOB = re.compile(r"[*?\[]")


class SysctlSetting(Fact, frozen=True, kw_only=True):
    """One assignment: `key` with dots between, as sysctl(8) prints it; globs keep their stars."""

    key: str
    value: str
    file: str
    line: int


class SysctlFiles(Fact, frozen=True, kw_only=True):
    """Assignments in the order they take effect: {/etc,/run,/usr/lib}/sysctl.d/*.conf.

    `excluded` are keys no glob may set (a line `-key`).
    """

    settings: tuple[SysctlSetting, ...]
    excluded: frozenset[str] = frozenset()

    def effective(self, key: str) -> SysctlSetting | None:
        """The assignment that wins for `key`, or None when no file sets it."""
        exact = [s for s in self.settings if s.key == key]
        if exact or key in self.excluded:
            return exact[-1] if exact else None
        matching = [s for s in self.settings if matches(s.key, key)]
        return matching[-1] if matching else None


@probe
def sysctl_files(host: Host) -> SysctlFiles:
    """Read every file that counts. Raises Unavailable when a folder or file was not recorded."""
    lines = [line for path in files_in_order(host) for line in parse(path, host.read(path))]
    return SysctlFiles(
        settings=tuple(line for line in lines if isinstance(line, SysctlSetting)),
        excluded=frozenset(line for line in lines if isinstance(line, str)),
    )


def files_in_order(host: Host) -> list[str]:
    """Paths of the files that apply, the one with the last word at the end."""
    chosen: dict[str, str] = {}
    for folder in FOLDERS:
        for name in names_in(host, folder):
            if name.endswith(".conf"):
                chosen.setdefault(name, f"{folder}/{name}")
    paths = [chosen[name] for name in sorted(chosen) if not is_masked(host, chosen[name])]
    if not any(is_there(host, program) for program in SYSTEMD) and is_there(host, LAST):
        paths.append(LAST)
    return paths


def names_in(host: Host, folder: str) -> tuple[str, ...]:
    """Names in a folder, none when it is known not to exist. Raises Unavailable."""
    try:
        return host.list(folder)
    except NotApplicable:
        return ()
    except Unavailable as absent:
        if absent.kind == "missing":
            return ()
        raise


def is_there(host: Host, path: str) -> bool:
    """True when the path exists; not recorded counts as no."""
    try:
        return host.exists(path)
    except (Unavailable, NotApplicable):
        return False


def is_masked(host: Host, path: str) -> bool:
    """A link to /dev/null takes a file out; so does a link to nothing, which cannot be read."""
    try:
        return host.resolve(path) == "/dev/null"
    except NotApplicable:
        return True
    except Unavailable as absent:
        if absent.kind == "missing":
            return True
        raise


def parse(path: str, text: str) -> list[SysctlSetting | str]:
    """The lines of a file: settings, and the keys that a line `-key` takes from globs."""
    found: list[SysctlSetting | str] = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line[0] in "#;":
            continue
        key, assigned, value = line.partition("=")
        name = dotted(key.strip().removeprefix("-"))
        if assigned:
            found.append(SysctlSetting(key=name, value=value.strip(), file=path, line=number))
        elif line.startswith("-"):
            found.append(name)
    return found


def dotted(key: str) -> str:
    """One spelling of a key. The first separator says whether dots or slashes divide it."""
    separators = re.search(r"[./]", key)
    if separators is None or separators[0] == ".":
        return key
    return key.translate(str.maketrans("/.", "./"))


def matches(pattern: str, key: str) -> bool:
    """A star stands for one part of a key, as in glob(7) on /proc/sys."""
    wanted, parts = pattern.split("."), key.split(".")
    return (
        bool(GLOB.search(pattern))
        and len(wanted) == len(parts)
        and all(map(fnmatch.fnmatchcase, parts, wanted))
    )
