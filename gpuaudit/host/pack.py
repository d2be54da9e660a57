# SPDX-License-Identifier: Apache-2.0
"""Write a recording: the same entries give the same bytes, and a reader never sees half of it.

What is written was read by root as often as not, so only its owner may read it.
"""

import io
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, BinaryIO, cast

from gpuaudit.host.errors import SnapshotError
from gpuaudit.host.inflate import zstd_module
from gpuaudit.host.memory import Entry, Node, Nodes
from gpuaudit.host.rules import LIMITS, Refused, add, quoted

if TYPE_CHECKING:
    import tarfile

_GZIP = (".tar.gz", ".tgz")
_ZSTD = (".tar.zst", ".tzst")
_OTHERS = (".tar", ".bz2", ".xz", ".zip", ".gz", ".zst", ".7z")
_ZSTD_LEVEL = 10
_GZIP_LEVEL = 6


def write_archive(path: str, entries: Iterable[tuple[str, Entry]]) -> None:
    """Write names relative to the top: bytes are a file, a str is a link, None an empty folder.

    A .tar.gz or .tar.zst replaces a file of that name, a folder must not exist yet.
    Raises SnapshotError.
    """
    try:
        _writer(path)(path.rstrip("/"), _index(entries))
    except Refused as refused:
        raise SnapshotError(f"{path}: {refused}") from None
    except OSError as error:
        raise SnapshotError(f"{path}: not written: {error.strerror or error}") from None


def _writer(path: str) -> Callable[[str, Nodes], None]:
    if path.endswith(_GZIP + _ZSTD):
        return _write_file
    if path.endswith(_OTHERS):
        raise Refused("is written as .tar.gz, .tar.zst or a folder")
    return _write_folder


def _index(entries: Iterable[tuple[str, Entry]]) -> Nodes:
    nodes: Nodes = {"": []}
    kept = 0
    for name, entry in entries:
        _check_text(name, name)
        if isinstance(entry, str):
            _check_text(name, entry)
        size = len(entry) if isinstance(entry, bytes) else 0
        kept += size
        if size > LIMITS.member_bytes or kept > LIMITS.kept_bytes:
            raise Refused(f"{quoted(name)}: more than an archive may hold")
        add(nodes, name, entry)
    if len(nodes) == 1:
        raise Refused("nothing to write")
    return nodes


def _check_text(name: str, text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise Refused(f"{quoted(name)}: a name that is not UTF-8") from None
    if size > LIMITS.one_name_bytes or "\0" in text:
        raise Refused(f"{quoted(name)}: a name that is too long or holds a NUL")


def _write_file(path: str, nodes: Nodes) -> None:
    import tempfile

    if os.path.isdir(path):
        raise Refused("is a folder")
    folder = os.path.dirname(path) or "."
    fd, draft = tempfile.mkstemp(prefix=".gpuaudit-", dir=folder)
    try:
        with os.fdopen(fd, "wb") as file:
            _write_tar(path, file, nodes)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
    _sync_folder(folder)


def _write_tar(path: str, file: BinaryIO, nodes: Nodes) -> None:
    import tarfile

    with (
        _compressed(path, file) as out,
        tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in sorted(nodes):
            _write_member(tar, name, nodes[name])


def _write_member(tar: "tarfile.TarFile", path: str, node: Node) -> None:
    import tarfile

    info = tarfile.TarInfo(path[1:])  # owner 0:0, time 0, no names
    if isinstance(node, bytes):
        info.size, info.mode = len(node), 0o644
        tar.addfile(info, io.BytesIO(node))
    elif isinstance(node, str):
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, node, 0o777
        tar.addfile(info)
    elif not node:
        info.type, info.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(info)


def _compressed(path: str, file: BinaryIO) -> BinaryIO:
    if path.endswith(_GZIP):
        import gzip

        return cast("BinaryIO", gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0))
    zstd = zstd_module()
    knob = zstd.CompressionParameter
    options = {knob.compression_level: _ZSTD_LEVEL, knob.checksum_flag: 1}
    return cast("BinaryIO", zstd.ZstdFile(file, "wb", options=options))


def _write_folder(path: str, nodes: Nodes) -> None:
    import shutil
    import tempfile

    if os.path.lexists(path):
        raise Refused("exists already")
    draft = tempfile.mkdtemp(prefix=".gpuaudit-", dir=os.path.dirname(path) or ".")
    try:
        for name in sorted(nodes):
            _write_node(draft + name, nodes[name])
        os.rename(draft, path)
    except BaseException:
        shutil.rmtree(draft)
        raise
    _sync_folder(os.path.dirname(path) or ".")


def _write_node(path: str, node: Node) -> None:
    if isinstance(node, bytes):
        with open(path, "wb") as file:
            file.write(node)
    elif isinstance(node, str):
        os.symlink(node, path)
    else:
        os.makedirs(path, exist_ok=True)


def _sync_folder(path: str) -> None:
    """A rename is safe on disk once its folder is."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
