# SPDX-License-Identifier: Apache-2.0
"""What only a running machine can answer: commands, processes, udev, NVML, drivers that may hang.

This is the only module that imports subprocess, psutil and pyudev, and imports them when asked.
"""

import os

import msgspec

from gpuaudit.host import nvml
from gpuaudit.host.answers import NvmlAnswers
from gpuaudit.host.errors import Unavailable
from gpuaudit.host.patient import PatientReader, driver_of
from gpuaudit.host.tree import Tree

COMMAND_DEADLINE_S = 3.0
DRIVER_DEADLINE_S = 3.0
CLEAN_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """What a command answered."""

    returncode: int
    stdout: str
    stderr: str = ""


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """One process: `name` is comm (at most 15 bytes in the kernel), `state` psutil's word."""

    pid: int
    name: str
    state: str
    parent: int | None = None


class LiveMachine:
    """The live half of a Host."""

    def __init__(self, root: str, *, nvml_deadline_s: float) -> None:
        """`root` redirects files only; commands, processes, udev and NVML are the machine's."""
        self.is_root = os.geteuid() == 0
        self._nvml_deadline_s = nvml_deadline_s
        self._nvml: nvml.NvmlSession | None = None
        self._reader: PatientReader | None = None

    def read(self, tree: Tree, path: str, limit: int) -> bytes:
        """Read a file, patiently where a driver may hang. Raises Unavailable."""
        if driver_of(path) is None:
            return tree.read(path, limit)
        if self._reader is None:
            self._reader = PatientReader(tree.read, DRIVER_DEADLINE_S)
        return self._reader.read(path, limit)

    def run(self, argv: tuple[str, ...]) -> Output:
        """Run a command with a clean environment and a deadline. Raises Unavailable."""
        import subprocess

        try:
            done = subprocess.run(
                argv,
                capture_output=True,
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
                timeout=COMMAND_DEADLINE_S,
                env=CLEAN_ENVIRONMENT,
                check=False,
            )
        except FileNotFoundError:
            raise Unavailable(f"the command {argv[0]} is not installed", "missing") from None
        except subprocess.TimeoutExpired:
            raise Unavailable(
                f"{argv[0]} did not answer within {COMMAND_DEADLINE_S:g} s", "hung"
            ) from None
        except OSError as error:
            raise Unavailable(f"{argv[0]} did not start: {error.strerror}", "denied") from None
        return Output(returncode=done.returncode, stdout=done.stdout, stderr=done.stderr)

    def processes(self) -> tuple[Process, ...]:
        """The process table, by psutil."""
        import psutil

        table = psutil.process_iter(["pid", "name", "status", "ppid"])
        return tuple(
            Process(
                pid=entry.info["pid"],
                name=entry.info["name"] or "",
                state=entry.info["status"] or "",
                parent=entry.info["ppid"],
            )
            for entry in table
        )

    def udev(self, subsystem: str) -> tuple[dict[str, str], ...]:
        """Properties of every device of a subsystem. Raises Unavailable without libudev."""
        try:
            import pyudev

            devices = pyudev.Context().list_devices(subsystem=subsystem)
            return tuple({str(k): str(v) for k, v in d.properties.items()} for d in devices)
        except (ImportError, OSError) as error:
            raise Unavailable(f"udev could not be asked: {error}", "missing") from None

    def nvml_start(self) -> None:
        """Start the NVML child, once."""
        if self._nvml is None:
            self._nvml = nvml.start(self._nvml_deadline_s)

    def nvml_finish(self) -> NvmlAnswers:
        """Wait for the NVML child, at most its deadline."""
        self.nvml_start()
        assert self._nvml is not None  # noqa: S101 - nvml_start set it
        return self._nvml.finish()

    def close(self) -> None:
        """Abandon the reader child."""
        if self._reader is not None:
            self._reader.close()
