# SPDX-License-Identifier: Apache-2.0
"""Fabric Manager: process, unit and version."""

from pathlib import Path

import pytest
from fakenode import FakeNode, breaking, healthy_node
from fakenode.commands import fabric_manager
from fakenvml import DRIVER
from trees import Link, Tree, make_host

from gpuaudit.engine import Facts
from gpuaudit.facts.base import Absent
from gpuaudit.facts.fabric import UNIT, FabricProcess, FabricUnit, FabricVersion
from gpuaudit.host import NotApplicable

ETC, LIB = "/etc/systemd/system", "/usr/lib/systemd/system"
WANTS = f"{ETC}/multi-user.target.wants/{UNIT}"
DPKG = (
    "Package: bash\nStatus: install ok installed\nVersion: 5.2-1\n\n"
    "Package: nvidia-fabricmanager-570\nStatus: install ok installed\nVersion: 570.86.15-0ubuntu1\n"
)


@pytest.fixture
def node() -> FakeNode:
    return healthy_node()


def test_the_process(node: FakeNode) -> None:
    assert Facts(node.host()).get(FabricProcess).running is True
    breaking.stop(node, 1650)
    assert Facts(node.host()).get(FabricProcess).running is False


def test_an_unrecorded_process_table_is_unknown(tmp_path: Path) -> None:
    host = make_host(tmp_path, {"/etc/hostname": "x"}, source="plain")
    assert isinstance(Facts(host).get(FabricProcess).running, Absent)


def test_an_image_has_no_processes(tmp_path: Path) -> None:
    host = make_host(tmp_path, {"/etc/hostname": "x"}, source="image")
    with pytest.raises(NotApplicable):
        Facts(host).get(FabricProcess)


@pytest.mark.parametrize("source", ["snapshot", "image"])
@pytest.mark.parametrize(
    ("tree", "state"),
    [
        ({f"{LIB}/{UNIT}": "[Unit]", WANTS: Link(f"{LIB}/{UNIT}")}, "enabled"),
        ({f"{LIB}/{UNIT}": "[Unit]", f"{ETC}/x.conf": ""}, "disabled"),
        ({f"{LIB}/{UNIT}": "[Unit]", f"{ETC}/{UNIT}": Link("/dev/null")}, "masked"),
        ({f"{ETC}/x.conf": ""}, "not installed"),
    ],
)
def test_the_unit(tmp_path: Path, tree: Tree, state: str, source: str) -> None:
    tree = {**tree, "/usr/lib/systemd/systemd": "", "/lib": Link("usr/lib"), "/dev/zero": ""}
    host = make_host(tmp_path, tree, source=source)  # type: ignore[arg-type]  # parametrized
    assert Facts(host).get(FabricUnit) == FabricUnit(state=state)  # type: ignore[arg-type]  # the same


def test_an_unrecorded_unit_is_unknown(tmp_path: Path) -> None:
    host = make_host(tmp_path, {"/etc/hostname": "x"}, source="plain")
    assert isinstance(Facts(host).get(FabricUnit).state, Absent)


def test_the_program_tells_its_version(node: FakeNode) -> None:
    assert Facts(node.host()).get(FabricVersion) == FabricVersion(manager=DRIVER, driver=DRIVER)


@pytest.mark.parametrize(
    ("stdout", "returncode", "known"),
    [("", 0, False), ("Fabric Manager version is : 535.54.03", 1, False), ("535.54", 0, True)],
)
def test_output_that_is_no_version(
    node: FakeNode, stdout: str, returncode: int, known: bool
) -> None:
    output = {"returncode": returncode, "stdout": stdout}
    node.commands = [{"argv": ["nv-fabricmanager", "--version"], "output": output}]
    assert isinstance(Facts(node.host()).get(FabricVersion).manager, str) is known


def test_the_package_stands_in_for_the_program(node: FakeNode) -> None:
    node.commands = []
    node.files.pop("/var/lib/dpkg/status", None)
    assert isinstance(Facts(node.host()).get(FabricVersion).manager, Absent)
    node.files["/var/lib/dpkg/status"] = DPKG
    assert Facts(node.host()).get(FabricVersion).manager == "570.86.15"
    node.files["/var/lib/dpkg/status"] = DPKG.replace("install ok installed", "deinstall ok x")
    assert isinstance(Facts(node.host()).get(FabricVersion).manager, Absent)


def test_an_image_compares_with_the_library(tmp_path: Path) -> None:
    folder = "/usr/lib/x86_64-linux-gnu"
    tree: Tree = {
        f"{folder}/libcuda.so.570.86.10": "",
        f"{folder}/libcuda.so.1": Link("libcuda.so.570.86.10"),
        "/var/lib/dpkg/status": DPKG,
    }
    found = Facts(make_host(tmp_path, tree, source="image")).get(FabricVersion)
    assert found == FabricVersion(manager="570.86.15", driver="570.86.10")


def test_after_an_update_the_next_driver_counts(node: FakeNode) -> None:
    """The kernel still runs the old one: that is driver-library-match's to say."""
    text = str(node.files["/proc/driver/nvidia/version"])
    node.files["/proc/driver/nvidia/version"] = text.replace(DRIVER, "550.90.07")
    node.commands = [fabric_manager(DRIVER)]
    assert Facts(node.host()).get(FabricVersion).driver == DRIVER
