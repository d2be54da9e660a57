# SPDX-License-Identifier: Apache-2.0
"""The only seam to a machine: a live node, a recorded snapshot or an offline image root.

Nothing outside this package opens a file of the node, starts a process or asks NVML, psutil or
udev. Everything asked is remembered, so nothing is read twice and a snapshot is what was asked.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from gpuaudit.host import tree as trees
from gpuaudit.host.answers import NvmlAnswers
from gpuaudit.host.errors import NotApplicable, SnapshotError, Unavailable
from gpuaudit.host.files import Files, Source
from gpuaudit.host.live import Interface, LiveMachine, Output
from gpuaudit.host.processes import Process
from gpuaudit.host.recording import Recording, open_recording
from gpuaudit.host.status import Status
from gpuaudit.host.unloaded import certainly_unloaded

__all__ = [
    "Host",
    "Interface",
    "NotApplicable",
    "Output",
    "Process",
    "SnapshotError",
    "Status",
    "Unavailable",
]

T = TypeVar("T")


class Host(Files):
    """A machine as evidence. Use Host.live(), Host.snapshot(path) or Host.image(root)."""

    def __init__(
        self,
        tree: trees.Tree,
        source: Source,
        *,
        machine: LiveMachine | None = None,
        recording: Recording | None = None,
    ) -> None:
        super().__init__(tree, source, machine=machine, recording=recording)
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
