# SPDX-License-Identifier: Apache-2.0
"""gpuaudit xid and gpuaudit explain xid, as a person meets them."""

import gzip
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import BashComplete

from gpuaudit.cli import cli, xid_command
from gpuaudit.cli.errors import guarded

BOOT = "[    0.000000] Linux version 6.8.0-60-generic (x@y)\n"
XID = "NVRM: Xid (PCI:0000:17:00): {code}, pid=77, name=train, something"
SXID = "nvidia-nvswitch1: SXid (PCI:0000:a6:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Run the real entry point; exit code, standard output, standard error."""

    def run(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            guarded(cli, list(args))
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


def dmesg(*texts: str) -> str:
    return BOOT + "".join(f"[{n:12.6f}] {text}\n" for n, text in enumerate(texts, 1))


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "dmesg.txt"
    path.write_text(dmesg(XID.format(code=79), "other", *[XID.format(code=31)] * 3, SXID))
    return str(path)


def from_input(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_each_code_once_with_what_to_do(call: Call, log: str) -> None:
    code, out, err = call("xid", log)
    assert (code, err) == (0, "")
    assert out.startswith(f"{log}:\n0000:17:00.0 Xid 79 once at 1 s after boot\n")
    assert "0000:17:00.0 Xid 31 3 times from 3 s after boot to 5 s after boot\n" in out
    assert "by train (77)" in out
    assert "reboot it" in out
    assert "0000:a6:00.0 SXid 20034 once" in out
    assert max(map(len, out.splitlines()[1:])) <= 100


def test_json(call: Call, log: str) -> None:
    _, out, _ = call("xid", log, "--format", "json")
    ((told),) = json.loads(out)
    assert told["file"] == log
    rows = {(row["family"], row["code"]): row for row in told["xids"]}
    assert list(rows) == [("xid", 79), ("xid", 31), ("sxid", 20034)]
    assert rows["xid", 31]["times"] == 3
    assert rows["xid", 79]["action"] == "reboot"
    assert rows["xid", 79]["past"] is None


def test_standard_input(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    from_input(monkeypatch, dmesg(XID.format(code=79)).encode())
    code, out, _ = call("xid", "-")
    assert code == 0
    assert out.startswith("standard input:\n")


def test_a_log_without_xids_is_good_news(call: Call, tmp_path: Path) -> None:
    (tmp_path / "quiet").write_text(dmesg("nothing of interest"))
    code, out, err = call("xid", str(tmp_path / "quiet"))
    assert (code, out, err) == (0, f"{tmp_path}/quiet: no Xid and no SXid\n", "")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello\n",
        b"[drm] no time\n",
        bytes(range(256)) * 9000,
        b"Nov  2 10:11:12 n sshd[1]: x\n",
    ],
)
def test_what_is_no_kernel_log_cannot_be_told(call: Call, tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "odd"
    path.write_bytes(data)
    code, out, err = call("xid", str(path))
    assert (code, out) == (3, f"{path}: no kernel log\n")
    assert err == f"gpuaudit: {path}: no line of it is of a kernel log, as dmesg prints it\n"
    _, out, _ = call("xid", str(path), "--format", "json")
    assert json.loads(out) == [{"file": str(path), "xids": None}]


def test_bare_lines_of_the_driver_are_enough(call: Call, tmp_path: Path) -> None:
    (tmp_path / "grep").write_text(XID.format(code=79) + "\n")
    code, out, _ = call("xid", str(tmp_path / "grep"))
    assert code == 0
    assert "Xid 79 once at an unknown time" in out


def test_one_file_of_two_that_is_no_log(call: Call, log: str, tmp_path: Path) -> None:
    (tmp_path / "odd").write_text("hello\n")
    code, out, _ = call("xid", log, str(tmp_path / "odd"))
    assert code == 3
    assert "Xid 79" in out


@pytest.mark.parametrize(("name", "said"), [("none", "No such file"), ("", "Is a directory")])
def test_a_file_that_cannot_be_read(call: Call, tmp_path: Path, name: str, said: str) -> None:
    code, out, err = call("xid", str(tmp_path / name))
    assert (code, out) == (2, "")
    assert str(tmp_path) in err
    assert said in err
    assert err.count("\n") == 1


def test_a_compressed_file_is_refused_with_the_way_to_read_it(call: Call, tmp_path: Path) -> None:
    (tmp_path / "kern.log.2.gz").write_bytes(gzip.compress(dmesg(XID.format(code=79)).encode()))
    code, _, err = call("xid", str(tmp_path / "kern.log.2.gz"))
    assert code == 2
    assert "zcat FILE | gpuaudit xid -" in err


def test_pieces_are_whole_lines(monkeypatch: pytest.MonkeyPatch, call: Call, log: str) -> None:
    _, whole, _ = call("xid", log)
    for size in (7, 64, 150):
        monkeypatch.setattr(xid_command, "PIECE_BYTES", size)
        pieces = list(xid_command.pieces("x", io.BytesIO(b"one\n" + b"y" * 5 * size + b"\ntwo")))
        assert pieces[-1] == b"two"
        assert max(map(len, pieces)) <= 2 * size
    monkeypatch.setattr(xid_command, "PIECE_BYTES", 150)
    assert call("xid", log)[1] == whole


def test_this_machine_is_read_without_a_file(
    monkeypatch: pytest.MonkeyPatch, call: Call, tmp_path: Path
) -> None:
    from gpuaudit.host import Host

    (tmp_path / "dev").mkdir()
    (tmp_path / "proc").mkdir()
    live = Host.live
    monkeypatch.setattr(Host, "live", lambda: live(str(tmp_path)))
    code, out, err = call("xid")
    assert (code, out) == (3, "this machine: no kernel log\n")
    assert "/dev/kmsg" in err
    (tmp_path / "dev/kmsg").write_text(f"3,0,1000000,-;{XID.format(code=79)}\n")
    code, out, _ = call("xid")
    assert code == 0
    assert "0000:17:00.0 Xid 79 once at 1 s after boot" in out


def test_explain_a_code(call: Call) -> None:
    code, out, _ = call("explain", "xid", "79")
    assert code == 0
    assert out.startswith("Xid 79: the GPU fell off the PCIe bus\n")
    assert "whose fault   hardware" in out
    (row,) = told(call, "xid", "79")
    assert (row["code"], row["kind"]) == (79, "fail")
    assert call("explain", "sxid", "20034")[1].startswith("SXid 20034: a link")


def told(call: Call, *words: str) -> list[dict[str, Any]]:
    _, out, _ = call("explain", *words, "--format", "json")
    rows: list[dict[str, Any]] = json.loads(out)
    return rows


def test_explain_all_codes(call: Call) -> None:
    _, out, _ = call("explain", "xid")
    rows, _, legend = out.partition("\n\n")
    assert len(rows.splitlines()) == len(told(call, "xid")) == 172
    assert "application: a program's error, the node is well" in legend
    assert legend.endswith("gpuaudit explain xid CODE tells whose fault it is and what to do.\n")
    assert len(told(call, "sxid")) >= 80


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("xid", "999"), "Xid 999 is not in the catalogue"),
        (("xid", "seventy"), "takes one number, such as 79"),
        (("xid", "79", "31"), "takes one number"),
        (("sxid", "-1"), "No such option"),
        (("acs-redirect-off", "79"), "takes one check, not 2"),
        ((), "Missing argument"),
    ],
)
def test_explain_refuses_in_one_line(call: Call, words: tuple[str, ...], said: str) -> None:
    code, out, err = call("explain", *words)
    assert (code, out) == (2, "")
    assert said.lower() in err.lower()
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "typed", "offered"),
    [
        ([], "xi", "xid"),
        (["explain"], "xid", "xid"),
        (["explain"], "xid-f", "xid-fatal"),
        (["explain"], "sx", "sxid"),
        (["xid"], "dm", "dm"),
    ],
)
def test_completion(args: list[str], typed: str, offered: str) -> None:
    complete = BashComplete(cli, {}, "gpuaudit", "_GPUAUDIT_COMPLETE")
    assert offered in [item.value for item in complete.get_completions(args, typed)]
