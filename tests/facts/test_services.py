# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import pytest
from trees import Tree, make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.services import Irqbalance, irqbalance, processes, shell_settings
from gpuaudit.host import NotApplicable, Unavailable

KERNEL = {"pid": 2, "name": "kthreadd", "state": "sleeping", "parent": 0}
DAEMON = {"pid": 900, "name": "irqbalance", "state": "sleeping", "parent": 1}


def read(folder: Path, tree: Tree, *table: dict[str, Any]) -> Irqbalance:
    host = make_host(folder, tree, processes=list(table))
    return irqbalance(host, processes(host))


def test_it_runs(tmp_path: Path) -> None:
    assert read(tmp_path, {}, KERNEL, DAEMON).running is True


@pytest.mark.parametrize("table", [(), ({**DAEMON, "state": "zombie"},)])
def test_it_does_not_run(tmp_path: Path, table: tuple[dict[str, Any], ...]) -> None:
    assert read(tmp_path, {}, KERNEL, *table).running is False


def test_a_container_cannot_tell(tmp_path: Path) -> None:
    assert isinstance(read(tmp_path, {}).running, Absent)


def test_no_process_table(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        processes(make_host(tmp_path, {}, source="plain"))


def test_an_image_has_no_processes(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable):
        processes(make_host(tmp_path, {}, source="image"))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/etc/default/irqbalance", 'IRQBALANCE_ARGS="--oneshot"\n'),
        ("/etc/sysconfig/irqbalance", "IRQBALANCE_ONESHOT=yes\n"),
        ("/etc/default/irqbalance", "ONESHOT=1 # at boot\n"),
    ],
)
def test_one_shot(tmp_path: Path, path: str, text: str) -> None:
    found = read(tmp_path, {path: text}, KERNEL)
    assert found.one_shot
    assert found.config == path


def test_bans(tmp_path: Path) -> None:
    text = "#IRQBALANCE_BANNED_CPUS=f\nIRQBALANCE_BANNED_CPULIST=0-3\nOPTIONS='--banmod=mlx5'\n"
    found = read(tmp_path, {"/etc/sysconfig/irqbalance": text}, KERNEL)
    assert found.bans == ("IRQBALANCE_BANNED_CPULIST=0-3", "--banmod=mlx5")
    assert not found.one_shot


def test_long_names_are_cut_as_the_kernel_cuts_them(tmp_path: Path) -> None:
    long = {"pid": 7, "name": "nvidia-persiste", "state": "sleeping"}
    table = processes(make_host(tmp_path, {}, processes=[long]))
    assert table.running("nvidia-persistenced")
    assert not table.running("nvidia-fabricmanager")


def test_settings_of_shell_files() -> None:
    text = "export A='1 2'\nB=x # why\nB=y\n# C=z\nnonsense\nD=it's\n"
    assert shell_settings(text) == {"A": "1 2", "B": "y", "D": "it's"}
