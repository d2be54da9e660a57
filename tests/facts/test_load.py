# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import pytest
from trees import make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.load import TOP, load, stuck_processes, zombies
from gpuaudit.facts.services import Processes
from gpuaudit.host import NotApplicable, Process, Unavailable

LOADAVG = {"/proc/loadavg": "1.25 0.50 0.10 2/900 4711\n"}
SOME = "some avg10=0.00 avg60=2.50 avg300=0.00 total=1\n"
FULL = "full avg10=0.00 avg60=1.50 avg300=0.00 total=1\n"
HUNG = "/proc/sys/kernel/hung_task"
DETECTS = {f"{HUNG}_timeout_secs": "120\n", f"{HUNG}_warnings": "10\n"}
SILENT = {**DETECTS, f"{HUNG}_warnings": "0\n"}
NOW = {"/proc/uptime": "10000.00 9.00\n"}
BOOT = "6,0,0,-;Linux version 6.14.0 (a@b)\n"


def process(pid: int, state: str, parent: int = 1, name: str = "python") -> Process:
    return Process(pid=pid, name=name, state=state, parent=parent)


def table(*processes: Process) -> Processes:
    return Processes(processes=processes)


def line(pid: int, seconds: int = 900) -> str:
    text = f"INFO: task python:{pid} blocked for more than 122 seconds."
    return f"3,7,{seconds}000000,-;{text}\n"


def test_load_and_pressure(tmp_path: Path) -> None:
    files = {f"/proc/pressure/{name}": SOME + FULL for name in ("cpu", "memory", "io")}
    found = load(make_host(tmp_path, LOADAVG | files))
    assert found.one_minute == 1.25
    assert found.pressure == {"cpu": 2.5, "memory": 1.5, "io": 1.5}


@pytest.mark.parametrize("text", ["", "busy", SOME, "full avg60=lots"])
def test_pressure_that_is_none(tmp_path: Path, text: str) -> None:
    found = load(make_host(tmp_path, {**LOADAVG, "/proc/pressure/io": text})).pressure
    assert isinstance(found["io"], Absent)
    assert (found["io"].kind, found["cpu"].kind) == ("failed", "unsupported")  # type: ignore[union-attr]  # absent too


@pytest.mark.parametrize("text", ["", "many 1 2"])
def test_a_garbled_load(tmp_path: Path, text: str) -> None:
    with pytest.raises(Unavailable, match="loadavg"):
        load(make_host(tmp_path, {"/proc/loadavg": text}))


def test_an_image_has_no_load(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable):
        load(make_host(tmp_path, {}, source="image"))


def test_processes_that_wait(tmp_path: Path) -> None:
    tree = {
        "/proc/42/status": "Name:\tpython\nvoluntary_ctxt_switches:\t70\n"
        "nonvoluntary_ctxt_switches:\t7\n",
        "/proc/42/wchan": "nfs_wait_bit",
        "/proc/43/wchan": "0",
    }
    kernel = process(9, "disk-sleep", 2, "kworker/0:1")
    waiting = (process(42, "disk-sleep"), process(43, "disk-sleep"), process(44, "sleeping"))
    found = stuck_processes(make_host(tmp_path, tree), table(kernel, *waiting))
    assert [(one.pid, one.waits_in, one.switches) for one in found.hanging] == [
        (42, "nfs_wait_bit", 77),
        (43, "", None),
    ]
    assert found.counters() == {"process 42": {"context-switches": 77}}
    assert isinstance(found.reported, Absent)


def test_a_frozen_control_group_does_not_hang(tmp_path: Path) -> None:
    host = make_host(tmp_path, {"/proc/42/wchan": "__refrigerator"})
    found = stuck_processes(host, table(process(42, "disk-sleep")))
    assert (found.hanging, found.count, found.reported) == ((), 0, frozenset())


def test_only_some_of_many_are_looked_at(tmp_path: Path) -> None:
    many = (process(100 + n, "disk-sleep") for n in range(3 * TOP))
    host = make_host(tmp_path, {})
    found = stuck_processes(host, table(*many))
    assert (len(found.hanging), found.count) == (TOP, 3 * TOP)


def test_nothing_is_read_of_a_node_at_rest(tmp_path: Path) -> None:
    host = make_host(tmp_path, {"/dev/kmsg": BOOT + line(42)})
    assert stuck_processes(host, table(process(42, "sleeping"))).reported == frozenset()
    assert not host.evidence.files


@pytest.mark.parametrize(
    ("tree", "reported"),
    [
        ({**DETECTS, "/dev/kmsg": BOOT + line(42)}, frozenset({42})),
        ({**DETECTS, "/dev/kmsg": BOOT + line(77)}, frozenset()),
        ({**DETECTS, **NOW, "/dev/kmsg": BOOT + line(42, 9800)}, frozenset({42})),
        ({**DETECTS, **NOW, "/dev/kmsg": BOOT + line(42) + line(42, 1020)}, frozenset()),
        ({**SILENT, **NOW, "/dev/kmsg": BOOT + line(42) + line(42, 1020)}, frozenset({42})),
        ({**SILENT, **NOW, "/dev/kmsg": BOOT + line(42) + line(77, 901)}, None),
        ({**SILENT, **NOW, "/dev/kmsg": BOOT + line(42) + line(42, 1020) + line(7, 5000)}, None),
        ({**DETECTS, "/dev/kmsg": BOOT}, frozenset()),
        ({"/dev/kmsg": BOOT + line(42)}, frozenset({42})),
        ({"/dev/kmsg": BOOT}, None),
        ({**DETECTS, f"{HUNG}_timeout_secs": "0", "/dev/kmsg": BOOT}, None),
        ({**DETECTS, f"{HUNG}_warnings": "0", "/dev/kmsg": BOOT}, None),
        ({**DETECTS, "/dev/kmsg": "6,99,990000000,-;eth0: up\n"}, None),
        (DETECTS, None),
    ],
)
def test_what_the_kernel_reported(
    tmp_path: Path, tree: dict[str, str], reported: frozenset[int] | None
) -> None:
    found = stuck_processes(make_host(tmp_path, tree), table(process(42, "disk-sleep"))).reported
    assert isinstance(found, Absent) if reported is None else found == reported


def test_zombies_by_parent(tmp_path: Path) -> None:
    tree: dict[str, Any] = {
        "/proc/51/task/51": None,
        "/proc/51/task/55": None,
        "/proc/52/task/52": None,
    }
    dead = (process(51, "zombie", 7), process(52, "zombie", 7), process(53, "zombie", 6))
    found = zombies(make_host(tmp_path, tree), table(process(7, "sleeping", name="sh"), *dead))
    assert found.by_parent == {"sh": 2, "an unseen process": 1}
    assert [one.pid for one in found.alive] == [51]
