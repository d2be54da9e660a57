# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
from judging import judge, verdicts
from rdmaparts import all_of, counted, earlier, port, roce, roles, several

from gpuaudit.check import Finding
from gpuaudit.facts.base import Absent
from gpuaudit.facts.rdmaports import RdmaPorts
from gpuaudit.host import NotApplicable
from gpuaudit.topology.rdmaroles import Role

UNREAD = Absent("missing", "was not recorded")
NONE = Absent("unsupported", "the driver tells none")


def alike(*found: Any, **more: Any) -> Finding:
    ports = several(*found)
    (finding,) = judge("rdma_selection/rdma-ports-alike", ports, roles_of(ports, **more))
    return finding


def roles_of(ports: RdmaPorts, **more: Any) -> Any:
    return roles({p.name: Role("compute") for p in ports.ports}, **more)


def test_ports_alike() -> None:
    assert alike(port("mlx5_0"), port("mlx5_1")).observed == "2 InfiniBand ports of MT4129"
    odd = alike(port("mlx5_0"), port("mlx5_1"), roce("mlx5_2"))
    assert odd.verdict.value == "fail"
    assert odd.message == "two link layers: 2 InfiniBand, and mlx5_2 port 1 (Ethernet)"
    chosen = alike(port("mlx5_0"), roce("mlx5_1"), selections=(("mlx5", "/etc/nccl.conf:1"),))
    assert chosen.verdict.value == "warn"
    mixed = alike(port("mlx5_0"), port("mlx5_1"), port("mlx5_2", model="MT4125"))
    assert (mixed.verdict.value, mixed.message) == (
        "warn",
        "two models: 2 MT4129, and mlx5_2 port 1 (MT4125)",
    )
    assert alike(port("mlx5_0"), port("mlx5_1", link_layer=UNREAD)).verdict.value == "unknown"
    for few in ([port()], []):
        with pytest.raises(NotApplicable):
            alike(*few)


def test_link_layer() -> None:
    ports = several(port("mlx5_0"), roce("mlx5_1"), port("mlx5_2", link_layer=UNREAD))
    findings = judge("rdma_selection/rdma-link-layer", ports, all_of(ports), link_layer="Ethernet")
    assert [f.verdict.value for f in findings] == ["fail", "pass", "unknown"]
    with pytest.raises(NotApplicable, match="the policy asks for no link layer"):
        judge("rdma_selection/rdma-link-layer", ports, all_of(ports))
    idle = all_of(ports, "unknown")
    with pytest.raises(NotApplicable, match="not known"):
        judge("rdma_selection/rdma-link-layer", ports, idle, link_layer="Ethernet")


def selection(*values: str, **more: Any) -> list[Finding]:
    ports = several(port("mlx5_0"), port("mlx5_1"))
    found = roles({}, selections=tuple((value, "/etc/nccl.conf:1") for value in values), **more)
    return judge("rdma_selection/rdma-hca-selection", ports, found)


def test_hca_selection() -> None:
    (good,) = selection("=mlx5_1")
    assert (good.subject, good.observed) == ("NCCL_IB_HCA==mlx5_1", "mlx5_1 port 1")
    _, lost = selection("mlx5", "ibp")
    worth = "TCP instead of RDMA at up to 100.0 GB/s each way"
    assert (lost.verdict.value, lost.cost) == ("fail", worth)
    assert lost.message == "set in /etc/nccl.conf:1, it selects none of mlx5_0, mlx5_1"
    (unread,) = selection(unread="no permission")
    assert unread.verdict.value == "unknown"
    with pytest.raises(NotApplicable, match="every active port"):
        selection()


def made(check: str, *found: Any) -> list[tuple[str, str]]:
    ports = several(*found)
    return verdicts(judge(f"rdma_firmware/{check}", ports, all_of(ports)))


def test_firmware_alike() -> None:
    old = port("mlx5_2", firmware="28.39.1002")
    check, make = "rdma-firmware-alike", "MT4129 MT_0000000838"
    assert made(check, port("mlx5_0"), port("mlx5_1")) == [(make, "pass")]
    assert made(check, port("mlx5_0"), port("mlx5_1"), old) == [(make, "warn")]
    assert made(check, port("mlx5_0"), port("mlx5_1", firmware=UNREAD)) == [(make, "unknown")]
    assert made(check, port("a", firmware=NONE), port("b", firmware=NONE)) == [
        (make, "notapplicable")
    ]
    lent = port("mlx5_9", firmware="1.2.3", virtual_function=True)
    assert made(check, port("mlx5_0"), port("mlx5_1"), lent) == [(make, "pass")]
    for alone in ([port("mlx5_0")], [port("mlx5_0"), port("mlx5_0", 2)], [old, roce(board="X")]):
        with pytest.raises(NotApplicable):
            made(check, *alone)
    ports = several(port("mlx5_0"), port("mlx5_1"), old)
    (finding,) = judge(f"rdma_firmware/{check}", ports)
    assert finding.message == "firmware differs: 2 have 28.43.2026, but mlx5_2 28.39.1002"


def test_board_alike() -> None:
    check = "rdma-board-alike"
    assert made(check, port("mlx5_0"), port("mlx5_1")) == [("MT4129", "pass")]
    assert made(check, port("mlx5_0"), port("mlx5_1", board="DEL001")) == [("MT4129", "warn")]
    assert made(check, port("a", board=NONE), port("b", board=NONE)) == [
        ("MT4129", "notapplicable")
    ]
    with pytest.raises(NotApplicable):
        made(check, port("mlx5_0"), port("mlx5_1", model="MT4125"))


LINK_ERRORS = {"symbol_error": 0, "link_error_recovery": 0, "port_rcv_errors": 0}


@pytest.mark.parametrize(
    ("now", "before", "verdict"),
    [
        ({}, None, "pass"),
        ({"port_rcv_errors": 10}, None, "pass"),
        ({"port_rcv_errors": 14}, None, "unknown"),
        ({"port_rcv_errors": 14}, {"port_rcv_errors": 14}, "pass"),
        ({"symbol_error": 5000}, {"symbol_error": 14}, "warn"),
        ({"symbol_error": 240}, {"symbol_error": 0}, "pass"),
        ({"symbol_error": 65535}, {"symbol_error": 65535}, "unknown"),
        ({"symbol_error": 70000}, {"symbol_error": 70000}, "pass"),
        ({"link_error_recovery": 255}, None, "unknown"),
    ],
)
def test_link_errors(now: dict[str, int], before: dict[str, int] | None, verdict: str) -> None:
    zeros = None if before is None else {**LINK_ERRORS, **before}
    facts = several(port()), counted({**LINK_ERRORS, **now}), earlier(zeros)
    (finding,) = judge("rdma_errors/rdma-link-errors", *facts)
    assert finding.verdict.value == verdict


@pytest.mark.parametrize(
    ("now", "before", "verdict"),
    [
        (0, None, "pass"),
        (1, None, "pass"),
        (7, None, "unknown"),
        (7, 7, "pass"),
        (9, 7, "fail"),
        (255, 200, "fail"),  # at its end now, and at least 55 more than yesterday
    ],
)
def test_link_downs(now: int, before: int | None, verdict: str) -> None:
    known = None if before is None else {"link_downed": before}
    facts = several(port()), counted({"link_downed": now}), earlier(known)
    (finding,) = judge("rdma_errors/rdma-link-downs", *facts)
    assert finding.verdict.value == verdict


def test_a_counter_of_link_downs_at_its_end_is_history() -> None:
    facts = several(port()), counted({"link_downed": 255}), earlier({"link_downed": 255})
    (finding,) = judge("rdma_errors/rdma-link-downs", *facts)
    assert finding.verdict.value == "unknown"
    assert "at its end and must be reset" in finding.message


@pytest.mark.parametrize(
    ("totals", "limit", "verdict"),
    [
        ({"local_ack_timeout_err": 0, "out_of_sequence": 10**6}, None, "pass"),
        ({"local_ack_timeout_err": 0, "out_of_sequence": 10**6}, 100, "warn"),
        ({"local_ack_timeout_err": 900}, None, "warn"),
        ({"to_retransmits": 900}, None, "warn"),
        ({"out_of_sequence": 5}, None, "notapplicable"),
    ],
)
def test_retransmissions(totals: dict[str, int], limit: int | None, verdict: str) -> None:
    facts = several(roce()), counted(totals), earlier(dict.fromkeys(totals, 0))
    check = "rdma_errors/rdma-retransmissions"
    (finding,) = judge(check, *facts, sequence_errors_max_per_hour=limit)
    assert finding.verdict.value == verdict


@pytest.mark.parametrize("check", ["rdma-link-errors", "rdma-link-downs", "rdma-retransmissions"])
def test_ports_without_counters(check: str) -> None:
    for gap, verdict in ((UNREAD, "unknown"), (NONE, "notapplicable")):
        gaps = {("mlx5_0 port 1", folder): gap for folder in ("counters", "hw_counters")}
        facts = several(port()), counted({}, gaps=gaps), earlier(None)
        (finding,) = judge(f"rdma_errors/{check}", *facts)
        assert finding.verdict.value == verdict
    some = {"symbol_error": 0, "local_ack_timeout_err": 0}
    gaps = {("mlx5_0 port 1", folder): UNREAD for folder in ("counters", "hw_counters")}
    (finding,) = judge(
        f"rdma_errors/{check}", several(port()), counted(some, gaps=gaps), earlier(None)
    )
    assert finding.verdict.value == "unknown"
    for others in (port(state="DOWN"), port(virtual_function=True), port("rxe0", place="")):
        with pytest.raises(NotApplicable):
            judge(f"rdma_errors/{check}", several(others), counted({}), earlier(None))
