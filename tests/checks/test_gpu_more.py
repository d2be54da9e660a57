# SPDX-License-Identifier: Apache-2.0
"""Repairs, firmware, settings, leftovers and NVLink-C2C of a GPU."""

from functools import partial
from typing import Any

import pytest
from fakenvml import DRIVER
from gpufacts import (
    FAILED,
    UNSUPPORTED,
    changed,
    findings,
    function,
    gpus,
    nowhere,
    only,
    policy,
    scan,
    section,
    silent,
    verdicts,
)

from gpuaudit.facts.c2c import C2cLinks
from gpuaudit.facts.confidential import Confidential
from gpuaudit.facts.gpuvalues import Memory, Pci, Setting
from gpuaudit.facts.services import Processes
from gpuaudit.host import NotApplicable, Unavailable
from gpuaudit.host.processes import Process

MIB = 1 << 20
BUS = scan(())
GB200 = "10de:2941"


@pytest.mark.parametrize(
    ("check_id", "fields", "verdict"),
    [
        ("gpu-repair-pending", {}, "pass"),
        ("gpu-repair-pending", {"repairs": (1, 0)}, "warn"),
        ("gpu-repair-pending", {"repairs": (0, 1)}, "warn"),
        ("gpu-repair-pending", {"repairs": UNSUPPORTED}, "notapplicable"),
        ("gpu-repair-pending", {"repairs": FAILED}, "unknown"),
        ("gpu-unrepairable-memory", {}, "pass"),
        ("gpu-unrepairable-memory", {"unrepairable": 1}, "fail"),
        ("gpu-unrepairable-memory", {"unrepairable": UNSUPPORTED}, "notapplicable"),
        ("gpu-unrepairable-memory", {"unrepairable": FAILED}, "unknown"),
        ("gpu-gsp-firmware", {}, "pass"),
        ("gpu-gsp-firmware", {"gsp_version": "550.54.15"}, "fail"),
        ("gpu-gsp-firmware", {"gsp_mode": (0, 1)}, "warn"),
        ("gpu-gsp-firmware", {"gsp_mode": (0, 0)}, "notapplicable"),
        ("gpu-gsp-firmware", {"gsp_mode": (1, 0)}, "pass"),  # open modules on an older board
        ("gpu-gsp-firmware", {"gsp_mode": UNSUPPORTED}, "notapplicable"),
        ("gpu-gsp-firmware", {"gsp_version": FAILED}, "unknown"),
        ("gpu-gsp-firmware", {"gsp_version": "1", "virtualization": 2}, "notapplicable"),
        ("gpu-inforom-alike", {}, "pass"),
        ("gpu-inforom-alike", {"inforom": "G520.0200.00.03"}, "warn"),
        ("gpu-inforom-alike", {"inforom": UNSUPPORTED}, "notapplicable"),
        ("gpu-inforom-alike", {"inforom": FAILED}, "unknown"),
    ],
)
def test_of_one_gpu(check_id: str, fields: dict[str, Any], verdict: str) -> None:
    found = verdicts(function(check_id)(changed(**fields)))
    assert found == [*["pass"] * 3, verdict, *["pass"] * 4]
    with pytest.raises(Unavailable):
        findings(function(check_id)(silent()))


def test_an_inforom_is_compared_with_its_own_model_only() -> None:
    alike = function("gpu-inforom-alike")
    with pytest.raises(NotApplicable):
        findings(alike(gpus(count=1)))
    other = changed(pci=Pci(bus_id="x", device_id=0x233110DE), inforom="other")
    assert verdicts(alike(other)) == ["pass"] * 8


def test_accounting_is_judged_where_the_site_asks() -> None:
    check_id = "gpu-accounting-mode"
    with pytest.raises(NotApplicable):
        findings(function(check_id)(gpus(), policy(section(check_id))))
    want = policy(section(check_id), accounting=True)
    on = changed(count=1, index=0, accounting=1)
    assert verdicts(function(check_id)(on, want)) == ["pass"]
    assert verdicts(function(check_id)(gpus(count=1), want)) == ["warn"]
    sliced = changed(count=1, index=0, mig=Setting(1, 1))
    assert verdicts(function(check_id)(sliced, want)) == ["notapplicable"]


@pytest.mark.parametrize(
    ("on", "wanted", "verdict"),
    [(False, "off", "pass"), (True, "off", "fail"), (True, "on", "pass"), (False, "on", "fail")],
)
def test_confidential_computing(on: Any, wanted: str, verdict: str) -> None:
    check_id = "gpu-confidential-computing"
    want = policy(section(check_id), confidential_computing=wanted)
    judge = function(check_id)
    assert verdicts(judge(Confidential(on=on), want)) == [verdict]
    assert verdicts(judge(Confidential(on=UNSUPPORTED), want)) == ["notapplicable"]
    assert verdicts(judge(Confidential(on=FAILED), want)) == ["unknown"]
    with pytest.raises(NotApplicable):
        judge(Confidential(on=on), policy(section(check_id)))


TABLE = Processes(
    processes=(
        Process(pid=100, name="python3", state="sleeping", parent=1),
        Process(pid=200, name="nvidia-cuda-mps", state="sleeping", parent=1),
    )
)


@pytest.mark.parametrize(
    ("fields", "verdict", "words"),
    [
        ({}, "pass", ""),
        ({"compute_pids": (100,)}, "warn", "python3 (100)"),
        ({"mps_pids": (100, 200)}, "warn", "python3 (100)"),
        ({"graphics_pids": (999,)}, "warn", "unknown program (999)"),
        ({"graphics_pids": (999,), "display_active": 1}, "pass", ""),
        ({"compute_pids": (1, 2, 3, 4, 5)}, "warn", "and 1 more"),
        ({"compute_pids": (200,)}, "pass", ""),
        ({"compute_pids": UNSUPPORTED}, "notapplicable", ""),
        ({"compute_pids": FAILED}, "unknown", ""),
        ({"mps_pids": UNSUPPORTED}, "pass", ""),
        ({"graphics_pids": FAILED}, "unknown", ""),
        ({"compute_pids": (100,), "mig": Setting(1, 1)}, "notapplicable", ""),
        ({"compute_pids": (100,), "virtualization": 2}, "notapplicable", ""),
    ],
)
def test_processes_left(fields: dict[str, Any], verdict: str, words: str) -> None:
    check_id = "gpu-processes-left"
    left, want = function(check_id), policy(section(check_id))
    finding = findings(left(changed(**fields), BUS, TABLE, want))[3]
    assert (finding.verdict.value, words in finding.message) == (verdict, True)
    with pytest.raises(NotApplicable):
        findings(left(gpus(), scan((), confined="a Slurm job"), TABLE, want))


def memory(used_mib: int, reserved: int | None = 0) -> Memory:
    return Memory(total=80_000 * MIB, used=used_mib * MIB, reserved=reserved)


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({"memory": memory(0)}, "pass"),
        ({"memory": memory(1024)}, "pass"),
        ({"memory": memory(1025)}, "warn"),
        ({"memory": memory(70_000), "compute_pids": (1,)}, "notapplicable"),
        ({"memory": memory(1025, None)}, "notapplicable"),
        ({"memory": memory(1025), "mig": Setting(1, 1)}, "notapplicable"),
        ({"memory": memory(1025), "c2c": {"isC2cEnabled": 1}}, "notapplicable"),
        ({"memory": memory(1025), "display_active": 1}, "notapplicable"),
        ({"memory": FAILED}, "unknown"),
        ({"memory": memory(1025), "compute_pids": FAILED}, "unknown"),
    ],
)
def test_memory_free(fields: dict[str, Any], verdict: str) -> None:
    check_id = "gpu-memory-free"
    free, want = function(check_id), policy(section(check_id))
    assert verdicts(free(changed(**fields), BUS, want))[3] == verdict
    with pytest.raises(NotApplicable):
        findings(free(gpus(), scan((), confined="a Kubernetes pod"), want))


def test_c2c() -> None:
    check_id = "gpu-c2c-link"
    judge, want = partial(function(check_id), BUS), policy(section(check_id), GB200)
    on = changed(count=1, index=0, c2c={"isC2cEnabled": 1})
    assert verdicts(judge(on, C2cLinks(down={}), want)) == ["pass"]
    assert "3, 4" in only(judge(on, C2cLinks(down={0: (3, 4)}), want), "warn").message
    assert verdicts(judge(gpus(count=1), C2cLinks(down={}), want)) == ["fail"]
    failed = changed(count=1, index=0, c2c=FAILED)
    assert verdicts(judge(failed, C2cLinks(down={}), want)) == ["unknown"]
    default = policy(section(check_id))
    with pytest.raises(NotApplicable):
        findings(judge(gpus(count=1), C2cLinks(down={}), default))
    with pytest.raises(Unavailable):
        findings(function(check_id)(nowhere(), gpus(count=1), C2cLinks(down={}), default))


def test_c2c_of_a_product_that_the_policy_does_not_know() -> None:
    check_id = "gpu-c2c-link"
    judge, want = partial(function(check_id), BUS), policy(section(check_id))
    on = changed(count=2, index=0, c2c={"isC2cEnabled": 1})
    assert verdicts(judge(on, C2cLinks(down={}), want)) == ["pass", "notapplicable"]
    assert verdicts(judge(on, C2cLinks(down={0: (3,)}), want)) == ["warn", "notapplicable"]


def test_the_driver_decides_the_version_of_the_gsp() -> None:
    assert gpus().driver == DRIVER
    finding = only(function("gpu-gsp-firmware")(changed(gsp_version="550.54.15")))
    assert finding.message == f"GSP firmware 550.54.15, driver {DRIVER}"
