# SPDX-License-Identifier: Apache-2.0
"""Fabric Manager and the fabric that each GPU reports."""

from typing import Any

import msgspec
import pytest
from gpufacts import (
    FAILED,
    UNSUPPORTED,
    changed,
    findings,
    function,
    gpus,
    machine,
    policy,
    scan,
    section,
    silent,
    verdicts,
)

from gpuaudit.facts.base import Absent
from gpuaudit.facts.fabric import FabricProcess, FabricUnit, FabricVersion
from gpuaudit.facts.gpuvalues import Fabric, Setting
from gpuaudit.host import NotApplicable, Unavailable

SWITCHED = scan(["0000:19:00.0"], switches=("0000:60:00.0",))
PLAIN = scan(["0000:19:00.0"])
IMAGE = scan((), functions=None, image=True)
NOT_RECORDED = Absent("missing", "the process table was not recorded")
B200, GB200 = "10de:2901", "10de:2941"


def manager(
    check_id: str, fact: Any, bus: Any = SWITCHED, pci_id: str = "10de:2330", **node: Any
) -> Any:
    return function(check_id)(bus, fact, machine(**node), policy(section(check_id), pci_id))


@pytest.mark.parametrize(
    ("running", "verdict"), [(True, "pass"), (False, "fail"), (NOT_RECORDED, "unknown")]
)
def test_manager_running(running: Any, verdict: str) -> None:
    fact = FabricProcess(running=running)
    assert verdicts(manager("fabric-manager-running", fact)) == [verdict]
    assert verdicts(manager("fabric-manager-running", fact, PLAIN, B200)) == [verdict]


@pytest.mark.parametrize(
    ("bus", "pci_id", "node"),
    [
        (PLAIN, "10de:2330", {}),
        (PLAIN, B200, {"hypervisor": "kvm"}),
        (SWITCHED, GB200, {}),
        (SWITCHED, "10de:2330", {"container": True}),
        (scan(["0000:19:00.0"], switches=("x",), confined="a Kubernetes pod"), "10de:2330", {}),
    ],
)
def test_manager_does_not_belong_everywhere(bus: Any, pci_id: str, node: dict[str, Any]) -> None:
    for check_id, fact in (
        ("fabric-manager-running", FabricProcess(running=NOT_RECORDED)),
        ("fabric-manager-version", FabricVersion(manager=NOT_RECORDED, driver="1")),
        ("fabric-manager-enabled", FabricUnit(state="disabled")),
    ):
        with pytest.raises(NotApplicable):
            manager(check_id, fact, bus, pci_id, **node)


def test_a_hidden_switch_on_an_untold_machine_is_unknown() -> None:
    with pytest.raises(Unavailable, match="guest"):
        manager(
            "fabric-manager-running", FabricProcess(running=False), PLAIN, B200, hypervisor=None
        )


@pytest.mark.parametrize(
    ("version", "driver", "verdict"),
    [
        ("570.86.15", "570.86.15", "pass"),
        ("570.86.10", "570.86.15", "fail"),
        (NOT_RECORDED, "570.86.15", "unknown"),
        ("570.86.15", NOT_RECORDED, "unknown"),
    ],
)
def test_manager_version(version: Any, driver: Any, verdict: str) -> None:
    fact = FabricVersion(manager=version, driver=driver)
    assert verdicts(manager("fabric-manager-version", fact)) == [verdict]


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        ("enabled", "pass"),
        ("disabled", "fail"),
        ("masked", "fail"),
        ("not installed", "fail"),
        (NOT_RECORDED, "unknown"),
    ],
)
def test_manager_enabled(state: Any, verdict: str) -> None:
    assert verdicts(manager("fabric-manager-enabled", FabricUnit(state=state))) == [verdict]


def test_the_manager_of_an_image() -> None:
    assert verdicts(manager("fabric-manager-enabled", FabricUnit(state="masked"), IMAGE)) == [
        "fail"
    ]
    with pytest.raises(NotApplicable, match="no Fabric Manager"):
        manager("fabric-manager-enabled", FabricUnit(state="not installed"), IMAGE)
    other = FabricVersion(manager="1", driver="2")
    assert verdicts(manager("fabric-manager-version", other, IMAGE)) == ["fail"]
    with pytest.raises(NotApplicable, match="no Fabric Manager"):
        manager("fabric-manager-version", FabricVersion(manager=NOT_RECORDED, driver="2"), IMAGE)


@pytest.mark.parametrize(
    ("fabric", "verdict"),
    [
        (Fabric(state=3, status=0), "pass"),
        (Fabric(state=3, status=999), "fail"),
        (Fabric(state=2, status=0), "fail"),
        (Fabric(state=1, status=0), "fail"),
        (Fabric(state=9, status=0), "fail"),
        (Fabric(state=0, status=0), "fail"),  # the seven others have joined one
        (UNSUPPORTED, "notapplicable"),
        (FAILED, "unknown"),
    ],
)
def test_state(fabric: Any, verdict: str) -> None:
    state = function("fabric-state")
    assert verdicts(state(changed(fabric=fabric)))[3] == verdict
    with pytest.raises(Unavailable):
        findings(state(silent()))


def test_boards_without_a_fabric() -> None:
    none = Fabric(state=0, status=0)
    every = tuple(msgspec.structs.replace(gpu, fabric=none) for gpu in gpus().records)
    found = function("fabric-state")(msgspec.structs.replace(gpus(), records=every))
    assert verdicts(found) == ["notapplicable"] * 8
    sliced = changed(fabric=none, mig=Setting(1, 1))
    assert verdicts(function("fabric-state")(sliced))[3] == "notapplicable"


@pytest.mark.parametrize(
    ("state", "status", "virtualization", "verdict"),
    [
        (2, 0, 3, "notapplicable"),
        (2, 0, 4, "notapplicable"),
        (2, 0, 1, "fail"),  # passed through to this guest, which needs it
        (3, 0, 3, "pass"),
        (3, 999, 3, "fail"),
        (0, 0, 3, "notapplicable"),
    ],
)
def test_a_vgpu_host_waits_for_its_guests(
    state: int, status: int, virtualization: int, verdict: str
) -> None:
    gpus = changed(fabric=Fabric(state=state, status=status), virtualization=virtualization)
    assert verdicts(function("fabric-state")(gpus))[3] == verdict


@pytest.mark.parametrize(
    ("mask", "summary", "verdict", "words"),
    [
        (0x1AA, None, "pass", ""),
        (0x1AA, 1, "pass", ""),
        (0x0, None, "notapplicable", "does not report"),
        (0x1A9, None, "fail", "bandwidth is degraded"),
        (0x1A6, None, "fail", "route is being recovered"),
        (0x19A, None, "fail", "route is unhealthy"),
        (0x16A, None, "fail", "access timeout"),
        (0x5AA, None, "fail", "too few NVLinks"),
        (0xFAA, None, "fail", "wrong configuration 15"),
        (0x1AA, 2, "fail", "unhealthy"),
        (0x1AA, 3, "warn", "limited capacity"),
        (0x21AA, None, "warn", "no partition"),
        (0x81AA, None, "warn", "not connected"),
    ],
)
def test_health(mask: int, summary: int | None, verdict: str, words: str) -> None:
    fabric = Fabric(state=3, status=0, health_mask=mask, health_summary=summary)
    finding = findings(function("fabric-health")(changed(fabric=fabric)))[3]
    assert (finding.verdict.value, words in finding.message) == (verdict, True), finding


@pytest.mark.parametrize(
    ("fabric", "verdict"),
    [
        (Fabric(state=0, status=0, health_mask=0x155), "notapplicable"),
        (Fabric(state=2, status=0, health_mask=0x155), "notapplicable"),
        (Fabric(state=3, status=0), "notapplicable"),
        (UNSUPPORTED, "notapplicable"),
        (FAILED, "unknown"),
    ],
)
def test_health_is_not_always_told(fabric: Any, verdict: str) -> None:
    assert verdicts(function("fabric-health")(changed(fabric=fabric)))[3] == verdict
