# SPDX-License-Identifier: Apache-2.0
"""By what RDMA over Ethernet is sorted."""

from typing import Any

import pytest
from judging import judge, verdicts
from machines import machine
from netfacts import rails

from gpuaudit.check import NotApplicable
from gpuaudit.facts.base import Absent
from gpuaudit.facts.netdriver import NetDriver, NetDrivers

HUNG = Absent("failed", "@ethtool did not answer within 3 s")
REFUSED = {"bridging": "Operation not permitted"}


def trust(said: NetDriver | Absent, *facts: Any, want: str) -> str:
    found = judge(
        "network_trust/network-roce-trust",
        NetDrivers(by_name={"rail0": said}),
        *(facts or (rails({}), machine())),
        roce_sorted_by=want,
    )
    ((subject, verdict),) = verdicts(found)
    assert subject == "rail0"
    return verdict


@pytest.mark.parametrize(
    ("answers", "want", "expected"),
    [
        ({"bridging": {"pfc": [3], "dscp": 64}}, "dscp", "pass"),
        ({"bridging": {"pfc": [3], "dscp": 0}}, "dscp", "warn"),
        ({"bridging": {"pfc": [3], "dscp": 0}}, "vlan-priority", "pass"),
        ({"bridging": {"pfc": [3], "dscp": 64}}, "vlan-priority", "warn"),
        ({"bridging": None}, "dscp", "notapplicable"),
        ({"bridging": None, "failed": REFUSED}, "dscp", "unknown"),
    ],
)
def test_what_packets_are_sorted_by(answers: dict[str, Any], want: str, expected: str) -> None:
    assert trust(NetDriver(**answers), want=want) == expected


def test_a_driver_that_hangs_is_unknown() -> None:
    assert trust(HUNG, want="dscp") == "unknown"


@pytest.mark.parametrize(
    ("want", "hypervisor"), [("any", ""), ("dscp", "kvm")], ids=["nothing-asked", "guest"]
)
def test_where_it_does_not_apply(want: str, hypervisor: str) -> None:
    with pytest.raises(NotApplicable):
        trust(NetDriver(), rails({}), machine(hypervisor), want=want)
