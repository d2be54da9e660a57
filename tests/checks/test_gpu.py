# SPDX-License-Identifier: Apache-2.0
"""GPU inventory and modes: each rule both ways, and what silence makes of it."""

from typing import Any

import msgspec
import pytest
from gpufacts import (
    FAILED,
    POLICIES,
    UNSUPPORTED,
    changed,
    findings,
    function,
    gpus,
    machine,
    nowhere,
    only,
    policy,
    scan,
    section,
    silent,
    verdicts,
)

from gpuaudit.facts.gpu import Gpu, Gpus
from gpuaudit.facts.gpupersistence import PersistenceDaemon
from gpuaudit.facts.gpuscan import GpuScan
from gpuaudit.facts.gpuvalues import Bar1, Memory, Setting
from gpuaudit.host import NotApplicable, Unavailable

HEALTHY = gpus()
ADDRESSES = [str(gpu.address) for gpu in HEALTHY.records]
BUS = scan(ADDRESSES)
SWITCHES = ("0000:60:00.0",)
RUNS = PersistenceDaemon(running=True)
MIB = 1 << 20


def without(index: int) -> Gpus:
    kept = tuple(gpu for gpu in HEALTHY.records if gpu.index != index)
    return msgspec.structs.replace(HEALTHY, records=kept)


def counted(bus: GpuScan, found: Gpus, expected: int | None = None, **node: Any) -> Any:
    count = function("gpu-count")
    want = policy(section("gpu-count"), expected_count=expected)
    return count(bus, found, machine(**node), want)


def test_count_of_a_whole_node() -> None:
    assert verdicts(counted(BUS, HEALTHY)) == ["pass"]
    assert verdicts(counted(BUS, HEALTHY, expected=8)) == ["pass"]


def test_count_names_the_missing_address() -> None:
    finding = only(counted(BUS, without(3)))
    assert finding.subject == ADDRESSES[3]
    assert "NVML does not list it" in finding.message


def test_count_against_the_policy() -> None:
    assert only(counted(scan(ADDRESSES[:7]), without(7), expected=8)).observed == "7"
    assert only(counted(nowhere(), without(7), expected=8)).expected == "8"
    assert verdicts(counted(nowhere(), HEALTHY, expected=8)) == ["pass"]
    assert verdicts(counted(nowhere(), HEALTHY)) == ["unknown"]


def test_count_of_a_board_with_switches() -> None:
    bus = scan(ADDRESSES[:7], switches=SWITCHES)
    assert only(counted(bus, without(7))).expected == "8"
    with_display = msgspec.structs.replace(bus, kinds=(*bus.kinds, "10de:1fb2"))
    assert only(counted(with_display, without(7))).expected == "8", "a display card is no eighth"
    assert verdicts(counted(bus, without(7), hypervisor="kvm")) == ["pass"]
    assert verdicts(counted(scan(ADDRESSES, switches=SWITCHES), HEALTHY)) == ["pass"]


def test_count_in_a_container_and_of_excluded_gpus() -> None:
    job = scan(ADDRESSES, confined="a Slurm job")
    assert verdicts(counted(job, without(3))) == ["notapplicable"]
    left_out = scan(ADDRESSES, listed={ADDRESSES[3]: True})
    assert "NVreg_ExcludedGpus" in only(counted(left_out, without(3)), "warn").message


def test_count_leaves_dead_and_lost_gpus_to_alive() -> None:
    functions = list(BUS.functions or ())
    functions[3] = msgspec.structs.replace(functions[3], dead=True)
    dead = msgspec.structs.replace(BUS, functions=tuple(functions))
    assert verdicts(counted(dead, without(3))) == ["pass"]
    assert verdicts(counted(BUS, changed(address=None, lost=FAILED))) == ["pass"]


def test_count_without_nvml_is_unknown() -> None:
    with pytest.raises(Unavailable, match="not loaded"):
        findings(counted(BUS, silent()))


def test_alive() -> None:
    alive = function("gpu-alive")
    assert verdicts(alive(BUS, HEALTHY)) == ["pass"] * 8
    lost = only(alive(BUS, changed(lost=FAILED, name=FAILED)))
    assert (lost.subject, lost.message) == (f"GPU 3 {ADDRESSES[3]}", "GPU is lost")
    assert verdicts(alive(BUS, changed(name=FAILED))).count("unknown") == 1


def test_alive_by_the_bus() -> None:
    alive = function("gpu-alive")
    functions = list(BUS.functions or ())
    functions[3] = msgspec.structs.replace(functions[3], dead=True)
    dead = msgspec.structs.replace(BUS, functions=tuple(functions))
    assert only(alive(dead, HEALTHY)).subject == f"GPU 3 {ADDRESSES[3]}"
    assert only(alive(dead, without(3))).subject == ADDRESSES[3]
    assert verdicts(alive(dead, silent())) == ["fail", "unknown"]


def test_alive_without_nvml() -> None:
    alive = function("gpu-alive")
    assert verdicts(alive(BUS, silent())) == ["unknown"]
    assert verdicts(alive(BUS, silent("gpu-lost"))) == ["fail"]
    with pytest.raises(Unavailable):
        findings(alive(BUS, Gpus(records=(), problem=None)))


def test_product_known() -> None:
    known = function("gpu-product-known")
    want = policy(section("gpu-product-known"))
    assert verdicts(known(BUS, HEALTHY, want)) == ["pass"] * 8
    assert verdicts(known(nowhere(), HEALTHY, want)) == ["pass"] * 8
    none = msgspec.structs.replace(want, known_pci_ids=())
    assert verdicts(known(BUS, HEALTHY, none)) == ["warn"] * 8
    assert "unknown" in verdicts(known(nowhere(), changed(pci=FAILED), want))


@pytest.mark.parametrize(
    ("action", "verdict"),
    [(0, "pass"), (1, "fail"), (99, "fail"), (UNSUPPORTED, "notapplicable"), (FAILED, "unknown")],
)
def test_recovery_action(action: Any, verdict: str) -> None:
    recovery = function("gpu-recovery-action")
    assert verdicts(recovery(changed(recovery_action=action)))[3] == verdict
    with pytest.raises(Unavailable):
        findings(recovery(silent()))


def test_models_alike() -> None:
    alike = function("gpu-models-alike")
    assert verdicts(alike(HEALTHY)) == ["pass"] * 8
    odd = only(alike(changed(index=0, name="NVIDIA H200")))
    assert (odd.observed, odd.expected) == ("NVIDIA H200", "NVIDIA H100 80GB HBM3")
    assert verdicts(alike(changed(name=FAILED)))[3] == "unknown"
    with pytest.raises(NotApplicable):
        findings(alike(gpus(count=1)))


def test_vbios_alike() -> None:
    alike = function("gpu-vbios-alike")
    assert verdicts(alike(HEALTHY)) == ["pass"] * 8
    assert only(alike(changed(vbios="1"))).subject == f"GPU 3 {ADDRESSES[3]}"
    assert verdicts(alike(changed(vbios=FAILED)))[3] == "unknown"
    other = changed(vbios="1", name="another model")
    assert verdicts(alike(other)) == ["pass"] * 7, "one of a kind is not compared"
    with pytest.raises(NotApplicable):
        findings(alike(changed(count=2, index=1, name="another model")))


def test_memory_alike() -> None:
    alike = function("gpu-memory-alike")
    want = policy(section("gpu-memory-alike"))
    assert verdicts(alike(HEALTHY, want)) == ["pass"] * 8
    near = changed(memory=Memory(total=81559 * MIB - 500 * MIB))
    assert verdicts(alike(near, want)) == ["pass"] * 8
    less = only(alike(changed(memory=Memory(total=70000 * MIB)), want))
    assert (less.observed, less.expected) == ("70000 MiB", "81559 MiB")
    assert verdicts(alike(changed(memory=FAILED), want))[3] == "unknown"
    sliced = changed(memory=Memory(total=70000 * MIB), mig=Setting(current=1, pending=1))
    assert verdicts(alike(sliced, want)) == ["pass"] * 7


def test_persistence() -> None:
    persistence = function("gpu-persistence")
    want = policy(section("gpu-persistence"))
    assert verdicts(persistence(BUS, HEALTHY, RUNS, want)) == ["pass"] * 8
    off = only(persistence(BUS, changed(persistence=0), RUNS, want))
    assert (off.observed, off.expected) == ("off", "on")
    assert verdicts(persistence(BUS, changed(persistence=FAILED), RUNS, want))[3] == "unknown"


def test_persistence_in_legacy_mode_warns() -> None:
    persistence = function("gpu-persistence")
    want = policy(section("gpu-persistence"))
    stopped = PersistenceDaemon(running=False)
    assert only(persistence(BUS, HEALTHY, stopped, want), "warn").subject == "nvidia-persistenced"
    box = scan(ADDRESSES, confined="a container")
    assert verdicts(persistence(box, HEALTHY, stopped, want)) == ["pass"] * 8
    unseen = PersistenceDaemon(running=None)
    assert verdicts(persistence(BUS, HEALTHY, unseen, want)) == ["pass"] * 8


@pytest.mark.parametrize(
    ("mode", "verdict"),
    [(0, "pass"), (2, "fail"), (3, "fail"), (7, "fail"), (FAILED, "unknown")],
)
def test_compute_mode(mode: Any, verdict: str) -> None:
    compute = function("gpu-compute-mode")
    want = policy(section("gpu-compute-mode"))
    assert verdicts(compute(changed(compute_mode=mode), want))[3] == verdict
    mps = msgspec.structs.replace(want, compute_modes=("default", "exclusive-process"))
    assert verdicts(compute(changed(compute_mode=3), mps)) == ["pass"] * 8


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({}, "pass"),
        ({"bar1": Bar1(total=256 * MIB)}, "fail"),
        ({"bar1": Bar1(total=32767 * MIB), "mig": Setting(current=1, pending=1)}, "notapplicable"),
        ({"bar1": FAILED}, "unknown"),
        ({"memory": FAILED}, "unknown"),
        ({"bar1": UNSUPPORTED}, "notapplicable"),
    ],
)
def test_bar1_size(fields: dict[str, Any], verdict: str) -> None:
    size = function("gpu-bar1-size")
    assert verdicts(size(changed(**fields), policy(section("gpu-bar1-size"))))[3] == verdict


def test_bar1_of_a_product_without_expectation() -> None:
    size = function("gpu-bar1-size")
    want = policy(section("gpu-bar1-size"), pci_id="10de:1eb8")
    assert verdicts(size(changed(bar1=Bar1(total=256 * MIB)), want)) == ["notapplicable"] * 8


def test_a_gpu_record_is_complete() -> None:
    assert all(isinstance(gpu, Gpu) for gpu in HEALTHY.records)


def test_the_known_products_are_those_of_the_sku_files() -> None:
    named = {
        pci_id
        for layer in POLICIES.skus
        for pci_id in (layer.document.match.pci_ids if layer.document.match else ())
    }
    assert set(policy(section("gpu-product-known")).known_pci_ids) == named
    assert len(named) >= 16
