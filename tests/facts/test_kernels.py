# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import pytest
from trees import Link, Tree, make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.bootunits import BootUnits
from gpuaudit.facts.driver import DriverLibraries
from gpuaudit.facts.kernels import (
    DriverModules,
    InstalledKernels,
    driver_modules,
    installed_kernels,
    is_driver,
)
from gpuaudit.facts.kernelsafety import init_on_alloc, vulnerabilities
from gpuaudit.facts.nextboot import NextKernel
from gpuaudit.host import NotApplicable, Unavailable

NEXT = NextKernel(release=Absent("missing", "no"), source="")
INSTALLED = DriverLibraries(versions={"/usr/lib/x86_64-linux-gnu/libcuda.so.570.1": "570.1"})
NO_LIBRARY = DriverLibraries(versions={})
KERNELS: Tree = {
    "/lib": Link("usr/lib"),
    "/boot/vmlinuz-6.1.0-9-amd64": b"MZ",
    "/boot/vmlinuz-6.1.0-13-amd64": b"MZ",
    "/usr/lib/modules/6.1.0-9-amd64/modules.dep": "kernel/a.ko:\n",
    "/usr/lib/modules/6.1.0-13-amd64/modules.dep": "kernel/a.ko:\n",
    "/usr/lib/modules/5.10.0-1-amd64/updates/dkms/nvidia.ko": b"",
    "/usr/lib/modules/6.5.0-1/vmlinuz": b"MZ",
    "/proc/sys/kernel/osrelease": "6.1.0-9-amd64\n",
}


def modules(folder: Path, tree: Tree, *, libraries: DriverLibraries = INSTALLED) -> DriverModules:
    host = make_host(folder, tree)
    units = BootUnits(enabled=frozenset({"dkms.service"}), running=frozenset())
    return driver_modules(host, installed_kernels(host), NEXT, units, libraries)


def test_what_can_be_booted_newest_last(tmp_path: Path) -> None:
    found = installed_kernels(make_host(tmp_path, KERNELS))
    assert found.releases == ("6.1.0-9-amd64", "6.1.0-13-amd64", "6.5.0-1")
    assert found.running == "6.1.0-9-amd64"


def test_an_image_runs_nothing(tmp_path: Path) -> None:
    assert installed_kernels(make_host(tmp_path, KERNELS, source="image")).running is None


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("updates/dkms/nvidia.ko.zst", ""),
        ("updates/dkms/nvidia-current.ko", ""),
        ("extra/nvidia.ko.xz", ""),
        ("weak-updates/nvidia/nvidia.ko", ""),
        ("kernel/drivers/video/nvidia.ko", ""),
        ("modules.dep", "kernel/nvidia-570-server-open/nvidia.ko: kernel/drivers/x.ko\n"),
        ("modules.dep", "extra/drivers/video/nvidia/nvidia.ko.xz:\n"),
    ],
)
def test_where_a_module_may_be(tmp_path: Path, path: str, content: str) -> None:
    tree = {**KERNELS, f"/usr/lib/modules/6.1.0-13-amd64/{path}": content}
    found = modules(tmp_path, tree)
    assert found.kernels["6.1.0-13-amd64"] is True
    assert found.kernels["6.1.0-9-amd64"] is False
    assert found.built_at_boot


@pytest.mark.parametrize(
    "name", ["nvidia-drm.ko", "nvidia-uvm.ko.xz", "nvidiafb.ko", "nvidia", "i2c-nvidia-gpu.ko"]
)
def test_what_is_no_driver(name: str) -> None:
    assert not is_driver(name)


def test_no_module_and_no_library_is_no_driver(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable, match="no kernel here"):
        modules(tmp_path, KERNELS, libraries=NO_LIBRARY)


def test_a_library_without_any_module_is_a_driver_that_is_missing(tmp_path: Path) -> None:
    assert not any(modules(tmp_path, KERNELS).kernels.values())


def test_libraries_of_a_driver_that_is_kept_elsewhere(tmp_path: Path) -> None:
    elsewhere = DriverLibraries(versions={"/home/kubernetes/bin/nvidia/lib64/libcuda.so.5": "5.1"})
    with pytest.raises(NotApplicable):
        modules(tmp_path, KERNELS, libraries=elsewhere)


def test_kernels_that_are_kept_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable, match="kept elsewhere"):
        modules(tmp_path, {"/proc/sys/kernel/osrelease": "6.1\n"})


def test_a_list_that_was_not_recorded_is_not_empty(tmp_path: Path) -> None:
    host = make_host(tmp_path, {"/lib/modules/6.1/kernel": None}, source="plain")
    kernels = InstalledKernels(releases=("6.1",), running=None)
    units = BootUnits(enabled=frozenset(), running=frozenset())
    found = driver_modules(host, kernels, NEXT, units, INSTALLED)
    assert isinstance(found.kernels["6.1"], Absent)


@pytest.mark.parametrize(
    ("tree", "enabled", "source"),
    [
        ({"/proc/cmdline": "init_on_alloc=1\n"}, True, "init_on_alloc=1 in /proc/cmdline"),
        ({"/proc/cmdline": "init_on_alloc=1 init_on_alloc=off\n"}, False, "init_on_alloc=off"),
        (
            {
                "/proc/cmdline": "ro\n",
                "/proc/sys/kernel/osrelease": "6.1\n",
                "/boot/config-6.1": "CONFIG_A=y\nCONFIG_INIT_ON_ALLOC_DEFAULT_ON=y\n",
            },
            True,
            "the kernel's default",
        ),
        (
            {
                "/proc/cmdline": "ro\n",
                "/proc/sys/kernel/osrelease": "6.1\n",
                "/boot/config-6.1": "# CONFIG_INIT_ON_ALLOC_DEFAULT_ON is not set\n",
            },
            False,
            "the kernel's default",
        ),
    ],
)
def test_what_clears_memory(tmp_path: Path, tree: Tree, enabled: Any, source: str) -> None:
    found = init_on_alloc(make_host(tmp_path, tree))
    assert found.enabled is enabled
    assert found.source.startswith(source)


def test_a_kernel_without_its_configuration(tmp_path: Path) -> None:
    tree = {"/proc/cmdline": "ro\n", "/proc/sys/kernel/osrelease": "6.1\n"}
    assert isinstance(init_on_alloc(make_host(tmp_path, tree)).enabled, Absent)


def test_flaws_are_read_by_name(tmp_path: Path) -> None:
    folder = "/sys/devices/system/cpu/vulnerabilities"
    found = vulnerabilities(make_host(tmp_path / "a", {f"{folder}/mds": "Not affected\n"}))
    assert found.by_name == {"mds": "Not affected"}
    for number, tree in enumerate(({folder: None}, {"/sys/devices": None})):
        with pytest.raises(Unavailable):
            vulnerabilities(make_host(tmp_path / str(number), tree))
