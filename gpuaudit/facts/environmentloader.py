# SPDX-License-Identifier: Apache-2.0
"""What the dynamic loader is told: libraries forced into every program, and where it looks."""

import re
from typing import NamedTuple

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.environment import Environment
from gpuaudit.facts.limits import absence
from gpuaudit.facts.present import text_if_there
from gpuaudit.facts.systemd import drop_ins
from gpuaudit.host import Host, NotApplicable, Unavailable

PRELOAD = "/etc/ld.so.preload"
CONF = "/etc/ld.so.conf"
CONF_FOLDER = "/etc/ld.so.conf.d"
COMPAT = r"libcuda\.so\.(\d{3,4}\.\d[\d.]*)$"


class Folder(NamedTuple):
    """A folder in which the loader looks, and what tells it to."""

    path: str
    where: str
    reach: str
    conditional: bool = False


class Loader(Fact, frozen=True, kw_only=True):
    """/etc/ld.so.preload, /etc/ld.so.conf with ld.so.conf.d, LD_LIBRARY_PATH (ld.so(8)).

    `compat`: folder -> release of the libcuda.so.N in it, for folders named compat.
    """

    preloaded: tuple[str, ...] | Absent
    folders: tuple[Folder, ...]
    compat: dict[str, str]
    gaps: dict[str, Absent]


@probe
def loader(host: Host, environment: Environment) -> Loader:
    """Read the loader's files; never raises."""
    gaps = {path: gap for path, gap in environment.gaps.items() if gap.kind != "unsupported"}
    folders = (*configured(host, gaps), *searched(environment))
    named = sorted({f.path for f in folders if "compat" in f.path.split("/")})
    releases = {path: release for path in named if (release := compat_release(host, path))}
    return Loader(preloaded=preloaded(host), folders=folders, compat=releases, gaps=gaps)


def preloaded(host: Host) -> tuple[str, ...] | Absent:
    """The libraries of ld.so.preload, between white space or colons."""
    try:
        text = text_if_there(host, PRELOAD) or ""
    except (Unavailable, NotApplicable) as absent:
        return absence(absent)
    lines = (line.partition("#")[0] for line in text.split("\n"))
    return tuple(word for line in lines for word in re.split(r"[\s:]+", line) if word)


def configured(host: Host, gaps: dict[str, Absent]) -> list[Folder]:
    """The folders that ldconfig puts into its cache."""
    found: list[Folder] = []
    try:
        paths = [CONF, *drop_ins(host, [CONF_FOLDER])]
    except (Unavailable, NotApplicable) as absent:
        gaps[CONF_FOLDER], paths = absence(absent), [CONF]
    for path in paths:
        try:
            text = text_if_there(host, path) or ""
        except (Unavailable, NotApplicable) as absent:
            gaps[path] = absence(absent)
            continue
        lines = enumerate((line.partition("#")[0].strip() for line in text.split("\n")), 1)
        found += [
            Folder(word, f"{path}:{n}", "every program") for n, word in lines if word[:1] == "/"
        ]
    return found


def searched(environment: Environment) -> list[Folder]:
    """The folders of every LD_LIBRARY_PATH."""
    return [
        Folder(path, one.where, one.reach, one.conditional)
        for one in environment.named("LD_LIBRARY_PATH")
        for path in re.split("[:;]", one.value)
        if path.startswith("/")
    ]


def compat_release(host: Host, folder: str) -> str | None:
    """570.86.15 by the file name in a folder; None without such a file."""
    try:
        found = (re.search(COMPAT, name, re.ASCII) for name in host.names(folder))
        return max((match[1] for match in found if match), default=None)
    except NotApplicable:
        return None
