# SPDX-License-Identifier: Apache-2.0
"""Container runtimes by their configuration files."""

from pathlib import Path
from typing import Any

import pytest
from fakenode.environment import CONTAINERD, NVIDIA_TOML, TOOLKIT, cdi_text
from fakenvml import DRIVER
from gpufacts import scan
from trees import Link, Tree, make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.container import Containers, containers
from gpuaudit.facts.containertoml import parse_toml
from gpuaudit.facts.containerways import MAY_BE_ON
from gpuaudit.facts.driver import DriverLibraries
from gpuaudit.facts.gpuscan import GpuScan
from gpuaudit.host import NotApplicable, Unavailable

LIBRARY = "/usr/lib/x86_64-linux-gnu/libcuda.so."
LIBRARIES = DriverLibraries(versions={f"{LIBRARY}{DRIVER}": DRIVER})
IMAGE = GpuScan(functions=None, handed_out=(), switches=(), listed=None, confined=None, image=True)
DOCKERD: dict[str, Any] = {"/usr/bin/dockerd": b""}
CONTAINERD_PROGRAM: dict[str, Any] = {"/usr/bin/containerd": b""}
CRIO_PROGRAM: dict[str, Any] = {"/usr/bin/crio": b""}
DAEMON_JSON, CONFIG = "/etc/docker/daemon.json", "/etc/containerd/config.toml"
SPECIFIED: dict[str, Any] = {"/etc/cdi/nvidia.yaml": cdi_text()}
NO_CDI = "[plugins.'io.containerd.cri.v1.runtime']\n  enable_cdi = false\n"


def probed(folder: Path, tree: Tree, source: Any = "snapshot", **bus: Any) -> Containers:
    host = make_host(folder, tree, source=source)
    seen = IMAGE if source == "image" else scan(["0000:19:00.0"], **bus)
    return containers(host, seen, LIBRARIES)


@pytest.mark.parametrize(
    ("tree", "how"),
    [
        (DOCKERD, None),
        (DOCKERD | {"/etc/docker/daemon.json": "{}"}, None),
        (
            DOCKERD | {"/usr/bin/nvidia-container-runtime-hook": b""},
            "nvidia-container-runtime-hook",
        ),
        (DOCKERD | SPECIFIED | {DAEMON_JSON: '{"features": {"cdi": true}}'}, "CDI"),
        (DOCKERD | {DAEMON_JSON: '{"features": {"cdi": true}}'}, None),
        (DOCKERD | SPECIFIED | {DAEMON_JSON: '{"features": {"cdi": false}}'}, None),
        (DOCKERD | SPECIFIED, MAY_BE_ON),
        (
            DOCKERD
            | {
                "/etc/docker/daemon.json": '{"runtimes": {"nvidia": '
                '{"path": "nvidia-container-runtime"}, "odd": 1}}'
            },
            "runtime nvidia",
        ),
        (CONTAINERD_PROGRAM, None),
        (CONTAINERD_PROGRAM | {"/etc/containerd/config.toml": CONTAINERD}, None),
        (CONTAINERD_PROGRAM | {"/etc/containerd/config.toml": NVIDIA_TOML}, "runtime nvidia"),
        (CONTAINERD_PROGRAM | SPECIFIED, MAY_BE_ON),
        (CONTAINERD_PROGRAM | SPECIFIED | {CONFIG: "[a]\nenable_cdi = true\n"}, "CDI"),
        (CONTAINERD_PROGRAM | SPECIFIED | {CONFIG: "[a]\nenable_cdi = false # = true\n"}, None),
        (CONTAINERD_PROGRAM | SPECIFIED | {CONFIG: "version = 2\n"}, None),
        (CONTAINERD_PROGRAM | SPECIFIED | {CONFIG: "version = 3\n"}, "CDI"),
        (CONTAINERD_PROGRAM | SPECIFIED | {CONFIG: "version = 4\n"}, "CDI"),
        (CONTAINERD_PROGRAM | {CONFIG: "version = 3\n"}, None),
        (CONTAINERD_PROGRAM | SPECIFIED | {CONFIG: f"version = 3\n{NO_CDI}"}, None),
        (
            CONTAINERD_PROGRAM
            | {
                "/etc/containerd/config.toml": CONTAINERD,
                "/etc/containerd/conf.d/1.toml": NVIDIA_TOML,
            },
            "runtime nvidia",
        ),
        (CRIO_PROGRAM, None),
        (CRIO_PROGRAM | {"/etc/crio/crio.conf.d/9.conf": NVIDIA_TOML}, "runtime nvidia"),
        (CRIO_PROGRAM | {"/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json": "{}"}, "hook"),
        (CRIO_PROGRAM | {"/var/run/cdi/nvidia.yaml": cdi_text()}, "CDI"),
    ],
)
def test_ways_to_the_gpus(tmp_path: Path, tree: Tree, how: str | Absent | None) -> None:
    assert [way.how for way in probed(tmp_path, tree).ways] == [how]


def test_garbled_files_tell_nothing(tmp_path: Path) -> None:
    bad: dict[str, Any] = {
        "/etc/docker/daemon.json": "{",
        "/etc/containerd/config.toml": "version\n",
    }
    found = probed(tmp_path, DOCKERD | CONTAINERD_PROGRAM | bad)
    assert [type(way.how) for way in found.ways] == [Absent, Absent]
    assert isinstance(found.docker, Absent)


def test_specifications(tmp_path: Path) -> None:
    tree: Tree = {
        "/etc/cdi/nvidia.yaml": cdi_text("550.54.15", 2),
        "/etc/cdi/other.json": '{"kind": "example.com/nic", "path": "/dev/nvidia9"}',
        "/dev/nvidia0": b"",
        "/etc/nvidia-container-runtime/config.toml": TOOLKIT,
        "/usr/lib/x86_64-linux-gnu/libnvidia-container.so.1": Link("libnvidia-container.so.1.17.8"),
        "/usr/lib/x86_64-linux-gnu/libnvidia-container.so.1.17.8": b"",
    }
    found = probed(tmp_path, tree)
    assert not isinstance(found.specs, Absent)
    (spec,) = found.specs
    assert (sorted(spec.releases), sorted(spec.devices)) == (["550.54.15"], [0, 1])
    assert found.missing == {"/dev/nvidia1", "/sbin/ldconfig", "/sbin/ldconfig.real"}
    assert found.toolkit_release == "1.17.8"
    assert found.libraries == {DRIVER}
    assert found.ways == ()


def test_an_image_has_no_devices_and_its_files_count(tmp_path: Path) -> None:
    found = probed(tmp_path, {"/etc/cdi/nvidia.yaml": cdi_text()}, "image")
    assert not isinstance(found.specs, Absent)
    assert len(found.specs) == 1
    assert found.missing == frozenset()


def test_where_nothing_can_be_said(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable):
        probed(tmp_path / "a", {}, confined="a Docker container")
    with pytest.raises(Unavailable):
        probed(tmp_path / "b", {}, "plain")
    host = make_host(tmp_path / "c", {}, source="image")
    with pytest.raises(NotApplicable):
        containers(host, IMAGE, DriverLibraries(versions={}))


def test_toml() -> None:
    text = """
version = 2 # the older one
imports = [
  "/etc/a/*.toml", # first
  '/b',
]
title = "a # b = \\"c\\""
[plugins."io.x.y".run]
  on = true
  "odd=key" = 'raw\\n'
  n = -3
  inline = {a = 1}
[[list]]
  x = []
"""
    assert parse_toml(text, "f") == {
        ("version",): 2,
        ("imports",): ("/etc/a/*.toml", "/b"),
        ("title",): 'a # b = "c"',
        ("plugins", "io.x.y", "run", "on"): True,
        ("plugins", "io.x.y", "run", "odd=key"): "raw\\n",
        ("plugins", "io.x.y", "run", "n"): -3,
        ("plugins", "io.x.y", "run", "inline"): "{a = 1}",
        ("list", "x"): (),
    }


@pytest.mark.parametrize("text", ["nonsense", "= 1", "[a\nb", "x y z"])
def test_what_is_no_toml_is_refused(text: str) -> None:
    with pytest.raises(Unavailable, match="is no TOML"):
        parse_toml(text, "f")
