# SPDX-License-Identifier: Apache-2.0
"""Two readings: --interval, --state, and the state file of the nightly profile."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuaudit import packs
from gpuaudit.check import HOUR, Check, Finding, Severity, expect_rate
from gpuaudit.cli import cli, state
from gpuaudit.facts.base import PROBES, probe
from gpuaudit.facts.counters import SCHEMA, Counted, Earlier
from gpuaudit.host import Host

NAME = "test-ticks"


class Ticks(Counted, frozen=True, kw_only=True):
    """A counter that goes on by a thousand whenever it is read."""

    total: int

    def counters(self) -> dict[str, dict[str, int]]:
        return {"clock": {"ticks": self.total}}


def ticks(ticks: Ticks, earlier: Earlier) -> Finding:
    """Ticks are few."""
    growth = earlier.growth("clock", "ticks", ticks.total, since_boot=False)
    return expect_rate(growth, 10, per_s=HOUR, of="clock", what="ticks")


@pytest.fixture(autouse=True)
def one_check(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The registry holds this check alone."""
    counting = iter(range(100, 10_000, 1000))

    def ticks_probe(host: Host) -> Ticks:  # noqa: ARG001 - a probe has a host
        return Ticks(total=next(counting))

    probe(ticks_probe)
    sections = packs.sections(packs.load_checks())
    one = Check(id=NAME, function=ticks, severity=Severity.LOW, origin=__name__)
    monkeypatch.setattr(packs, "load_checks", lambda **_: {NAME: one})
    monkeypatch.setattr(packs, "sections", lambda _: sections)
    yield
    del PROBES[Ticks]


def run(*options: str) -> Any:
    done = called(*options)
    assert done.exit_code in {0, 1, 3}, done.output
    assert isinstance(done.exception, (SystemExit, type(None)))
    (result,) = json.loads(done.stdout)["results"]
    return result


def called(*options: str) -> Result:
    return CliRunner().invoke(cli, ["run", "--format", "json", *options])


def test_one_reading_is_no_rate() -> None:
    found = run()
    assert found["verdict"] == "unknown"
    assert "--interval" in found["findings"][0]["message"]


def test_an_interval_is_two_readings() -> None:
    found = run("--interval", "0.2")
    assert found["verdict"] == "fail"
    assert found["findings"][0]["observed"].startswith("1000 in 0.")


def test_a_folder_keeps_the_reading(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "state"
    assert run("--state", str(folder))["verdict"] == "unknown"
    kept = json.loads((folder / "counters.json").read_text())
    assert (kept["schema"], kept["counters"]) == (SCHEMA, {"clock": {"ticks": 100}})
    assert run("--state", str(folder))["findings"][0]["observed"].startswith("1000 in ")
    assert json.loads((folder / "counters.json").read_text())["counters"]["clock"]["ticks"] == 1100


def test_the_nightly_profile_keeps_it_without_being_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "STATE_FILE", str(tmp_path / "counters.json"))
    run("--profile", "preflight")
    assert list(tmp_path.iterdir()) == []
    run("--profile", "nightly")
    assert [one.name for one in tmp_path.iterdir()] == ["counters.json"]


def test_an_audit_of_some_checks_keeps_nothing(tmp_path: Path) -> None:
    run("--state", str(tmp_path))
    before = (tmp_path / "counters.json").read_bytes()
    run("--state", str(tmp_path), "--select", NAME)
    assert (tmp_path / "counters.json").read_bytes() == before


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": "gpuaudit.counters/1"}', "\0\0"])
def test_a_corrupt_file_is_no_reading_and_is_replaced(tmp_path: Path, content: str) -> None:
    (tmp_path / "counters.json").write_text(content)
    assert run("--state", str(tmp_path))["verdict"] == "unknown"
    assert json.loads((tmp_path / "counters.json").read_text())["counters"]


@pytest.mark.parametrize("change", [{"boot_id": "before"}, {"uptime_s": 1e12}])
def test_a_reboot_in_between_is_no_reading(tmp_path: Path, change: dict[str, object]) -> None:
    run("--state", str(tmp_path))
    kept = json.loads((tmp_path / "counters.json").read_text())
    (tmp_path / "counters.json").write_text(json.dumps(kept | change))
    assert run("--state", str(tmp_path))["verdict"] == "unknown"


def test_what_cannot_be_kept_fails_no_audit(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = called("--state", str(tmp_path / "file" / "below"))
    assert done.exit_code == 2  # it cannot be read either, and that is told before the audit
    assert "Not a directory" in done.stderr


def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    target = tmp_path / "counters.json"
    target.mkdir()
    done = called("--state", str(tmp_path))
    assert done.exit_code == 2
    assert "directory" in done.stderr


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("of somebody else")
    os.symlink("other", tmp_path / "counters.json")
    done = called("--state", str(tmp_path))
    assert "is a link" in done.stderr
    assert (tmp_path / "other").read_text() == "of somebody else"


@pytest.mark.parametrize("option", [("--interval", "1"), ("--state", "x")])
def test_a_recording_does_not_change(tmp_path: Path, option: tuple[str, str]) -> None:
    done = called("--snapshot", str(tmp_path), *option)
    assert done.exit_code == 2
    assert "a recording does not change" in done.stderr
