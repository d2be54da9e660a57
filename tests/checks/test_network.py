# SPDX-License-Identifier: Apache-2.0
"""Data interfaces: frames, speed, carrier, errors."""

from typing import Any

import pytest
from judging import judge, verdicts
from machines import machine
from netfacts import first_reading, rails, since

from gpuaudit.check import NotApplicable, Unavailable
from gpuaudit.facts.base import Absent
from gpuaudit.facts.netcounters import InterfaceErrors

UNNAMED = Absent("unsupported", "the driver names no speed")
LOST = Absent("failed", "not a number")
SLOW_MANAGEMENT = {"speed_mbps": 25_000, "default_route": True}


@pytest.mark.parametrize(
    ("hypervisor", "mtu", "verdict"),
    [
        ("", 9000, "pass"),
        ("", 9216, "pass"),
        ("", 1500, "warn"),
        ("", 4220, "pass"),  # OCI's rails
        ("google", 8244, "pass"),
        ("google", 1460, "warn"),
        ("amazon", 9001, "pass"),
        ("microsoft", 1500, "pass"),
        (None, 1500, "warn"),
        ("", LOST, "unknown"),
    ],
)
def test_mtu(hypervisor: str | None, mtu: Any, verdict: str) -> None:
    found = judge("network/network-mtu", rails({"mtu": mtu}), machine(hypervisor))
    assert verdicts(found) == [("rail0", verdict)]


def test_what_is_on_top_counts_once() -> None:
    above = {"upper_mtus": (("bond0", 9000), ("vlan7", 1500), ("vlan8", LOST)), "rdma": False}
    found = judge("network/network-mtu", rails(above, above), machine())
    assert verdicts(found) == [
        ("rail0", "pass"),
        ("rail1", "pass"),
        ("bond0", "pass"),
        ("vlan7", "warn"),
        ("vlan8", "unknown"),
    ]


def test_a_small_mtu_has_its_price() -> None:
    (small,) = judge("network/network-mtu", rails({"mtu": 4220, "rdma": False}), machine())
    assert small.verdict.value == "warn"
    (found,) = judge("network/network-mtu", rails({"mtu": 1500, "rdma": False}), machine())
    assert found.cost == "6.0 times as many packets for the same data (9000 / MTU)"


@pytest.mark.parametrize(
    "changes",
    [
        {"up": False},
        SLOW_MANAGEMENT,
        {"speed_mbps": 1000, "rdma": False},
        {"speed_mbps": UNNAMED, "rdma": False},
    ],
    ids=["down", "management", "slow", "nameless"],
)
def test_no_data_interface_is_nothing_to_judge(changes: dict[str, Any]) -> None:
    with pytest.raises(NotApplicable):
        judge("network/network-mtu", rails(changes), machine())


@pytest.mark.parametrize("changes", [{"up": None}, {"speed_mbps": LOST, "rdma": False}])
def test_an_interface_that_may_carry_data_is_no_absence(changes: dict[str, Any]) -> None:
    with pytest.raises(Unavailable):
        judge("network/network-mtu", rails(changes), machine())


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ([{}, SLOW_MANAGEMENT], ["rail0"]),
        ([{"rdma": False}, {"rdma": False, "speed_mbps": 10_000}], ["rail0", "rail1"]),
        ([{"rdma": False}, {"rdma": False, "speed_mbps": 10_000, "model": "8086:1"}], ["rail0"]),
        ([{"default_route": True}], ["rail0"]),
        ([{"speed_mbps": 25_000}], ["rail0"]),
        ([{"rdma": None}], ["rail0"]),
    ],
    ids=["management", "sibling", "other-model", "fast-with-default", "rdma-25g", "rdma-untold"],
)
def test_roles(changes: list[dict[str, Any]], names: list[str]) -> None:
    assert [one.name for one in rails(*changes).data] == names


@pytest.mark.parametrize(
    ("speeds", "want", "expected"),
    [
        ((400_000, 400_000), {}, ["pass", "pass"]),
        ((400_000, 100_000), {}, ["pass", "warn"]),
        ((400_000, 100_000), {"slower_than_siblings": "fail"}, ["pass", "fail"]),
        ((400_000, UNNAMED), {}, ["notapplicable", "notapplicable"]),
        ((400_000, LOST), {}, ["notapplicable", "unknown"]),
        ((100_000,), {}, ["notapplicable"]),
        ((100_000,), {"speed_min_gbps": 100}, ["pass"]),
        ((100_000, 100_000), {"speed_min_gbps": 200}, ["fail", "fail"]),
    ],
)
def test_speed(speeds: tuple[Any, ...], want: dict[str, Any], expected: list[str]) -> None:
    found = judge("network/network-link-speed", rails(*({"speed_mbps": s} for s in speeds)), **want)
    assert [one.verdict.value for one in found] == expected


def test_a_slow_link_costs_what_it_lacks() -> None:
    _, slow = judge(
        "network/network-link-speed", rails({"speed_mbps": 400_000}, {"speed_mbps": 100_000})
    )
    assert slow.cost == "37.5 GB/s less than its sibling (300000 Mbit/s / 8)"


@pytest.mark.parametrize(
    ("changes", "earlier", "verdict"),
    [
        (2, first_reading(), "pass"),
        (9, first_reading(600), "pass"),  # MTU, rings and queues set at boot
        (17, first_reading(600), "warn"),
        (500, first_reading(), "warn"),  # a bad hour, long ago or not
        (20, first_reading(), "unknown"),
        (500, since(86_400, {"rail0": {"carrier-changes": 501}}), "warn"),
        (20, since(86_400, {"rail0": {"carrier-changes": 18}}), "pass"),
        (20, since(86_400, {"rail0": {"carrier-changes": 2}}), "fail"),
        (LOST, first_reading(), "unknown"),
    ],
)
def test_flaps(changes: Any, earlier: Any, verdict: str) -> None:
    found = judge("network/network-link-flaps", rails({"carrier_changes": changes}), earlier)
    assert verdicts(found) == [("rail0", verdict)]


def test_a_bond_that_goes_on_without_a_member() -> None:
    pair = rails({"bond": "bond0"}, {"bond": "bond0", "up": False}, {"up": False})
    found = judge("network/network-link-flaps", pair, first_reading())
    assert verdicts(found) == [("rail1", "warn"), ("rail0", "pass")]


@pytest.mark.parametrize(
    ("now", "before", "verdict"), [(0, 0, "pass"), (5000, 5000, "pass"), (5000, 0, "warn")]
)
def test_errors(now: int, before: int, verdict: str) -> None:
    counted = InterfaceErrors(by_name={"rail0": {"receive-errors": now}})
    earlier = since(86_400, {"rail0": {"receive-errors": before}})
    found = judge("network/network-errors", counted, earlier)
    assert verdicts(found) == [("rail0 receive-errors", verdict)]


def test_errors_that_were_not_read() -> None:
    found = judge("network/network-errors", InterfaceErrors(by_name={"x": LOST}), first_reading())
    assert verdicts(found) == [("x", "unknown")]
