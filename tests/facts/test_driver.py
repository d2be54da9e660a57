# SPDX-License-Identifier: Apache-2.0
"""The kernel driver, its libraries, nouveau and GPUDirect RDMA."""

from pathlib import Path

import pytest
from fakenode import FakeNode, breaking, healthy_node
from fakenode.driver import PROPRIETARY, version_text
from fakenvml import DRIVER
from trees import Link, Source, Tree, make_host

from gpuaudit.engine import Facts
from gpuaudit.facts.base import Absent
from gpuaudit.facts.driver import (
    NO_DRIVER_IN_IMAGE,
    NOT_LOADED,
    DriverLibraries,
    GpuDirect,
    KernelDriver,
    Nouveau,
    keeps_out,
)
from gpuaudit.facts.gpuscan import NO_GPU
from gpuaudit.host import NotApplicable, Unavailable

GPU = "/sys/bus/pci/devices/0000:01:00.0"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
ONE_GPU = {f"{GPU}/vendor": "0x10de", f"{GPU}/device": "0x2330", f"{GPU}/class": "0x030200"}


@pytest.fixture
def node() -> FakeNode:
    return healthy_node()


def test_the_open_driver(node: FakeNode) -> None:
    found = Facts(node.host()).get(KernelDriver)
    assert found == KernelDriver(loaded=True, version=DRIVER, flavour="open")


@pytest.mark.parametrize(
    ("line", "version", "flavour"),
    [
        (version_text(PROPRIETARY, "535.54.03"), "535.54.03", "proprietary"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  590.48  Tue\n", "590.48", "proprietary"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.1.2  x", "580.1.2", "open"),
    ],
)
def test_version_texts(tmp_path: Path, line: str, version: str, flavour: str) -> None:
    host = make_host(tmp_path, {**ONE_GPU, "/proc/driver/nvidia/version": line})
    found = Facts(host).get(KernelDriver)
    assert (found.version, found.flavour) == (version, flavour)


def test_a_garbled_version_text_is_not_guessed(tmp_path: Path) -> None:
    host = make_host(tmp_path, {**ONE_GPU, "/proc/driver/nvidia/version": "\0\0?"})
    found = Facts(host).get(KernelDriver)
    assert found.loaded
    assert isinstance(found.version, Absent)
    assert isinstance(found.flavour, Absent)


def test_the_module_file_is_enough_for_the_version(tmp_path: Path) -> None:
    host = make_host(tmp_path, {**ONE_GPU, "/sys/module/nvidia/version": "570.1.2\n"})
    assert Facts(host).get(KernelDriver).version == "570.1.2"


def test_no_driver_is_known_to_be_none(tmp_path: Path) -> None:
    found = Facts(make_host(tmp_path, ONE_GPU)).get(KernelDriver)
    assert not found.loaded
    assert found.version == Absent("missing", NOT_LOADED)


def test_an_unrecorded_driver_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="not recorded"):
        Facts(make_host(tmp_path, ONE_GPU, source="plain")).get(KernelDriver)


def test_without_a_gpu_there_is_nothing_to_ask(tmp_path: Path) -> None:
    host = make_host(tmp_path, {"/sys/bus/pci/devices/0000:00:00.0/vendor": "0x8086"})
    for fact in (KernelDriver, Nouveau, GpuDirect):
        with pytest.raises(NotApplicable, match=NO_GPU):
            Facts(host).get(fact)


def libraries(version: str) -> Tree:
    return {
        f"{LIBRARIES}/libcuda.so.{version}": "",
        f"{LIBRARIES}/libcuda.so.1": Link(f"libcuda.so.{version}"),
        "/usr/lib64/libnvidia-ml.so.550.54.14": "",
        "/usr/lib64/libnvidia-ml.so.1": "not a link",
    }


@pytest.mark.parametrize("source", ["snapshot", "image", "plain", "live"])
def test_libraries_are_followed(tmp_path: Path, source: Source) -> None:
    host = make_host(tmp_path, libraries("570.86.15"), source=source)
    found = Facts(host).get(DriverLibraries)
    assert found.versions == {f"{LIBRARIES}/libcuda.so.570.86.15": "570.86.15"}


@pytest.mark.parametrize("module", ["nouveau", "nova_core", "nova_drm"])
def test_other_drivers_are_seen(node: FakeNode, module: str) -> None:
    assert Facts(node.host()).get(Nouveau) == Nouveau(loaded=(), kept_out=None)
    node.files[f"/sys/module/{module}/refcnt"] = "0\n"
    assert Facts(node.host()).get(Nouveau).loaded == (module,)


@pytest.mark.parametrize(
    ("text", "kept_out"),
    [
        ("blacklist nouveau\n", True),
        ("# x\n  install nouveau /bin/false\n", True),
        ("install nouveau /usr/bin/true", True),
        ("# blacklist nouveau\n", False),
        ("blacklist nouveau_vendor\n", False),
        ("options nouveau modeset=0\n", False),
    ],
)
def test_the_blacklist_of_an_image(tmp_path: Path, text: str, kept_out: bool) -> None:
    assert keeps_out(text) is kept_out
    tree = {**libraries("570.86.15"), "/etc/modprobe.d/a.conf": text}
    host = make_host(tmp_path, tree, source="image")
    assert Facts(host).get(Nouveau) == Nouveau(loaded=(), kept_out=kept_out)


def test_an_image_without_the_driver_is_not_judged(tmp_path: Path) -> None:
    host = make_host(tmp_path, {"/etc/modprobe.d/a.conf": ""}, source="image")
    with pytest.raises(NotApplicable, match=NO_DRIVER_IN_IMAGE):
        Facts(host).get(Nouveau)


def test_gpudirect_of_the_healthy_node(node: FakeNode) -> None:
    found = Facts(node.host()).get(GpuDirect)
    assert len(found.adapters) == 10
    assert found.peermem_loaded
    assert found.registered


def test_gpudirect_without_its_module(node: FakeNode) -> None:
    breaking.remove(node, "/sys/module/nvidia_peermem", "/sys/kernel/mm/memory_peers")
    found = Facts(node.host()).get(GpuDirect)
    assert not found.peermem_loaded
    assert not found.registered


def test_software_rdma_and_efa_need_no_peer_memory(tmp_path: Path) -> None:
    tree: Tree = {
        **ONE_GPU,
        "/sys/class/infiniband/rxe0/fw_ver": "",
        "/sys/class/infiniband/efa_0/device/driver": Link("/sys/bus/pci/drivers/efa"),
        "/sys/bus/pci/drivers/efa": None,
        "/sys/class/infiniband/bnxt_re0/device/driver": Link("/sys/bus/pci/drivers/bnxt_en"),
        "/sys/bus/pci/drivers/bnxt_en": None,
    }
    assert Facts(make_host(tmp_path, tree)).get(GpuDirect).adapters == ("bnxt_re0",)


@pytest.mark.parametrize(
    ("layers", "ethernet"),
    [(("Ethernet",), True), (("Ethernet", "InfiniBand"), False), (("",), False), ((), False)],
)
def test_adapters_that_are_all_ethernet(
    tmp_path: Path, layers: tuple[str, ...], ethernet: bool
) -> None:
    card = "/sys/class/infiniband/mlx5_0"
    tree: Tree = {
        **ONE_GPU,
        f"{card}/device/driver": Link("/sys/bus/pci/drivers/mlx5_core"),
        "/sys/bus/pci/drivers/mlx5_core": None,
        **{f"{card}/ports/{i}/link_layer": layer for i, layer in enumerate(layers, 1)},
    }
    assert Facts(make_host(tmp_path, tree)).get(GpuDirect).ethernet_only is ethernet
