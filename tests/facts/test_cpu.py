# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest
from trees import Link, Tree, make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.cpu import cpu_sets, known, named, smt
from gpuaudit.host import Unavailable

CPU = "/sys/devices/system/cpu"


def test_possible_present_online(tmp_path: Path) -> None:
    tree = {f"{CPU}/possible": "0-79\n", f"{CPU}/present": "0-39\n", f"{CPU}/online": "1-39\n"}
    found = cpu_sets(make_host(tmp_path, tree))
    assert known(found.possible) > known(found.present) > known(found.online)
    assert known(found.present) - known(found.online) == {0}


def test_folders_stand_in_for_lists_of_old_recordings(tmp_path: Path) -> None:
    tree = {
        f"{CPU}/cpu0/topology/core_id": "0",
        f"{CPU}/cpu1/online": "0",
        f"{CPU}/cpu2/online": "1",
    }
    found = cpu_sets(make_host(tmp_path, tree, source="plain"))
    assert known(found.online) == {0, 2}
    assert known(found.present) == {0, 1, 2}


def test_folders_that_are_all_online_may_not_be_all(tmp_path: Path) -> None:
    """A recording may have left folders out: what is missing would count as all online."""
    tree = {f"{CPU}/cpu{n}/online": "1" for n in (0, 1)}
    found = cpu_sets(make_host(tmp_path, tree, source="plain"))
    assert known(found.online) == {0, 1}
    assert isinstance(found.present, Absent)


@pytest.mark.parametrize("text", ["", "0-x", "9-1"])
def test_garbled_lists_tell_nothing(tmp_path: Path, text: str) -> None:
    found = cpu_sets(make_host(tmp_path, {f"{CPU}/online": text}))
    with pytest.raises(Unavailable):
        known(found.online)


def test_smt_known_to_be_missing_is_unsupported(tmp_path: Path) -> None:
    control = smt(make_host(tmp_path, {f"{CPU}/online": "0"})).control
    assert isinstance(control, Absent)
    assert control.kind == "unsupported"


def test_smt_not_recorded_is_missing(tmp_path: Path) -> None:
    control = smt(make_host(tmp_path, {f"{CPU}/online": "0"}, source="plain")).control
    assert isinstance(control, Absent)
    assert control.kind == "missing"


def test_smt_behind_a_link(tmp_path: Path) -> None:
    tree: Tree = {f"{CPU}/smt": Link("real"), f"{CPU}/real/control": "off\n"}
    assert smt(make_host(tmp_path, tree)).control == "off"


def test_cpus_as_a_subject() -> None:
    assert named(frozenset({3})) == "CPU 3"
    assert named(frozenset({0, 1, 2, 9})) == "CPUs 0-2,9"
