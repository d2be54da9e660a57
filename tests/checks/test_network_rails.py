# SPDX-License-Identifier: Apache-2.0
"""Rails that share an IPv4 network."""

from typing import Any

import pytest
from judging import judge, verdicts

from gpuaudit.facts.base import Absent
from gpuaudit.facts.netsysctl import RailSettings

LOST = Absent("failed", "not recorded")
GOOD: dict[str, Any] = {"rp_filter": 2, "arp_ignore": 1, "arp_announce": 2, "arp_filter": 0}


def rails(**changes: Any) -> RailSettings:
    return RailSettings(by_name={"rail0": GOOD | changes})


@pytest.mark.parametrize(
    ("value", "verdict"), [(0, "pass"), (1, "warn"), (2, "pass"), (LOST, "unknown")]
)
def test_reverse_path(value: Any, verdict: str) -> None:
    found = judge("network_rails/network-reverse-path", rails(rp_filter=value))
    assert verdicts(found) == [("rail0 rp_filter", verdict)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ["pass", "pass"]),
        ({"arp_ignore": 0}, ["warn", "pass"]),
        ({"arp_ignore": 0, "arp_filter": 1}, ["pass", "pass"]),
        ({"arp_announce": 0}, ["pass", "warn"]),
        ({"arp_ignore": LOST, "arp_filter": 1}, ["unknown", "pass"]),
        ({"arp_ignore": 0, "arp_filter": LOST}, ["warn", "pass"]),
    ],
)
def test_arp(changes: dict[str, Any], expected: list[str]) -> None:
    found = judge("network_rails/network-arp", rails(**changes))
    assert [one.verdict.value for one in found] == expected
