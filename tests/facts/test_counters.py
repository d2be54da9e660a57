# SPDX-License-Identifier: Apache-2.0
"""Earlier readings: of this boot or none, and how much a total grew since."""

import json
from pathlib import Path
from typing import Any

import pytest
from trees import make_host

from gpuaudit.engine import Facts
from gpuaudit.facts.counters import SCHEMA, STATE_FILE, Earlier, Growth, Reading

BOOT = "6f1e8f0e-0000-4000-8000-000000000001"
KEPT: dict[str, Any] = {
    "schema": SCHEMA,
    "boot_id": BOOT,
    "uptime_s": 1000.0,
    "written_at": "2026-11-20T02:00:00+00:00",
    "counters": {"0000:18:00.0": {"aer-correctable": 3}},
}


def read(tmp_path: Path, content: str | None, uptime: str | None = "4600.5 9000.0\n") -> Earlier:
    files = {"/proc/sys/kernel/random/boot_id": f"{BOOT}\n"}
    files |= {} if content is None else {STATE_FILE: content}
    files |= {} if uptime is None else {"/proc/uptime": uptime}
    found: Earlier = Facts(make_host(tmp_path, files)).get(Earlier)
    return found


def grown(found: Earlier, now: int, **fields: Any) -> Growth:
    return found.growth("0000:18:00.0", "aer-correctable", now, **{"since_boot": True, **fields})


def test_an_earlier_reading_of_this_boot(tmp_path: Path) -> None:
    found = read(tmp_path, json.dumps(KEPT))
    assert found.reading is not None
    assert grown(found, 10) == Growth(10, 3, 3600.5)
    assert grown(found, 10).by == 7


def test_a_counter_that_was_not_there_before(tmp_path: Path) -> None:
    found = read(tmp_path, json.dumps(KEPT))
    growth = found.growth("0000:19:00.0", "aer-correctable", 4, since_boot=True)
    assert growth == Growth(4, None, 4600.5, "it was not read earlier")


def test_a_counter_that_went_back_was_reset(tmp_path: Path) -> None:
    growth = grown(read(tmp_path, json.dumps(KEPT)), 2)
    assert (growth.before, growth.by) == (None, 2)
    assert "reset" in growth.why


def test_a_device_counts_since_nobody_knows_when(tmp_path: Path) -> None:
    growth = grown(read(tmp_path, None), 5, since_boot=False)
    assert growth == Growth(5, None, None, "there is no earlier reading")


def test_a_counter_at_its_end_is_stuck(tmp_path: Path) -> None:
    found = read(tmp_path, json.dumps(KEPT))
    assert grown(found, 255, ceiling=255).stuck
    assert not grown(found, 254, ceiling=255).stuck


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"boot_id": "another"}, "rebooted"),
        ({"uptime_s": 4601.0}, "later moment"),
        ({"schema": "gpuaudit.counters/9"}, "another version"),
        ({"counters": {"a": {"b": -1}}}, "damaged"),
        ({"counters": [1]}, "damaged"),
        ({"uptime_s": "x"}, "damaged"),
    ],
)
def test_what_cannot_be_compared_with(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    found = read(tmp_path, json.dumps(KEPT | change))
    assert found.reading is None
    assert why in found.why
    assert grown(found, 9).before is None


@pytest.mark.parametrize("content", ["", "{", "\0" * 64, '{"schema": 1}', "null"])
def test_a_corrupt_file_is_no_reading(tmp_path: Path, content: str) -> None:
    found = read(tmp_path, content)
    assert found.reading is None
    assert found.why


@pytest.mark.parametrize("uptime", [None, "", "soon\n"])
def test_without_the_time_since_boot(tmp_path: Path, uptime: str | None) -> None:
    found = read(tmp_path, json.dumps(KEPT), uptime)
    assert (found.reading, found.uptime_s) == (None, None)
    assert grown(found, 1).seconds is None


def test_a_reading_survives_its_own_format(tmp_path: Path) -> None:
    reading = Reading(**KEPT)
    assert read(tmp_path, json.dumps(KEPT)).reading == reading


def test_what_is_given_goes_before_the_file(tmp_path: Path) -> None:
    host = make_host(tmp_path, {STATE_FILE: "damaged", "/proc/uptime": "2000.0 1.0\n"})
    host.give("/proc/sys/kernel/random/boot_id", BOOT.encode())
    host.give(STATE_FILE, json.dumps(KEPT).encode())
    assert grown(Facts(host).get(Earlier), 4) == Growth(4, 3, 1000.0)
