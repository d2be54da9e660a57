# SPDX-License-Identifier: Apache-2.0
"""Partitions, switches and IMEX."""

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
    only,
    policy,
    scan,
    section,
    verdicts,
)

from gpuaudit.facts.base import Absent
from gpuaudit.facts.imex import Imex
from gpuaudit.facts.nvswitch import NvSwitches
from gpuaudit.host import NotApplicable

GB200 = "10de:2941"
HEALTHY = gpus().records[0].fabric
DENIED = Absent("denied", "needs root")
EIGHT = scan([f"0000:{n:02x}:00.0" for n in range(8)])
FOUR = {f"0000:6{n}:00.0": ("nvidia-nvswitch", False) for n in range(4)}


def test_one_clique() -> None:
    cluster = function("fabric-cluster")
    assert verdicts(cluster(gpus())) == ["pass"] * 8
    apart = msgspec.structs.replace(HEALTHY, clique=4)
    assert "clique 4" in str(only(cluster(changed(fabric=apart))).observed)
    assert verdicts(cluster(changed(fabric=apart, virtualization=3)))[3] == "notapplicable"
    other = msgspec.structs.replace(HEALTHY, cluster="ab" * 16)
    assert verdicts(cluster(changed(fabric=other)))[3] == "fail"
    waits = msgspec.structs.replace(HEALTHY, state=2)
    assert verdicts(cluster(changed(fabric=waits)))[3] == "notapplicable"
    assert verdicts(cluster(changed(fabric=UNSUPPORTED)))[3] == "notapplicable"
    assert verdicts(cluster(changed(fabric=FAILED)))[3] == "unknown"
    with pytest.raises(NotApplicable):
        findings(cluster(gpus(count=1)))


def switches(found: dict[str, Any], bus: Any = EIGHT, **node: Any) -> list[str]:
    check_id = "fabric-switches"
    want = policy(section(check_id))
    return verdicts(function(check_id)(bus, NvSwitches(switches=found), machine(**node), want))


def test_switches() -> None:
    assert switches(FOUR) == ["pass"] * 5
    three = dict(list(FOUR.items())[:3])
    assert switches(three) == [*["pass"] * 3, "fail"]
    assert switches(three, hypervisor="kvm") == ["pass"] * 3
    assert switches(three, hypervisor=None) == ["pass"] * 3
    assert switches(three, scan(["0000:19:00.0"])) == ["pass"] * 3
    with pytest.raises(NotApplicable):
        switches({})


@pytest.mark.parametrize(
    ("reading", "verdict"),
    [
        (("nvidia-nvswitch", True), "fail"),
        ((None, False), "fail"),
        (("vfio-pci", False), "fail"),
        (("nvidia-nvswitch", DENIED), "unknown"),
        ((DENIED, False), "unknown"),
    ],
)
def test_a_switch(reading: Any, verdict: str) -> None:
    assert switches({**FOUR, "0000:60:00.0": reading})[0] == verdict


def imex(check_id: str, pci_id: str = "10de:2330", bus: Any = EIGHT, **fields: Any) -> list[str]:
    found = Imex(**{"nodes": 0, "running": False, "channels": 0, **fields})
    return verdicts(function(check_id)(bus, found, policy(section(check_id), pci_id)))


@pytest.mark.parametrize(
    ("fields", "pci_id", "verdict"),
    [
        ({"nodes": 18, "running": True}, GB200, "pass"),
        ({"nodes": 18}, GB200, "warn"),
        ({"running": True}, "10de:2330", "warn"),
        ({"nodes": 18, "running": DENIED}, GB200, "unknown"),
        ({"nodes": DENIED}, GB200, "unknown"),
        ({"nodes": 18, "running": UNSUPPORTED}, GB200, "notapplicable"),
    ],
)
def test_imex(fields: dict[str, Any], pci_id: str, verdict: str) -> None:
    assert imex("fabric-imex", pci_id, **fields) == [verdict]


def test_imex_where_there_is_no_domain() -> None:
    for nodes in (0, 1, 18):
        for running in (False, DENIED):
            with pytest.raises(NotApplicable):
                imex("fabric-imex", nodes=nodes, running=running)
    for nodes in (0, 1):
        with pytest.raises(NotApplicable):
            imex("fabric-imex", GB200, nodes=nodes, running=bool(nodes))
    with pytest.raises(NotApplicable):
        imex("fabric-imex", GB200, scan((), confined="a Kubernetes pod"), nodes=18)


@pytest.mark.parametrize("check_id", ["fabric-imex", "fabric-imex-channels"])
@pytest.mark.parametrize("pci_id", ["10de:2330", GB200])
def test_imex_runs_in_no_image(check_id: str, pci_id: str) -> None:
    image = msgspec.structs.replace(scan(()), functions=None, image=True)
    with pytest.raises(NotApplicable, match="image"):
        imex(check_id, pci_id, image, nodes=18)


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({"channels": 1}, "pass"),
        ({"channels": 0}, "warn"),
        ({"channels": DENIED}, "unknown"),
        ({"nodes": DENIED}, "unknown"),
    ],
)
def test_channels(fields: dict[str, Any], verdict: str) -> None:
    domain = {"nodes": 18, "running": True}
    assert imex("fabric-imex-channels", GB200, **{**domain, **fields}) == [verdict]


@pytest.mark.parametrize(
    ("fields", "pci_id"),
    [({"nodes": 18}, GB200), ({"nodes": 18, "running": True}, "10de:2330"), ({}, GB200)],
)
def test_channels_where_none_are_needed(fields: dict[str, Any], pci_id: str) -> None:
    with pytest.raises(NotApplicable):
        imex("fabric-imex-channels", pci_id, **fields)
