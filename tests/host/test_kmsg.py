# SPDX-License-Identifier: Apache-2.0
"""The kernel's ring buffer and the files of syslog on a live machine."""

import errno
import os
from pathlib import Path

import pytest

from gpuaudit.host import Host, kmsg
from gpuaudit.host.errors import Unavailable


class Ring:
    """Answers of read(2) one after the other; then EAGAIN."""

    def __init__(self, *answers: bytes | OSError) -> None:
        self.left = iter(answers)

    def read(self, descriptor: int, size: int) -> bytes:  # noqa: ARG002 - os.read's signature
        answer = next(self.left, OSError(errno.EAGAIN, "again"))
        if isinstance(answer, OSError):
            raise OSError(answer.errno, answer.strerror)  # the class that belongs to the number
        return answer


def records(monkeypatch: pytest.MonkeyPatch, *answers: bytes | OSError) -> list[bytes]:
    monkeypatch.setattr(os, "read", Ring(*answers).read)
    return list(kmsg.until_empty(3))


def test_records_are_read_until_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert records(monkeypatch, b"6,0,0,-;a\n", b"6,1,5,-;b\n") == [b"6,0,0,-;a\n", b"6,1,5,-;b\n"]


def test_what_was_read_before_a_gap_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    overwritten = OSError(errno.EPIPE, "pipe")
    found = records(monkeypatch, b"6,0,0,-;a\n", overwritten, b"6,9,9,-;z\n")
    assert kmsg.newest(iter(found), 100) == b"6,9,9,-;z\n"


def test_a_log_that_is_written_faster_than_read_comes_to_an_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kmsg, "READ_BYTES", 100)
    assert len(records(monkeypatch, *[b"x" * 10] * 1000)) == 10
    assert len(records(monkeypatch, *[OSError(errno.EPIPE, "pipe")] * 1000)) == 1


def test_the_newest_records_are_kept() -> None:
    assert kmsg.newest(iter([b"aaa\n", b"bbb\n", b"ccc\n"]), 8) == b"bbb\nccc\n"


def test_another_device_of_that_name_is_no_log() -> None:
    with pytest.raises(Unavailable, match="not the kernel's log") as gone:
        list(kmsg.records(os.devnull))
    assert gone.value.kind == "unsupported"


@pytest.mark.parametrize(
    ("number", "kind", "text"),
    [
        (errno.EPERM, "denied", "CAP_SYSLOG"),
        (errno.EACCES, "denied", "needs root"),
        (errno.ENOENT, "missing", "does not exist"),
        (errno.EIO, "garbled", "EIO"),
    ],
)
def test_errors_say_what_is_needed(number: int, kind: str, text: str) -> None:
    told = kmsg.reason(kmsg.RING, OSError(number, os.strerror(number)))
    assert told.kind == kind
    assert text in told.reason


def test_only_the_end_of_a_file_and_only_the_kernel(tmp_path: Path) -> None:
    log = tmp_path / "syslog"
    log.write_text(
        "Nov  2 host kernel: old\nNov  2 host sshd[1]: secret\nNov  2 host kernel: new\n"
    )
    assert kmsg.end_of(str(log), 1000).count(b"kernel") == 2
    assert kmsg.end_of(str(log), 60) == b"Nov  2 host kernel: new\n"
    assert b"secret" not in kmsg.end_of(str(log), 1000)
    with pytest.raises(Unavailable, match="regular file"):
        kmsg.end_of(os.devnull, 1000)


def test_a_log_file_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = str(tmp_path / "kern.log")
    monkeypatch.setattr(kmsg, "LOG_FILES", frozenset({path}))
    with pytest.raises(Unavailable) as gone:
        kmsg.read_log(path, 100)
    assert gone.value.kind == "missing"


def test_a_live_host_reads_the_device() -> None:
    """Wherever this runs: records, or one clear reason."""
    host = Host.live()
    data = host.evidence.files.get(kmsg.RING) if host.optional(kmsg.RING) is not None else None
    if isinstance(data, bytes):
        assert data.endswith(b"\n")
        assert data.partition(b";")[0].count(b",") >= 3
    else:
        with pytest.raises(Unavailable, match=kmsg.RING):
            host.read_bytes(kmsg.RING)
