# SPDX-License-Identifier: Apache-2.0
"""What only a running machine can answer: commands, processes, udev, NVML, drivers that may hang.

This is the only module that imports subprocess, psutil and pyudev, and imports them when asked.
"""

import contextlib
import os
import signal
from typing import TYPE_CHECKING

import msgspec

from gpuaudit.host import kmsg, nvml
from gpuaudit.host.answers import NvmlAnswers
from gpuaudit.host.environ import is_environ, kept
from gpuaudit.host.errors import Unavailable
from gpuaudit.host.patient import PatientReader, driver_of
from gpuaudit.host.processes import Process, process_table
from gpuaudit.host.tree import FolderTree, Tree

if TYPE_CHECKING:
    import subprocess

MOUNTED = {"/proc": "/proc/self", "/sys": "/sys/devices"}  # what every mount of them holds
COMMAND_DEADLINE_S = 3.0
DRIVER_DEADLINE_S = 3.0
CALL_LIMIT_BYTES = 64 << 10
CLEAN_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """What a command answered."""

    returncode: int
    stdout: str
    stderr: str = ""


class Interface(msgspec.Struct, frozen=True, kw_only=True):
    """A network interface: speed in Mbit/s (None when unknown), MTU in bytes."""

    up: bool
    speed_mbps: int | None
    mtu: int
    duplex: str


def reader_of(tree: Tree) -> PatientReader:
    """A patient child for the files of a tree, and for calls."""

    def read(path: str, limit: int) -> bytes:
        if path.startswith("@"):
            from gpuaudit.host.calls import answers

            return answers(path)
        return tree.read(path, limit)

    return PatientReader(read, DRIVER_DEADLINE_S)


ABANDONED: list["subprocess.Popen[str]"] = []
"""Children nobody waits for: subprocess would warn when they are forgotten."""


def abandon(child: "subprocess.Popen[str]") -> None:
    """Kill a child and its descendants, and never wait: state D takes no signal."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()
    child.poll()
    ABANDONED.append(child)


class LiveMachine:
    """The live half of a Host."""

    def __init__(self, *, nvml_deadline_s: float) -> None:
        self.is_root = os.geteuid() == 0
        self._nvml_deadline_s = nvml_deadline_s
        self._nvml: nvml.NvmlSession | None = None
        self._reader: PatientReader | None = None
        self._reads_below = ""

    def why_missing(self, tree: Tree, path: str, absent: Unavailable) -> Unavailable:
        """Below /proc and /sys nothing is missing where those are not mounted."""
        top = f"/{path.lstrip('/').partition('/')[0]}"
        inside = MOUNTED.get(top)
        if inside is None or tree.label != "/" or tree.kind(inside) is not None:
            return absent
        return Unavailable(f"{path}: {top} is not mounted", "not-recorded")

    def read(self, tree: Tree, path: str, limit: int) -> bytes:
        """Read a file, patiently where a driver may hang; of environments only what matters."""
        if is_environ(path):
            return kept(tree.read(path, limit))
        if kmsg.is_kept(path) and tree.label == "/":
            return kmsg.read_log(path, limit)
        if driver_of(path) is None:
            return tree.read(path, limit)
        return self._patient(tree).read(path, limit)

    def _patient(self, tree: Tree) -> PatientReader:
        """The child that reads files of this tree and makes calls."""
        if self._reader is None or self._reads_below != tree.label:
            self.close()
            self._reader, self._reads_below = reader_of(tree), tree.label
        return self._reader

    def _call(self, argv: tuple[str, ...]) -> Output:
        """A call that is asked like a command (host/calls.py). Raises Unavailable."""
        reader = self._reader or self._patient(FolderTree("/"))
        said = reader.read(" ".join(argv), CALL_LIMIT_BYTES)
        return msgspec.json.decode(said, type=Output)

    def run(self, argv: tuple[str, ...]) -> Output:
        """Run a command with a clean environment and a deadline. Raises Unavailable."""
        if argv[0].startswith("@"):
            return self._call(argv)
        import subprocess

        try:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=CLEAN_ENVIRONMENT,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise Unavailable(f"the command {argv[0]} is not installed", "missing") from None
        except OSError as error:
            raise Unavailable(f"{argv[0]} did not start: {error.strerror}", "denied") from None
        try:
            stdout, stderr = child.communicate(timeout=COMMAND_DEADLINE_S)
        except BaseException as error:  # its own deadline, or the audit's
            abandon(child)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise Unavailable(
                f"{argv[0]} did not answer within {COMMAND_DEADLINE_S:g} s", "hung"
            ) from None
        return Output(returncode=child.returncode, stdout=stdout, stderr=stderr)

    def processes(self) -> tuple[Process, ...]:
        """The process table. Raises Unavailable."""
        return process_table()

    def interfaces(self) -> dict[str, Interface]:
        """The network interfaces with what their drivers negotiated, by psutil."""
        import psutil

        return {
            name: Interface(
                up=found.isup,
                speed_mbps=found.speed or None,
                mtu=found.mtu,
                duplex=getattr(found.duplex, "name", "NIC_DUPLEX_UNKNOWN"),
            )
            for name, found in psutil.net_if_stats().items()
        }

    def udev(self, subsystem: str) -> tuple[dict[str, str], ...]:
        """Properties of every device of a subsystem. Raises Unavailable without libudev."""
        try:
            import pyudev

            devices = pyudev.Context().list_devices(subsystem=subsystem)
            return tuple({str(k): str(v) for k, v in d.properties.items()} for d in devices)
        except (ImportError, OSError) as error:
            raise Unavailable(f"udev could not be asked: {error}", "missing") from None

    def nvml_start(self, *, unloaded: bool) -> None:
        """Start the NVML child, once. It does not open a driver that is `unloaded`."""
        if self._nvml is None:
            self._nvml = nvml.start(self._nvml_deadline_s, unloaded=unloaded)

    def nvml_finish(self) -> NvmlAnswers:
        """Wait for the NVML child, at most its deadline."""
        assert self._nvml is not None  # noqa: S101 - nvml_start set it
        return self._nvml.finish()

    def close(self) -> None:
        """Abandon the reader child."""
        if self._reader is not None:
            self._reader.close()
