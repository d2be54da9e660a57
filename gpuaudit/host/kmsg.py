# SPDX-License-Identifier: Apache-2.0
"""The kernel's log of a live machine: its ring buffer, and the end of the files it is kept in.

/dev/kmsg hands out one record a read, from the oldest one on, and every reader has a place of its
own: reading takes nothing away (Linux Documentation/ABI/testing/dev-kmsg). A file that syslog
writes may be of any size and holds what other programs say; only its end is read, and only the
lines of the kernel are kept.
"""

import contextlib
import errno
import os
import stat
from collections import deque
from collections.abc import Iterator

from gpuaudit.host.errors import Unavailable

RING = "/dev/kmsg"
DEVICE = os.makedev(1, 11)  # Linux Documentation/admin-guide/devices.txt
LOG_FILES = frozenset(
    f"/var/log/{name}{older}" for name in ("kern.log", "messages", "syslog") for older in ("", ".1")
)
OF_KERNEL = b" kernel: "
GAP = b""
RECORD_BYTES = 8192  # CONSOLE_EXT_LOG_MAX, the longest record of any kernel since 4.2
READ_BYTES = 16 << 20
"""Where to stop when something writes into the log faster than it is read."""


def is_kept(path: str) -> bool:
    """True for what this module reads on a live machine."""
    return path == RING or path in LOG_FILES


def read_log(path: str, limit: int) -> bytes:
    """The newest `limit` bytes, in whole lines. Raises Unavailable."""
    try:
        return newest(records(path), limit) if path == RING else end_of(path, limit)
    except OSError as error:
        raise reason(path, error) from None


def newest(found: Iterator[bytes], limit: int) -> bytes:
    """What fits into the limit, the oldest records being left out, in one piece without a gap."""
    kept: deque[bytes] = deque()
    size = 0
    for record in found:
        if record == GAP:
            kept.clear()
            size = 0
        kept.append(record)
        size += len(record)
        while size > limit:
            size -= len(kept.popleft())
    return b"".join(kept)


def records(path: str) -> Iterator[bytes]:
    """Every record of the ring buffer, once. It is looked at before it is opened.

    In a container the name may stand for another device.
    """
    if not stat.S_ISCHR((found := os.stat(path)).st_mode) or found.st_rdev != DEVICE:
        raise Unavailable(f"{path} is not the kernel's log", "unsupported")
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        yield from until_empty(descriptor)
    finally:
        os.close(descriptor)


def until_empty(descriptor: int) -> Iterator[bytes]:
    """Read until EAGAIN. EPIPE: what came next was overwritten, the oldest left one follows."""
    left = READ_BYTES
    with contextlib.suppress(BlockingIOError):
        while left > 0:
            try:
                record = os.read(descriptor, RECORD_BYTES)
            except BrokenPipeError:
                left -= RECORD_BYTES
                yield GAP
                continue
            if not record:
                return
            left -= len(record)
            yield record


def end_of(path: str, limit: int) -> bytes:
    """The lines of the kernel in the last `limit` bytes of a file."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise Unavailable(f"{path} is not a regular file", "garbled")
    with open(path, "rb") as file:
        skipped = max(0, os.fstat(file.fileno()).st_size - limit)
        file.seek(skipped)
        data = file.read(limit)
    whole = data[data.find(b"\n") + 1 :] if skipped else data
    return b"".join(line for line in whole.splitlines(keepends=True) if OF_KERNEL in line)


def reason(path: str, error: OSError) -> Unavailable:
    """Why the log could not be read, with what it takes."""
    if error.errno in {errno.EPERM, errno.EACCES}:
        needs = "needs root"
        if path == RING:
            needs = "needs root with CAP_SYSLOG while kernel.dmesg_restrict is 1"
        return Unavailable(f"{path}: no permission, {needs}", "denied")
    if error.errno in {errno.ENOENT, errno.ENOTDIR}:
        return Unavailable(f"{path} does not exist", "missing")
    name = errno.errorcode.get(error.errno or 0, "unknown error")
    return Unavailable(f"{path}: {error.strerror} ({name})", "garbled")
