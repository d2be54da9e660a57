# SPDX-License-Identifier: Apache-2.0
import json
from pathlib import Path
from typing import Any

import pytest
from trees import make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.clock import (
    HIDDEN,
    SOURCES,
    ClockSource,
    clock_source,
    kernel_clock,
    time_service,
)
from gpuaudit.host import Host, NotApplicable, Unavailable
from gpuaudit.host.clock import adjtimex

INIT = [{"pid": 1, "name": "systemd", "state": "sleeping", "parent": 0}]
KERNEL = [*INIT, {"pid": 2, "name": "kthreadd", "state": "sleeping", "parent": 0}]


def named(name: str) -> list[dict[str, Any]]:
    return [*KERNEL, {"pid": 900, "name": name, "state": "sleeping", "parent": 1}]


def asked(stdout: str, returncode: int = 0) -> list[dict[str, Any]]:
    output = {"returncode": returncode, "stdout": stdout, "stderr": "no"}
    return [{"argv": ["@adjtimex"], "output": output}]


def test_the_source(tmp_path: Path) -> None:
    tree = {
        f"{SOURCES}/current_clocksource": "tsc\n",
        f"{SOURCES}/available_clocksource": "tsc hpet \n",
    }
    found = clock_source(make_host(tmp_path, tree))
    assert found == ClockSource(current="tsc", available=("tsc", "hpet"))


@pytest.mark.parametrize("text", ["", "\n", "ts", "t\0sc", "tsc hpet"])
def test_a_garbled_source(tmp_path: Path, text: str) -> None:
    current = {f"{SOURCES}/current_clocksource": text}
    for number, more in enumerate(({}, {f"{SOURCES}/available_clocksource": "tsc hpet\n"})):
        if more or text not in {"ts", "tsc hpet"}:
            with pytest.raises(Unavailable, match="current_clocksource"):
                clock_source(make_host(tmp_path / str(number), current | more))


@pytest.mark.parametrize(("source", "kind"), [("snapshot", "missing"), ("plain", "not-recorded")])
def test_no_source(tmp_path: Path, source: Any, kind: str) -> None:
    with pytest.raises(Unavailable) as caught:
        clock_source(make_host(tmp_path, {}, source=source))
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("name", "running"),
    [
        ("chronyd", ("chronyd",)),
        ("systemd-timesyn", ("systemd-timesyncd",)),
        ("ptp4l", ("ptp4l",)),
        ("chrony", ()),
    ],
)
def test_running(tmp_path: Path, name: str, running: tuple[str, ...]) -> None:
    host = make_host(tmp_path, {"/run/systemd/system": None}, processes=named(name))
    fact = time_service(host)
    assert (fact.running, fact.systemd) == (running, True)


def test_a_container_sees_no_service(tmp_path: Path) -> None:
    host = make_host(tmp_path, {"/.dockerenv": ""}, processes=INIT)
    assert time_service(host).running == HIDDEN


def test_hidden_processes_prove_nothing(tmp_path: Path) -> None:
    mine = [{"pid": 77, "name": "bash", "state": "sleeping", "parent": 70}]
    found = time_service(make_host(tmp_path, {}, processes=mine)).running
    assert isinstance(found, Absent)
    assert found.kind == "denied"


def test_processes_that_were_not_recorded(tmp_path: Path) -> None:
    found = time_service(make_host(tmp_path, {}, source="plain"))
    assert isinstance(found.running, Absent)
    assert found.systemd is True


def test_a_service_in_an_image(tmp_path: Path) -> None:
    found = time_service(make_host(tmp_path, {}, source="image"))
    assert isinstance(found.running, Absent)
    assert (found.running.kind, found.systemd) == ("unsupported", None)


def test_systemd_is_known_not_to_run(tmp_path: Path) -> None:
    assert time_service(make_host(tmp_path, {}, processes=KERNEL)).systemd is False


@pytest.mark.parametrize(("error_us", "good"), [(15_999_999, True), (16_000_000, False)])
def test_the_kernel_clock(tmp_path: Path, error_us: int, *, good: bool) -> None:
    said = json.dumps({"max_error_us": error_us, "status": 0x40})
    tree = {"/proc/uptime": "77.5 1.0\n"}
    found = kernel_clock(make_host(tmp_path, tree, commands=asked(said)))
    assert (found.synchronised, found.uptime_s) == (good, 77.5)


@pytest.mark.parametrize("said", ["", "{}", '{"max_error_us": "soon"}', "[1]"])
def test_a_garbled_answer(tmp_path: Path, said: str) -> None:
    with pytest.raises(Unavailable) as caught:
        kernel_clock(make_host(tmp_path, {}, commands=asked(said)))
    assert caught.value.kind == "garbled"


def test_a_refused_call(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="adjtimex: no"):
        kernel_clock(make_host(tmp_path, {}, commands=asked("", 1)))


def test_an_image_has_no_clock(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable):
        kernel_clock(make_host(tmp_path, {}, source="image"))


def test_the_running_kernel_answers() -> None:
    assert 0 <= adjtimex("")["max_error_us"] <= 16_000_000
    host = Host.live("/")
    try:
        assert kernel_clock(host).uptime_s
    finally:
        host.close()


@pytest.mark.parametrize(("error_us", "corrected"), [(48_000, True), (16_000_000, False)])
def test_without_a_known_service_the_kernel_is_asked(
    tmp_path: Path, error_us: int, *, corrected: bool
) -> None:
    answer = asked(f'{{"max_error_us":{error_us}}}')
    found = time_service(make_host(tmp_path, {}, processes=named("init"), commands=answer))
    assert (found.running, found.corrected) == ((), corrected)
