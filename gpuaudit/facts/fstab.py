# SPDX-License-Identifier: Apache-2.0
"""/etc/fstab."""

import re
from typing import NamedTuple

from gpuaudit.host import Host


class Line(NamedTuple):
    """One file system of fstab(5), with the place of its line."""

    spec: str
    folder: str
    type: str
    options: tuple[str, ...]
    where: str


def fstab(host: Host) -> tuple[Line, ...]:
    """The lines of /etc/fstab, none when it is known not to be there. Raises Unavailable."""
    if not host.exists("/etc/fstab"):
        return ()
    return parse(host.read_bytes("/etc/fstab").decode("utf-8", "replace"))


def parse(text: str) -> tuple[Line, ...]:
    """Fields between blanks; a line of fewer than three is none (getmntent(3))."""
    found = []
    for number, raw in enumerate(re.split(r"\r\n|[\n\r]", text), 1):
        words = [plain(word) for word in raw.strip(" \t").split()]
        if len(words) > 2 and not words[0].startswith("#"):
            options = tuple(words[3].split(",")) if len(words) > 3 else ()
            where = f"/etc/fstab:{number}"
            found.append(Line(words[0], folder_of(words[1]), words[2], options, where))
    return tuple(found)


def folder_of(word: str) -> str:
    """As the kernel shows it: mount(8) takes `/data/` and `//data` for /data."""
    return "/" + "/".join(filter(None, word.split("/"))) if word.startswith("/") else word


def plain(word: str) -> str:
    r"""A word without its octal escapes: `\040` is a blank."""
    return re.sub(r"\\([0-3][0-7]{2})", lambda match: chr(int(match[1], 8)), word)
