# SPDX-License-Identifier: Apache-2.0
"""What a snapshot says beside its files: manifest, command output, processes, udev and NVML answers.

A folder or archive without a manifest (such as hwloc's gathered topologies) opens too. In such a
recording a missing file proves nothing: it may only not have been gathered.
"""

import os
from typing import Any, TypeVar

import msgspec

from gpuaudit.host import archive
from gpuaudit.host.answers import NvmlAnswers, decode_answers
from gpuaudit.host.errors import Kind, SnapshotError, Unavailable
from gpuaudit.host.live import Output, Process
from gpuaudit.host.tree import FolderTree, Tree

SCHEMA = "gpuaudit.snapshot/1"
SIDE_FILE_LIMIT_BYTES = 64 << 20
T = TypeVar("T")


class Gap(msgspec.Struct, frozen=True):
    """Something that was asked and could not be had."""

    kind: Kind
    reason: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """manifest.json. Paths are canonical paths inside the recorded machine."""

    schema: str = SCHEMA
    gpuaudit: str
    recorded_at: str
    source: str = "live"
    euid: int | None = None
    scrubbed: bool = False
    versions: dict[str, str] = {}
    gaps: dict[str, Gap] = {}
    listings: dict[str, tuple[str, ...]] = {}


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
        self.manifest = self._load("manifest.json", Manifest)
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
        """The names that stood in a folder, also those that were not recorded."""
        return None if self.manifest is None else self.manifest.listings.get(path)

    def why_missing(self, path: str) -> Unavailable:
        """Missing on that machine, unreadable there, or never recorded."""
        if self.manifest is None:
            return Unavailable(f"{path} was not recorded", "not-recorded")
        if gap := self.manifest.gaps.get(path):
            return Unavailable(gap.reason, gap.kind)
        if self._known_missing(path, self.manifest.listings):
            return Unavailable(f"{path} does not exist", "missing")
        return Unavailable(f"{path} was not recorded", "not-recorded")

    def _known_missing(self, path: str, listings: dict[str, tuple[str, ...]]) -> bool:
        """True when the nearest folder whose names were recorded does not hold the next step."""
        folder = path
        while folder not in {"", "/"}:
            folder, _, name = folder.rpartition("/")
            names = listings.get(folder or "/")
            if names is not None:
                return name not in names
        return False

    def command(self, argv: tuple[str, ...]) -> Output:
        """Replay a command. Raises Unavailable."""
        for recorded in self._load("commands.json", list[RecordedCommand]) or []:
            if recorded.argv == argv:
                if recorded.output is not None:
                    return recorded.output
                gap = recorded.gap or Gap("not-recorded", "no output")
                raise Unavailable(gap.reason, gap.kind)
        raise Unavailable(f"the output of {argv[0]} was not recorded", "not-recorded")

    def processes(self) -> tuple[Process, ...]:
        """Replay the process table. Raises Unavailable."""
        return self._required("processes.json", tuple[Process, ...], "the process table")

    def udev(self, subsystem: str) -> tuple[dict[str, str], ...]:
        """Replay udev's answers. Raises Unavailable."""
        kind = dict[str, tuple[dict[str, str], ...]]
        return self._required("udev.json", kind, "udev").get(subsystem, ())

    def nvml(self) -> NvmlAnswers:
        """Replay NVML's answers. Raises Unavailable."""
        data = self._bytes("nvml.json")
        if data is None:
            raise Unavailable("NVML answers were not recorded", "not-recorded")
        try:
            return decode_answers(data)
        except ValueError as error:
            raise SnapshotError(f"{self._where}: nvml.json: {error}") from error

    def _required(self, name: str, kind: type[T], what: str) -> T:
        value = self._load(name, kind)
        if value is None:
            raise Unavailable(f"{what} was not recorded", "not-recorded")
        return value

    def _load(self, name: str, kind: Any) -> Any:
        data = self._bytes(name)
        if data is None:
            return None
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
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
    tree: Tree = FolderTree(path) if os.path.isdir(path) else archive.open_archive(path)
    machine, side = archive.find_root(tree, path)
    return archive.subtree(tree, machine), Recording(tree, side, path)
