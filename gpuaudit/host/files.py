# SPDX-License-Identifier: Apache-2.0
"""The files of a machine, each read once and remembered: the first half of a Host."""

import re
from collections.abc import Callable
from typing import Literal, TypeVar

from gpuaudit.host import tree as trees
from gpuaudit.host.errors import NotApplicable, Unavailable
from gpuaudit.host.evidence import Evidence
from gpuaudit.host.live import LiveMachine
from gpuaudit.host.recording import Recording
from gpuaudit.host.status import Status

Source = Literal["live", "snapshot", "image"]
K = TypeVar("K")
V = TypeVar("V")
READ_LIMIT_BYTES = 4 << 20
NUMBER = re.compile("[+-]?(0x[0-9a-fA-F]{1,16}|[0-9]{1,20})")  # the kernel's have 64 bits
IMAGE_HAS_NO_KERNEL = "an image has no running kernel"
KERNEL_FOLDERS = frozenset({"proc", "sys", "run", "dev"})


class Files:
    """What can be asked of the files of a live machine, a recording or an image."""

    def __init__(
        self,
        tree: trees.Tree,
        source: Source,
        *,
        machine: LiveMachine | None = None,
        recording: Recording | None = None,
    ) -> None:
        self.tree = tree
        self.source = source
        self.evidence = Evidence()
        self._machine = machine
        self._recording = recording

    def resolve(self, path: str) -> str:
        """The canonical path inside the root. Raises Unavailable."""
        self._refuse_image(path)
        return self._once(self.evidence.paths, path, lambda: trees.resolve(self.tree, path), path)

    def read_bytes(self, path: str) -> bytes:
        """The bytes of a regular file, at most 4 MiB. Raises Unavailable."""
        where = self.resolve(path)
        return self._once(self.evidence.files, where, lambda: self._fetch(where), path)

    def read(self, path: str) -> str:
        """The text of a file without the NULs and white space around it. Raises Unavailable."""
        return self.read_bytes(path).decode("utf-8", "replace").strip("\0 \t\r\n")

    def read_environment(self, path: str) -> str:
        """A file that sets variables, lines kept; a recording drops what could be a secret."""
        text = self.read_bytes(path).decode("utf-8", "replace")
        self.evidence.environments.add(self.resolve(path))
        return text

    def status(self, path: str) -> Status:
        """Kind, mode, owner and device numbers of what a path leads to. Raises Unavailable."""
        where = self.resolve(path)
        return self._once(self.evidence.statuses, where, lambda: self._status(where), path)

    def read_int(self, path: str) -> int:
        """The file as one integer, decimal or 0x hex. Raises Unavailable (garbled)."""
        text = self.read(path)
        if NUMBER.fullmatch(text):
            return int(text, 16 if "x" in text else 10)
        raise Unavailable(f"{path} holds {text[:40]!r}, not a number", "garbled")

    def list(self, path: str) -> tuple[str, ...]:
        """The sorted names in a folder. Raises Unavailable."""
        where = self.resolve(path)
        return self._once(self.evidence.listings, where, lambda: self._names(where), path)

    def optional(self, path: str) -> str | None:
        """The text of a file, or None whatever the reason it could not be had."""
        try:
            return self.read(path)
        except Unavailable:
            return None

    def names(self, path: str) -> tuple[str, ...]:
        """The names in a folder, or none whatever the reason."""
        try:
            return self.list(path)
        except Unavailable:
            return ()

    def give(self, path: str, content: bytes) -> None:
        """Let a file be this, whatever the tree holds: evidence that was gathered before."""
        self.evidence.paths[path] = path
        self.evidence.files[path] = content

    def exists(self, path: str) -> bool:
        """True when the path is there, False when it is known not to be. Raises Unavailable."""
        try:
            self.resolve(path)
        except Unavailable as absent:
            if absent.kind == "missing":
                return False
            raise
        return True

    # Inside

    def _once(
        self,
        memory: dict[K, V | Unavailable],
        key: K,
        get: Callable[[], V],
        path: str | None = None,
    ) -> V:
        if key not in memory:
            try:
                memory[key] = get()
            except Unavailable as absent:
                memory[key] = absent if path is None else self._explained(path, absent)
        value = memory[key]
        if isinstance(value, Unavailable):
            raise value
        return value

    def _explained(self, asked: str, absent: Unavailable) -> Unavailable:
        """Missing may only mean not mounted or never recorded."""
        if absent.kind != "missing":
            return absent
        if self._machine is not None:
            return self._machine.why_missing(self.tree, asked, absent)
        return absent if self._recording is None else self._recording.why_missing(asked)

    def _fetch(self, where: str) -> bytes:
        if self._machine is not None:
            return self._machine.read(self.tree, where, READ_LIMIT_BYTES)
        if self._recording is not None:
            self._recording.refuse_gap(where)
        return self.tree.read(where, READ_LIMIT_BYTES)

    def _status(self, where: str) -> Status:
        if self._recording is not None:
            manifest = self._recording.manifest
            if manifest is None or where not in manifest.statuses:
                raise Unavailable(f"the mode of {where} was not recorded", "not-recorded")
            return manifest.statuses[where]
        assert isinstance(self.tree, trees.FolderTree)  # noqa: S101 - a live node or an image
        return self.tree.status(where)

    def _names(self, where: str) -> tuple[str, ...]:
        recorded = self._recording.listing(where) if self._recording is not None else None
        return recorded if recorded is not None else tuple(sorted(self.tree.list(where)))

    def _refuse_image(self, path: str = "/proc") -> None:
        if self.source == "image" and path.lstrip("/").partition("/")[0] in KERNEL_FOLDERS:
            raise NotApplicable(IMAGE_HAS_NO_KERNEL)
