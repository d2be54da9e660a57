# SPDX-License-Identifier: Apache-2.0
"""Every item of the published checklists has an answer."""

import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuaudit import packs
from gpuaudit.cli import checklists
from gpuaudit.cli.errors import Refused

pytestmark = pytest.mark.tree

ROOT = Path(__file__).parents[1]
IDS = sorted(packs.load_checks(plugins=False))
SOURCE = ROOT / checklists.SOURCE
"""Not beside the tests of an installed wheel."""
ENTRIES: dict[str, dict[str, Any]] = yaml.safe_load(SOURCE.read_text()) if SOURCE.exists() else {}


def test_every_item_is_there_once() -> None:
    assert list(ENTRIES) == [f"L{number:02}" for number in range(1, 51)]
    assert all(set(one) <= {"item", "checks", "command", "not_here"} for one in ENTRIES.values())


def test_every_item_has_an_answer_and_every_word_names_a_check() -> None:
    page = checklists.page(str(ROOT), IDS)
    assert page.count("\n| L") == len(ENTRIES)
    assert {w for e in ENTRIES.values() for w in e.get("checks", ()) if not named(w)} == set()


def test_no_check_is_named_twice_for_one_item() -> None:
    for key, entry in ENTRIES.items():
        found = [check for word in entry.get("checks", ()) for check in named(word)]
        assert sorted(set(found)) == sorted(found), key


@pytest.mark.parametrize(
    "entry",
    [{"item": "Nothing", "checks": ["no-such-check"]}, {"item": "Nothing"}],
    ids=["a-word-that-names-no-check", "no-answer"],
)
def test_an_entry_without_an_answer_is_refused(
    tmp_path: Path, entry: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / checklists.SOURCE
    source.parent.mkdir()
    source.write_text(yaml.safe_dump({"L01": entry}))
    with pytest.raises(Refused):
        checklists.page(str(tmp_path), IDS)
    assert "L01" in capsys.readouterr().err


def named(word: str) -> list[str]:
    return fnmatch.filter(IDS, word)
