# SPDX-License-Identifier: Apache-2.0
import re
from pathlib import Path
from typing import Any

import pytest
from trees import Source, make_host

from gpuaudit.facts.kernelfiles import Kept, boot_at, moment
from gpuaudit.facts.kernellog import KEEP, WATCHED, KernelLog, Line, kernel_log, log_of
from gpuaudit.host import NotApplicable, Unavailable

BOOT = "Linux version 6.8.0-60-generic (x@y)"
XID = "NVRM: Xid (PCI:0000:17:00): 31, pid=7, name=train, Ch 0001"
BTIME = "btime 1793614272\n"  # 2026-11-02 10:11:12 UTC
Tree = dict[str, Any]


def ring(*texts: str, number: int = 0, at: float = 0.0) -> str:
    rows = ((number + n, int((at + n) * 1e6), text) for n, text in enumerate(texts))
    return "".join(f"6,{n},{us},-;{text}\n" for n, us, text in rows)


def syslog(*texts: str, clock: str = "Nov  2 10:11:12", at: float | None = None) -> str:
    heads = ("" if at is None else f"[{at + n:12.6f}] " for n in range(len(texts)))
    lines = zip(heads, texts, strict=True)
    return "".join(f"{clock} node7 kernel: {head}{text}\n" for head, text in lines)


def read(folder: Path, tree: Tree, source: Source = "snapshot") -> KernelLog:
    return kernel_log(make_host(folder, tree, source=source))


def test_a_ring_that_holds_the_boot(tmp_path: Path) -> None:
    log = read(tmp_path, {"/dev/kmsg": ring(BOOT, "a", XID), "/proc/uptime": "7200.00 1.00\n"})
    assert (log.complete, log.source, log.span) == (True, "/dev/kmsg", (0.0, 7200.0))
    assert log.matching("NVRM: Xid") == (Line(2.0, 6, XID),)
    assert log.lacks(1e6) is None


def test_record_0_is_the_first_of_a_boot_whatever_it_says(tmp_path: Path) -> None:
    assert read(tmp_path, {"/dev/kmsg": ring("Booting Linux on physical CPU 0x0")}).complete


def test_a_ring_that_was_overwritten(tmp_path: Path) -> None:
    tree = {"/dev/kmsg": ring("a", "b", number=900, at=7200), "/proc/uptime": "18000.00 1.00\n"}
    log = read(tmp_path, tree)
    assert log.complete is False
    assert log.lacks(3) is None
    assert (
        log.lacks(3.1)
        == "/dev/kmsg does not hold the boot: it goes back 3.0 h, 3.1 h are asked for" + KEEP
    )
    assert log.age_s(Line(7201.0, 6, "b")) == 10799.0


def test_without_an_uptime_the_last_line_is_now(tmp_path: Path) -> None:
    log = read(tmp_path, {"/dev/kmsg": ring("a", "b", number=900, at=7200)})
    assert log.span == (7200.0, 7201.0)


def test_syslog_continues_the_ring_backwards(tmp_path: Path) -> None:
    tree = {
        "/dev/kmsg": ring("one", "two", "three", number=900, at=100),
        "/var/log/kern.log": syslog("Linux version 5.4 (old boot)", XID)
        + syslog(BOOT, XID, "one", at=98)
        + syslog("two", "three", "later", at=101),
    }
    log = read(tmp_path, tree)
    assert log.complete is True
    assert log.source == "/var/log/kern.log and /dev/kmsg"
    assert [line.seconds for line in log.matching("NVRM: Xid")] == [99.0]


def test_syslog_without_the_boot_goes_back_as_far_as_it_goes(tmp_path: Path) -> None:
    tree = {
        "/dev/kmsg": ring("one", "two", "three", number=900, at=7200),
        "/var/log/messages": syslog("before", XID, "one", "two", "three"),
        "/proc/uptime": "10800.00 1.00\n",
    }
    log = read(tmp_path, tree)
    assert log.complete is False
    assert len(log.matching("NVRM: Xid")) == 1
    assert log.span == (7200.0, 10800.0)


def test_the_boot_may_stand_in_the_file_before(tmp_path: Path) -> None:
    tree = {
        "/dev/kmsg": ring("one", "two", "three", number=900, at=100),
        "/var/log/kern.log": syslog("one", "two", "three"),
        "/var/log/kern.log.1": syslog(BOOT, XID),
    }
    log = read(tmp_path, tree)
    assert log.complete is True
    assert len(log.matching("NVRM: Xid")) == 1


def test_a_file_of_another_boot_continues_nothing(tmp_path: Path) -> None:
    tree = {
        "/dev/kmsg": ring("one", "two", "three", number=900, at=100),
        "/var/log/kern.log": syslog(BOOT, XID, "one", "two", "something else"),
    }
    log = read(tmp_path, tree)
    assert (log.complete, log.source, log.matching("NVRM: Xid")) == (False, "/dev/kmsg", ())


def test_files_stand_in_for_a_ring_that_is_missing(tmp_path: Path) -> None:
    tree = {"/var/log/syslog": f"Nov  2 10:11:12 n sshd[1]: {XID}\n" + syslog(BOOT, "a", XID)}
    log = read(tmp_path, tree)
    assert (log.complete, log.source) == (True, "/var/log/syslog")
    assert [line.clock for line in log.matching("NVRM: Xid")] == ["Nov  2 10:11:12"]


@pytest.mark.parametrize(
    ("clock", "found"),
    [
        ("Nov  2 10:11:30", True),
        ("Nov  2 21:00:00", True),  # another time zone
        ("2026-11-02T11:11:30.123456+01:00", True),
        ("Oct  2 10:11:30", False),
        ("2025-11-02T10:11:30+00:00", False),
    ],
)
def test_a_file_whose_last_boot_is_another_does_not_count(
    tmp_path: Path, clock: str, *, found: bool
) -> None:
    tree = {"/var/log/kern.log": syslog(BOOT, XID, clock=clock), "/proc/stat": BTIME}
    if found:
        assert read(tmp_path, tree).complete is True
    else:
        with pytest.raises(Unavailable, match="/dev/kmsg"):
            read(tmp_path, tree)


@pytest.mark.parametrize("name", ["/dmesg", "/dmesg.txt"])
def test_plain_recordings_hold_the_output_of_dmesg(tmp_path: Path, name: str) -> None:
    tree = {name: f"[    0.000000] {BOOT}\n[   12.500000] {XID}\n"}
    log = read(tmp_path, tree, "plain")
    assert (log.complete, log.source, log.span) == (True, name, (0.0, 12.5))


def test_an_excerpt_with_times_of_day(tmp_path: Path) -> None:
    lines = ("[Mon Nov  2 10:11:12 2026] a", f"[Tue Nov  3 10:11:12 2026] {XID}")
    log = read(tmp_path, {"/dmesg": "\n".join(lines)}, "plain")
    assert log.complete is False
    assert (log.lacks(24), log.lacks(25) is None) == (None, False)
    assert log.age_s(log.matching("NVRM: Xid")[0]) == 0


def test_a_year_ends_between_two_lines() -> None:
    data = syslog("a", clock="Dec 31 23:59:59") + syslog("b", clock="Jan  1 00:00:09")
    log = log_of(Kept(data.encode(), "x", complete=False))
    assert log.span is not None
    assert log.span[1] - log.span[0] == 10


def test_what_is_written_at_boot_says_nothing_of_the_time_since(tmp_path: Path) -> None:
    log = read(tmp_path, {"/var/log/dmesg": f"[    0.000000] {BOOT}\n[    1.0] {XID}\n"})
    assert log.complete is None
    assert len(log.matching("NVRM: Xid")) == 1
    assert "written at boot" in (log.lacks(0) or "")


def test_nothing_is_unavailable_with_the_reason_of_the_ring(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as gone:
        read(tmp_path, {}, "plain")
    assert gone.value.kind == "not-recorded"


@pytest.mark.parametrize("data", [b"", b"\n\n", b"hello\nworld\n", bytes(range(256)) * 40])
def test_what_is_no_log_is_garbled(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(Unavailable, match="no line") as gone:
        read(tmp_path, {"/dev/kmsg": data})
    assert gone.value.kind == "garbled"


def test_an_image_has_no_log(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable):
        read(tmp_path, {"/dev/kmsg": ring(BOOT), "/var/log/kern.log": syslog(BOOT)}, "image")


def test_a_needle_that_scrubbing_would_lose_is_refused() -> None:
    log = log_of(Kept(ring(BOOT).encode(), "x", complete=True))
    with pytest.raises(ValueError, match=re.escape("['nobody watches this']")):
        log.matching("nobody watches this")


def test_lines_come_once_and_in_order() -> None:
    texts = ("INFO: task a:1 blocked for more than 120 seconds.", XID, "SXid ( NVRM: Xid", "x")
    log = log_of(Kept(ring(*texts).encode(), "x", complete=True))
    assert [line.text for line in log.matching(*WATCHED)] == list(texts[:3])


def test_a_needle_in_the_properties_of_a_record_is_no_line() -> None:
    data = ring(BOOT).encode() + b" DEVICE=NVRM: Xid\n SUBSYSTEM=SXid (\n"
    assert log_of(Kept(data, "x", complete=True)).matching("NVRM: Xid", "SXid (") == ()


def test_the_last_boot_counts() -> None:
    data = syslog(BOOT, "a", f"user says {BOOT}", BOOT, "b").encode()
    assert data[boot_at(data) :].decode() == syslog(BOOT, "b")


@pytest.mark.parametrize("clock", ["", "yesterday", "Foo  2 10:11:12", "2026-13-02T10:11:12"])
def test_what_is_no_moment(clock: str) -> None:
    assert moment(clock) is None
