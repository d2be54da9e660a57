# SPDX-License-Identifier: Apache-2.0
"""The live machine, or a folder taken as the root of one. Archives are in `memory`."""

import errno
import os
import stat
from itertools import islice

from gpuaudit.host.errors import Kind, SnapshotError, Unavailable
from gpuaudit.host.memory import MemoryTree
from gpuaudit.host.paths import (
    READ_LIMIT,
    Names,
    NodeKind,
    Tree,
    missing,
    node_of,
    not_a,
    place_of,
    resolve,
    too_large,
)
from gpuaudit.host.status import Status, status_of

__all__ = ["FolderTree", "MemoryTree", "NodeKind", "Tree", "require_folder", "resolve"]

LIST_LIMIT = 100_000

# O_PATH asks for no read permission on the folders passed through; only Linux has it.
_PASS = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

_KINDS: dict[int | None, Kind] = {
    errno.ENOENT: "missing",
    errno.ENOTDIR: "missing",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.EOPNOTSUPP: "unsupported",
    errno.EINVAL: "unsupported",
}


class FolderTree:
    """A folder as the root of a tree. "/" is the live machine, where the kernel follows links.

    Any other root may be hostile and may change while it is read (that of a container does), so
    each component is opened relative to the one before it and none of them may be a link.
    """

    def __init__(self, root: str | os.PathLike[str], label: str | None = None) -> None:
        require_folder(root)
        self.label = label or os.fspath(root)
        self.seen: dict[str, str] = {"": ""}
        self._root = os.path.realpath(root).rstrip("/")

    def read(self, path: str, limit: int = READ_LIMIT) -> bytes:
        """See Tree. Never waits: a FIFO, a device and a socket are refused unopened."""
        try:
            fd = self._open(path, _FILE)
            try:
                return _read_all(fd, path, limit)
            finally:
                os.close(fd)
        except (OSError, ValueError) as error:
            raise _unavailable(path, error) from None

    def list(self, path: str) -> Names:
        """See Tree. Names that are not UTF-8 come back as os.fsdecode writes them."""
        try:
            fd = self._open(path, _FOLDER)
            try:
                return _names(fd, path)
            finally:
                os.close(fd)
        except (OSError, ValueError) as error:
            raise _unavailable(path, error) from None

    def link(self, path: str) -> str | None:
        """See Tree."""
        try:
            return self.target(place_of(self, path))
        except Unavailable as gone:
            if gone.kind != "missing":
                raise
            return None

    def kind(self, path: str) -> NodeKind | None:
        """See Tree."""
        try:
            return _kind(os.lstat(self._root + (place_of(self, path) or "/")))
        except Unavailable as error:
            gone = error
        except (OSError, ValueError) as error:
            gone = _unavailable(path, error)
        if gone.kind != "missing":
            raise gone
        return None

    def status(self, path: str) -> Status:
        """Mode, owner and device numbers of what stands at a canonical path."""
        try:
            return status_of(os.lstat(self._root + (place_of(self, path) or "/")))
        except (OSError, ValueError) as error:
            raise _unavailable(path, error) from None

    def target(self, node: str) -> str | None:
        """See Tree."""
        try:
            return os.readlink(self._root + (node or "/"))
        except (OSError, ValueError) as error:
            # readlink(2): EINVAL means that something is there and is not a link.
            if isinstance(error, OSError) and error.errno == errno.EINVAL:
                return None
            raise _unavailable(node, error) from None

    def below(self, prefix: str) -> "FolderTree":
        """See Tree."""
        return FolderTree((self._root + node_of(self, prefix)) or "/", self.label)

    def _open(self, path: str, flags: int) -> int:
        if not self._root:
            return _open_checked("/" + path.lstrip("/"), flags, path, None)
        parts = node_of(self, path).split("/")
        at = os.open(self._root, _PASS)
        try:
            for part in parts[1:-1]:
                deeper = os.open(part, _PASS, dir_fd=at)
                os.close(at)
                at = deeper
            return _open_checked(parts[-1] or ".", flags | os.O_NOFOLLOW, path, at)
        finally:
            os.close(at)


def require_folder(root: str | os.PathLike[str]) -> None:
    """Raises SnapshotError unless the path is a folder."""
    if not os.path.isdir(root):
        what = "not a folder" if os.path.lexists(root) else "does not exist"
        raise SnapshotError(f"{os.fspath(root)}: {what}")


def _open_checked(name: str, flags: int, path: str, at: int | None) -> int:
    """Look before opening, since opening acts on some devices, and again after, against a swap."""
    wanted, what = stat.S_IFREG, "regular file"
    if flags & os.O_DIRECTORY:
        wanted, what = stat.S_IFDIR, "folder"
    follow = not flags & os.O_NOFOLLOW
    if stat.S_IFMT(os.stat(name, dir_fd=at, follow_symlinks=follow).st_mode) != wanted:
        raise not_a(what, path)
    fd = os.open(name, flags, dir_fd=at)
    if stat.S_IFMT(os.fstat(fd).st_mode) == wanted:
        return fd
    os.close(fd)
    raise not_a(what, path)


def _read_all(fd: int, path: str, limit: int) -> bytes:
    """The size that stat gives is no guide: sysfs says 4096 and procfs 0 for any content."""
    pieces, left = [], limit + 1
    while left > 0 and (piece := os.read(fd, min(left, 1 << 16))):
        pieces.append(piece)
        left -= len(piece)
    if left <= 0:
        raise too_large(path, limit)
    return b"".join(pieces)


def _names(fd: int, path: str) -> Names:
    with os.scandir(fd) as found:
        names = sorted(entry.name for entry in islice(found, LIST_LIMIT + 1))
    if len(names) > LIST_LIMIT:
        raise Unavailable(f"{path}: more than {LIST_LIMIT} entries", "garbled")
    return names


def _kind(status: os.stat_result) -> NodeKind:
    kinds: dict[int, NodeKind] = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "link"}
    return kinds.get(stat.S_IFMT(status.st_mode), "other")


def _unavailable(path: str, error: OSError | ValueError) -> Unavailable:
    if not isinstance(error, OSError):
        return Unavailable(f"{path!a} is not a path", "garbled")
    kind = _KINDS.get(error.errno, "garbled")
    if kind == "missing":
        return missing(path)
    if kind == "denied":
        needs = "" if os.geteuid() == 0 else ", needs root"
        return Unavailable(f"{path}: no permission{needs}", kind)
    name = errno.errorcode.get(error.errno or 0, "unknown error")
    return Unavailable(f"{path}: {error.strerror} ({name})", kind)
