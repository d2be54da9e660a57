# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest
from trees import Tree, make_host

from gpuaudit.facts.bootunits import BootUnits
from gpuaudit.facts.driver import DriverLibraries
from gpuaudit.facts.updates import AutomaticUpdates, automatic_updates
from gpuaudit.host import NotApplicable, Unavailable

LIBRARIES = DriverLibraries(versions={"/usr/lib64/libcuda.so.570.1": "570.1"})
PERIODIC = "/etc/apt/apt.conf.d/20auto-upgrades"
STATUS = "/var/lib/dpkg/status"
DRIVER = "Package: nvidia-driver-570\nStatus: install ok installed\nVersion: 570.1\n\n"
OTHER = "Package: nvidia-settings\nStatus: hold ok installed\nVersion: 570.1\n\n"
APT: Tree = {
    "/usr/bin/unattended-upgrade": "",
    PERIODIC: 'APT::Periodic::Unattended-Upgrade "1";\n',
    STATUS: DRIVER + OTHER,
}


def updates(
    folder: Path,
    tree: Tree,
    *timers: str,
    libraries: DriverLibraries = LIBRARIES,
    source: str = "snapshot",
) -> AutomaticUpdates:
    units = BootUnits(enabled=frozenset(timers), running=frozenset())
    host = make_host(folder, tree, source=source)  # type: ignore[arg-type]  # tests name sources
    return automatic_updates(host, units, libraries)


def apt(folder: Path, tree: Tree) -> AutomaticUpdates:
    return updates(folder, {**APT, **tree}, "apt-daily-upgrade.timer")


@pytest.mark.parametrize(
    ("tree", "kept"),
    [
        ({}, None),
        ({STATUS: DRIVER.replace("install ok", "hold ok")}, "hold on nvidia-driver-570"),
        (
            {
                "/etc/apt/apt.conf.d/50unattended-upgrades": (
                    'Unattended-Upgrade::Package-Blacklist {\n  // "linux-";\n  "nvidia-";\n};\n'
                )
            },
            "Package-Blacklist nvidia-",
        ),
        (
            {
                "/etc/apt/apt.conf.d/50unattended-upgrades": (
                    'Unattended-Upgrade::Package-Blacklist {\n  // "nvidia-";\n  "vim";\n};\n'
                )
            },
            None,
        ),
        (
            {"/etc/apt/preferences.d/pin": "Package: src:*nvidia*\nPin: version 570.*\n"},
            "/etc/apt/preferences.d/pin",
        ),
        ({"/etc/apt/preferences.d/cuda": "Package: nsight\nPin-Priority: 600\n"}, None),
    ],
)
def test_what_holds_a_package_back(tmp_path: Path, tree: Tree, kept: str | None) -> None:
    found = apt(tmp_path, tree)
    assert (found.by, found.kept_by) == ("unattended-upgrades", kept)
    assert found.packages == ("nvidia-driver-570",)


@pytest.mark.parametrize(
    "tree",
    [
        {PERIODIC: 'APT::Periodic::Unattended-Upgrade "0";\n'},
        {PERIODIC: '// APT::Periodic::Unattended-Upgrade "1";\n'},
        {"/etc/apt/apt.conf.d/99off": 'APT::Periodic::Unattended-Upgrade "0";\n'},
    ],
)
def test_updates_that_are_off(tmp_path: Path, tree: Tree) -> None:
    assert apt(tmp_path, tree).by is None


def test_a_timer_that_is_off_updates_nothing(tmp_path: Path) -> None:
    assert updates(tmp_path, APT).by is None


@pytest.mark.parametrize(
    ("tree", "timer", "by", "kept"),
    [
        ({}, "dnf-automatic-install.timer", "dnf-automatic-install.timer", None),
        ({}, "dnf-automatic.timer", None, None),
        (
            {"/etc/dnf/automatic.conf": "[commands]\napply_updates = yes\n"},
            "dnf-automatic.timer",
            "dnf-automatic.timer",
            None,
        ),
        (
            {"/etc/dnf/plugins/versionlock.list": "# x\nnvidia-driver-3:570.1-1.el9.*\n"},
            "dnf-automatic-install.timer",
            "dnf-automatic-install.timer",
            "/etc/dnf/plugins/versionlock.list",
        ),
        (
            {"/etc/dnf/dnf.conf": "[main]\nexclude=kernel* nvidia*\n"},
            "dnf-automatic-install.timer",
            "dnf-automatic-install.timer",
            "/etc/dnf/dnf.conf",
        ),
        (
            {"/etc/dnf/dnf.conf": "[main]\nexclude=kernel*\n"},
            "dnf-automatic-install.timer",
            "dnf-automatic-install.timer",
            None,
        ),
    ],
)
def test_dnf(tmp_path: Path, tree: Tree, timer: str, by: str | None, kept: str | None) -> None:
    found = updates(tmp_path, {"/etc/hostname": "a\n", **tree}, timer)
    assert (found.by, found.kept_by) == (by, kept)


def test_no_driver_nothing_to_replace(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable):
        updates(tmp_path, APT, libraries=DriverLibraries(versions={}))


def test_settings_that_were_not_recorded(tmp_path: Path) -> None:
    tree = {"/usr/bin/unattended-upgrade": ""}
    with pytest.raises(Unavailable):
        updates(tmp_path, tree, "apt-daily-upgrade.timer", source="plain")


def test_a_program_that_was_not_recorded_is_not_absent(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="unattended-upgrade was not recorded"):
        updates(tmp_path, {PERIODIC: ""}, "apt-daily-upgrade.timer", source="plain")


def test_a_driver_that_came_otherwise_is_not_replaced(tmp_path: Path) -> None:
    timer = "dnf-automatic-install.timer"
    found = updates(tmp_path / "a", {"/usr/bin/nvidia-uninstall": ""}, timer)
    assert found.kept_by == "nvidia-installer, no package"
    operator = DriverLibraries(versions={"/run/nvidia/driver/usr/lib64/libcuda.so.570.1": "570.1"})
    with pytest.raises(NotApplicable):
        updates(tmp_path / "b", {}, timer, libraries=operator)
