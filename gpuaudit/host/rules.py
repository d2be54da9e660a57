# SPDX-License-Identifier: Apache-2.0
"""What an archive may hold. The same rules are kept by reading and by writing."""

import posixpath
from typing import NamedTuple

from gpuaudit.host.memory import Clash, Entry, Nodes, grow

CUT_OFF = "ends too early, the file is cut off"
NOT_AN_ARCHIVE = "not a folder or a tar archive"


class Refused(Exception):
    """An archive that will not be used, and why."""


class Limits(NamedTuple):
    """Bounds of time and memory."""

    members: int = 200_000  # folders that are only implied count too
    total_bytes: int = 1 << 30
    member_bytes: int = 256 << 20
    kept_bytes: int = 256 << 20
    name_bytes: int = 32 << 20  # names, link targets and extended headers together
    one_name_bytes: int = 4095  # PATH_MAX in the kernel's include/uapi/linux/limits.h
    depth: int = 64


LIMITS = Limits()


def quoted(name: str) -> str:
    """A name on one line of a terminal, whatever is in it."""
    return ascii(name if len(name) <= 120 else f"{name[:117]}...")


def clean_name(name: str, limits: Limits = LIMITS) -> str:
    """The name of a member as an absolute path in the tree; "" for its root. Raises Refused."""
    parts = name.split("/")
    if not parts[0] and name:
        raise Refused(f"{quoted(name)}: an absolute name")
    if ".." in parts:
        raise Refused(f"{quoted(name)}: a name with '..'")
    if len(parts) > limits.depth:
        raise Refused(f"{quoted(name)}: more than {limits.depth} folders deep")
    if "" in parts or "." in parts:
        parts = [part for part in parts if part and part != "."]
    return "".join([f"/{part}" for part in parts])


def check_target(path: str, target: str) -> None:
    """Raises Refused unless a link at `path` stays in the archive, judged by its text alone."""
    if not target:
        raise Refused(f"{quoted(path[1:])}: a link to nothing")
    if target.startswith("/"):
        raise Refused(f"{quoted(path[1:])}: a link to an absolute path, {quoted(target)}")
    depth = path.count("/") - 1
    for part in target.split("/"):
        depth += -1 if part == ".." else 1 if part and part != "." else 0
        if depth < 0:
            raise Refused(f"{quoted(path[1:])}: a link out of the archive, {quoted(target)}")


def add(nodes: Nodes, name: str, entry: Entry, limits: Limits = LIMITS) -> None:
    """Put an entry among the nodes, with the folders above it. Raises Refused."""
    path = clean_name(name, limits)
    if isinstance(entry, str):
        check_target(path, entry)
    try:
        grow(nodes, path, entry)
    except Clash as clash:
        raise Refused(f"{quoted(name)}: {clash}") from None
    if len(nodes) > limits.members:
        raise Refused(f"more than {limits.members} members and folders")


def relative_target(path: str, target: str) -> str:
    """The target of a link at `path`, both absolute in one tree, as an archive may hold it."""
    if not target.startswith("/"):
        return target
    return posixpath.relpath(target, posixpath.dirname(path))
