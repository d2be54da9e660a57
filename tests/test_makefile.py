# SPDX-License-Identifier: Apache-2.0
"""`make run` and `make test` are the first things a stranger types; the lock is what they get."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.tree,
    pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed"),
]

REPO = Path(__file__).parents[1]
LOCKED = re.compile(r'^name = "(?P<name>[^"]+)"\nversion = "(?P<version>[^"]+)"\n', re.MULTILINE)
CONSTRAINED = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)", re.MULTILINE)


def make(*arguments: str, at: Path) -> subprocess.CompletedProcess[str]:
    """Without the MAKEFLAGS and ARGS of the make that may be running these tests."""
    return subprocess.run(
        ["make", "--file", str(REPO / "Makefile"), *arguments],
        cwd=at,
        env={"PATH": os.environ["PATH"]},
        check=False,
        capture_output=True,
        text=True,
    )


def installed(at: Path, command: str) -> None:
    """A project whose .venv is up to date and whose gpuaudit is the given shell command."""
    gpuaudit = at / ".venv/bin/gpuaudit"
    gpuaudit.parent.mkdir(parents=True)
    gpuaudit.write_text(f"#!/bin/sh\n{command}\n")
    gpuaudit.chmod(0o755)
    (at / ".ci").mkdir()
    for name in ["pyproject.toml", ".ci/constraints.txt", ".venv/.installed"]:
        (at / name).touch()


@pytest.mark.parametrize("code", [0, 1, 3])
def test_run_succeeds_once_the_audit_ran(tmp_path: Path, code: int) -> None:
    installed(tmp_path, f'echo "audited: $*"; exit {code}')
    done = make("run", "ARGS=--profile image", at=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "audited: run --profile image",
        f"gpuaudit run ended with exit code {code}",
    ]


@pytest.mark.parametrize("code", [2, 4, 139])
def test_run_fails_when_the_audit_did_not(tmp_path: Path, code: int) -> None:
    installed(tmp_path, f"exit {code}")
    done = make("run", at=tmp_path)
    assert done.returncode == 2
    assert done.stdout.splitlines() == [f"gpuaudit run ended with exit code {code}"]


def test_an_old_python_is_named_as_the_reason(tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    for name in ["pyproject.toml", ".ci/constraints.txt"]:
        (tmp_path / name).touch()
    done = make("setup", "PYTHON=", at=tmp_path)
    assert done.returncode == 2
    assert "gpuaudit needs Python 3.10 or newer" in done.stderr


def test_help_names_every_target(tmp_path: Path) -> None:
    shutil.copy(REPO / "Makefile", tmp_path)
    targets = re.findall(r"^([a-z]+):", (REPO / "Makefile").read_text(), re.MULTILINE)
    shown = re.findall(r"^  make ([a-z]+)", make(at=tmp_path).stdout, re.MULTILINE)
    assert shown == targets


def test_constraints_say_what_the_lock_says() -> None:
    locked = set(LOCKED.findall((REPO / "uv.lock").read_text()))
    constrained = set(CONSTRAINED.findall((REPO / ".ci/constraints.txt").read_text()))
    assert constrained
    assert constrained <= locked


def test_lock_knows_every_direct_dependency() -> None:
    pyproject = (REPO / "pyproject.toml").read_text()
    wanted = re.findall(r'"([A-Za-z0-9.-]+)(?:\[[a-z,]+\])?>=[^"]*"', pyproject)
    constrained = (REPO / ".ci/constraints.txt").read_text().lower()
    build_time = {"setuptools"}
    missing = [
        name
        for name in set(wanted) - build_time
        if f"\n{name.lower().replace('.', '-')}==" not in f"\n{constrained}"
    ]
    assert missing == []


def test_lock_names_public_hosts_only() -> None:
    hosts = set(re.findall(r"https?://([^/\"]+)", (REPO / "uv.lock").read_text()))
    assert hosts == {"pypi.org", "files.pythonhosted.org"}
