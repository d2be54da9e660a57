# SPDX-License-Identifier: Apache-2.0
"""What a snapshot says beside its files: manifest, commands, processes, udev and NVML answers.

A folder or archive without a manifest (such as hwloc's gathered topologies) opens too. In such a
recording a missing file proves nothing: it may only not have been gathered.
"""

import os
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from gpuaudit.host.answers import NvmlAnswers, decode_answers
from gpuaudit.host.errors import Kind, SnapshotError, Unavailable
from gpuaudit.host.live import Interface, Output
from gpuaudit.host.paths import MAX_LINKS
from gpuaudit.host.processes import Process
from gpuaudit.host.status import Status
from gpuaudit.host.tree import FolderTree, Tree

SCHEMA = "gpuaudit.snapshot/1"
SIDE_FILE_LIMIT_BYTES = 64 << 20
T = TypeVar("T")


class Gap(msgspec.Struct, frozen=True):
    """Something that was asked and could not be had."""

    kind: Kind
    reason: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """manifest.json. Paths are canonical paths inside the recorded machine.

    `gaps` also holds "processes", "nvml" and "udev SUBSYSTEM" when those did not answer.
    """

    schema: str = SCHEMA
    gpuaudit: str
    recorded_at: str
    source: str = "live"
    euid: int | None = None
    scrubbed: bool = False
    versions: dict[str, str] = {}
    gaps: dict[str, Gap] = {}
    listings: dict[str, tuple[str, ...]] = {}
    statuses: dict[str, Status] = {}


class RecordedCommand(msgspec.Struct, frozen=True, kw_only=True):
    """One command with its output, or why there is none."""

    argv: tuple[str, ...]
    output: Output | None = None
    gap: Gap | None = None


class Recording:
    """The side files of a snapshot, read when first needed."""

    def __init__(self, tree: Tree, prefix: str, where: str) -> None:
        """`prefix` is the folder inside `tree` that holds the side files."""
        self._tree = tree
        self._prefix = prefix.rstrip("/")
        self._where = where
        self._loaded: dict[str, Any] = {}
        self.manifest: Manifest | None = self._load("manifest.json", Manifest)
        self._machine = tree
        if self.manifest is not None:
            self._machine = tree.below(f"{self._prefix}/root")
        if self.manifest is not None and self.manifest.schema != SCHEMA:
            raise SnapshotError(
                f"{where}: schema is {self.manifest.schema!r}, this release reads {SCHEMA!r}"
            )

    @property
    def is_root(self) -> bool | None:
        """Whether it was recorded as root."""
        known = self.manifest is not None and self.manifest.euid is not None
        return self.manifest.euid == 0 if known and self.manifest else None

    def listing(self, path: str) -> tuple[str, ...] | None:
        """The names that stood in a folder, also those that were not recorded.

        None when the tree itself has to say. Raises Unavailable.
        """
        if self.manifest is None:
            return None
        if (names := self.manifest.listings.get(path)) is not None:
            return names
        self.refuse_gap(path)
        if self._machine.kind(path) == "dir":
            raise Unavailable(f"the names in {path} were not recorded", "not-recorded")
        return None

    def refuse_gap(self, path: str) -> None:
        """Raise Unavailable when this path, or this question, got no answer on that machine."""
        gap = None if self.manifest is None else self.manifest.gaps.get(path)
        if gap is not None:
            raise Unavailable(gap.reason, gap.kind)

    def why_missing(self, path: str) -> Unavailable:
        """Missing on that machine, unreadable there, or never recorded."""
        if self.manifest is not None:
            at = place(self._machine.target, path)
            for known in (path, at):
                if gap := self.manifest.gaps.get(known):
                    return Unavailable(gap.reason, gap.kind)
            if self._known_missing(at, self.manifest):
                return Unavailable(f"{path} does not exist", "missing")
        return Unavailable(f"{path} was not recorded", "not-recorded")

    def _known_missing(self, path: str, manifest: Manifest) -> bool:
        """True when a folder above is missing, or the nearest one listed lacks the next step."""
        folder = path
        while folder not in {"", "/"}:
            folder, _, name = folder.rpartition("/")
            names = manifest.listings.get(folder or "/")
            if names is not None:
                return name not in names
            if (gap := manifest.gaps.get(folder)) is not None:
                return gap.kind == "missing"
        return False

    def command(self, argv: tuple[str, ...]) -> Output:
        """Replay a command. Raises Unavailable."""
        known: list[RecordedCommand] = self._load("commands.json", list[RecordedCommand]) or []
        for recorded in known:
            if recorded.argv == argv:
                if recorded.output is not None:
                    return recorded.output
                gap = recorded.gap or Gap("not-recorded", "no output")
                raise Unavailable(gap.reason, gap.kind)
        raise Unavailable(
            f"the output of {' '.join(argv).lstrip('@')} was not recorded", "not-recorded"
        )

    def processes(self) -> tuple[Process, ...]:
        """Replay the process table. Raises Unavailable."""
        self.refuse_gap("processes")
        return self._required("processes.json", tuple[Process, ...], "the process table")

    def interfaces(self) -> dict[str, Interface]:
        """Replay the network interfaces. Raises Unavailable."""
        self.refuse_gap("interfaces")
        return self._required("interfaces.json", dict[str, Interface], "the interface table")

    def udev(self, subsystem: str) -> tuple[dict[str, str], ...]:
        """Replay udev's answers. Raises Unavailable."""
        self.refuse_gap(f"udev {subsystem}")
        kind = dict[str, tuple[dict[str, str], ...]]
        known = self._required("udev.json", kind, "udev")
        if subsystem not in known:
            raise Unavailable(f"what udev knows of {subsystem} was not recorded", "not-recorded")
        return known[subsystem]

    def nvml(self) -> NvmlAnswers:
        """Replay NVML's answers. Raises Unavailable."""
        self.refuse_gap("nvml")
        data = self._bytes("nvml.json")
        if data is None:
            raise Unavailable("NVML answers were not recorded", "not-recorded")
        try:
            return decode_answers(data)
        except ValueError as error:
            raise SnapshotError(f"{self._where}: nvml.json: {error}") from error

    def _required(self, name: str, kind: type[T], what: str) -> T:
        value: T | None = self._load(name, kind)
        if value is None:
            raise Unavailable(f"{what} was not recorded", "not-recorded")
        return value

    def _load(self, name: str, kind: Any) -> Any:
        if name not in self._loaded:
            self._loaded[name] = self._decoded(name, kind)
        return self._loaded[name]

    def _decoded(self, name: str, kind: Any) -> Any:
        data = self._bytes(name)
        if data is None:
            return None
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise SnapshotError(f"{self._where}: {name}: {error}") from error

    def _bytes(self, name: str) -> bytes | None:
        try:
            return self._tree.read(f"{self._prefix}/{name}", SIDE_FILE_LIMIT_BYTES)
        except Unavailable as absent:
            if absent.kind == "missing":
                return None
            raise SnapshotError(f"{self._where}: {name}: {absent.reason}") from absent


def open_recording(path: str) -> tuple[Tree, Recording]:
    """Open a folder or archive. Returns the recorded machine's tree and its side files.

    Raises SnapshotError in one line.
    """
    from gpuaudit.host import archive  # 6 ms that a live audit does not spend

    tree: Tree = FolderTree(path) if os.path.isdir(path) else archive.open_archive(path)
    try:
        machine, side = archive.find_root(tree, path)
    except SnapshotError:
        from gpuaudit.host.bare import mounted  # for the few recordings without a root

        if (bare := mounted(tree, path)) is None:
            raise
        return bare, Recording(bare, "/", path)
    return archive.subtree(tree, machine), Recording(tree, side, path)


def place(
    target: Callable[[str], str | None], path: str, links: dict[str, str] | None = None
) -> str:
    """The canonical path of `path`; where something on the way is missing, the rest as asked.

    `target` is Tree.target. Each link on the way is put into `links`.
    """
    done, todo, passed = "", path.split("/")[::-1], {} if links is None else links
    hops = 0
    while todo and hops <= MAX_LINKS:
        part = todo.pop()
        if part == "..":
            done = done.rpartition("/")[0]
        elif part and part != ".":
            goal = step(target, f"{done}/{part}", passed)
            if goal is None:
                done = f"{done}/{part}"
                continue
            hops += 1
            done = "" if goal.startswith("/") else done
            todo.extend(reversed(goal.split("/")))
    return done or "/"


def step(target: Callable[[str], str | None], node: str, links: dict[str, str]) -> str | None:
    """Where the link at `node` leads; None when it is no link or nothing can be read there."""
    try:
        goal = target(node)
    except Unavailable:
        return None
    if goal is not None:
        links[node] = goal
    return goal
