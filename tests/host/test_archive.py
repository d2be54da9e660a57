# SPDX-License-Identifier: Apache-2.0
"""Archives: what opens, what is refused and with which line, and what a hostile one may cost."""

import bz2
import errno
import gzip
import io
import json
import lzma
import os
import random
import subprocess
import sys
import tarfile
import time
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuaudit.host import inflate
from gpuaudit.host.archive import (
    LIMITS,
    Limits,
    find_root,
    open_archive,
    relative_target,
    subtree,
    write_archive,
)
from gpuaudit.host.errors import SnapshotError, Unavailable
from gpuaudit.host.inflate import Stream
from gpuaudit.host.memory import Entry
from gpuaudit.host.tarstream import members
from gpuaudit.host.tree import FolderTree, MemoryTree

zstd = inflate.zstd_module()
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda data: data,
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstd.compress,
}
PACKED = [name for name in COMPRESS if name != "plain"]

Piece = tuple[tarfile.TarInfo, bytes]


def info(name: str, kind: bytes = tarfile.REGTYPE, **fields: Any) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    for field, value in fields.items():
        setattr(member, field, value)
    return member


def file(name: str, data: bytes = b"x", **fields: Any) -> Piece:
    return info(name, size=len(data), **fields), data


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> Piece:
    return info(name, kind, linkname=target), b""


def folder(name: str) -> Piece:
    return info(name, tarfile.DIRTYPE), b""


def tar(pieces: Iterable[Piece], form: int = tarfile.GNU_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for member, data in pieces:
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def header(name: str, size: int, **fields: Any) -> bytes:
    """One header that may lie about its size."""
    return info(name, size=size, **fields).tobuf(tarfile.GNU_FORMAT)


def saved(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "node.tar"
    path.write_bytes(data)
    return str(path)


def refusal(path: str, limits: Limits = LIMITS) -> str:
    """The one line of a refusal, without the name of the archive it begins with."""
    with pytest.raises(SnapshotError) as caught:
        open_archive(path, limits)
    line = str(caught.value)
    assert line.startswith(f"{path}: ")
    assert "\n" not in line
    return line.removeprefix(f"{path}: ")


GOOD = tar(
    [
        folder("./"),
        folder("./node"),
        file("./node/sys/a", b"1\n"),
        file("./node/sys/empty", b""),
        folder("node//proc/"),
        link("node/sys/b", "a"),
        link("node/sys/up", "../../node/./sys/a"),
        link("node/sys/hard", "node/sys/a", tarfile.LNKTYPE),
        file("node/" + "long" * 40 + "/" + "name" * 50, b"long"),
    ]
)
END = bytes(1024)
ZEROS = bytes(1 << 20)


@pytest.mark.parametrize("how", COMPRESS)
def test_what_an_archive_holds(tmp_path: Path, how: str) -> None:
    """Told by content: the name says nothing."""
    tree = open_archive(saved(tmp_path, COMPRESS[how](GOOD)))
    assert tree.list("/") == ["node"]
    assert tree.list("/node/sys") == ["a", "b", "empty", "hard", "up"]
    assert tree.list("/node/proc") == []
    assert tree.read("/node/sys/empty") == b""
    assert [tree.read(f"/node/sys/{n}") for n in ("a", "b", "up", "hard")] == [b"1\n"] * 4
    assert tree.link("/node/sys/up") == "../../node/./sys/a"
    assert tree.read("/node/" + "long" * 40 + "/" + "name" * 50) == b"long"
    with pytest.raises(Unavailable):
        tree.read("/node/sys/nothing")


NAMES = (
    st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=60)
    .filter(lambda name: name not in {".", ".."})
    .flatmap(lambda name: st.sampled_from([name, "d" * 90 + f"/{name}", "e" * 150 + f"/{name}"]))
)


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@settings(deadline=None, max_examples=40)
@given(files=st.dictionaries(NAMES, st.binary(max_size=1500)), cut=st.integers(1, 2000))
def test_reads_what_the_library_writes(form: int, files: dict[str, bytes], cut: int) -> None:
    """The library's own writer is the oracle, in each of its three formats."""
    try:
        data = tar([file(name, content, mtime=1.5) for name, content in files.items()], form)
    except ValueError:  # a name that ustar has no room for
        return
    pieces = iter([data[at : at + cut] for at in range(0, len(data), cut)])
    assert {m.name: m.data for m in members(Stream(pieces), LIMITS)} == files


def test_old_and_large_numbers(tmp_path: Path) -> None:
    """A size in binary, as GNU tar writes it from 8 GiB on, and a header from before POSIX."""
    block = bytearray(header("v7", 1))
    block[257:265] = bytes(8)
    block[124:136] = b"\x80" + (1).to_bytes(11, "big")
    path = saved(tmp_path, signed(block) + b"x" + bytes(511) + END)
    assert open_archive(path).read("/v7") == b"x"


def signed(block: bytearray) -> bytes:
    """Put the right checksum into a header."""
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


DEEP = "/".join(["d"] * 65)
PAX = tarfile.PAX_FORMAT
REFUSED: dict[str, tuple[bytes, str]] = {
    "nothing in the file": (b"", "not a folder or a tar archive"),
    "text": (b"hello " * 200, "not a folder or a tar archive"),
    "short text": (b"hello", "not a folder or a tar archive"),
    "zip": (b"PK\3\4" + bytes(600), "not a folder or a tar archive"),
    "compressed text": (gzip.compress(b"hello " * 200), "not a folder or a tar archive"),
    "compressed nothing": (bz2.compress(b""), "not a folder or a tar archive"),
    "no member": (END, "the archive is empty"),
    "only the top": (tar([folder(".")]), "the archive is empty"),
    "absolute name": (tar([file("/etc/shadow")]), "'/etc/shadow': an absolute name"),
    "absolute folder": (tar([folder("/")]), "'/': an absolute name"),
    "name upwards": (tar([file("a/../../b")]), "'a/../../b': a name with '..'"),
    "name upwards inside": (tar([file("a/../b")]), "'a/../b': a name with '..'"),
    "absolute link": (
        tar([link("a/b", "/etc/shadow")]),
        "'a/b': a link to an absolute path, '/etc/shadow'",
    ),
    "link out": (tar([link("a/b", "../../x")]), "'a/b': a link out of the archive, '../../x'"),
    "link out and in again": (
        tar([link("a/b", "../../a/b")]),
        "'a/b': a link out of the archive, '../../a/b'",
    ),
    "link to nothing": (tar([link("a", "")]), "'a': a link to nothing"),
    "hard link out": (
        tar([link("a", "../b", tarfile.LNKTYPE)]),
        "'a': a hard link to '../b': a name with '..'",
    ),
    "absolute hard link": (
        tar([link("a", "/b", tarfile.LNKTYPE)]),
        "'a': a hard link to '/b': an absolute name",
    ),
    "hard link forwards": (
        tar([link("a", "b", tarfile.LNKTYPE), file("b")]),
        "'a': a hard link to 'b', which is no file before it",
    ),
    "hard link to a link": (
        tar([file("c"), link("b", "c"), link("a", "b", tarfile.LNKTYPE)]),
        "'a': a hard link to 'b', which is no file before it",
    ),
    "character device": (tar([(info("dev/null", tarfile.CHRTYPE), b"")]), "is a character device"),
    "block device": (tar([(info("dev/sda", tarfile.BLKTYPE), b"")]), "is a block device"),
    "fifo": (tar([(info("pipe", tarfile.FIFOTYPE), b"")]), "'pipe': is a FIFO"),
    "unknown kind": (tar([(info("odd", b"Z"), b"")]), "'odd': is of a kind not known here ('Z')"),
    "sparse": (header("s", 0, type=b"S") + END, "'s': is a sparse file"),
    "sparse in pax": (
        tar([file("s", pax_headers={"GNU.sparse.major": "1", "path": "s"})], PAX),
        "'s': is a sparse file",
    ),
    "global names": (
        header("g", 12, type=b"g") + b"12 path=abc\n".ljust(512, b"\0") + END,
        "names or sizes every member in one global header",
    ),
    "twice": (tar([file("a/b", b"1"), file("a/./b", b"2")]), "'a/./b': named twice"),
    "file and folder": (tar([file("a"), folder("a")]), "'a/': named twice"),
    "folder and file": (tar([folder("a"), file("a")]), "'a': named twice"),
    "folder by its content": (tar([file("a/b"), file("a")]), "'a': named twice"),
    "below a file": (
        tar([file("a"), file("a/b")]),
        "'a/b': lies below something that is not a folder",
    ),
    "below a link": (
        tar([folder("b"), link("a", "b"), file("a/c")]),
        "'a/c': lies below something that is not a folder",
    ),
    "the top is a file": (tar([file(".")]), "'.': named twice"),
    "too deep": (tar([file(DEEP)]), "more than 64 folders deep"),
    "long name": (tar([file("n" * 4096)]), "a name is longer than 4095 bytes"),
    "long target": (tar([link("a", "n" * 4096)]), "'a': a name is longer than 4095 bytes"),
    "nul in a name": (
        tar([file("a", pax_headers={"path": "a\0b"})], PAX),
        "'a\\x00b': a name holds a NUL",
    ),
    "not utf-8": (header("a\udcff", 0) + END, "'a\\xff': a name that is not UTF-8"),
    "control characters": (
        tar([file("/\x1b[31m\nred")]),
        "'/\\x1b[31m\\nred': an absolute name",
    ),
    "large member": (
        header("bomb", 100 << 30) + END,
        "'bomb': declares 107374182400 bytes, one file may have 256 MiB",
    ),
    "large member in pax": (
        tar([(info("b", pax_headers={"size": str(100 << 30)}), b"")], PAX),
        "declares 107374182400 bytes, one file may have 256 MiB",
    ),
    "large name": (
        header("L", 100 << 30, type=b"L") + END,
        "declares 107374182400 bytes, names and extended headers may have 32 MiB",
    ),
    "large pax header": (
        header("x", 100 << 30, type=b"x") + END,
        "declares 107374182400 bytes, names and extended headers may have 32 MiB",
    ),
    "negative size": (header("a", -512) + END, "is not a size"),
    "garbled size": (
        signed(bytearray(header("a", 0)[:124] + b"12345678912\0" + header("a", 0)[136:])) + END,
        "damaged: '12345678912' is not a size",
    ),
    "garbled pax": (
        header("x", 9, type=b"x") + b"9 path=a!".ljust(512, b"\0") + END,
        "damaged: a garbled extended header",
    ),
    "pax that does not advance": (
        header("x", 9, type=b"x") + b"0 path=a\n".ljust(512, b"\0") + END,
        "damaged: a garbled extended header",
    ),
    "second header damaged": (
        tar([file("a")])[:1024] + b"?" * 512 + END,
        "damaged: a wrong checksum",
    ),
    "no end": (tar([file("a")])[:1024], "ends too early, the file is cut off"),
    "name for nobody": (
        header("L", 2, type=b"L") + b"a".ljust(512, b"\0") + END,
        "ends after an extended header, the file is cut off",
    ),
    "goes on": (GOOD + ZEROS + ZEROS, "goes on behind the end of the archive"),
}


@pytest.mark.parametrize("how", ["plain", "gzip"])
@pytest.mark.parametrize("case", REFUSED)
def test_each_refusal_says_what_and_where(tmp_path: Path, case: str, how: str) -> None:
    data, wanted = REFUSED[case]
    assert wanted in refusal(saved(tmp_path, COMPRESS[how](data)))


def test_what_is_no_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert refusal(str(tmp_path / "fifo")) == "not a folder or a tar archive"
    assert refusal("/dev/zero") == "not a folder or a tar archive"
    assert refusal(str(tmp_path)) == "not a folder or a tar archive"
    assert refusal(str(tmp_path / "nothing")) == "No such file or directory"


RANDOM_GOOD = tar([file(f"sys/{n}", random.Random(n).randbytes(700)) for n in range(60)])


@pytest.mark.parametrize("how", COMPRESS)
@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_part_of_a_file_is_refused(tmp_path: Path, how: str, part: float) -> None:
    whole = COMPRESS[how](RANDOM_GOOD)
    assert len(open_archive(saved(tmp_path, whole)).list("/sys")) == 60
    line = refusal(saved(tmp_path, whole[: int(len(whole) * part)]))
    assert line == "ends too early, the file is cut off"


@pytest.mark.parametrize("how", PACKED)
def test_a_missing_checksum_at_the_end_is_noticed(tmp_path: Path, how: str) -> None:
    """The tar is whole there; only reading on to the end of the stream tells."""
    assert "cut off" in refusal(saved(tmp_path, COMPRESS[how](RANDOM_GOOD)[:-2]))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("how", PACKED)
def test_damage_is_refused(tmp_path: Path, how: str, seed: int) -> None:
    whole = bytearray(COMPRESS[how](RANDOM_GOOD))
    at = random.Random(seed).randrange(len(whole) // 4, len(whole) * 3 // 4)
    whole[at : at + 64] = bytes(64)
    if how == "zstd":  # its frames carry a checksum only when asked to
        whole[4:12] = b"\xff" * 8
    assert refusal(saved(tmp_path, bytes(whole))).startswith(("damaged: ", "ends too early"))


def test_damage_that_garbles_the_first_header_is_no_strange_file(tmp_path: Path) -> None:
    """A block of bzip2 comes out whole and wrong; only the checksum behind it tells."""
    refusals = set()
    small = tar([file(f"sys/{n}", b"text\n") for n in range(3000)])  # 3 MB in one block
    whole = bz2.compress(small)
    for seed in range(60):
        damaged = bytearray(whole)
        damaged[random.Random(seed).randrange(len(whole) // 2, len(whole) - 20)] ^= 1
        refusals.add(refusal(saved(tmp_path, bytes(damaged))))
    assert all(line.startswith(("damaged: ", "ends too early")) for line in refusals)
    strange = saved(tmp_path, bz2.compress(random.Random(0).randbytes(50 << 10) * 1000))
    assert refusal(strange) == "not a folder or a tar archive"


@pytest.mark.parametrize("how", PACKED)
def test_streams_one_after_the_other(tmp_path: Path, how: str) -> None:
    """As pigz, pbzip2, pixz and pzstd write them; a tape drive adds zeros."""
    parts = [COMPRESS[how](RANDOM_GOOD[at : at + 5000]) for at in range(0, len(RANDOM_GOOD), 5000)]
    assert len(open_archive(saved(tmp_path, b"".join(parts) + bytes(512))).list("/sys")) == 60
    line = refusal(saved(tmp_path, b"".join(parts) + b"garbage"))
    assert line.startswith(("damaged: ", "ends too early"))


def test_streams_without_content_have_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inflate, "_MAX_STREAMS", 100)
    path = saved(tmp_path, bz2.compress(b"") * 101)
    assert refusal(path) == "more than 100 compressed streams"


@pytest.mark.parametrize(
    ("limits", "wanted"),
    [
        (Limits(members=5), "more than 5 members and folders"),
        (Limits(members=3), "more than 3 members"),
        (Limits(member_bytes=699), "one file may have"),
        (Limits(kept_bytes=59 * 700), "'sys/59': declares 42000 bytes, all files may have"),
        (Limits(name_bytes=100), "names and extended headers may have"),
        (Limits(total_bytes=30_000), "holds more than"),
        (Limits(depth=1), "'sys/0': more than 1 folders deep"),
    ],
)
def test_each_limit_holds(tmp_path: Path, limits: Limits, wanted: str) -> None:
    assert wanted in refusal(saved(tmp_path, gzip.compress(RANDOM_GOOD)), limits)


def test_folders_that_are_only_implied_count_as_members(tmp_path: Path) -> None:
    path = saved(tmp_path, tar([file(f"{n}/b/c/d/e/f/g/h/i/j") for n in range(10)]))
    assert refusal(path, Limits(members=50)) == "more than 50 members and folders"
    assert len(open_archive(path, Limits(members=101)).list("/")) == 10


BOUNDED = """
import json, resource, sys, time
from gpuaudit.host.archive import open_archive
from gpuaudit.host.errors import SnapshotError
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
started = time.monotonic()
try:
    open_archive(sys.argv[1])
    line = "opened"
except SnapshotError as error:
    line = str(error)
seconds = time.monotonic() - started
# Not ru_maxrss: that starts with what the parent had.
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps([line, seconds, int(status["VmHWM"].split()[0]) << 10]))
"""


def in_a_gigabyte(path: Path) -> tuple[str, float, int]:
    """Open it in a process that cannot have more: the line, the seconds, the peak memory."""
    done = subprocess.run(
        [sys.executable, "-c", BOUNDED, str(path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    line, seconds, peak = json.loads(done.stdout)
    return line, seconds, peak


@pytest.mark.parametrize("how", PACKED)
def test_a_bomb_of_100_gb(tmp_path: Path, how: str) -> None:
    """A thousand files of 100 MiB of zeros each, with nothing wrong but their size."""
    size = 100 << 20
    zeros = COMPRESS[how](bytes(size))
    path = tmp_path / "bomb"
    with path.open("wb") as out:
        for number in range(1000):
            out.write(COMPRESS[how](header(f"sys/{number}", size)))
            out.write(zeros)
    line, seconds, peak = in_a_gigabyte(path)
    assert line.endswith("'sys/2': declares 314572800 bytes, all files may have 256 MiB")
    assert seconds < 20
    assert peak < 600 << 20


def test_a_bomb_without_an_end(tmp_path: Path) -> None:
    """100 GiB of extended headers, each small enough alone, and of zeros behind the end."""
    path = tmp_path / "headers"
    unit = header("x", 512, type=b"x") + b"512 comment=".ljust(511, b"c") + b"\n"
    path.write_bytes(zstd.compress(unit * 10_000) * 10_000)
    line, seconds, peak = in_a_gigabyte(path)
    assert "names and extended headers may have 32 MiB" in line
    assert seconds < 20
    path.write_bytes(zstd.compress(END) + zstd.compress(bytes(10 << 20)) * 10_000)
    line, seconds, tail_peak = in_a_gigabyte(path)
    assert "goes on behind the end" in line
    assert seconds < 5
    assert max(peak, tail_peak) < 200 << 20


def test_headers_that_ask_for_memory(tmp_path: Path) -> None:
    """An xz dictionary of 1.5 GiB and a zstd window of 2 GiB are not allocated."""
    start = lzma.compress(b"")[:12]
    block = b"\x02\x00\x21\x01\x25\x00\x00\x00"  # LZMA2 with dictionary code 37: 3 << 29
    path = tmp_path / "greedy"
    path.write_bytes(start + block + zlib.crc32(block).to_bytes(4, "little") + bytes(64))
    line, _, peak = in_a_gigabyte(path)
    assert "damaged: Memory usage limit exceeded" in line
    path.write_bytes(b"\x28\xb5\x2f\xfd\x00" + bytes([(31 - 10) << 3]) + bytes(64))
    line, _, zstd_peak = in_a_gigabyte(path)
    assert "requires too much memory" in line
    assert max(peak, zstd_peak) < 100 << 20


def test_three_thousand_small_files_open_quickly(tmp_path: Path) -> None:
    """10 us a member when measured; the bound leaves room for a slow machine."""
    many = [file(f"root/sys/devices/pci0000:00/{n:04}/attribute", b"0x10de\n") for n in range(3000)]
    path = saved(tmp_path, gzip.compress(tar(many, PAX)))
    started = time.process_time()
    tree = open_archive(path)
    assert time.process_time() - started < 0.5
    assert len(tree.list("/root/sys/devices/pci0000:00")) == 3000


MACHINE: dict[str, Entry] = {"/sys/a": b"1", "/proc/b": b"2", "/sys/link": "/proc/b"}
BESIDE: dict[str, Entry] = {
    "/manifest.json": b"{}",
    **{f"/root{path}": entry for path, entry in MACHINE.items()},
}


@pytest.mark.parametrize(
    ("entries", "wanted"),
    [
        (MACHINE, ("/", "/")),
        ({f"/top{path}": entry for path, entry in MACHINE.items()}, ("/top", "/top")),
        (BESIDE, ("/root", "/")),
        ({f"/top{path}": entry for path, entry in BESIDE.items()}, ("/top/root", "/top")),
        ({"/README": b"", "/top/proc/x": b""}, ("/top", "/top")),
        ({"/manifest.json": b"{}", "/sys/a": b"1"}, ("/", "/")),
    ],
)
def test_where_the_recording_lies(entries: dict[str, Entry], wanted: tuple[str, str]) -> None:
    assert find_root(MemoryTree.of(entries), "x.tar") == wanted


@pytest.mark.parametrize(
    "entries",
    [
        {"/etc/hostname": b"x"},
        {"/manifest.json": b"{}"},
        {"/a/sys/x": b"", "/b/sys/x": b""},
        {"/a/b/sys/x": b""},
        {"/manifest.json": b"{}", "/elsewhere/x": b"", "/root": "elsewhere"},
        {"/sys": b"a file"},
    ],
)
def test_no_recording_is_refused(entries: dict[str, Entry]) -> None:
    with pytest.raises(SnapshotError, match=r"^x\.tar: holds no recording, expected manifest.json"):
        find_root(MemoryTree.of(entries), "x.tar")


@pytest.mark.parametrize("name", ["n.tar.gz", "n.tgz", "n.tar.zst", "folder", "n.example.com"])
def test_what_was_written_opens_again(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    entries: list[tuple[str, Entry]] = [
        ("root/sys/class/net/eth0", "../../devices/pci/eth0"),
        ("root/sys/devices/pci/eth0/mtu", b"9000\n"),
        ("manifest.json", b"{}"),
        ("root/sys/class/infiniband", None),
        ("root/etc/mask", relative_target("/etc/mask", "/dev/null")),
        ("root/" + "n" * 150 + "/" + "m" * 150, b"\0\xff"),
    ]
    write_archive(path, entries)
    tree = FolderTree(path) if os.path.isdir(path) else open_archive(path)
    machine, side = find_root(tree, path)
    assert (machine, side) == ("/root", "/")
    inside = subtree(tree, machine)
    assert inside.read("/sys/class/net/eth0/mtu") == b"9000\n"
    assert inside.list("/sys/class/infiniband") == []
    assert inside.link("/etc/mask") == "../dev/null"
    assert inside.read("/" + "n" * 150 + "/" + "m" * 150) == b"\0\xff"
    assert tree.read("/manifest.json") == b"{}"
    assert os.listdir(tmp_path) == [name], "no draft is left"
    assert os.stat(path).st_mode & 0o077 == 0, "for its owner only"


@pytest.mark.parametrize("suffix", [".tar.gz", ".tar.zst"])
def test_the_same_entries_give_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    entries: list[tuple[str, Entry]] = [("b", b"2"), ("a/c", b"1"), ("a/b", "c"), ("d", None)]
    for name, order in (("x", entries), ("y", entries[::-1])):
        write_archive(str(tmp_path / (name + suffix)), iter(order))
    first, second = (tmp_path / f"{name}{suffix}" for name in "xy")
    assert first.read_bytes() == second.read_bytes()


def test_a_written_tar_is_plain_to_others(tmp_path: Path) -> None:
    path = tmp_path / "x.tar.gz"
    write_archive(str(path), [("b", b"2"), ("a/c", b"1"), ("a/b", "c"), ("d", None)])
    with tarfile.open(path) as archive:
        found = [(m.name, m.type, m.mtime, m.uid, m.uname) for m in archive]
    kinds = [tarfile.SYMTYPE, tarfile.REGTYPE, tarfile.REGTYPE, tarfile.DIRTYPE]
    assert found == [(n, k, 0, 0, "") for n, k in zip(["a/b", "a/c", "b", "d"], kinds, strict=True)]


@pytest.mark.parametrize(
    ("entries", "wanted"),
    [
        ([], "nothing to write"),
        ([("/etc/x", b"")], "'/etc/x': an absolute name"),
        ([("a/../b", b"")], "'a/../b': a name with '..'"),
        ([("a", "/etc")], "'a': a link to an absolute path, '/etc'"),
        ([("a", "../b")], "'a': a link out of the archive, '../b'"),
        ([("a", b""), ("a", b"")], "'a': named twice"),
        ([("a", b""), ("a/b", b"")], "'a/b': lies below something that is not a folder"),
        ([("a\0b", b"")], "a name that is too long or holds a NUL"),
        ([("a", "b\0")], "a name that is too long or holds a NUL"),
        ([("a\udcff", b"")], "a name that is not UTF-8"),
        ([("n" * 5000, b"")], "a name that is too long or holds a NUL"),
        ([(DEEP, b"")], "more than 64 folders deep"),
    ],
)
@pytest.mark.parametrize("name", ["x.tar.gz", "folder"])
def test_what_could_not_be_read_is_not_written(
    tmp_path: Path, name: str, entries: list[tuple[str, Entry]], wanted: str
) -> None:
    with pytest.raises(SnapshotError) as caught:
        write_archive(str(tmp_path / name), entries)
    assert str(caught.value).startswith(f"{tmp_path / name}: ")
    assert wanted in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    entry: list[tuple[str, Entry]] = [("a", b"new")]
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.tar.gz").mkdir()
    (tmp_path / "file").write_text("kept")
    for name, wanted in {
        "folder": "exists already",
        "folder/": "exists already",
        "file": "exists already",
        "folder.tar.gz": "is a folder",
        "x.zip": r"is written as .tar.gz, .tar.zst or a folder",
        "x.tar": r"is written as .tar.gz, .tar.zst or a folder",
        "none/x.tar.gz": "not written: No such file or directory",
        "none/x": "not written: No such file or directory",
    }.items():
        with pytest.raises(SnapshotError, match=wanted):
            write_archive(f"{tmp_path}/{name}", entry)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder", "folder.tar.gz"]
    assert (tmp_path / "file").read_text() == "kept"


def test_an_older_archive_is_replaced_only_by_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.tar.gz"
    write_archive(str(path), [("a", b"old")])

    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(SnapshotError, match="not written: No space left on device"):
            write_archive(str(path), [("a", b"new")])
    assert open_archive(str(path)).read("/a") == b"old"
    assert os.listdir(tmp_path) == ["x.tar.gz"]
    write_archive(str(path), [("a", b"new")])
    assert open_archive(str(path)).read("/a") == b"new"


@pytest.mark.parametrize(
    ("path", "target", "wanted"),
    [
        ("/etc/mask", "/dev/null", "../dev/null"),
        ("/etc/systemd/system/x.service", "/dev/null", "../../../dev/null"),
        ("/etc/alternatives/vi", "vim", "vim"),
        ("/link", "/", "."),
        ("/a/b", "/../../etc", "../etc"),
    ],
)
def test_an_absolute_link_is_kept_as_a_relative_one(path: str, target: str, wanted: str) -> None:
    assert relative_target(path, target) == wanted


def test_zstd_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("backports", "backports.zstd", "compression", "compression.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    wanted = "zstd needs Python 3.14 or the package backports.zstd"
    assert refusal(saved(tmp_path, b"\x28\xb5\x2f\xfd" + bytes(600))) == wanted
    with pytest.raises(SnapshotError, match=wanted):
        write_archive(str(tmp_path / "x.tar.zst"), [("a", b"1")])
    assert os.listdir(tmp_path) == ["node.tar"]
