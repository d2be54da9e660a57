# SPDX-License-Identifier: Apache-2.0
"""Checks are found in the built-in pack, in installed packages and in the drop-in folder."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from samplechecks import registry

from gpuaudit import packs
from gpuaudit.check import CHECKS

PLUGIN = Path(__file__).parent / "plugin"
DROP_IN = '''
from gpuaudit.check import Severity, check, passes

@check("{id}", severity=Severity.LOW)
def dropped():
    """A dropped-in property holds."""
    return passes("x")
'''


@pytest.fixture(autouse=True)
def clean_registry() -> Iterator[None]:
    modules = set(sys.modules)
    with registry():
        yield
    for name in set(sys.modules) - modules:
        if name.startswith(("gpuaudit_drop_in", "gpuaudit_example")):
            del sys.modules[name]


@pytest.fixture
def installed_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example plug-in as pip would leave it: package and metadata in a folder on sys.path."""
    site = tmp_path / "site"
    shutil.copytree(PLUGIN / "src", site)
    info = site / "gpuaudit_example-1.0.dist-info"
    info.mkdir()
    info.joinpath("entry_points.txt").write_text(
        "[console_scripts]\nx = y:z\n\n[gpuaudit.checks]\nexample = gpuaudit_example.site\n"
    )
    monkeypatch.syspath_prepend(str(site))
    return site


def drop_in(folder: Path, name: str, text: str, mode: int = 0o644) -> Path:
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    path = folder / name
    path.write_text(text)
    path.chmod(mode)
    return path


def test_an_installed_plugin_adds_its_check(installed_plugin: Path) -> None:
    checks = packs.load_checks(drop_in_folder=str(installed_plugin / "none"))
    assert "site-hostname-set" in checks
    assert checks["site-hostname-set"].origin.startswith("gpuaudit_example.site (")


def test_a_plugin_that_cannot_be_imported_is_named(installed_plugin: Path) -> None:
    (installed_plugin / "gpuaudit_example" / "site.py").write_text("import no_such_module\n")
    with pytest.raises(packs.PackError, match=r"plug-in example: gpuaudit_example.site: ModuleNot"):
        packs.load_checks(drop_in_folder="/nowhere")


def test_a_duplicate_id_is_an_error_naming_both(installed_plugin: Path) -> None:
    source = installed_plugin / "gpuaudit_example" / "site.py"
    source.write_text(source.read_text().replace("site-hostname-set", "memory-thp-enabled"))
    with pytest.raises(packs.PackError) as caught:
        packs.load_checks(drop_in_folder="/nowhere")
    assert "check memory-thp-enabled is defined twice: gpuaudit.checks.memory (" in str(
        caught.value
    )
    assert "gpuaudit_example.site (" in str(caught.value)


def test_a_drop_in_file_adds_its_check(tmp_path: Path) -> None:
    drop_in(tmp_path / "d", "mine.py", DROP_IN.format(id="mine-property"))
    packs.load_checks(drop_in_folder=str(tmp_path / "d"), plugins=True)
    assert "mine-property" in CHECKS


def test_a_drop_in_with_a_syntax_error_is_named(tmp_path: Path) -> None:
    path = drop_in(tmp_path / "d", "mine.py", "def (:\n")
    with pytest.raises(packs.PackError, match=r"mine.py: SyntaxError"):
        packs.load_checks(drop_in_folder=str(path.parent))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: only root refuses other owners' files")
@pytest.mark.parametrize("fault", ["writable file", "writable folder", "other owner", "link"])
def test_root_refuses_a_drop_in_others_could_have_written(tmp_path: Path, fault: str) -> None:
    path = drop_in(tmp_path / "d", "mine.py", DROP_IN.format(id="mine-property"))
    if fault == "writable file":
        path.chmod(0o666)
    elif fault == "writable folder":
        path.parent.chmod(0o777)
    elif fault == "other owner":
        os.chown(path, 65534, 65534)
    else:
        path.rename(tmp_path / "elsewhere.py")
        path.symlink_to(tmp_path / "elsewhere.py")
    with pytest.raises(packs.PackError, match="refused"):
        packs.load_checks(drop_in_folder=str(path.parent))
    assert "mine-property" not in CHECKS


def test_two_sections_of_one_name_clash(tmp_path: Path) -> None:
    text = (
        "from gpuaudit.check import Expectations, Severity, check, passes\n"
        "class MemoryExpectations(Expectations, frozen=True, kw_only=True):\n    x: int\n"
        '@check("mine-property", severity=Severity.LOW)\n'
        "def dropped(want: MemoryExpectations):\n    return passes('x')\n"
    )
    drop_in(tmp_path / "d", "mine.py", text)
    checks = packs.load_checks(drop_in_folder=str(tmp_path / "d"))
    with pytest.raises(packs.PackError, match="policy section memory is taken"):
        packs.sections(checks)
