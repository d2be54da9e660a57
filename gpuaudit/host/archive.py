# SPDX-License-Identifier: Apache-2.0
"""Open a recording: a tar, compressed or not, read into memory. Whoever made it may be hostile.

Nothing is unpacked to disk. What could mean two things to two tools (a file named twice, a file
below a link) is refused as well as what is dangerous.
"""

from gpuaudit.host.errors import SnapshotError, Unavailable
from gpuaudit.host.inflate import Stream, pieces
from gpuaudit.host.memory import MemoryTree, Nodes
from gpuaudit.host.pack import write_archive
from gpuaudit.host.paths import Tree
from gpuaudit.host.rules import LIMITS, Limits, Refused, add, clean_name, quoted, relative_target
from gpuaudit.host.tarstream import Member, members

__all__ = [
    "LIMITS",
    "Limits",
    "find_root",
    "open_archive",
    "relative_target",
    "subtree",
    "write_archive",
]

_EXPECTED = (
    "expected manifest.json beside root/, or sys/ or proc/, at the top or in one folder,"
    " or a copy of /sys/class/infiniband"
)


def open_archive(path: str, limits: Limits = LIMITS) -> MemoryTree:
    """The files of a tar, tar.gz, tar.bz2, tar.xz or tar.zst, told by content and not by name.

    Raises SnapshotError in one line: the archive, the member, what is wrong with it.
    """
    try:
        return MemoryTree(_load(path, limits), path)
    except Refused as refused:
        raise SnapshotError(f"{path}: {refused}") from None


def _load(path: str, limits: Limits) -> Nodes:
    nodes: Nodes = {"": []}
    for member in members(Stream(pieces(path, limits.total_bytes)), limits):
        _add(nodes, member, limits)
    if len(nodes) == 1:
        raise Refused("the archive is empty")
    return nodes


def _add(nodes: Nodes, member: Member, limits: Limits) -> None:
    match member.kind:
        case "file":
            add(nodes, member.name, member.data, limits)
        case "link":
            add(nodes, member.name, member.target, limits)
        case "dir":
            add(nodes, member.name, None, limits)
        case "hardlink":
            add(nodes, member.name, _linked(nodes, member, limits), limits)


def _linked(nodes: Nodes, member: Member, limits: Limits) -> bytes:
    try:
        data = nodes.get(clean_name(member.target, limits))
    except Refused as refused:
        raise Refused(f"{quoted(member.name)}: a hard link to {refused}") from None
    if isinstance(data, bytes):
        return data
    what = "which is no file before it"
    raise Refused(f"{quoted(member.name)}: a hard link to {quoted(member.target)}, {what}")


def find_root(tree: Tree, where: str) -> tuple[str, str]:
    """The root folder of the recorded machine, and the folder of the side files.

    Side files (manifest.json and others) lie beside root/. A tree gathered by another tool has
    only sys/ or proc/. Either is at the top or in the one folder there. Raises SnapshotError.
    """
    try:
        folders = [name for name in tree.list("/") if tree.kind(f"/{name}") == "dir"]
        for base in ["", *(f"/{name}" for name in folders if len(folders) == 1)]:
            if tree.kind(f"{base}/manifest.json") == "file" and _has(tree, f"{base}/root"):
                return f"{base}/root", base or "/"
            if _has(tree, f"{base}/sys") or _has(tree, f"{base}/proc"):
                return base or "/", base or "/"
    except Unavailable as gone:
        raise SnapshotError(f"{where}: {gone.reason}") from None
    raise SnapshotError(f"{where}: holds no recording, {_EXPECTED}")


def _has(tree: Tree, path: str) -> bool:
    return tree.kind(path) == "dir"


def subtree(tree: Tree, prefix: str) -> Tree:
    """The folder at `prefix` as a tree of its own: no link and no `..` leads out of it."""
    return tree if prefix == "/" else tree.below(prefix)
