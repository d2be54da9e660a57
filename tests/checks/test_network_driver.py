# SPDX-License-Identifier: Apache-2.0
"""Rings, offloads and flow control."""

from typing import Any

import pytest
from judging import judge, verdicts
from machines import machine
from netfacts import rails

from gpuaudit.check import NotApplicable
from gpuaudit.facts.base import Absent
from gpuaudit.facts.netdriver import NetDriver, NetDrivers
from gpuaudit.facts.netecn import RoceEcn

HUNG = Absent("failed", "@ethtool did not answer within 3 s")
ON = dict.fromkeys(
    (
        "tx-tcp-segmentation",
        "tx-generic-segmentation",
        "tx-scatter-gather",
        "tx-checksum-ip-generic",
        "rx-checksum",
        "rx-gro",
    ),
    "on",
)


def said(**answers: Any) -> NetDrivers:
    return NetDrivers(by_name={"rail0": NetDriver(**answers)})


def verdict(check: str, *facts: object, **want: Any) -> str:
    ((subject, found),) = verdicts(judge(f"network_driver/{check}", *facts, **want))
    assert subject == "rail0"
    return found


@pytest.mark.parametrize(
    ("rings", "expected"),
    [
        ({"rx": 1024, "rx_max": 8192, "tx": 1, "tx_max": 8192}, "pass"),
        ({"rx": 256, "rx_max": 256, "tx": 256, "tx_max": 256}, "pass"),
        ({"rx": 128, "rx_max": 8192, "tx": 1, "tx_max": 8192}, "warn"),
        ({"rx": 0, "rx_max": 0, "tx": 0, "tx_max": 0}, "notapplicable"),
        ({}, "notapplicable"),
    ],
)
def test_rings(rings: dict[str, int], expected: str) -> None:
    assert verdict("network-ring-size", said(rings=rings)) == expected


@pytest.mark.parametrize("check", ["network-ring-size", "network-offloads"])
def test_a_driver_that_does_not_answer_is_unknown(check: str) -> None:
    assert verdict(check, NetDrivers(by_name={"rail0": HUNG})) == "unknown"
    failed = said(failed={"rings": "Input/output error", "features": "Input/output error"})
    assert verdict(check, failed) == "unknown"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "pass"),
        ({"rx-gro": "off"}, "warn"),
        ({"rx-gro": "off fixed"}, "pass"),
        ({"tx-checksum-ip-generic": "off fixed", "tx-checksum-ipv4": "on"}, "pass"),
        ({"tx-checksum-ip-generic": "off fixed", "tx-checksum-ipv4": "off"}, "warn"),
        ({"tx-checksum-ip-generic": "off", "tx-checksum-ipv4": "on fixed"}, "pass"),
    ],
)
def test_offloads(changes: dict[str, str], expected: str) -> None:
    assert verdict("network-offloads", said(features=ON | changes)) == expected


def test_offloads_name_what_is_off() -> None:
    (found,) = judge("network_driver/network-offloads", said(features=ON | {"rx-gro": "off"}))
    assert found.message == "off although the driver can: rx-gro"


@pytest.mark.parametrize(
    ("answers", "want", "expected"),
    [
        ({"bridging": {"pfc": [3], "dscp": 64}}, "pfc", "pass"),
        ({"bridging": {"pfc": [], "dscp": 0}}, "pfc", "warn"),
        ({"bridging": None, "pause": {"rx": True, "tx": True}}, "pfc-or-pause", "pass"),
        ({"bridging": None, "pause": {"rx": True, "tx": True}}, "pfc", "warn"),
        ({"bridging": None, "pause": {"rx": True, "tx": False}}, "pfc-or-pause", "warn"),
        ({"bridging": None}, "pfc-or-pause", "notapplicable"),
        ({"failed": {"bridging": "Operation not permitted"}}, "pfc-or-pause", "unknown"),
    ],
)
def test_flow_control(answers: dict[str, Any], want: str, expected: str) -> None:
    facts = said(**answers), rails({}), machine()
    assert verdict("network-roce-flow-control", *facts, roce_flow_control=want) == expected


@pytest.mark.parametrize(
    ("changes", "hypervisor", "want"),
    [
        ({"rdma": False}, "", "pfc"),
        ({}, "kvm", "pfc"),
        ({}, "", "any"),
    ],
    ids=["no-rdma", "guest", "any"],
)
def test_flow_control_does_not_apply(changes: Any, hypervisor: str, want: str) -> None:
    facts = said(), rails(changes), machine(hypervisor)
    with pytest.raises(NotApplicable):
        judge("network_driver/network-roce-flow-control", *facts, roce_flow_control=want)


def test_flow_control_of_a_driver_that_does_not_answer() -> None:
    facts = NetDrivers(by_name={"rail0": HUNG}), rails({}), machine()
    assert verdict("network-roce-flow-control", *facts) == "unknown"


def on(*numbers: int) -> dict[tuple[str, int], bool]:
    """Both sides of these priorities."""
    return {(side, number): True for side in ("np", "rp") for number in numbers}


@pytest.mark.parametrize(
    ("sides", "controlled", "expected"),
    [
        (on(3), True, "pass"),
        (on(3) | {("rp", 3): False}, True, "warn"),
        (on(3) | {("np", 3): False}, True, "warn"),
        (on(0, 3) | {("np", 0): False, ("rp", 0): False}, True, "warn"),
        (on(0, 3) | {("np", 0): False, ("rp", 0): False}, False, "pass"),
        (on(0, 3) | {("np", 0): False, ("rp", 3): False}, False, "warn"),
        (HUNG, False, "unknown"),
    ],
)
def test_congestion_control(sides: Any, controlled: bool, expected: str) -> None:
    ecn = RoceEcn(by_name={"rail0": sides}, controlled={"rail0": controlled})
    assert verdict("network-roce-ecn", ecn) == expected


def test_congestion_control_that_nobody_asks_for() -> None:
    ecn = RoceEcn(by_name={"rail0": on(3)}, controlled={"rail0": True})
    with pytest.raises(NotApplicable):
        judge("network_driver/network-roce-ecn", ecn, roce_ecn=False)
