# SPDX-License-Identifier: Apache-2.0
"""The only seam to a machine: a live node, a recorded snapshot or an offline image root.

Nothing outside this package opens a file of the node, starts a process or asks NVML, psutil or
udev. Everything asked is remembered, so nothing is read twice and a snapshot is what was asked.
"""

import re
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from gpuaudit.host import tree as trees
from gpuaudit.host.answers import NvmlAnswers
from gpuaudit.host.errors import NotApplicable, SnapshotError, Unavailable
from gpuaudit.host.evidence import Evidence
from gpuaudit.host.live import Interface, LiveMachine, Output
from gpuaudit.host.processes import Process
from gpuaudit.host.recording import Recording, open_recording
from gpuaudit.host.unloaded import certainly_unloaded

__all__ = [
    "Host",
    "Interface",
    "NotApplicable",
    "Output",
    "Process",
    "SnapshotError",
    "Unavailable",
]

Source = Literal["live", "snapshot", "image"]
K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
READ_LIMIT_BYTES = 4 << 20
NUMBER = re.compile("[+-]?(0x[0-9a-fA-F]{1,16}|[0-9]{1,20})")  # the kernel's have 64 bits
IMAGE_HAS_NO_KERNEL = "an image has no running kernel"
KERNEL_FOLDERS = frozenset({"proc", "sys", "run", "dev"})


class Host:
    """A machine as evidence. Use Host.live(), Host.snapshot(path) or Host.image(root)."""

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
        self._answers: dict[str, Any] = {}

    @classmethod
    def live(cls, root: str = "/", *, nvml_deadline_s: float = 20.0) -> "Host":
        """This machine. Another `root` redirects files only (for tests)."""
        machine = LiveMachine(nvml_deadline_s=nvml_deadline_s)
        return cls(trees.FolderTree(root), "live", machine=machine)

    @classmethod
    def snapshot(cls, path: str) -> "Host":
        """A recording: a folder or an archive. Raises SnapshotError in one line."""
        tree, recording = open_recording(path)
        return cls(tree, "snapshot", recording=recording)

    @classmethod
    def image(cls, root: str) -> "Host":
        """The root folder of an operating system that is not running."""
        trees.require_folder(root)
        return cls(trees.FolderTree(root), "image")

    # Files

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

    # What only a running machine can answer

    def run(self, *argv: str) -> Output:
        """Output of a command. Live machines run it, snapshots replay it. Raises Unavailable."""
        self._refuse_image()
        return self._once(self.evidence.commands, argv, lambda: self._command(argv))

    def processes(self) -> tuple[Process, ...]:
        """The process table. Raises Unavailable."""
        self._refuse_image()
        return self._answer("processes", lambda m: m.processes(), lambda r: r.processes())

    def udev(self, subsystem: str) -> tuple[dict[str, str], ...]:
        """Properties of the devices of one subsystem as udev knows them. Raises Unavailable."""
        self._refuse_image()
        return self._answer(
            f"udev {subsystem}", lambda m: m.udev(subsystem), lambda r: r.udev(subsystem)
        )

    def interfaces(self) -> dict[str, Interface]:
        """The network interfaces with what their drivers negotiated. Raises Unavailable."""
        self._refuse_image()
        return self._answer("interfaces", lambda m: m.interfaces(), lambda r: r.interfaces())

    def nvml_start(self) -> None:
        """Start asking NVML in the background (live only). Read the PCI links before this."""
        if self._machine is not None and "nvml" not in self._answers:
            self._machine.nvml_start(unloaded=self._without_driver())

    def nvml(self) -> NvmlAnswers:
        """Everything NVML was asked. Raises Unavailable when a snapshot holds no NVML answers."""
        self._refuse_image()
        self.nvml_start()
        return self._answer("nvml", lambda m: m.nvml_finish(), lambda r: r.nvml())

    def is_root(self) -> bool | None:
        """Whether the evidence was read as root; None when unknown."""
        if self._machine is not None:
            return self._machine.is_root
        return None if self._recording is None else self._recording.is_root

    def answered(self, what: str) -> object:
        """An answer given earlier by processes(), udev() or nvml(), or None (for recording)."""
        return self._answers.get(what)

    def close(self) -> None:
        """Abandon whatever still runs in the background."""
        if self._machine is not None:
            self._machine.close()

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

    def _names(self, where: str) -> tuple[str, ...]:
        recorded = self._recording.listing(where) if self._recording is not None else None
        return recorded if recorded is not None else tuple(sorted(self.tree.list(where)))

    def _command(self, argv: tuple[str, ...]) -> Output:
        if self._machine is not None:
            return self._machine.run(argv)
        return self._recorded().command(argv)

    def _answer(
        self,
        what: str,
        live: Callable[[LiveMachine], T],
        recorded: Callable[[Recording], T],
    ) -> T:
        def ask() -> T:
            if self._machine is not None:
                return live(self._machine)
            return recorded(self._recorded())

        return self._once(self._answers, what, ask)  # type: ignore[no-any-return]  # keyed by what

    def _without_driver(self) -> bool:
        try:
            return certainly_unloaded(self)
        except Unavailable:
            return False

    def _recorded(self) -> Recording:
        if self._recording is None:
            raise Unavailable("nothing was recorded", "not-recorded")
        return self._recording

    def _refuse_image(self, path: str = "/proc") -> None:
        if self.source == "image" and path.lstrip("/").partition("/")[0] in KERNEL_FOLDERS:
            raise NotApplicable(IMAGE_HAS_NO_KERNEL)
