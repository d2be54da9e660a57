# SPDX-License-Identifier: Apache-2.0
"""The arrows of docs/architecture.md: import-linter for modules, the syntax tree for the seam.

ruff can ban a name that is imported; it cannot ban a call of the builtin open() for some
folders only, nor an import of os in a folder that has no use for it.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.tree

REPO = Path(__file__).parents[1]
# What these read comes from a Host alone, so that a snapshot and an image root are judged alike.
BEHIND_THE_SEAM = [
    *REPO.glob("gpuaudit/facts/**/*.py"),
    *REPO.glob("gpuaudit/topology*.py"),
    *REPO.glob("gpuaudit/topology/**/*.py"),
    *REPO.glob("checks/*.py"),
]
OPENERS = {"open", "Path", "PosixPath", "exec", "eval", "__import__"}
MACHINE = {
    "ctypes",
    "fcntl",
    "glob",
    "io",
    "logging",  # what a check has to say is its finding
    "mmap",
    "multiprocessing",
    "os",
    "platform",
    "psutil",
    "pwd",
    "pynvml",
    "pyudev",
    "resource",
    "shutil",
    "signal",
    "socket",
    "subprocess",
    "tempfile",
    "time",  # the moment of a snapshot is not now
}
PURE_PATHS = {"PurePath", "PurePosixPath"}


def imported(node: ast.AST) -> Iterator[str]:
    """Top-level modules that a statement imports; pathlib counts unless only its pure half is."""
    if isinstance(node, ast.Import):
        yield from (alias.name.split(".")[0] for alias in node.names)
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
        pure = node.module == "pathlib" and {alias.name for alias in node.names} <= PURE_PATHS
        yield "" if pure else node.module.split(".")[0]


def breaches(source: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        modules = (MACHINE | {"pathlib"}).intersection(imported(node))
        found += [f"line {getattr(node, 'lineno', 0)}: imports {name}" for name in sorted(modules)]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found += [f"line {node.lineno}: calls {node.func.id}()"] * (node.func.id in OPENERS)
    return found


@pytest.mark.parametrize("path", BEHIND_THE_SEAM, ids=lambda path: str(path.relative_to(REPO)))
def test_nothing_behind_the_seam_touches_the_machine(path: Path) -> None:
    assert breaches(path.read_text()) == []


@pytest.mark.parametrize(
    ("source", "breach"),
    [
        ("with open('/proc/meminfo') as file: pass", "line 1: calls open()"),
        ("import os.path", "line 1: imports os"),
        ("def f():\n    from subprocess import run", "line 2: imports subprocess"),
        ("from pathlib import Path", "line 1: imports pathlib"),
        ("import pathlib", "line 1: imports pathlib"),
    ],
)
def test_the_seam_test_sees_a_breach(source: str, breach: str) -> None:
    assert breaches(source) == [breach]


@pytest.mark.parametrize(
    "source",
    ["from pathlib import PurePosixPath", "from .os import x", "host.open('/proc/meminfo')"],
)
def test_the_seam_test_allows_what_is_pure(source: str) -> None:
    assert breaches(source) == []


def test_import_contracts_are_kept() -> None:
    linter = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": str(REPO)}
    done = subprocess.run(
        linter, cwd=REPO, env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
