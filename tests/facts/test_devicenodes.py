# SPDX-License-Identifier: Apache-2.0
"""Device files, MPS and the generation of the GPUs."""

from pathlib import Path
from typing import Any

import pytest
from fakenode import healthy_node
from gpufacts import scan
from trees import Tree, make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.devicenodes import device_nodes
from gpuaudit.facts.gpuscan import GpuScan
from gpuaudit.facts.mps import Mps, mps
from gpuaudit.facts.services import Processes
from gpuaudit.host import Host, NotApplicable, Status

BUS = scan(["0000:19:00.0"])
IMAGE = GpuScan(functions=None, handed_out=(), switches=(), listed=None, confined=None, image=True)
PARAMS = "ModifyDeviceFiles: 0\nDeviceFileUID: 0\nDeviceFileGID: 44\nDeviceFileMode: 432\n"
TREE: Tree = {
    "/proc/driver/nvidia/version": "NVRM version: x\n",
    "/proc/driver/nvidia/params": PARAMS,
    "/proc/devices": "Character devices:\n195 nvidia\n\nBlock devices:\n  7 loop\n",
    "/dev/nvidia0": b"",
    "/dev/nvidia-modeset": b"",
    "/usr/bin/nvidia-modprobe": b"",
}


def test_files_of_a_recording() -> None:
    found = device_nodes(healthy_node().host(), BUS)
    assert len(found.nodes) == 11
    assert found.nodes["nvidia3"] == Status("char", 0o666, 0, 0, 195, 3)
    assert found.majors == {"mem": 1, "nvidia": 195, "nvidiactl": 195, "nvidia-uvm": 508}
    assert found.makes_them is True


def test_files_of_a_live_node(tmp_path: Path) -> None:
    host = make_host(tmp_path, TREE, source="live")
    (tmp_path / "root/dev/nvidia0").chmod(0o640)
    (tmp_path / "root/usr/bin/nvidia-modprobe").chmod(0o755)
    found = device_nodes(host, BUS)
    node = found.nodes["nvidia0"]
    assert isinstance(node, Status)
    assert (node.kind, node.mode) == ("file", 0o640)
    assert {n: s.kind for n, s in found.nodes.items() if isinstance(s, Absent)} == {
        "nvidiactl": "missing",
        "nvidia-uvm": "missing",
        "nvidia-uvm-tools": "missing",
    }
    assert found.wanted == (0o660, 0, 44, False)
    assert found.makes_them is False


def test_what_was_not_recorded_is_not_missing(tmp_path: Path) -> None:
    found = device_nodes(make_host(tmp_path, TREE), BUS)
    assert isinstance(found.nodes["nvidia0"], Absent)
    assert found.nodes["nvidia0"].kind == "failed"
    assert isinstance(found.makes_them, Absent)


def test_garbled_parameters(tmp_path: Path) -> None:
    found = device_nodes(make_host(tmp_path, {**TREE, "/proc/driver/nvidia/params": "?"}), BUS)
    assert isinstance(found.wanted, Absent)


def test_where_there_is_no_driver(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable, match="not loaded"):
        device_nodes(make_host(tmp_path / "a", {"/proc/devices": ""}), BUS)
    with pytest.raises(NotApplicable, match="image"):
        device_nodes(make_host(tmp_path / "b", {}, source="image"), IMAGE)


def test_a_recording_keeps_the_status(tmp_path: Path) -> None:
    host = Host.snapshot(str(healthy_node().write(tmp_path / "node")))
    assert host.status("/dev/nvidiactl").minor == 255
    assert host.status("/dev/nvidiactl") is host.evidence.statuses["/dev/nvidiactl"]


def service(folder: Path, tree: Tree, *table: dict[str, Any]) -> Mps:
    rows = [{"pid": 1, "name": "systemd", "state": "sleeping"}, *table]
    host = make_host(folder, tree, processes=rows)
    return mps(host, Processes(processes=host.processes()), BUS)


def one(pid: int, parent: int = 1, **changes: Any) -> dict[str, Any]:
    return {"pid": pid, "name": "nvidia-cuda-mps", "state": "sleeping", "parent": parent, **changes}


def test_the_multi_process_service(tmp_path: Path) -> None:
    kernel = {"pid": 2, "name": "kthreadd", "state": "sleeping"}
    tree = {"/proc/11/status": "Name:\tx\nUid:\t1000\t1000\t1000\t1000\n"}
    found = service(tmp_path, tree, kernel, one(10), one(11, 10), one(12, state="zombie"))
    assert found.daemons == {10: None}
    assert found.servers == {11: 1000}
    assert found.orphans == (12,)
    assert found.hidden is None


def test_a_container_does_not_see_it(tmp_path: Path) -> None:
    assert service(tmp_path, {}).hidden is not None
