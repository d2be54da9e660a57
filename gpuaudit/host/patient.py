# SPDX-License-Identifier: Apache-2.0
"""Read files whose driver may never answer, without ever waiting for it.

A read below /proc/driver, of an RDMA port or of a network device runs driver code that can sleep
for ever (a thread in state D cannot be killed). Such reads are made by a forked child; when it
does not answer in time it is abandoned, and every later read of the same driver is refused at once.
"""

import fcntl
import itertools
import os
import select
import signal
import struct
from collections.abc import Callable
from typing import NoReturn

from gpuaudit.host.errors import Kind, Unavailable

KINDS: tuple[Kind, ...] = ("missing", "not-recorded", "denied", "hung", "garbled", "unsupported")
HEADER = struct.Struct("!bI")
DRIVER_FOLDERS = ("/proc/driver/", "/infiniband/", "/net/")
DRIVER_CALL = "@ethtool"


def driver_of(path: str) -> str | None:
    """The part of the path that names code which may hang, or None for plain kernel files.

    All questions to network drivers wait for one lock (rtnl); other calls are each their own.
    """
    if path.startswith("@"):
        return DRIVER_CALL if path.startswith(f"{DRIVER_CALL} ") else None
    return next((folder for folder in DRIVER_FOLDERS if folder in path), None)


def pipe() -> tuple[int, int]:
    """A pipe above the standard descriptors, which may have been closed when we were started."""
    low = os.pipe()
    try:
        first = fcntl.fcntl(low[0], fcntl.F_DUPFD_CLOEXEC, 3)
        try:
            return first, fcntl.fcntl(low[1], fcntl.F_DUPFD_CLOEXEC, 3)
        except OSError:
            os.close(first)
            raise
    finally:
        for descriptor in low:
            os.close(descriptor)


def detach_child(*kept: int) -> None:
    """In a forked child: leave the session and keep only these descriptors.

    An abandoned child must not hold the audit's standard output open: whoever reads the other
    end of that pipe would wait for it.
    """
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    ends = (2, *sorted(kept), min(os.sysconf("SC_OPEN_MAX"), 65536))
    for before, after in itertools.pairwise(ends):
        os.closerange(before + 1, after)


class PatientReader:
    """A forked child that reads files on request; abandoned when it does not answer."""

    def __init__(self, read: Callable[[str, int], bytes], deadline_s: float) -> None:
        """`read(path, limit)` runs in the child and may raise Unavailable."""
        self._read = read
        self._deadline_s = deadline_s
        self._pid: int | None = None
        self._pipe = (-1, -1)
        self._hung: set[str] = set()

    def read(self, path: str, limit: int) -> bytes:
        """The bytes of the file. Raises Unavailable, of kind hung when nothing came in time."""
        driver = driver_of(path) or path
        if driver in self._hung:
            where = driver.lstrip("@")
            raise Unavailable(f"not read: an earlier read below {where} hung", "hung")
        what = path.lstrip("@")
        try:
            answer = self._ask(path, limit)
        except (BrokenPipeError, EOFError):  # by the driver itself, or for want of memory
            raise self._silent(driver, f"{what}: the process that read it was killed") from None
        except OSError as error:  # no process or descriptor is to be had
            raise Unavailable(f"{what} was not asked: {error.strerror}", "garbled") from None
        except BaseException:  # the audit's own time limit: the next answer would be this one's
            self.close()
            raise
        if answer is None:
            raise self._silent(driver, f"{what} did not answer within {self._deadline_s:g} s")
        code, body = answer
        if code:
            raise Unavailable(body.decode("utf-8", "replace"), KINDS[code - 1])
        return body

    def close(self) -> None:
        """Kill the child and never wait for it."""
        if self._pid is None:
            return
        for end in self._pipe:
            os.close(end)
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, os.WNOHANG)
        self._pid = None

    def _silent(self, driver: str, reason: str) -> Unavailable:
        """Leave the child behind and ask nothing more of this driver."""
        self._hung.add(driver)
        self.close()
        return Unavailable(reason, "hung")

    def _ask(self, path: str, limit: int) -> tuple[int, bytes] | None:
        if self._pid is None:
            self._start()
        request = path.encode("utf-8", "surrogateescape")
        os.write(self._pipe[1], HEADER.pack(0, len(request)) + struct.pack("!I", limit) + request)
        return self._receive()

    def _start(self) -> None:
        request, asking = pipe()
        try:
            answering, reply = pipe()
        except OSError:
            close_all(request, asking)
            raise
        try:
            pid = os.fork()
        except OSError:
            close_all(request, asking, answering, reply)
            raise
        if pid == 0:
            self._serve(request, reply)
        close_all(request, reply)
        self._pid, self._pipe = pid, (answering, asking)

    def _serve(self, request: int, reply: int) -> NoReturn:
        """The child's loop. Whatever happens here must not return into the parent's code."""
        try:
            detach_child(request, reply)
            while head := os.read(request, HEADER.size):
                _, length = HEADER.unpack(head)
                (limit,) = struct.unpack("!I", os.read(request, 4))
                path = os.read(request, length).decode("utf-8", "surrogateescape")
                write_all(reply, self._answer(path, limit))
        finally:
            os._exit(0)

    def _answer(self, path: str, limit: int) -> bytes:
        try:
            body = self._read(path, limit)
        except Unavailable as absent:
            text = absent.reason.encode("utf-8", "replace")
            return HEADER.pack(KINDS.index(absent.kind) + 1, len(text)) + text
        return HEADER.pack(0, len(body)) + body

    def _receive(self) -> tuple[int, bytes] | None:
        head = self._exactly(HEADER.size)
        if head is None:
            return None
        code, length = HEADER.unpack(head)
        body = self._exactly(length)
        return None if body is None else (code, body)

    def _exactly(self, size: int) -> bytes | None:
        got = bytearray()
        while len(got) < size:
            ready, _, _ = select.select([self._pipe[0]], [], [], self._deadline_s)
            if not ready:
                return None
            part = os.read(self._pipe[0], size - len(got))
            if not part:
                raise EOFError
            got += part
        return bytes(got)


def close_all(*descriptors: int) -> None:
    """Close them."""
    for descriptor in descriptors:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything, however many calls it takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
