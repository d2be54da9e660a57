# SPDX-License-Identifier: Apache-2.0
"""The driver checks, by facts made by hand."""

from typing import Any

import pytest
from fakenvml import DRIVER
from gpufacts import (
    changed,
    findings,
    function,
    gpus,
    machine,
    only,
    policy,
    scan,
    section,
    silent,
    verdicts,
)

from gpuaudit.facts.base import Absent
from gpuaudit.facts.driver import DriverLibraries, GpuDirect, KernelDriver, Nouveau
from gpuaudit.facts.generation import Generation, GpuKind, chip
from gpuaudit.host import NotApplicable, Unavailable

HEALTHY = gpus()
BUS = scan(["0000:19:00.0"])
ABSENT = Absent("missing", "the NVIDIA kernel driver is not loaded")
OPEN = KernelDriver(loaded=True, version=DRIVER, flavour="open")
CLOSED = KernelDriver(loaded=True, version=DRIVER, flavour="proprietary")
NONE = KernelDriver(loaded=False, version=ABSENT, flavour=ABSENT)
FOLDER = "/usr/lib/x86_64-linux-gnu"
LIBRARIES = DriverLibraries(versions={f"{FOLDER}/libnvidia-ml.so.{DRIVER}": DRIVER})


def test_loaded() -> None:
    loaded = function("driver-loaded")
    assert verdicts(loaded(OPEN)) == ["pass"]
    assert only(loaded(NONE)).message == "not loaded"


def matched(driver: KernelDriver, libraries: dict[str, str], found: Any, **bus: Any) -> Any:
    match = function("driver-library-match")
    return match(driver, DriverLibraries(versions=libraries), scan(["0000:19:00.0"], **bus), found)


def test_library_match() -> None:
    assert verdicts(matched(OPEN, LIBRARIES.versions, HEALTHY)) == ["pass", "pass"]
    assert verdicts(matched(OPEN, {}, HEALTHY)) == ["pass"]
    old = {f"{FOLDER}/libcuda.so.550.1.2": "550.1.2"}
    assert only(matched(OPEN, old, HEALTHY)).observed == "550.1.2"


def test_library_match_when_nvml_refuses() -> None:
    refused = silent("version-mismatch")
    assert verdicts(matched(OPEN, LIBRARIES.versions, refused)) == ["pass", "fail"]
    old = {f"{FOLDER}/libnvidia-ml.so.550.1.2": "550.1.2"}
    assert verdicts(matched(OPEN, old, refused)) == ["fail"], "one cause, one failure"


def test_library_match_without_the_library() -> None:
    missing = silent("library-missing", "libnvidia-ml.so.1 is not found.")
    cuda = {f"{FOLDER}/libcuda.so.{DRIVER}": DRIVER}
    assert "not installed" in only(matched(OPEN, cuda, missing)).message
    with pytest.raises(Unavailable, match="not found"):
        findings(matched(OPEN, {}, missing, confined="a container"))
    assert verdicts(matched(OPEN, {}, silent("no-permission"))) == ["unknown"]


def test_library_match_needs_the_driver() -> None:
    for driver in (NONE, KernelDriver(loaded=True, version=ABSENT, flavour="open")):
        with pytest.raises(Unavailable, match="not loaded"):
            findings(matched(driver, LIBRARIES.versions, HEALTHY))


@pytest.mark.parametrize(
    ("driver", "pci_id", "verdict"),
    [
        (OPEN, "10de:2330", "pass"),
        (CLOSED, "10de:2330", "pass"),
        (OPEN, "10de:2901", "pass"),
        (CLOSED, "10de:2901", "fail"),
        (CLOSED, "10de:2941", "fail"),
        (CLOSED, "10de:2bb5", "fail"),
        (NONE, "10de:2901", "unknown"),
        (NONE, "10de:2330", "unknown"),
    ],
)
def test_open_modules(driver: KernelDriver, pci_id: str, verdict: str) -> None:
    modules = function("driver-open-modules")
    assert verdicts(modules(driver, policy(section("driver-open-modules"), pci_id))) == [verdict]


@pytest.mark.parametrize(
    ("loaded", "kept_out", "verdict"),
    [
        ((), None, "pass"),
        (("nouveau",), None, "fail"),
        ((), True, "pass"),
        ((), False, "fail"),
    ],
)
def test_nouveau_absent(loaded: tuple[str, ...], kept_out: bool | None, verdict: str) -> None:
    absent = function("driver-nouveau-absent")
    assert verdicts(absent(Nouveau(loaded=loaded, kept_out=kept_out))) == [verdict]


def rdma(
    driver: KernelDriver,
    *,
    peermem: bool = False,
    registered: bool = False,
    adapters: tuple[str, ...] = ("mlx5_0",),
    ethernet: bool = False,
    hypervisor: str = "",
    kernel: str | None = "5.4.0-150-generic",
    found: Any = HEALTHY,
    model: str = "NVIDIA H200",
    device: str = "10de:2335",
    **want: Any,
) -> Any:
    facts = GpuDirect(
        adapters=adapters,
        ethernet_only=ethernet,
        peermem_loaded=peermem,
        registered=registered,
    )
    check = function("driver-gpudirect-rdma")
    wanted = policy(section("driver-gpudirect-rdma"), **want)
    gpu = GpuKind("0000:19:00.0", device, model, chip(device))
    node = machine(kernel=kernel, hypervisor=hypervisor)
    return check(facts, driver, node, found, Generation(gpus=(gpu,)), wanted)


def test_gpudirect_rdma() -> None:
    assert verdicts(rdma(CLOSED, peermem=True)) == ["pass"]
    assert verdicts(rdma(CLOSED, registered=True)) == ["pass"]
    assert verdicts(rdma(OPEN, kernel="5.12.0")) == ["pass"]
    assert verdicts(rdma(OPEN, kernel="6.8.0")) == ["pass"]
    assert only(rdma(OPEN)).cost
    assert verdicts(rdma(CLOSED, kernel="6.8.0")) == ["fail"]
    assert verdicts(rdma(CLOSED, ethernet=True)) == ["fail"]
    assert verdicts(rdma(CLOSED, hypervisor="microsoft")) == ["fail"]
    assert verdicts(rdma(CLOSED, ethernet=True, hypervisor="microsoft")) == ["warn"]
    assert verdicts(rdma(OPEN, kernel=None)) == ["unknown"]
    assert verdicts(rdma(NONE, kernel="6.8.0")) == ["unknown"]


@pytest.mark.parametrize(
    "case",
    [
        {"adapters": ()},
        {"gpudirect": "any"},
        {"found": changed(name="NVIDIA GeForce RTX 4090")},
        {"model": "NVIDIA GeForce RTX 4090", "device": "10de:2684"},
        {"model": "NVIDIA GB10", "device": "10de:2e12"},
    ],
)
def test_gpudirect_rdma_does_not_always_apply(case: dict[str, Any]) -> None:
    with pytest.raises(NotApplicable):
        rdma(CLOSED, **case)
