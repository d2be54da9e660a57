# SPDX-License-Identifier: Apache-2.0
"""What stat(2) says of a device or file; an archive does not keep it, so the manifest does."""

import os
import stat
from typing import NamedTuple

KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFCHR: "char", stat.S_IFBLK: "block"}


class Status(NamedTuple):
    """Kind, permission bits with set-user-ID, owner, and the numbers of a device."""

    kind: str
    mode: int
    uid: int
    gid: int
    major: int = 0
    minor: int = 0


def status_of(found: os.stat_result) -> Status:
    """The part of a stat result that is evidence."""
    mode = found.st_mode
    kind = KINDS.get(stat.S_IFMT(mode), "other")
    numbers = os.major(found.st_rdev), os.minor(found.st_rdev)
    return Status(kind, stat.S_IMODE(mode), found.st_uid, found.st_gid, *numbers)
