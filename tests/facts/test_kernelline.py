# SPDX-License-Identifier: Apache-2.0
import pytest

from gpuaudit.facts.kernelline import Line, parsed

TEXT = "NVRM: a message"
FORMS = {
    b"3,12,5140900,-;NVRM: a message": Line(5.1409, 3, TEXT),
    b"30,12,5140900,c,caller=T1;NVRM: a message": Line(5.1409, 6, TEXT),
    b"[    5.140900] NVRM: a message": Line(5.1409, None, TEXT),
    b"[    5.140900][  T201] NVRM: a message": Line(5.1409, None, TEXT),
    b"[    5.140900 <    0.000123>] NVRM: a message": Line(5.1409, None, TEXT),
    b"[  +0.000123] NVRM: a message": Line(None, None, TEXT),
    b"<3>[    5.140900] NVRM: a message": Line(5.1409, 3, TEXT),
    b"kern  :err   : [    5.140900] NVRM: a message": Line(5.1409, 3, TEXT),
    b"[Mon Nov  2 10:11:12 2026] NVRM: a message": Line(
        None, None, TEXT, "Mon Nov  2 10:11:12 2026"
    ),
    b"kern  :warn  : [Mon Nov  2 10:11:12 2026] NVRM: a message": Line(
        None, 4, TEXT, "Mon Nov  2 10:11:12 2026"
    ),
    b"Nov  2 10:11:12 node7 kernel: [    5.140900] NVRM: a message": Line(
        5.1409, None, TEXT, "Nov  2 10:11:12"
    ),
    b"Nov 02 10:11:12 node7 kernel: NVRM: a message": Line(None, None, TEXT, "Nov 02 10:11:12"),
    b"2026-11-02T10:11:12.345678+01:00 node7 kernel: NVRM: a message": Line(
        None, None, TEXT, "2026-11-02T10:11:12.345678+01:00"
    ),
    b"[    5.140900] node7 kernel: NVRM: a message": Line(5.1409, None, TEXT),
    b'{"MESSAGE":"NVRM: a message","PRIORITY":"3","_SOURCE_MONOTONIC_TIMESTAMP":"5140900"}': Line(
        5.1409, 3, TEXT
    ),
    b"NVRM: a message": Line(None, None, TEXT),
    b"NVRM: a message\r": Line(None, None, TEXT),
}


@pytest.mark.parametrize("raw", FORMS, ids=range(len(FORMS)))
def test_every_form_of_a_line(raw: bytes) -> None:
    assert parsed(raw) == FORMS[raw]


@pytest.mark.parametrize("raw", [b"", b" SUBSYSTEM=pci", b" DEVICE=+pci:0000:00:1f.0", b"{broken"])
def test_what_is_no_line(raw: bytes) -> None:
    assert parsed(raw) is None


def test_what_stands_in_brackets_without_a_time_is_text() -> None:
    line = parsed(b"Nov  2 10:11:12 n kernel: [Hardware Error]: CPU 3: Machine Check: 0")
    assert line is not None
    assert line.text.startswith("[Hardware Error]")
    assert parsed(b"[drm] Initialized") == Line(None, None, "[drm] Initialized")


def test_bytes_that_the_kernel_escaped_come_back() -> None:
    line = parsed(rb"6,1,1,-;name=\xc3\xa4 \x5c")
    assert line is not None
    assert line.text == "name=ä \\"


def test_a_terminal_gets_nothing_to_obey() -> None:
    line = parsed(rb"6,1,1,-;name=\x1b[31mred\x07")
    assert line is not None
    assert line.text == "name=?[31mred?"


def test_a_message_that_names_the_kernel_is_no_syslog_line() -> None:
    line = parsed(b"[Mon Nov  2 10:11:12 2026] Run /init as kernel: thread")
    assert line is not None
    assert line.text == "Run /init as kernel: thread"


@pytest.mark.parametrize(
    ("line", "when"),
    [
        (Line(12.4, None, ""), "12 s after boot"),
        (Line(119.0, None, ""), "119 s after boot"),
        (Line(9000.2, None, ""), "9000 s (2.5 hours) after boot"),
        (Line(864000.0, None, ""), "864000 s (10 days) after boot"),
        (Line(12.4, None, "", "Nov  2 10:11:12"), "Nov  2 10:11:12"),
        (Line(None, None, ""), "an unknown time"),
    ],
)
def test_when(line: Line, when: str) -> None:
    assert line.when == when
