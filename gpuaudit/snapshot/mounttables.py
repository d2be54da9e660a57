# SPDX-License-Identifier: Apache-2.0
"""Servers and users in tables of mounts, as mount(8), mount.cifs(8) and sshfs(1) write them."""

import re
from collections.abc import Iterator

from gpuaudit.snapshot.disguise import Disguise

TABLES = re.compile(r"^/etc/fstab$|^/proc/(?:self/|[0-9]+/)?(?:mounts|mountinfo)$")
# //server/share, server:/path, user@server:/path; what has digits and dots alone is an address.
SOURCE = re.compile(
    rb"(?<![^\s,#])(?:(?P<user>(?![\d.]+@)[\w.+-]{1,64})@)?(?P<server>(?![\d.]+:)[a-z0-9][\w.-]{0,253})(?=:/)"
    rb"|(?<![^\s])//(?P<share>(?![\d.]+/)[a-z0-9][\w.-]{0,253})(?=/)"
    rb"|(?<=[\s,])(?:user(?:name)?|dom(?:ain)?)=(?P<option>(?!root\b)[^\s,%]+)",
    re.IGNORECASE,
)
NAMES = ("server", "share")


def is_table(path: str) -> bool:
    """True for a file that lists mounts."""
    return TABLES.search(path) is not None


def servers(data: bytes) -> Iterator[str]:
    """The names of the machines that files come from."""
    for match in SOURCE.finditer(data):
        yield from (match[name].decode("latin-1") for name in NAMES if match[name])


def without_names(data: bytes, disguise: Disguise) -> bytes:
    """The table with other servers and users."""

    def other(match: re.Match[bytes]) -> bytes:
        text, start = match[0], match.start()
        for name, value in match.groupdict().items():
            if value is None:
                continue
            change = disguise.domain if name in NAMES else disguise.word
            new = change(value.decode("latin-1")).encode("latin-1")
            at = match.start(name) - start
            text = text[:at] + new + text[at + len(value) :]
        return text

    return SOURCE.sub(other, data)
