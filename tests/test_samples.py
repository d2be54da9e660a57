# SPDX-License-Identifier: Apache-2.0
"""Samples of other people's machines, where they lie beside the project: nothing else is found."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from gpuaudit import packs
from gpuaudit.cli import cli

GOLDEN = yaml.safe_load(Path(__file__).with_name("samples.yaml").read_text())
SAMPLES = Path(__file__).parents[2] / "shared" / "samples"
PRESENT = [name for name in GOLDEN["samples"] if (SAMPLES / name).exists()]


def test_every_explanation_is_of_a_check_and_has_a_reason() -> None:
    known = packs.load_checks(plugins=False)
    for rows in GOLDEN["samples"].values():
        assert set(rows) <= set(known)
        assert all(row["why"].endswith(".") for row in rows.values())
    assert all(why.endswith(".") for why in GOLDEN["unknown_because"].values())


@pytest.mark.parametrize("name", PRESENT or ["none"])
def test_a_sample_says_what_is_explained(name: str) -> None:
    if name == "none":
        assert not SAMPLES.exists()
        return
    options = ("--snapshot", str(SAMPLES / name), "--profile", "bringup", "--format", "json")
    done = CliRunner().invoke(cli, ["run", *options])
    results = json.loads(done.stdout)["results"]
    found = {r["check"]: r["verdict"] for r in results if r["verdict"] in {"fail", "warn", "error"}}
    assert found == {check: row["verdict"] for check, row in GOLDEN["samples"][name].items()}
    assert [one for r in results for one in reasons(r) if not explained(one)] == []


def reasons(result: dict[str, Any]) -> list[str]:
    """Why a check could not tell."""
    if result["verdict"] != "unknown":
        return []
    told = [f["message"] for f in result["findings"] if f["verdict"] == "unknown"]
    return told or [result["reason"]]


def explained(reason: str) -> bool:
    return any(words in reason for words in GOLDEN["unknown_because"])
