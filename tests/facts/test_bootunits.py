# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import pytest
from trees import Link, Tree, make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.bootunits import BootUnits, boot_units
from gpuaudit.facts.driver import DriverLibraries
from gpuaudit.facts.gpupersistence import PersistenceAtBoot, persistence_at_boot
from gpuaudit.host import NotApplicable, Unavailable

ETC, LIB = "/etc/systemd/system", "/usr/lib/systemd/system"
LIBRARIES = DriverLibraries(versions={"/usr/lib64/libcuda.so.570.1": "570.1"})
UNIT = "nvidia-persistenced.service"
STARTS = {f"{LIB}/{UNIT}": "[Service]\nExecStart=/usr/bin/nvidia-persistenced --verbose\n"}
OFF = {f"{LIB}/{UNIT}": "[Service]\nExecStart=/usr/bin/nvidia-persistenced --no-persistence-mode\n"}
WANTED = {f"{ETC}/multi-user.target.wants/{UNIT}": Link(f"{LIB}/{UNIT}")}
RULE = 'ACTION=="add", RUN+="/bin/systemctl start --no-block nvidia-persistenced.service"\n'
RULES = {"/usr/lib/udev/rules.d/71-nvidia.rules": f"# nvidia\n{RULE}"}


def units(folder: Path, tree: Tree, **more: Any) -> BootUnits:
    return boot_units(make_host(folder, tree, **more))


def test_wanted_by_a_target_of_the_boot(tmp_path: Path) -> None:
    tree = {
        f"{ETC}/multi-user.target.wants/a.service": "",
        f"{LIB}/timers.target.wants/b.timer": "",
        f"{ETC}/bluetooth.target.wants/c.service": "",
        f"{ETC}/graphical.target.wants/d.service": "",
        f"{ETC}/sysinit.target.requires/e.service": "",
    }
    assert units(tmp_path, tree).enabled == {"a.service", "b.timer", "e.service"}


def test_the_graphical_target_counts_where_it_is_the_default(tmp_path: Path) -> None:
    tree: dict[str, str | bytes | Link | None] = {
        f"{LIB}/graphical.target": "[Unit]\n",
        f"{LIB}/default.target": Link("graphical.target"),
        f"{LIB}/gdm.service": "[Service]\n",
        f"{ETC}/graphical.target.wants/d.service": "",
        f"{ETC}/display-manager.service": Link(f"{LIB}/gdm.service"),
    }
    wanted = {"d.service", "gdm.service", "display-manager.service"}
    assert units(tmp_path / "a", tree).enabled == wanted
    masked = {**tree, f"{ETC}/gdm.service": Link("/dev/null")}
    assert units(tmp_path / "c", masked).enabled == {"d.service"}
    headless = {**tree, f"{ETC}/default.target": Link(f"{LIB}/multi-user.target")}
    headless[f"{LIB}/multi-user.target"] = "[Unit]\n"
    assert units(tmp_path / "b", headless).enabled == set()


@pytest.mark.parametrize("source", ["snapshot", "image"])
def test_a_mask_wins(tmp_path: Path, source: Any) -> None:
    tree: Tree = {
        f"{ETC}/multi-user.target.wants/a.service": Link(f"{LIB}/a.service"),
        f"{LIB}/a.service": "[Service]\n",
        f"{ETC}/a.service": Link("/dev/null"),
    }
    assert units(tmp_path, tree, source=source).enabled == set()


def test_what_runs_has_a_control_group(tmp_path: Path) -> None:
    tree = {f"{ETC}/a.service": "", "/sys/fs/cgroup/system.slice/a.service": None}
    assert units(tmp_path / "a", tree).running == frozenset({"a.service"})
    old = {f"{ETC}/a.service": "", "/sys/fs/cgroup/systemd/system.slice/b.service": None}
    assert units(tmp_path / "b", old).running == frozenset({"b.service"})
    for number, more in enumerate(({"source": "image"}, {})):
        found = units(tmp_path / str(number), {f"{ETC}/a.service": ""}, **more).running
        assert isinstance(found, Absent)


def test_without_systemd(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable, match="systemd"):
        units(tmp_path / "a", {"/etc/inittab": ""})
    with pytest.raises(Unavailable):
        units(tmp_path / "b", {"/etc/inittab": ""}, source="plain")


def boot(folder: Path, tree: Tree, libraries: DriverLibraries = LIBRARIES) -> PersistenceAtBoot:
    host = make_host(folder, {f"{ETC}/x.service": "", **tree})
    return persistence_at_boot(host, boot_units(host), libraries)


@pytest.mark.parametrize(
    ("tree", "by", "but"),
    [
        ({**STARTS, **WANTED}, f"{LIB}/{UNIT}", ""),
        ({**STARTS, **RULES}, f"{LIB}/{UNIT}", ""),
        (STARTS, None, "not enabled"),
        ({}, None, "not installed"),
        ({**STARTS, **WANTED, f"{ETC}/{UNIT}": Link("/dev/null")}, None, "masked"),
        ({**OFF, **RULES}, None, "--no-persistence-mode"),
        (
            {
                **OFF,
                **RULES,
                f"{ETC}/{UNIT}.d/on.conf": "[Service]\nExecStart=\nExecStart=/usr/bin/nvidia-p\n",
            },
            f"{LIB}/{UNIT}",
            "",
        ),
        ({"/etc/rc.local": "#!/bin/sh\nnvidia-smi -pm 1\n"}, "/etc/rc.local", ""),
        ({"/etc/rc.local": "# nvidia-smi -pm 1\nnvidia-smi -pm 0\n"}, None, "not installed"),
        (
            {
                f"{ETC}/gpu.service": "[Service]\nExecStart=/usr/bin/nvidia-smi -pm ENABLED\n",
                f"{ETC}/multi-user.target.wants/gpu.service": Link("../gpu.service"),
            },
            f"{ETC}/gpu.service",
            "",
        ),
        (
            {f"{ETC}/gpu.service": "[Service]\nExecStart=/usr/bin/nvidia-smi -pm 1\n"},
            None,
            "not installed",
        ),
    ],
)
def test_who_turns_persistence_on(tmp_path: Path, tree: Tree, by: str | None, but: str) -> None:
    found = boot(tmp_path, tree)
    assert found.by == by
    assert (but in found.but) if but else not found.but


def test_no_driver_no_daemon(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable, match="no NVIDIA driver"):
        boot(tmp_path / "a", STARTS, DriverLibraries(versions={}))
    with pytest.raises(NotApplicable, match="container"):
        boot(tmp_path / "b", {"/run/nvidia/driver": None})
