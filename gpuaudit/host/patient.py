# SPDX-License-Identifier: Apache-2.0
"""Read files whose driver may never answer, without ever waiting for it.

A read below /proc/driver, of an RDMA port or of a network device runs driver code that can sleep
for ever (a thread in state D cannot be killed). Such reads are made by a forked child; when it
does not answer in time it is abandoned, and every later read of the same driver is refused at once.
"""

import os
import select
import signal
import struct
from collections.abc import Callable

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


def detach_child(first: int, last: int) -> None:
    """In a forked child: leave the session and keep only the descriptors first..last.

    An abandoned child must not hold the audit's standard output open: whoever reads the other
    end of that pipe would wait for it.
    """
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.closerange(3, first)
    os.closerange(last + 1, min(os.sysconf("SC_OPEN_MAX"), 65536))


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
            what = driver.lstrip("@")
            raise Unavailable(f"not read: an earlier read below {what} hung", "hung")
        try:
            answer = self._ask(path, limit)
        except BaseException:  # the audit's own time limit: the next answer would be this one's
            self.close()
            raise
        if answer is None:
            self._hung.add(driver)
            self.close()
            what = path.lstrip("@")
            raise Unavailable(f"{what} did not answer within {self._deadline_s:g} s", "hung")
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

    def _ask(self, path: str, limit: int) -> tuple[int, bytes] | None:
        if self._pid is None:
            self._start()
        request = path.encode("utf-8", "surrogateescape")
        os.write(self._pipe[1], HEADER.pack(0, len(request)) + struct.pack("!I", limit) + request)
        return self._receive()

    def _start(self) -> None:
        to_child, from_parent = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            # Requests come in on one descriptor and answers leave on another: keep both.
            request, reply = os.dup2(to_child[0], 200), os.dup2(from_parent[1], 201)
            self._serve(request, reply)
        os.close(to_child[0])
        os.close(from_parent[1])
        self._pid, self._pipe = pid, (from_parent[0], to_child[1])

    def _serve(self, request: int, reply: int) -> None:
        """The child's loop; never returns."""
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
            part = os.read(self._pipe[0], size - len(got)) if ready else b""
            if not part:
                return None
            got += part
        return bytes(got)


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything, however many calls it takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
