# SPDX-License-Identifier: Apache-2.0
"""Paths inside a tree: links, permissions, odd files, and that nothing leads out of the root."""

import ctypes
import errno
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuaudit.host import tree as trees
from gpuaudit.host.errors import SnapshotError, Unavailable
from gpuaudit.host.memory import Clash, Entry
from gpuaudit.host.tree import FolderTree, MemoryTree, Tree, require_folder, resolve

SMALL: Mapping[str, Entry] = {
    "/etc/hostname": b"node1\n",
    "/etc/absolute": "/etc/hostname",
    "/etc/relative": "hostname",
    "/etc/up": "../../../../../../etc/hostname",
    "/etc/dangling": "nowhere/at/all",
    "/etc/loop-a": "loop-b",
    "/etc/loop-b": "loop-a",
    "/etc/self": "self",
    "/etc/dot": "./././hostname",
    "/devices/gpu/vendor": b"0x10de\n",
    "/devices/gpu/subsystem": "../../bus/pci",
    "/bus/pci/devices/0000:01:00.0": "../../../devices/gpu",
    "/bus/pci/absolute": "/devices//gpu/",
    "/root-link": "/",
    "/empty": None,
}

RESOLVED = [
    ("/", "/"),
    ("", "/"),
    ("//etc//hostname", "/etc/hostname"),
    ("/etc/./hostname", "/etc/hostname"),
    ("/etc/absolute", "/etc/hostname"),
    ("/etc/relative", "/etc/hostname"),
    ("/etc/up", "/etc/hostname"),
    ("/etc/dot", "/etc/hostname"),
    ("/../../etc/hostname", "/etc/hostname"),
    ("/etc/../../../etc/hostname", "/etc/hostname"),
    ("/bus/pci/devices/0000:01:00.0", "/devices/gpu"),
    ("/bus/pci/devices/0000:01:00.0/vendor", "/devices/gpu/vendor"),
    ("/bus/pci/devices/0000:01:00.0/subsystem", "/bus/pci"),
    ("/bus/pci/devices/0000:01:00.0/../gpu/vendor", "/devices/gpu/vendor"),
    ("/bus/pci/absolute/vendor", "/devices/gpu/vendor"),
    ("/bus/pci/absolute/subsystem/absolute/vendor", "/devices/gpu/vendor"),
    ("/root-link", "/"),
    ("/root-link/root-link/etc/absolute", "/etc/hostname"),
]

UNRESOLVED = [
    ("/etc/nothing", "missing"),
    ("/nothing/../etc/hostname", "missing"),
    ("/etc/hostname/below", "missing"),
    ("/etc/dangling", "missing"),
    ("/etc/loop-a", "garbled"),
    ("/etc/self", "garbled"),
    ("/etc/loop-a/below", "garbled"),
]


def on_disk(root: Path, entries: Mapping[str, Entry]) -> FolderTree:
    for path, entry in entries.items():
        where = root / path.lstrip("/")
        (where if entry is None else where.parent).mkdir(parents=True, exist_ok=True)
        if isinstance(entry, str):
            where.symlink_to(entry)
        elif entry is not None:
            where.write_bytes(entry)
    return FolderTree(root)


@pytest.fixture(params=["folder", "memory", "folder below", "memory below"])
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Tree:
    if not request.param.endswith("below"):
        in_memory = request.param == "memory"
        return MemoryTree.of(SMALL) if in_memory else on_disk(tmp_path, SMALL)
    moved = {f"/top{path}": entry for path, entry in SMALL.items()} | {"/outside": b"outside"}
    tree = MemoryTree.of(moved) if request.param.startswith("memory") else on_disk(tmp_path, moved)
    return tree.below("/top")


@pytest.mark.parametrize(("path", "wanted"), RESOLVED)
def test_links_are_followed_inside_the_root(small: Tree, path: str, wanted: str) -> None:
    assert resolve(small, path) == wanted
    assert resolve(small, path) == wanted, "and remembered"


@pytest.mark.parametrize(("path", "kind"), UNRESOLVED)
def test_what_cannot_be_resolved(small: Tree, path: str, kind: str) -> None:
    for ask in (lambda: resolve(small, path), lambda: small.read(path), lambda: small.list(path)):
        with pytest.raises(Unavailable) as caught:
            ask()
        assert caught.value.kind == kind
        assert caught.value.reason.startswith("/")


@pytest.mark.parametrize(("hops", "works"), [(40, True), (41, False)])
def test_as_many_links_as_the_kernel_follows(hops: int, works: bool) -> None:
    chain: dict[str, Entry] = {f"/{n}": str(n - 1) for n in range(1, hops + 1)} | {"/0": b"end"}
    tree = MemoryTree.of(chain)
    if works:
        assert tree.read(f"/{hops}") == b"end"
        return
    with pytest.raises(Unavailable, match="too many links"):
        tree.read(f"/{hops}")


def test_read_and_list_follow_links(small: Tree) -> None:
    assert small.read("/etc/up") == b"node1\n"
    assert small.read("/bus/pci/devices/0000:01:00.0/vendor") == b"0x10de\n"
    assert small.list("/bus/pci/devices/0000:01:00.0") == ["subsystem", "vendor"]
    assert small.list("/root-link") == ["bus", "devices", "empty", "etc", "root-link"]
    assert small.list("/empty") == []


def test_link_and_kind_speak_of_the_node_itself(small: Tree) -> None:
    assert small.link("/etc/absolute") == "/etc/hostname"
    assert small.link("/bus/pci/devices/0000:01:00.0/subsystem") == "../../bus/pci"
    assert small.link("/etc/dangling") == "nowhere/at/all"
    assert [small.link(p) for p in ("/", "/etc", "/etc/hostname", "/nothing/here")] == [None] * 4
    assert small.kind("/etc/dangling") == small.kind("/etc/loop-a") == "link"
    assert small.kind("/etc/hostname") == "file"
    assert small.kind("/") == small.kind("/etc/") == small.kind("/etc/..") == "dir"
    assert small.kind("/etc/nothing") is small.kind("/etc/hostname/below") is None
    with pytest.raises(Unavailable) as caught:
        small.kind("/etc/loop-a/below")
    assert caught.value.kind == "garbled"
    with pytest.raises(Unavailable):
        small.link("/etc/loop-a/below")


def test_a_folder_is_not_a_file_and_the_reverse(small: Tree) -> None:
    with pytest.raises(Unavailable, match="/etc: not a regular file") as caught:
        small.read("/etc")
    assert caught.value.kind == "garbled"
    with pytest.raises(Unavailable) as caught:
        small.list("/etc/hostname/")
    assert caught.value.kind == "garbled"


def test_more_than_the_limit_is_refused(small: Tree) -> None:
    assert small.read("/etc/hostname", 6) == b"node1\n"
    with pytest.raises(Unavailable, match="larger than 5 bytes") as caught:
        small.read("/etc/hostname", 5)
    assert caught.value.kind == "garbled"


@pytest.mark.parametrize("path", ["/etc/a\0b", "/etc/\ud800", "/etc/\ud800/x"])
def test_what_is_no_path_is_never_a_crash(small: Tree, path: str) -> None:
    with pytest.raises(Unavailable):
        small.read(path)
    with pytest.raises(Unavailable):
        small.list(path)


def test_content_stays_raw(tmp_path: Path) -> None:
    """Tar pads sysfs attributes with NULs: readers of text strip them, config space keeps them."""
    padded = b"1\n" + bytes(4094)
    assert on_disk(tmp_path, {"/sys/numa_node": padded}).read("/sys/numa_node") == padded


@pytest.mark.parametrize("live", [True, False], ids=["live", "rooted"])
def test_odd_files_are_refused_at_once(tmp_path: Path, live: bool) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "null").symlink_to("/dev/null")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "socket"))
    tree, base = (FolderTree("/"), str(tmp_path)) if live else (FolderTree(tmp_path), "")
    started = time.monotonic()
    for name in ("fifo", "socket"):
        with pytest.raises(Unavailable, match="not a regular file") as caught:
            tree.read(f"{base}/{name}")
        assert caught.value.kind == "garbled"
        assert tree.kind(f"{base}/{name}") == "other"
    with pytest.raises(Unavailable, match="not a regular file" if live else "does not exist"):
        tree.read(f"{base}/null")
    assert time.monotonic() - started < 1
    listening.close()


def test_a_sparse_file_costs_no_more_than_the_limit(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(10 << 30)
    started = time.monotonic()
    with pytest.raises(Unavailable, match="larger than 4194304 bytes"):
        FolderTree(tmp_path).read("/huge")
    assert time.monotonic() - started < 1


def test_the_live_machine() -> None:
    live = FolderTree("/")
    assert live.read("/proc/self/stat").startswith(str(os.getpid()).encode())
    assert resolve(live, "/proc/self") == f"/proc/{os.getpid()}"
    assert live.link("/proc/self") == str(os.getpid())
    assert "self" in live.list("/proc")
    assert live.read("proc/self/comm") == live.read("/proc/self/comm")
    with pytest.raises(Unavailable) as caught:
        live.read("/proc/self/nothing")
    assert caught.value.kind == "missing"


@pytest.mark.parametrize("live", [True, False], ids=["live", "rooted"])
def test_no_permission_is_told_from_missing(live: bool) -> None:
    with tempfile.TemporaryDirectory() as name:  # not tmp_path: another user cannot enter that
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "secret").write_text("x")
        (folder / "closed").mkdir()
        (folder / "closed" / "file").write_text("x")
        (folder / "closed").chmod(0)
        (folder / "secret").chmod(0)
        base = name if live else ""
        tree = FolderTree("/" if live else name)
        asked: list[Callable[[], object]] = [
            lambda: tree.read(f"{base}/secret"),
            lambda: tree.list(f"{base}/closed"),
            lambda: tree.kind(f"{base}/closed/file"),
            lambda: tree.link(f"{base}/closed/file"),
            lambda: tree.read(f"{base}/closed/file"),
        ]
        answers = as_a_user(lambda: [reason_of(ask) for ask in asked])
        (folder / "closed").chmod(0o755)
    assert len(answers) == len(asked)
    assert all(": no permission, needs root (denied)" in answer for answer in answers), answers


def reason_of(ask: Callable[[], object]) -> str:
    try:
        return f"no error: {ask()}"
    except Unavailable as error:
        return f"{error.reason} ({error.kind})"


def as_a_user(work: Callable[[], list[str]]) -> list[str]:
    """Run in a child that is not root, and bring its lines back."""
    if os.geteuid() != 0:
        return work()
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os.write(into, "\n".join(work()).encode())
        finally:
            os._exit(0)
    os.close(into)
    with os.fdopen(out) as answers:
        lines = answers.read().splitlines()
    os.waitpid(child, 0)
    return lines


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EIO, "garbled"),
        (errno.ENODEV, "garbled"),
        (errno.ENXIO, "garbled"),
        (errno.EBUSY, "garbled"),
        (errno.EAGAIN, "garbled"),
        (errno.EINVAL, "unsupported"),
        (errno.EOPNOTSUPP, "unsupported"),
        (errno.EPERM, "denied"),
    ],
)
def test_a_read_that_fails_says_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: str
) -> None:
    """A driver answers a read of sysfs with these; no file of a test machine does on demand."""

    def fail(_fd: int, _size: int) -> bytes:
        raise OSError(number, os.strerror(number))

    tree = on_disk(tmp_path, {"/sys/attribute": b"1"})
    with monkeypatch.context() as patch:
        patch.setattr(os, "read", fail)
        answer = reason_of(lambda: tree.read("/sys/attribute"))
    assert answer.startswith("/sys/attribute: ")
    assert answer.endswith(f"({kind})")
    assert kind == "denied" or os.strerror(number) in answer


def test_a_folder_swapped_for_a_link_after_it_was_resolved(tmp_path: Path) -> None:
    """An image can be a running container: what was a folder a moment ago may be a link out now."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("secret")
    tree = on_disk(tmp_path / "image", {"/etc/file": b"inside", "/etc/other": b"inside"})
    assert tree.read("/etc/file") == b"inside"
    shutil.rmtree(tmp_path / "image" / "etc")
    (tmp_path / "image" / "etc").symlink_to(outside)
    for ask in (lambda: tree.read("/etc/file"), lambda: tree.list("/etc")):
        with pytest.raises(Unavailable):
            ask()


def test_no_descriptor_is_left_open(small: Tree) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for path in ("/etc/hostname", "/etc/nothing", "/etc", "/etc/loop-a", "/bus/pci/absolute"):
        for ask in (small.read, small.list, small.kind, small.link):
            reason_of(lambda ask=ask, path=path: ask(path))  # type: ignore[misc]  # bound defaults
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_folder_with_too_many_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = on_disk(tmp_path, {f"/many/{n}": b"" for n in range(6)})
    assert len(tree.list("/many")) == 6
    monkeypatch.setattr(trees, "LIST_LIMIT", 5)
    with pytest.raises(Unavailable, match="more than 5 entries"):
        tree.list("/many")


@pytest.mark.parametrize("use", [require_folder, FolderTree], ids=["require_folder", "FolderTree"])
def test_a_root_has_to_be_a_folder(tmp_path: Path, use: Callable[[str], object]) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(SnapshotError, match=r"file: not a folder$"):
        use(str(tmp_path / "file"))
    with pytest.raises(SnapshotError, match=r"nothing: does not exist$"):
        use(str(tmp_path / "nothing"))
    assert use(str(tmp_path)) is None or use is FolderTree


def test_below_takes_folders_only(small: Tree) -> None:
    assert small.below("/etc").read("/relative") == b"node1\n"
    with pytest.raises(Unavailable):
        small.below("/etc").read("/absolute")  # /etc/hostname, counted from the new root
    with pytest.raises((Unavailable, SnapshotError)):
        small.below("/etc/hostname")


def test_one_path_cannot_stand_for_two_things() -> None:
    with pytest.raises(Clash):
        MemoryTree.of({"/a/b": b"", "/a": b""})
    with pytest.raises(Clash):
        MemoryTree.of({"/a": "b", "/a/c": b""})
    assert MemoryTree.of({"/a/b": b"", "/a": None}).list("/a") == ["b"]


NAMES = st.sampled_from(["a", "b", "c", "d"])
PARTS = st.lists(st.one_of(NAMES, st.sampled_from(["..", ".", ""])), min_size=1, max_size=6)
TARGETS = st.builds(
    lambda root, parts: (root + "/".join(parts)) or ".", st.sampled_from(["", "/"]), PARTS
)
PATHS = st.builds("/".join, st.lists(NAMES, min_size=1, max_size=3)).map("/{}".format)
GRAPHS = st.dictionaries(
    PATHS, st.one_of(TARGETS, TARGETS, st.just(b"inside"), st.none()), max_size=12
)


def consistent(graph: Mapping[str, Entry]) -> Iterator[tuple[str, Entry]]:
    """Leave out what would lie below a file or link."""
    leaves = {path for path, entry in graph.items() if entry is not None}
    for path, entry in graph.items():
        if not any(path.startswith(f"{leaf}/") for leaf in leaves):
            yield path, entry if not any(p.startswith(f"{path}/") for p in graph) else None


@settings(deadline=None)
@given(graph=GRAPHS, parts=PARTS)
def test_no_graph_of_links_leads_out(graph: Mapping[str, Entry], parts: list[str]) -> None:
    """The same in memory and on disk, always a node that exists, never one outside."""
    entries, path = dict(consistent(graph)), "/" + "/".join(parts)
    with tempfile.TemporaryDirectory() as name:
        root = surrounded(Path(name))
        folder, memory = on_disk(root, entries), MemoryTree.of(entries)
        found = reason_of(lambda: resolve(folder, path))
        assert found == reason_of(lambda: resolve(memory, path))
        if not found.startswith("no error: "):
            return
        where = root / found.removeprefix("no error: /")
        assert where.exists()
        assert Path(os.path.realpath(where)) == where, "nothing is left to follow"
        if where.is_file():
            assert folder.read(path) == memory.read(path) == b"inside"


@settings(deadline=None)
@given(graph=GRAPHS, parts=PARTS)
def test_links_lead_where_the_kernel_says(graph: Mapping[str, Entry], parts: list[str]) -> None:
    """openat2(2) with RESOLVE_IN_ROOT is an oracle that shares no line with this code."""
    entries, path = dict(consistent(graph)), "/" + "/".join(parts)
    with tempfile.TemporaryDirectory() as name:
        root = surrounded(Path(name))
        tree = on_disk(root, entries)
        wanted = kernel_resolves(root, path)
        if isinstance(wanted, str):
            assert resolve(tree, path) == wanted
        elif wanted == errno.ENOENT:  # ENOTDIR: this code does not mind a `.` behind a file
            with pytest.raises(Unavailable):
                resolve(tree, path)


def surrounded(folder: Path) -> Path:
    """A root with files outside that the same names would reach."""
    for outside in ("a", "b", "c", "d"):
        (folder / outside).write_text("outside")
    root = folder.resolve() / "x" / "root"
    root.mkdir(parents=True)
    return root


def kernel_resolves(root: Path, path: str) -> str | int:
    """Where the kernel finds the path inside the root, or its error number."""
    o_path, resolve_in_root, number = os.O_PATH, 0x10, 437  # include/uapi/linux/openat2.h
    how = (ctypes.c_uint64 * 3)(o_path, 0, resolve_in_root)
    libc = ctypes.CDLL(None, use_errno=True)
    at = os.open(root, os.O_PATH)
    fd = libc.syscall(number, at, path.encode(), ctypes.byref(how), ctypes.sizeof(how))
    number = ctypes.get_errno()
    os.close(at)
    if fd < 0:
        if number not in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
            pytest.skip(f"no openat2 here: {os.strerror(number)}")
        return number
    place = os.readlink(f"/proc/self/fd/{fd}").removeprefix(str(root))
    os.close(fd)
    return place or "/"
