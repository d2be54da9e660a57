# SPDX-License-Identifier: Apache-2.0
"""The command line as a person meets it, wrong turns included."""

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner, Result
from trees import make_host

from gpuaudit import __version__, packs
from gpuaudit.cli import COMMANDS, cli
from gpuaudit.cli.errors import guarded
from gpuaudit.policy.profiles import chosen, load_profile
from gpuaudit.report import decode

MACHINE = {
    "/proc/sys/kernel/hostname": "n1\n",
    "/sys/bus/pci/devices": None,
    "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "/sys/kernel/mm/transparent_hugepage/defrag": "always defer defer+madvise [madvise] never\n",
}
Invoke = Callable[..., Result]


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    make_host(tmp_path / "node", MACHINE)
    return str(tmp_path / "node")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the real entry point; exit code, standard output, standard error."""

    def run(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            guarded(cli, list(args))
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


Call = Callable[..., tuple[int, str, str]]


def test_alone_it_shows_help(call: Call) -> None:
    _, out, err = call()
    assert "Usage: gpuaudit" in out + err
    assert "audit this machine, a snapshot or an image" in out + err


def test_version(call: Call) -> None:
    assert call("--version") == (0, f"gpuaudit {__version__}\n", "")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help_with_an_example(name: str) -> None:
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0
    assert f"gpuaudit {name}" in result.output.replace("Usage: ", "").partition("\n")[2]


def test_a_snapshot_is_judged(call: Call, snapshot: str) -> None:
    code, out, _ = call("run", "--snapshot", snapshot, "--select", "memory-thp-enabled", "-v")
    assert code == 0
    assert "memory-thp-enabled: madvise" in out
    assert "PASS: 1 check in" in out


def test_a_failure_ends_in_1_and_says_what_to_do(call: Call, tmp_path: Path) -> None:
    worse = {**MACHINE, "/sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]"}
    make_host(tmp_path / "bad", worse)
    select = ("--select", "memory-thp-enabled")
    code, out, _ = call("run", "--snapshot", str(tmp_path / "bad"), *select)
    assert code == 1
    assert re.search(r"FAIL +memory-thp-enabled", out)
    assert "observed never, expected always or madvise" in out
    assert "Do: Write the wanted word" in out


def test_a_required_unknown_ends_in_3(call: Call, tmp_path: Path) -> None:
    make_host(tmp_path / "plain", {"/proc/cpuinfo": ""}, source="plain")
    folder = str(tmp_path / "plain" / "root")
    code, out, _ = call("run", "--snapshot", folder, "--select", "memory-thp-enabled")
    assert code == 3
    assert "was not recorded" in out


@pytest.mark.parametrize(
    ("contract", "word", "code"),
    [
        ("nagios", "madvise", 0),
        ("nagios", "never", 2),
        ("nagios", "garbled", 3),
        ("npd", "madvise", 0),
        ("npd", "never", 1),
        ("npd", "garbled", 2),
    ],
)
def test_exit_codes_are_mapped(
    call: Call, tmp_path: Path, contract: str, word: str, code: int
) -> None:
    text = "no brackets" if word == "garbled" else f"always [{word}]"
    make_host(tmp_path / "n", {**MACHINE, "/sys/kernel/mm/transparent_hugepage/enabled": text})
    args = ("run", "--snapshot", str(tmp_path / "n"), "--select", "memory-thp-enabled")
    assert call(*args, "--exit-codes", contract)[0] == code


def test_output_is_written_by_suffix_and_atomically(
    call: Call, snapshot: str, tmp_path: Path
) -> None:
    for name in ("r.json", "r.txt", "r.html"):
        target = tmp_path / name
        target.write_text("old")
        code, out, _ = call("run", "--snapshot", snapshot, "-o", str(target))
        assert (code, out) == (call("run", "--snapshot", snapshot)[0], "")
        assert stat.S_IMODE(target.stat().st_mode) == 0o644
    report = decode((tmp_path / "r.json").read_bytes())
    assert report.node.hostname == "n1"
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    assert "n1:" in (tmp_path / "r.txt").read_text()
    assert [p for p in os.listdir(tmp_path) if p.startswith(".gpuaudit")] == []


def test_json_is_one_document(call: Call, snapshot: str) -> None:
    _, out, _ = call("run", "--snapshot", snapshot, "--format", "json")
    report = json.loads(out)
    assert report["schema"] == "gpuaudit.report/1"
    assert len(report["results"]) == len(chosen(packs.load_checks(), load_profile("preflight")))


WRONG = {
    "a misspelt command": (("rum",), "no command is named rum; did you mean run?"),
    "a misspelt check": (("run", "--select", "pcie-link-widht"), "did you mean pcie-link-width"),
    "a glob for nothing": (
        ("run", "--ignore", "zzz-*"),
        "no check is named zzz-*; gpuaudit list shows them all",
    ),
    "a misspelt profile": (
        ("run", "--profile", "nigtly"),
        "no profile is named nigtly; did you mean nightly",
    ),
    "no such snapshot": (("run", "--snapshot", "/nowhere/n.tar.gz"), "/nowhere/n.tar.gz"),
    "not a snapshot": (
        ("run", "--snapshot", "/etc/passwd"),
        "/etc/passwd: not a folder or a tar archive",
    ),
    "no such image": (("run", "--root", "/nowhere"), "/nowhere: does not exist"),
    "an image that is a file": (("run", "--root", "/etc/passwd"), "/etc/passwd: not a folder"),
    "both sources": (("run", "--root", "/", "--snapshot", "x"), "exclude each other"),
    "an unknown suffix": (("run", "-o", "x.docx"), "x.docx: the suffix names no format"),
    "a missing folder": (
        ("run", "--root", "/", "--select", "memory-thp-enabled", "-o", "/nowhere/x.json"),
        "/nowhere/x.json: the folder /nowhere does not exist",
    ),
    "a missing policy": (("run", "--policy", "/nowhere/p.yaml"), "/nowhere/p.yaml: No such file"),
    "a missing waiver file": (
        ("run", "--waivers", "/nowhere/w.yaml"),
        "/nowhere/w.yaml: No such file",
    ),
    "a folder as policy": (("run", "--policy", "/etc"), "/etc: Is a directory"),
    "a zero timeout": (("run", "--timeout", "0"), "0 is not a number of seconds"),
    "a timeout that is no number": (("run", "--timeout", "nan"), "nan is not a number of seconds"),
    "a timeout with a unit": (("run", "--timeout", "10s"), "10s is not a number of seconds"),
    "an empty variable as snapshot": (("run", "--snapshot", ""), "it is empty"),
    "an empty variable as selection": (("run", "--select", " "), "it is empty"),
    "a selection of commas": (("run", "--select", ","), "names no check"),
    "nothing left to run": (("run", "--ignore", "*"), "no check is left to run"),
    "an output that is a folder": (
        ("run", "--select", "cpu-smt", "--format", "json", "-o", "/etc"),
        "/etc: is a folder",
    ),
    "a folder that is no image": (("run", "--root", "/proc/self/net"), "not the root of an image"),
    "a list of nothing": (("list", "zzz"), "no check is named zzz; gpuaudit list shows them all"),
    "explain without an ID": (("explain",), "Missing argument 'ID'. See: gpuaudit explain --help"),
    "an unknown shell": (("completion", "tcsh"), "'tcsh' is not one of"),
    "an unknown option": (("run", "--jsn"), "No such option"),
    "explain of nothing": (("explain", "acs"), "no check is named acs"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_turn_is_one_clear_line_and_2(call: Call, name: str) -> None:
    args, said = WRONG[name]
    code, out, err = call(*args)
    assert (code, out) == (2, "")
    assert said in err
    assert err.startswith("gpuaudit: ")
    assert err.count("\n") == 1


def test_wrong_use_is_unknown_to_nagios(call: Call) -> None:
    assert call("run", "--exit-codes", "nagios", "--policy", "/nowhere/p.yaml")[0] == 3
    assert call("run", "--exit-codes=nagios", "--jsn")[0] == 3
    assert call("run", "--exit-codes", "npd", "--jsn")[0] == 2


def test_output_never_replaces_what_is_no_plain_file(
    call: Call, snapshot: str, tmp_path: Path
) -> None:
    pipe, link, target = tmp_path / "pipe", tmp_path / "latest.txt", tmp_path / "monday.txt"
    os.mkfifo(pipe)
    link.symlink_to(target)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    select = ("run", "--snapshot", snapshot, "--select", "memory-thp-enabled")
    assert call(*select, "--format", "text", "-o", str(pipe))[0] == 0
    assert b"PASS" in os.read(reader, 4096)
    os.close(reader)
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert call(*select, "-o", str(link))[0] == 0
    assert link.is_symlink()
    assert "PASS" in target.read_text()
    assert "PASS" in call(*select, "-o", "-")[1]


def test_a_reader_that_goes_away_is_no_finding() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "gpuaudit", "list"]
    done = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, check=False)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("words", "typed", "offered"),
    [
        ([], "ru", ["run"]),
        ([], "d", []),
        (["explain"], "pcie-link-w", ["pcie-link-width"]),
        (["list"], "pcie-link-w", ["pcie-link-width"]),
        (["run", "--ignore"], "pcie-link-w", ["pcie-link-width"]),
        (["run", "--select"], "cpu-smt,pcie-link-w", ["cpu-smt,pcie-link-width"]),
        (["run", "--profile"], "n", ["nightly"]),
        (["run", "--exit-codes"], "np", ["npd"]),
        (["policy"], "ch", ["check"]),
    ],
)
def test_the_tab_key_offers(words: list[str], typed: str, offered: list[str]) -> None:
    shell = BashComplete(cli, {}, "gpuaudit", "_GPUAUDIT_COMPLETE")
    assert [item.value for item in shell.get_completions(words, typed)] == offered


def test_the_tab_key_offers_files_and_folders() -> None:
    shell = BashComplete(cli, {}, "gpuaudit", "_GPUAUDIT_COMPLETE")
    assert shell.get_completions(["run", "--snapshot"], "x")[0].type == "file"
    assert shell.get_completions(["run", "--root"], "x")[0].type == "dir"


def test_a_hostile_name_cannot_paint_the_terminal(call: Call, tmp_path: Path) -> None:
    evil = {**MACHINE, "/proc/sys/kernel/hostname": "n1\x1b[2J\x07<script>alert(1)</script>"}
    make_host(tmp_path / "n", evil)
    args = ("run", "--snapshot", str(tmp_path / "n"), "--select", "memory-thp-enabled")
    _, out, _ = call(*args)
    assert "\x1b" not in out
    _, page, _ = call(*args, "--format", "html")
    assert "<script>" not in page


def test_list_and_explain_and_completion(call: Call) -> None:
    assert "memory-thp-enabled" in call("list", "memory-*")[1]
    rows = json.loads(call("list", "--format", "json")[1])
    assert {"id", "severity", "title", "origin"} == set(rows[0])
    text = call("explain", "memory-thp-enabled")[1]
    assert "Why it matters" in text
    assert "memory.thp_enabled" in text
    assert "base.yaml:" in text
    for shell in ("bash", "zsh", "fish"):
        assert "gpuaudit" in call("completion", shell)[1]


def test_the_schema_is_valid_json_schema(call: Call) -> None:
    assert json.loads(call("schema")[1])["title"] == "gpuaudit.report/1"
