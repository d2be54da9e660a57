# SPDX-License-Identifier: Apache-2.0
"""The members of a tar, read once from front to back, each judged before its content is read.

Not the library's tarfile: it loads an extended header of any declared size into memory, reads a
chain of them by recursion and takes 27 us a member. The format: POSIX.1-2017, pax, "ustar
Interchange Format" and "pax Header Block"; GNU tar's manual, "Basic Tar Format", for L and K.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple
from zlib import adler32

from gpuaudit.host.inflate import Stream
from gpuaudit.host.rules import NOT_AN_ARCHIVE, Limits, Refused, quoted

BLOCK = 512
_END = bytes(BLOCK)
_AFTER_END = 1 << 20  # padding to the record size of the writer: usually 10 KiB
# A block of bzip2 holds 900 kB in which 5 bytes may stand for 259, as in the padding of a tar.
_FIRST = 48 << 20
_CHECKSUM = slice(148, 156)
_REGULAR = frozenset(b"0\x007")
_EXTENDED = frozenset(b"xgLK")
_ADLER = 65521

MemberKind = Literal["file", "dir", "link", "hardlink"]
_KINDS: dict[int, MemberKind] = {ord("1"): "hardlink", ord("2"): "link", ord("5"): "dir"}
_REFUSED = {
    ord("3"): "a character device",
    ord("4"): "a block device",
    ord("6"): "a FIFO",
    ord("S"): "a sparse file",
}


class Member(NamedTuple):
    """One member; `data` of a file, `target` of a link or hard link."""

    name: str
    kind: MemberKind
    target: str
    data: bytes


class _Extra(NamedTuple):
    """What extended headers say about the member after them."""

    path: bytes = b""
    linkpath: bytes = b""
    size: int | None = None


_NOTHING = _Extra()


class _Budget:
    """What is left of the limits."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._members = self._names = self._kept = 0

    def member(self) -> None:
        self._members += 1
        if self._members > self.limits.members:
            raise Refused(f"more than {self.limits.members} members")

    def name(self, size: int) -> None:
        self._names += size
        _within(self._names, self.limits.name_bytes, "names and extended headers", "")

    def content(self, size: int, name: str) -> None:
        _within(size, self.limits.member_bytes, "one file", name)
        self._kept += size
        _within(self._kept, self.limits.kept_bytes, "all files", name)


def members(stream: Stream, limits: Limits) -> Iterator[Member]:
    """Every member in order. Raises Refused."""
    extra, budget = _NOTHING, _Budget(limits)
    block = stream.take(BLOCK, NOT_AN_ARCHIVE)
    _first(stream, block)
    while block != _END:
        size, flag = _header(block, "damaged: a wrong checksum"), block[156]
        budget.member()
        if flag in _EXTENDED:
            budget.name(size)
            extra = _extended(flag, _content(stream, size), extra)
        else:
            yield _member(stream, block, size, extra, budget)
            extra = _NOTHING
        block = stream.take(BLOCK)
    if extra is not _NOTHING:
        raise Refused("ends after an extended header, the file is cut off")
    if not stream.drain(_AFTER_END):
        raise Refused("goes on behind the end of the archive")


def _first(stream: Stream, block: bytes) -> None:
    """Raise Refused unless an archive begins like this.

    Damage inside a block of bzip2 garbles all of the block, and its checksum stands behind it:
    reading on tells a damaged archive from something that is none.
    """
    try:
        if block != _END:
            _header(block, NOT_AN_ARCHIVE)
    except Refused:
        stream.drain(_FIRST)
        raise


def _member(stream: Stream, block: bytes, size: int, extra: _Extra, budget: _Budget) -> Member:
    name = _name(extra.path or _plain_name(block), budget.limits)
    kind = _kind(block[156], name)
    target = _name(extra.linkpath or _text(block[157:257]), budget.limits, name)
    budget.name(len(name) + len(target))
    if kind != "file":  # as tarfile and GNU tar, whatever size is declared
        return Member(name, kind, target, b"")
    size = size if extra.size is None else extra.size
    budget.content(size, name)
    return Member(name, kind, target, _content(stream, size))


def _within(size: int, limit: int, what: str, name: str) -> None:
    if size > limit:
        where = f"{quoted(name)}: " if name else ""
        raise Refused(f"{where}declares {size} bytes, {what} may have {limit >> 20} MiB")


def _header(block: bytes, wrong: str) -> int:
    """The size a header declares, after its checksum was found right.

    The checksum is the sum of all bytes, its own field taken as eight spaces. The low half of
    Adler-32 is one more than the sum of the bytes, modulo 65521, and a tenth of the cost.
    """
    field = block[_CHECKSUM]
    try:
        total = int(field.strip(b" \0"), 8) + sum(field) - 8 * ord(" ")
    except ValueError:
        total = -1
    if (total + 1) % _ADLER != adler32(block) & 0xFFFF or total < 0:
        raise Refused(wrong)
    return _size(block[124:136])


def _size(field: bytes) -> int:
    """Octal, or binary when the top bit is set (GNU and star, for 8 GiB and more)."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    return _number(field.strip(b" \0") or b"0", 8)


def _number(text: bytes, base: int) -> int:
    try:
        if text.isdigit() and len(text) <= 20:
            return int(text, base)
    except ValueError:  # an 8 or 9 in octal
        pass
    raise Refused(f"damaged: {quoted(text.decode('latin-1'))} is not a size")


def _content(stream: Stream, size: int) -> bytes:
    if not size:
        return b""
    data = stream.take(size)
    stream.take(-size % BLOCK)
    return data


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _plain_name(block: bytes) -> bytes:
    name = _text(block[:100])
    # Only POSIX has a prefix; old GNU keeps times there and says "ustar  ".
    if block[257:263] == b"ustar\0" and block[345]:
        return _text(block[345:500]) + b"/" + name
    return name


def _kind(flag: int, name: str) -> MemberKind:
    if flag in _REGULAR:
        # Before POSIX a folder was a file whose name ends in a slash.
        return "dir" if name.endswith("/") else "file"
    kind = _KINDS.get(flag)
    if kind is None:
        what = _REFUSED.get(flag, f"of a kind not known here ({chr(flag)!a})")
        raise Refused(f"{quoted(name)}: is {what}")
    return kind


def _name(raw: bytes, limits: Limits, owner: str = "") -> str:
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        raise Refused(
            f"{quoted(owner or raw.decode('latin-1'))}: a name that is not UTF-8"
        ) from None
    if len(raw) > limits.one_name_bytes or "\0" in name:
        what = "holds a NUL" if "\0" in name else f"is longer than {limits.one_name_bytes} bytes"
        raise Refused(f"{quoted(owner or name)}: a name {what}")
    return name


def _extended(flag: int, data: bytes, extra: _Extra) -> _Extra:
    if flag == ord("L"):
        return extra._replace(path=data.rstrip(b"\0"))
    if flag == ord("K"):
        return extra._replace(linkpath=data.rstrip(b"\0"))
    records = dict(_records(data))
    if any(key.startswith(b"GNU.sparse.") for key in records):
        raise Refused(f"{quoted(records.get(b'path', b'').decode('latin-1'))}: is a sparse file")
    known = {key: records[key] for key in (b"path", b"linkpath", b"size") if records.get(key)}
    if flag == ord("g") and known:
        raise Refused("names or sizes every member in one global header")
    size = _number(known[b"size"], 10) if b"size" in known else extra.size
    path, linkpath = known.get(b"path", extra.path), known.get(b"linkpath", extra.linkpath)
    return _Extra(path, linkpath, size)


def _records(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Each is "length key=value" and a newline; the length counts all of it."""
    at = 0
    while at < len(data):
        space = data.find(b" ", at, at + 12)
        end = at + _number(data[at:space], 10) if space > at else 0
        key, equals, value = data[space + 1 : end - 1].partition(b"=")
        if end <= space or data[end - 1 : end] != b"\n" or not equals:
            raise Refused("damaged: a garbled extended header")
        yield key, value
        at = end
