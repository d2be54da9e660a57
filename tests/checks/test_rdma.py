# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
from judging import judge, verdicts
from machines import machine
from msgspec.structs import replace
from rdmaparts import all_of, counted, port, roce, roles, several

from gpuaudit.facts.base import Absent
from gpuaudit.host import NotApplicable
from gpuaudit.topology.rdmaroles import Kind, Role

UNREAD = Absent("missing", "was not recorded")
DOWN: dict[str, Any] = {"state": "DOWN", "phys_state": "Polling"}


def states(ports: Any, found: Any, had: Any = None, *, vm: bool = False, **want: Any) -> Any:
    """`had`: port name -> whether it had a link before; by default every port had."""
    known = {p.name: True for p in ports.ports} if had is None else had
    facts = ports, found, counted({}, linked=known), machine("kvm" if vm else "")
    return judge("rdma/rdma-port-state", *facts, **want)


def state(kind: Kind, *, sure: bool = True, had: bool = True, **more: Any) -> tuple[str, str]:
    ports = several(port(**more))
    (finding,) = states(ports, all_of(ports, kind, sure=sure), {"mlx5_0 port 1": had})
    return finding.verdict.value, finding.message


@pytest.mark.parametrize("kind", ["compute", "storage", "management", "unknown", "unused"])
def test_an_active_port_passes_whatever_it_is_for(kind: Kind) -> None:
    assert state(kind)[0] == "pass"


@pytest.mark.parametrize(
    ("kind", "sure", "verdict"),
    [
        ("compute", True, "fail"),
        ("compute", False, "warn"),
        ("storage", True, "notapplicable"),
        ("management", True, "notapplicable"),
        ("unused", True, "notapplicable"),
        ("unknown", True, "notapplicable"),
    ],
)
def test_a_port_without_a_link(kind: Kind, verdict: str, *, sure: bool) -> None:
    assert state(kind, sure=sure, had=kind == "compute", **DOWN)[0] == verdict


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        ("storage", "warn"),
        ("unknown", "warn"),
        ("management", "notapplicable"),
        ("unused", "notapplicable"),
    ],
)
def test_a_port_that_lost_its_link(kind: Kind, verdict: str) -> None:
    found = state(kind, had=True, **DOWN)
    assert found[0] == verdict
    assert found[1].endswith("and it had a link before") == (verdict == "warn")


NAMES = ("mlx5_0 port 1", "mlx5_1 port 1")


@pytest.mark.parametrize(
    ("had", "more", "verdict"),
    [
        (dict.fromkeys(NAMES, False), {}, "warn"),
        (dict.fromkeys(NAMES, False), {"without_fabric": "fail"}, "fail"),
        ({NAMES[0]: False, NAMES[1]: True}, {}, "fail"),  # the fabric is down
        ({NAMES[0]: False}, {}, "fail"),  # not told
        (dict.fromkeys(NAMES, False), {"vm": True}, "fail"),  # nobody passes through what is idle
    ],
)
def test_a_node_without_a_fabric(had: Any, more: Any, verdict: str) -> None:
    ports = several(port("mlx5_0", **DOWN), port("mlx5_1", **DOWN))
    found = states(ports, all_of(ports), had, **more)
    assert [one.verdict.value for one in found] == [verdict] * 2
    chosen = replace(all_of(ports), selections=(("mlx5", "/etc/nccl.conf:1"),))
    assert {one.verdict.value for one in states(ports, chosen, had)} == {"fail"}
    beside = several(*ports.ports, port("mlx5_2"))
    wired = [one.verdict.value for one in states(beside, all_of(beside), had)]
    assert wired == ["fail", "fail", "pass"]


@pytest.mark.parametrize(
    ("word", "kind", "verdict", "said"),
    [
        ("INIT", "compute", "fail", "no subnet manager has set it up"),
        ("ARMED", "compute", "fail", "no subnet manager has made it active"),
        ("INIT", "unknown", "warn", "no subnet manager has set it up"),
        ("ACTIVE_DEFER", "compute", "fail", "ACTIVE_DEFER"),
    ],
)
def test_a_port_that_waits(word: str, kind: Kind, verdict: str, said: str) -> None:
    found = state(kind, state=word)
    assert found[0] == verdict
    assert said in found[1]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (DOWN, "nothing answers at the other end"),
        ({"state": "DOWN", "phys_state": "Disabled"}, "it is switched off"),
        ({"state": "DOWN", "phys_state": "Phy Test"}, "Phy Test"),
        ({"state": "DOWN", "phys_state": UNREAD}, "was not recorded"),
        (
            {"state": "DOWN", "phys_state": "Disabled", "link_layer": "Ethernet", "netdev": "eth4"},
            "interface eth4 is down or has no carrier",
        ),
    ],
)
def test_why_it_is_down(more: dict[str, Any], said: str) -> None:
    assert said in state("compute", **more)[1]


def test_what_a_lost_port_costs() -> None:
    ports = several(port("mlx5_0", **DOWN), port("mlx5_1"), port("mlx5_2"))
    findings = states(ports, all_of(ports))
    assert [f.cost for f in findings] == ["one of 3 compute ports, 50.0 GB/s each way", None, None]


def test_an_unread_state_is_unknown() -> None:
    assert state("compute", state=UNREAD) == ("unknown", "was not recorded")


def test_a_device_whose_ports_were_not_recorded_is_unknown() -> None:
    ports = several(port("mlx5_0"), unread={"scif0": "ports was not recorded"})
    findings = states(ports, all_of(ports))
    assert verdicts(findings) == [("scif0", "unknown"), ("mlx5_0 port 1", "pass")]


def test_software_and_virtual_ports_are_left_out() -> None:
    ports = several(port("rxe0", place="", rate="2.5 Gb/sec (1X SDR)"))
    for check in ("rdma/rdma-port-rate", "rdma_width/rdma-port-width"):
        with pytest.raises(NotApplicable):
            judge(check, ports, all_of(ports, "none"))
    with pytest.raises(NotApplicable):
        states(ports, all_of(ports, "none"))


def rates(*texts: str, sure: bool = True, **want: Any) -> list[str]:
    found = [port(f"mlx5_{n}", rate=text) for n, text in enumerate(texts)]
    ports = several(*found)
    findings = judge("rdma/rdma-port-rate", ports, all_of(ports, sure=sure), **want)
    return [f.verdict.value for f in findings]


NDR, NDR200, HDR = "400 Gb/sec (4X NDR)", "200 Gb/sec (2X NDR)", "200 Gb/sec (4X HDR)"
SDR = "10 Gb/sec (4X SDR)"


def test_rates_are_compared_with_each_other_and_the_policy() -> None:
    assert rates(NDR, NDR) == ["pass", "pass"]
    assert rates(NDR, HDR, NDR) == ["pass", "fail", "pass"]
    assert rates(NDR, HDR, sure=False) == ["pass", "warn"]
    assert rates(HDR, HDR, min_gbps=400.0) == ["fail", "fail"]
    assert rates(NDR, min_gbps=400.0) == ["pass"]
    assert rates(NDR) == ["notapplicable"]


def test_a_rate_the_kernel_does_not_know() -> None:
    assert rates(SDR, SDR) == ["unknown", "unknown"]
    assert rates(SDR, "10 Gb/sec (4X)", min_gbps=400.0) == ["unknown", "unknown"]
    assert rates(NDR, SDR) == ["pass", "fail"]
    assert rates("fast", NDR) == ["unknown", "notapplicable"]


def test_what_a_slow_port_costs() -> None:
    ports = several(port("mlx5_0"), port("mlx5_1", rate=NDR200))
    _, slow = judge("rdma/rdma-port-rate", ports, all_of(ports))
    assert slow.message == "it runs at 200 Gb/s 2X NDR; mlx5_0 port 1 runs at 400 Gb/s 4X NDR"
    assert slow.cost == "25.0 instead of 50.0 GB/s each way"


def test_other_models_and_other_roles_set_no_pace() -> None:
    ports = several(port("mlx5_0", model="MT4125", rate=HDR), port("mlx5_1"), port("mlx5_2"))
    findings = judge("rdma/rdma-port-rate", ports, all_of(ports))
    assert [f.verdict.value for f in findings] == ["notapplicable", "pass", "pass"]
    some = roles({"mlx5_1 port 1": Role("compute"), "mlx5_2 port 1": Role("storage")})
    assert [f.subject for f in judge("rdma/rdma-port-rate", ports, some)] == ["mlx5_1 port 1"]


def test_a_port_that_is_down_has_no_rate() -> None:
    ports = several(port(**DOWN))
    with pytest.raises(NotApplicable, match="no compute port is active"):
        judge("rdma/rdma-port-rate", ports, all_of(ports))


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (NDR, "pass"),
        (NDR200, "pass"),
        ("100 Gb/sec (2X HDR)", "pass"),
        ("100 Gb/sec (1X NDR)", "fail"),
        ("50 Gb/sec (2X EDR)", "fail"),
        ("14 Gb/sec (1X FDR)", "fail"),
        ("40 Gb/sec (4X QDR)", "pass"),
        ("2.5 Gb/sec (1X)", "fail"),
        ("10 Gb/sec (2X SDR)", "pass"),  # half of a split cable at a speed the kernel does not know
        ("300 Gb/sec (12X EDR)", "pass"),
        ("?", "unknown"),
    ],
)
def test_lanes(text: str, verdict: str) -> None:
    ports = several(port(rate=text))
    (finding,) = judge("rdma_width/rdma-port-width", ports, all_of(ports, "storage"))
    assert finding.verdict.value == verdict


def test_what_lost_lanes_cost() -> None:
    ports = several(port(rate="100 Gb/sec (1X NDR)"))
    (finding,) = judge("rdma_width/rdma-port-width", ports, all_of(ports))
    assert finding.cost == "12.5 instead of 50.0 GB/s each way"


def test_lanes_of_ethernet_are_not_judged() -> None:
    ports = several(roce(rate="25 Gb/sec (1X EDR)"))
    with pytest.raises(NotApplicable, match="no InfiniBand port is active"):
        judge("rdma_width/rdma-port-width", ports, all_of(ports))
