# SPDX-License-Identifier: Apache-2.0
"""What only a running machine answers: processes, commands, interfaces."""

import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from gpuaudit.host.errors import Unavailable
from gpuaudit.host.live import ABANDONED, LiveMachine
from gpuaudit.host.processes import parse_stat, process_table


@pytest.fixture
def machine() -> LiveMachine:
    return LiveMachine(nvml_deadline_s=1.0)


def test_the_process_table_agrees_with_psutil() -> None:
    """On the pids there are, and on every field of processes that do not change meanwhile."""
    mine = {p.pid: p for p in process_table()}
    stable = {1, os.getpid(), os.getppid()}
    for pid in stable & set(psutil.pids()):
        theirs = psutil.Process(pid)
        assert mine[pid].parent == theirs.ppid()
        assert mine[pid].name[:15] == theirs.name()[:15]
    assert os.getpid() in mine
    assert len(set(mine) & set(psutil.pids())) >= len(mine) / 2


@pytest.mark.parametrize(
    ("text", "name", "state", "parent"),
    [
        ("7 (slurmd) S 1 7 7 0", "slurmd", "sleeping", 1),
        ("8 (evil) R 9) name) D 2 0", "evil) R 9) name", "disk-sleep", 2),
        ("9 () Z 1", "", "zombie", 1),
        ("9 (x) ? 1", "x", "?", 1),
    ],
)
def test_stat_lines(text: str, name: str, state: str, parent: int) -> None:
    process = parse_stat(7, text)
    assert process is not None
    assert (process.name, process.state, process.parent) == (name, state, parent)


@pytest.mark.parametrize("text", ["", "7", "7 (x", "7 (x)", "7 (x) S", "7 (x) S one", "\0\0"])
def test_a_garbled_stat_line_is_no_process(text: str) -> None:
    assert parse_stat(7, text) is None


def test_no_proc_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        process_table(str(tmp_path / "none"))


def test_a_command_answers(machine: LiveMachine) -> None:
    program = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    answer = machine.run((sys.executable, "-c", program))
    assert (answer.returncode, answer.stdout, answer.stderr) == (3, "out\n", "err\n")


def test_a_command_that_is_not_there_is_missing(machine: LiveMachine) -> None:
    with pytest.raises(Unavailable, match="not installed") as caught:
        machine.run(("gpuaudit-no-such-command",))
    assert caught.value.kind == "missing"


def test_a_command_that_hangs_is_left_with_its_children(
    machine: LiveMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuaudit.host.live.COMMAND_DEADLINE_S", 0.3)
    began = time.monotonic()
    with pytest.raises(Unavailable, match=r"did not answer within 0.3 s") as caught:
        machine.run(("/bin/sh", "-c", "sleep 3601 & sleep 3601"))
    assert caught.value.kind == "hung"
    assert time.monotonic() - began < 3
    ABANDONED.pop().wait(timeout=30)
    until = time.monotonic() + 30
    while left() and time.monotonic() < until:
        time.sleep(0.01)
    assert not left()


def left() -> list[psutil.Process]:
    """The grandchild is reaped by init, in its own time."""
    found = psutil.process_iter(["cmdline"])
    return [p for p in found if p.info["cmdline"] == ["sleep", "3601"]]


def test_interfaces_have_speed_and_mtu(machine: LiveMachine) -> None:
    found = machine.interfaces()
    assert found["lo"].mtu >= 1280
    assert found["lo"].up in {True, False}
