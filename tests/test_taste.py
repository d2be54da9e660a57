# SPDX-License-Identifier: Apache-2.0
"""The rules of taste of docs/architecture.md that no linter knows."""

import ast
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.tree

REPO = Path(__file__).parents[1]
PACKAGED = [
    path for top in ("gpuaudit", "checks", "reports") for path in REPO.glob(f"{top}/**/*.py")
]
SCRIPTS = [*REPO.glob("remediations/*.sh"), REPO / ".ci/run"]
WRITTEN = [*PACKAGED, *SCRIPTS, *REPO.glob("tests/**/*.py")]
NOQA_WITH_REASON = re.compile(r"noqa: [A-Z]+[0-9]+(, ?[A-Z]+[0-9]+)*[^\w\n]+\w.{7,}")
IGNORE_WITH_REASON = re.compile(r"type: ignore\[[a-z, -]+\][^\w\n]+\w.{7,}")
SPDX = "# SPDX-License-Identifier: Apache-2.0"


def body_lengths(path: Path) -> Iterator[int]:
    """Lines of each function from its first statement after the docstring to its last."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            yield (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def shown(path: Path) -> str:
    return str(path.relative_to(REPO))


def test_functions_are_short() -> None:
    lengths = [length for path in PACKAGED for length in body_lengths(path)]
    assert statistics.median(lengths) <= 7
    assert statistics.quantiles(lengths, n=10)[-1] <= 25


def test_files_are_short() -> None:
    assert [shown(path) for path in PACKAGED if len(path.read_text().splitlines()) > 250] == []


def test_every_file_starts_with_its_license() -> None:
    heads = {path: path.read_text().splitlines()[:2] for path in WRITTEN}
    assert [shown(path) for path, head in heads.items() if SPDX not in head] == []


@pytest.mark.parametrize(
    ("mark", "wanted"),
    [("# noqa", NOQA_WITH_REASON), ("# type: ignore", IGNORE_WITH_REASON)],
    ids=["noqa", "type-ignore"],
)
def test_every_exception_carries_code_and_reason(mark: str, wanted: re.Pattern[str]) -> None:
    bare = [
        f"{shown(path)}:{number}: {line.strip()}"
        for path in WRITTEN
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if mark in line and not wanted.search(line)
    ]
    assert bare == []
