# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import pytest
from machines import numa
from trees import Tree, make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.hugepages import Pool, huge_pages, merged_pages
from gpuaudit.facts.isolation import isolated_cpus
from gpuaudit.facts.sysctlvalues import UNASKED, Sysctls, place, sysctls
from gpuaudit.facts.tuned import tuned
from gpuaudit.host import NotApplicable, Unavailable

CPU = "/sys/devices/system/cpu"
PAGES = "/sys/kernel/mm/hugepages/hugepages-2048kB"
TWO = numa("0-3", "4-7")


def share(node: int, pages: str) -> Tree:
    folder = f"/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB"
    return {f"{folder}/nr_hugepages": f"{pages}\n"}


@pytest.mark.parametrize(
    ("tree", "isolated", "nohz_full"),
    [
        ({f"{CPU}/isolated": "\n", f"{CPU}/nohz_full": "(null)\n"}, set(), set()),
        ({f"{CPU}/isolated": "2-3\n", f"{CPU}/nohz_full": "3\n"}, {2, 3}, {3}),
        (
            {f"{CPU}/isolated": "2\n", "/sys/fs/cgroup/cpuset.cpus.isolated": "4-5\n"},
            {2, 4, 5},
            set(),
        ),
        ({CPU: None}, set(), set()),
    ],
)
def test_isolated(tmp_path: Path, tree: Tree, isolated: set[int], nohz_full: set[int]) -> None:
    found = isolated_cpus(make_host(tmp_path, tree))
    assert found.isolated == frozenset(isolated)
    assert found.nohz_full == frozenset(nohz_full)


def test_isolation_that_cannot_be_told(tmp_path: Path) -> None:
    garbled = isolated_cpus(make_host(tmp_path / "a", {f"{CPU}/isolated": "x-y\n"}))
    unread = isolated_cpus(make_host(tmp_path / "b", {CPU: None}, source="plain"))
    for found in (garbled, unread):
        assert isinstance(found.isolated, Absent)


def test_pools_by_size_and_node(tmp_path: Path) -> None:
    tree = {
        f"{PAGES}/nr_hugepages": "10\n",
        f"{PAGES}/free_hugepages": "7\n",
        f"{PAGES}/resv_hugepages": "2\n",
        "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "0\n",
        **share(0, "10"),
        **share(1, "0"),
    }
    found = huge_pages(make_host(tmp_path, tree), TWO).pools
    assert found == (
        Pool(1048576, 0, 0, 0, {}),
        Pool(2048, 10, 7, 2, {0: 10, 1: 0}),
    )


def test_pools_that_cannot_be_told(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable):
        huge_pages(make_host(tmp_path / "a", {"/sys/kernel": None}), TWO)
    with pytest.raises(Unavailable):
        huge_pages(make_host(tmp_path / "b", {f"{PAGES}/nr_hugepages": "many\n"}), TWO)
    with pytest.raises(Unavailable):
        huge_pages(make_host(tmp_path / "c", {f"{PAGES}/nr_hugepages": "4\n"}), TWO)


def test_merging(tmp_path: Path) -> None:
    on = merged_pages(make_host(tmp_path / "a", {"/sys/kernel/mm/ksm/run": "1\n"}))
    none = merged_pages(make_host(tmp_path / "b", {"/sys/kernel": None}))
    assert on.run == 1
    assert isinstance(none.run, Absent)
    assert none.run.kind == "unsupported"


VALUES: Tree = {
    "/usr/lib/systemd/systemd-sysctl": "",
    "/run/systemd/system": None,
    "/proc/sys/vm/max_map_count": "65530\n",
    "/proc/sys/kernel/pid_max": "4194304\n",
    "/etc/sysctl.d/90-a.conf": "vm.max_map_count = 1048576\n",
    "/etc/tuned/active_profile": "a\n",
    "/etc/tuned/a/tuned.conf": "[sysctl]\nvm.dirty_ratio = 40\nvm.swappiness = ${x}\n",
    "/etc/systemd/system/multi-user.target.wants/tuned.service": "",
}


def values(folder: Path, tree: Tree, **more: Any) -> Sysctls:
    return sysctls(make_host(folder, tree, **more))


def test_running_values_and_their_files(tmp_path: Path) -> None:
    found = values(tmp_path, VALUES)
    assert found.applied
    assert found.now("vm.max_map_count") == ("65530", "/proc/sys/vm/max_map_count")
    assert found.now("fs.aio-max-nr")[0] is None
    setting = found.next_boot("vm.max_map_count")
    assert setting is not None
    assert place(setting) == "/etc/sysctl.d/90-a.conf:1"
    assert found.next_boot("kernel.pid_max") is None


def test_tuned_sets_what_no_file_does(tmp_path: Path) -> None:
    found = values(tmp_path, VALUES)
    setting = found.next_boot("vm.dirty_ratio")
    assert setting is not None
    assert place(setting) == "/etc/tuned/a/tuned.conf"
    assert found.next_boot("vm.swappiness") is None


def test_an_image_has_only_files(tmp_path: Path) -> None:
    found = values(tmp_path, VALUES, source="image")
    assert found.running == {}
    assert found.now("vm.max_map_count") == ("1048576", "/etc/sysctl.d/90-a.conf:1")
    assert found.now("kernel.pid_max") == (None, "")
    assert not found.applied


def test_a_key_that_is_not_read(tmp_path: Path) -> None:
    value, _ = values(tmp_path, VALUES).now("vm.laptop_mode")
    assert value == Absent("missing", UNASKED)


def test_values_that_were_not_recorded(tmp_path: Path) -> None:
    found = values(tmp_path, {"/proc/sys/vm/swappiness": "60\n"}, source="plain")
    assert isinstance(found.now("vm.max_map_count")[0], Absent)
    assert isinstance(found.files, Absent)


def test_a_container_is_told_nothing_of_the_boot(tmp_path: Path) -> None:
    inside = [{"pid": 1, "name": "bash", "state": "sleeping", "parent": None}]
    found = values(tmp_path, {**VALUES, "/.dockerenv": ""}, processes=inside)
    assert isinstance(found.files, Absent)
    assert found.by_tuned == {}


def test_a_profile_without_a_file_is_named(tmp_path: Path) -> None:
    tree = {**VALUES, "/etc/tuned/active_profile": "a gone\n"}
    assert tuned(make_host(tmp_path / "a", tree)).missing == ("gone",)
    assert tuned(make_host(tmp_path / "b", VALUES)).missing == ()


def test_what_was_not_recorded_of_tuned_is_not_absent(tmp_path: Path) -> None:
    plain = make_host(tmp_path / "a", {"/etc/tuned/active_profile": "a\n"}, source="plain")
    with pytest.raises(Unavailable, match="not recorded"):
        tuned(plain)
    units = "/etc/systemd/system/multi-user.target.wants"
    tree: Tree = {"/etc/tuned/active_profile": "a\n", f"{units}/tuned.service": ""}
    with pytest.raises(Unavailable, match="not recorded"):
        tuned(make_host(tmp_path / "b", tree, source="plain"))
