# SPDX-License-Identifier: Apache-2.0
"""Bytes of a file, decompressed by what the file begins with, within bounds of time and memory."""

import os
import stat
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Protocol

from gpuaudit.host.rules import CUT_OFF, NOT_AN_ARCHIVE, Refused

_PIECE = 1 << 16
_INFLATED_PIECE = 1 << 18
_XZ_MEMORY = 128 << 20  # `xz -9` needs 65 MiB; a header can ask for 4 GiB
_ZSTD_WINDOW_LOG = 27  # what the zstd program accepts without --long; a header can ask for 2 GiB
# Each stream costs time though it may hold nothing. bgzip needs one for every 64 KiB.
_MAX_STREAMS = 1 << 16


class _Engine(Protocol):
    """The part shared by bz2.BZ2Decompressor, lzma.LZMADecompressor and ZstdDecompressor."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


_Codec = tuple[Callable[[], _Engine], tuple[type[Exception], ...]]


class _Gunzip:
    """zlib's object with the interface of the others."""

    def __init__(self) -> None:
        import zlib

        self._inner = zlib.decompressobj(wbits=31)  # 16 + 15: a gzip header, the largest window
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        piece = self._inner.decompress(self._inner.unconsumed_tail + data, max_length)
        self.needs_input = not self._inner.unconsumed_tail and len(piece) < max_length
        return piece


def pieces(path: str, limit: int) -> Iterator[bytes]:
    """The decompressed content, piece by piece, as far as `limit` bytes on either side.

    Raises Refused.
    """
    try:
        with open(path, "rb", opener=_open_regular) as file:
            codec = _codec(file.read(6))
            file.seek(0)
            raw = _bounded(iter(lambda: file.read(_PIECE), b""), limit)
            yield from raw if codec is None else _bounded(_inflate(raw, *codec), limit)
    except OSError as error:
        raise Refused(error.strerror or str(error)) from None


def _open_regular(path: str, flags: int) -> int:
    fd = os.open(path, flags | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise Refused(NOT_AN_ARCHIVE)


def _bounded(source: Iterator[bytes], limit: int) -> Iterator[bytes]:
    left = limit
    for piece in source:
        left -= len(piece)
        if left < 0:
            raise Refused(f"holds more than {limit >> 20} MiB")
        yield piece


def _inflate(
    raw: Iterator[bytes], start: Callable[[], _Engine], errors: tuple[type[Exception], ...]
) -> Iterator[bytes]:
    rest: bytes | None = next(raw, b"")
    for _ in range(_MAX_STREAMS):
        engine = start()
        try:
            yield from _one_stream(engine, rest or b"", raw)
        except errors as error:
            raise Refused(f"damaged: {error}") from None
        rest = engine.unused_data.lstrip(b"\0")  # tapes and xz pad with zeros
        while rest == b"":
            piece = next(raw, None)
            if piece is None:
                return
            rest = piece.lstrip(b"\0")
    raise Refused(f"more than {_MAX_STREAMS} compressed streams")


def _one_stream(engine: _Engine, data: bytes, raw: Iterator[bytes]) -> Iterator[bytes]:
    while True:
        if piece := engine.decompress(data, _INFLATED_PIECE):
            yield piece
        if engine.eof:
            return
        data = b""
        if engine.needs_input:
            data = next(raw, b"")
            if not data:
                raise Refused(CUT_OFF)


def _codec(magic: bytes) -> _Codec | None:
    if magic.startswith(b"\x1f\x8b"):
        import zlib

        return _Gunzip, (zlib.error,)
    if magic.startswith(b"BZh"):
        import bz2

        return bz2.BZ2Decompressor, (OSError, ValueError)
    if magic.startswith(b"\xfd7zXZ\0"):
        return _xz()
    # RFC 8878: a frame, or one of the sixteen kinds of skippable frame that pzstd begins with.
    if magic.startswith(b"\x28\xb5\x2f\xfd") or magic[1:4] == b"\x2a\x4d\x18":
        return _zstd()
    return None


def _xz() -> _Codec:
    import lzma

    return lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY), (lzma.LZMAError,)


def _zstd() -> _Codec:
    zstd = zstd_module()
    options = {zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG}
    return lambda: zstd.ZstdDecompressor(options=options), (zstd.ZstdError,)


def zstd_module() -> ModuleType:
    """The library's zstd from Python 3.14 on, its backport before. Raises Refused."""
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
    except ImportError:
        raise Refused("zstd needs Python 3.14 or the package backports.zstd") from None
    return zstd


class Stream:
    """Pieces of any size, taken in exact amounts."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._buffer = b""
        self._at = 0

    def take(self, size: int, short: str = CUT_OFF) -> bytes:
        """Exactly `size` bytes. Raises Refused, saying `short`, when fewer are left."""
        end = self._at + size
        if end > len(self._buffer):
            return self._gather(size, short)
        data = self._buffer[self._at : end]
        self._at = end
        return data

    def drain(self, limit: int) -> bool:
        """Read on, so that checksums behind the content are verified; False when it goes on.

        `limit` is in bytes. Raises Refused.
        """
        left = limit
        for piece in self._pieces:
            left -= len(piece)
            if left < 0:
                return False
        return True

    def _gather(self, size: int, short: str) -> bytes:
        parts = [self._buffer[self._at :]]
        missing = size - len(parts[0])
        while missing > 0:
            piece = next(self._pieces, b"")
            if not piece:
                raise Refused(short)
            parts.append(piece)
            missing -= len(piece)
        self._buffer, self._at = parts[-1], len(parts[-1]) + missing
        parts[-1] = self._buffer[: self._at]
        return b"".join(parts)
