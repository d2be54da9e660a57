# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import machine
from trees import make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.cores import THROTTLED, CpuCores, cpu_cores, cpu_throttling, places
from gpuaudit.facts.cpu import FOLDER, CpuSets
from gpuaudit.facts.cpusets import parse_list
from gpuaudit.host import NotApplicable, Unavailable


def sets(online: str) -> CpuSets:
    every = parse_list(online)
    return CpuSets(possible=every, present=every, online=every)


def cpuinfo(*rows: tuple[int, int, int]) -> str:
    return "\n\n".join(
        f"processor\t: {cpu}\nmodel name\t: X\nphysical id\t: {socket}\nsiblings\t: 2\n"
        f"core id\t\t: {core}\ncpu cores\t: 1"
        for cpu, socket, core in rows
    )


ROWS = ((0, 0, 0), (1, 1, 0), (2, 0, 0), (3, 1, 0))


def cpus(*lists: str) -> tuple[frozenset[int], ...]:
    return tuple(map(parse_list, lists))


THREE = frozenset({0, 1, 2})


def test_cores_and_sockets_of_x86(tmp_path: Path) -> None:
    found = cpu_cores(make_host(tmp_path, {"/proc/cpuinfo": cpuinfo(*ROWS)}), sets("0-3"))
    assert (found.cores, found.sockets) == (cpus("0,2", "1,3"), cpus("0,2", "1,3"))
    assert found.hybrid is False


def test_offline_cpus_do_not_count(tmp_path: Path) -> None:
    found = cpu_cores(make_host(tmp_path, {"/proc/cpuinfo": cpuinfo(*ROWS)}), sets("0-2"))
    assert found.cores == cpus("0,2", "1")


def test_cores_that_differ_though_no_cpu_is_offline_are_of_two_kinds(tmp_path: Path) -> None:
    tree = {"/proc/cpuinfo": cpuinfo(*ROWS)}
    missing = CpuSets(possible=sets("0-3").online, present=sets("0-3").online, online=THREE)
    offline = cpu_cores(make_host(tmp_path / "offline", tree), missing)
    assert offline.hybrid is False
    assert cpu_cores(make_host(tmp_path / "all", tree), sets("0-2")).hybrid is True
    known = tree | {"/sys/devices/cpu_atom/type": "10"}
    assert cpu_cores(make_host(tmp_path / "perf", known), missing).hybrid is True


def test_cores_by_siblings(tmp_path: Path) -> None:
    tree = {
        f"{FOLDER}/cpu0/topology/thread_siblings_list": "0-1\n",
        f"{FOLDER}/cpu1/topology/thread_siblings": "3\n",
        f"{FOLDER}/cpu2/topology/thread_siblings_list": "2\n",
        "/proc/cpuinfo": "processor\t: 0\nCPU part\t: 0xd4f\n",
    }
    found = cpu_cores(make_host(tmp_path, tree), sets("0-2"))
    assert found.cores == cpus("0-1", "2")
    assert isinstance(found.sockets, Absent)


@pytest.mark.parametrize("text", ["garbage", cpuinfo((0, 0, 0))])
def test_half_a_file_shows_no_architecture(tmp_path: Path, text: str) -> None:
    tree = {f"{FOLDER}/cpu{n}/topology/thread_siblings_list": f"{n}\n" for n in (0, 1)}
    found = cpu_cores(make_host(tmp_path, {**tree, "/proc/cpuinfo": text}), sets("0-1"))
    assert isinstance(found.sockets, Absent)
    assert found.sockets.kind == "missing"


def test_no_siblings(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        cpu_cores(make_host(tmp_path, {}, source="plain"), sets("0-1"))


def test_cpus_that_are_not_known(tmp_path: Path) -> None:
    gone = Absent("missing", "not recorded")
    with pytest.raises(Unavailable, match="not recorded"):
        cpu_cores(make_host(tmp_path, {}), CpuSets(possible=gone, present=gone, online=gone))


@given(st.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    places(text)
    places(f"processor : {text}\nphysical id : {text}\ncore id : {text}\n")


SOCKETS = CpuCores(cores=cpus("0", "1"), sockets=cpus("0", "1"))


def throttled(cpu: int) -> str:
    return f"{FOLDER}/cpu{cpu}/{THROTTLED}"


def test_time_of_each_socket(tmp_path: Path) -> None:
    host = make_host(tmp_path, {throttled(0): "12\n", throttled(1): "0\n"})
    found = cpu_throttling(host, SOCKETS, machine())
    assert found.counters() == {"socket 0": {"throttled-ms": 12}, "socket 1": {"throttled-ms": 0}}


def test_one_file_that_is_garbled(tmp_path: Path) -> None:
    host = make_host(tmp_path, {throttled(0): "12\n", throttled(1): "hot\n"})
    found = cpu_throttling(host, SOCKETS, machine())
    assert isinstance(found.by_socket["socket 1"], Absent)
    assert "socket 1" not in found.counters()


def test_amd_and_guests_and_arm_keep_no_time(tmp_path: Path) -> None:
    host = make_host(tmp_path, {})
    arm = CpuCores(cores=cpus("0"), sockets=Absent("unsupported", "no sockets"))
    for cores, where in ((SOCKETS, ""), (SOCKETS, "kvm"), (arm, "")):
        with pytest.raises(NotApplicable):
            cpu_throttling(host, cores, machine(where))


def test_a_time_that_was_not_recorded(tmp_path: Path) -> None:
    found = cpu_throttling(make_host(tmp_path, {}, source="plain"), SOCKETS, machine())
    assert found.counters() == {}


def test_a_file_that_was_not_recorded_shows_no_architecture(tmp_path: Path) -> None:
    tree = {f"{FOLDER}/cpu0/topology/thread_siblings_list": "0\n"}
    found = cpu_cores(make_host(tmp_path, tree, source="plain"), sets("0"))
    assert isinstance(found.sockets, Absent)
    assert found.sockets.kind == "missing"
    with pytest.raises(Unavailable, match="cpuinfo"):
        cpu_throttling(make_host(tmp_path / "b", {}, source="plain"), found, machine())
