# SPDX-License-Identifier: Apache-2.0
"""The wheel holds every file of the packages and nothing beside them.

setuptools drops silently: a package missing from `packages` or a data file missing from
`package-data` works in the editable install and is absent for the user.
"""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath

import pytest

pytestmark = pytest.mark.tree

REPO = Path(__file__).parents[1]
INSTALLED_AS = {
    "gpuaudit": "gpuaudit",
    "checks": "gpuaudit/checks",
    "remediations": "gpuaudit/remediations",
    "reports": "gpuaudit/reports",
}


def sources() -> list[str]:
    """What git has or would take: a file that is not ignored belongs to the project."""
    if not (REPO / ".git").exists():
        pytest.skip("not a git checkout: nothing says which files belong to the project")
    listing = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard", "--", *INSTALLED_AS],
        cwd=REPO,
        check=True,
        capture_output=True,
        text=True,
    )
    return [name for name in listing.stdout.split("\0") if name and (REPO / name).is_file()]


def built_from(tree: Path, into: Path) -> Path:
    """The wheel of a copy: a stale build/ or egg-info in the working tree must not help."""
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(into), str(tree)]
    done = subprocess.run(build, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(into.glob("*.whl"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if given := os.environ.get("GPUAUDIT_WHEEL"):
        return Path(given)
    tree = tmp_path_factory.mktemp("tree")
    for name in ["pyproject.toml", "README.md", "LICENSE", *sources()]:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPO / name, tree / name)
    return built_from(tree, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def test_wheel_holds_exactly_the_tree(contents: set[str]) -> None:
    def installed(name: str) -> str:
        top, _, rest = name.partition("/")
        return f"{INSTALLED_AS[top]}/{rest}"

    assert sorted(contents) == sorted(installed(name) for name in sources())


def test_only_gpuaudit_lands_in_site_packages(contents: set[str]) -> None:
    assert {PurePosixPath(name).parts[0] for name in contents} == {"gpuaudit"}


def test_wheel_carries_license_and_types_marker(wheel: Path, contents: set[str]) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert any(name.endswith("/licenses/LICENSE") for name in archive.namelist())
    assert "gpuaudit/py.typed" in contents


def test_mapped_folders_are_flat_packages() -> None:
    """A sub-package of a mapped folder works in the editable install and is lost in the wheel."""
    for folder in ("checks", "remediations", "reports"):
        assert (REPO / folder / "__init__.py").is_file()
        assert not list((REPO / folder).glob("*/**/*.py"))
