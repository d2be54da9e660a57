# SPDX-License-Identifier: Apache-2.0
"""Policy and waiver files that mean harm, streams that are closed or full, odd environments."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from system import lacking, need
from trees import manifest, write_tree

from gpuaudit import packs
from gpuaudit.policy import PolicyError, load_policies
from gpuaudit.waivers import load_waivers

COMMAND = [sys.executable, "-m", "gpuaudit"]
BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
)
POLICIES = {
    "deep": b"policy: 1\nexpect: " + b"[" * 5000 + b"]" * 5000,
    "bomb": BOMB.encode(),
    "circle": b"policy: 1\nexpect: &a\n  memory: *a\n",
    "object": b'policy: 1\nexpect: !!python/object/apply:os.system ["touch pwned"]\n',
    "name": b"policy: !!python/name:os.system\n",
    "binary": b"policy: !!binary aGVsbG8=\n",
    "merge": b"policy: 1\nexpect:\n  memory:\n    <<: {swap: none}\n",
    "latin-1": b"policy: 1\nabout: caf\xe9\n",
    "half-utf-16": b"\xff\xfe\x00\xd8\x00",
    "nul": b"policy: 1\0\n",
    "large": b"policy: 1\n#" + b"x" * (2 << 20),
    "empty": b"",
    "list": b"- 1\n",
    "two": b"policy: 1\n---\npolicy: 1\n",
    "list-as-key": b"policy: 1\nexpect:\n  ? [a]\n  : b\n",
    "number-as-key": b"policy: 1\nexpect:\n  1: 2\n",
    "no-day": b"policy: 1\nabout: 2026-02-30\n",
    "nan": b"policy: 1\nexpect:\n  memory_shm:\n    min_gib: .nan\n",
    "digits": b"policy: 1\nabout: " + b"9" * 5000 + b"\n",
    "no-anchor": b"policy: 1\nexpect: *nope\n",
}


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_policies(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line with the file and a line number, nothing run, nothing large built."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "site.yaml"
    file.write_bytes(POLICIES[name])
    sections = packs.sections(packs.load_checks())
    with pytest.raises(PolicyError) as refused:
        load_policies(sections, (str(file),), site=False)
    assert str(refused.value).startswith(f"{file}:")
    assert "\n" not in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["site.yaml"]


def test_a_value_that_is_none_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "site.yaml"
    file.write_text("policy: 1\nexpect:\n  memory:\n    swap: 2026-02-30\n")
    with pytest.raises(PolicyError, match=":4: not valid YAML: day is out of range"):
        load_policies(packs.sections(packs.load_checks()), (str(file),), site=False)


@pytest.mark.parametrize("path", ["/dev/zero", "/", "/nowhere/x.yaml", "/dev/null", "a\0b"])
def test_files_that_are_none(path: str) -> None:
    """/dev/zero never ends: no more is read than tells that it is too large."""
    checks = packs.load_checks()
    with pytest.raises(PolicyError):
        load_policies(packs.sections(checks), (path,), site=False)
    with pytest.raises(PolicyError):
        load_waivers(path, checks)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node with a name that ASCII cannot say."""
    folder = tmp_path_factory.mktemp("node")
    write_tree(folder / "root", {"/proc/sys/kernel/hostname": "n\u00f6de\n", "/sys/a": None})
    (folder / "manifest.json").write_text(json.dumps(manifest(folder / "root", 0)))
    return folder


def shell(line: str, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[bytes]":
    """Run a line of shell in which "$@" is the command."""
    return subprocess.run(
        ["sh", "-c", line, "sh", *COMMAND, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        timeout=60,
        check=False,
    )


def commands(recording: Path) -> list[tuple[str, ...]]:
    where = ("--snapshot", str(recording))
    return [
        ("run", *where),
        ("run", *where, "--format", "json"),
        ("run", *where, "--format", "html"),
        ("topology", *where, "--format", "json"),
        ("policy", "show", *where),
        ("list",),
        ("--help",),
    ]


@pytest.mark.parametrize("which", range(7))
def test_a_full_disk_is_told_in_one_line(recording: Path, which: int) -> None:
    done = shell('"$@" >/dev/full', *commands(recording)[which])
    full = os.strerror(errno.ENOSPC)
    assert done.stderr.decode() == f"gpuaudit: the output cannot be written: {full}\n"
    assert done.returncode == 2


@pytest.mark.parametrize("closed", [">&-", "<&-", "2>&-", "<&- >&- 2>&-", "| head -c 1 >/dev/null"])
@pytest.mark.parametrize("which", range(7))
def test_closed_streams(recording: Path, closed: str, which: int) -> None:
    done = shell(f'"$@" {closed}', *commands(recording)[which])
    assert done.returncode in {0, 3}
    assert b"rror" not in done.stderr


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "latin-1"},
        {"COLUMNS": "10"},
        {"COLUMNS": "-1"},
        {"HOME": "/nonexistent"},
    ],
    ids=lambda environment: next(iter(environment)),
)
def test_odd_environments(recording: Path, environment: dict[str, str]) -> None:
    text, page = (
        shell('"$@"', "run", "--snapshot", str(recording), "--format", name, **environment)
        for name in ("text", "json")
    )
    assert (text.returncode, page.returncode) == (3, 3)
    assert text.stdout.startswith((b"n\xc3\xb6de", b"n\xf6de", b"n\\xf6de"))
    assert json.loads(page.stdout)["node"]["hostname"] == "n\u00f6de"


def test_a_terminal_of_ten_columns(recording: Path) -> None:
    need("script", "bsdutils")
    line = 'script -qec "$*" /dev/null'
    done = shell(line, "run", "--snapshot", str(recording), COLUMNS="10")
    assert done.returncode == 3
    assert b"UNKNOWN" in done.stdout


@pytest.mark.parametrize(
    "words", ["[", "[!", ",", "", "cpu-[a-", "\u00e9", "\x1b[31mred", "a" * 9999]
)
def test_words_that_name_no_check(recording: Path, words: str) -> None:
    done = shell('"$@"', "run", "--snapshot", str(recording), "--select", words)
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert b"\x1b" not in done.stderr


@pytest.mark.parametrize("output", [".", "/proc/x.json", "/nowhere/x.json", "x.bmp", "/dev/full"])
def test_places_that_take_no_report(recording: Path, tmp_path: Path, output: str) -> None:
    place = str(tmp_path) if output == "." else output
    extra = ("--format", "json") if output in {".", "/dev/full"} else ()
    done = shell('"$@"', "run", "--snapshot", str(recording), "-o", place, *extra)
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert b"internal" not in done.stderr


AS_NOBODY = """
import importlib, os
from gpuaudit import audit, packs, policy
from gpuaudit.cli import cli, errors, run_command
importlib.import_module("gpuaudit.reports.json_report")
packs.load_checks()
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
errors.guarded(cli, ["run", "--format", "json"])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_as_nobody() -> None:
    """Everything is imported first: the interpreter may lie where only root reads."""
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY],
        env={**os.environ, "HOME": "/nonexistent"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    counts = json.loads(done.stdout)["summary"]["counts"]
    assert (done.returncode in {0, 1, 3}, counts["error"]) == (True, 0), done.stderr


ELSEWHERE = ("xid-", "kernel-", "environment-", "time-")
"""Checks that read /dev/kmsg, ask the kernel, or look into /etc and /usr."""


def test_without_proc_and_sys_nothing_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is missing because nothing is mounted proves nothing.

    NVML would still answer on a machine with GPUs: a file that is no library hides it.
    """
    (tmp_path / "libnvidia-ml.so.1").write_text("no library")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    need("unshare", "util-linux")
    hide = "mount -t tmpfs none /sys && mount -t tmpfs none /proc"
    if shell(f"unshare -m sh -c '{hide}'").returncode:
        lacking("needs the right to mount (root)")
    done = shell(f'unshare -m sh -c \'{hide} && "$@"\' sh "$@"', "run", "--format", "json")
    report = json.loads(done.stdout)
    assert done.returncode == 3
    verdicts = {r["check"]: r["verdict"] for r in report["results"]}
    judged = {c for c, v in verdicts.items() if v not in {"unknown", "notapplicable"}}
    assert {check for check in judged if not check.startswith(ELSEWHERE)} == set()
    known = ("gpu-count", "gpu-alive", "pcie-link-width", "pcie-link-speed", "numa-node-known")
    assert {verdicts[check] for check in known} == {"unknown"}
