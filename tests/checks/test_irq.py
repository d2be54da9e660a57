# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
from judging import judge
from machines import machine, nic, numa, pci

from gpuaudit.check import Finding
from gpuaudit.facts.base import Absent
from gpuaudit.facts.irq import IrqPinning, NicInterrupts, NicVectors
from gpuaudit.facts.services import Irqbalance
from gpuaudit.host import NotApplicable, Unavailable

ADDRESS = "0000:01:00.0"
TWO = numa("0-3", "4-7")


def affinity(
    *cpus: set[int],
    tables: Any = TWO,
    node: int = 0,
    unread: str | None = None,
    rdma: bool | None = True,
    hypervisor: str = "",
    vendor: int = 0x15B3,
) -> Finding:
    served = {40 + n: frozenset(c) for n, c in enumerate(cpus)}
    found = NicInterrupts(nics=(NicVectors(address=ADDRESS, cpus=served, unread=unread),))
    devices = pci(nic(ADDRESS, node, "0-3" if node == 0 else "0-7", rdma=rdma, vendor=vendor))
    (finding,) = judge("irq/irq-nic-affinity", found, tables, devices, machine(hypervisor))
    return finding


@pytest.mark.parametrize(
    ("cpus", "verdict", "observed"),
    [
        (({0}, {1}, {0, 3}), "pass", "3 of 3 vectors on node 0"),
        (({2},), "pass", "1 of 1 vectors on node 0"),
        (({0}, {4}), "fail", "1 of 2 vectors on node 0"),
        (({4}, {5}, {0}), "fail", "1 of 3 vectors on node 0"),
        (({4}, {0}, {1}), "warn", "2 of 3 vectors on node 0"),
        (({0}, {0, 1, 2, 3, 4, 5, 6, 7}), "warn", "1 of 2 vectors on node 0"),
        (({0}, {1}, {2}, {3}, {4}), "warn", "4 of 5 vectors on node 0"),
        (({1}, {1}, {1}), "warn", "3 of 3 vectors on node 0"),
    ],
)
def test_vectors(cpus: tuple[set[int], ...], verdict: str, observed: str) -> None:
    finding = affinity(*cpus)
    assert (finding.verdict.value, finding.observed) == (verdict, observed)


def test_a_vector_that_may_run_anywhere_is_not_known_to_run_elsewhere() -> None:
    message = affinity({0, 1, 2, 3, 4, 5, 6, 7}).message
    assert message == "1 of 1 vectors may be served by other nodes than 0"


@pytest.mark.parametrize(("rdma", "verdict"), [(True, "fail"), (None, "fail"), (False, "warn")])
def test_a_management_nic_only_warns(*, rdma: bool | None, verdict: str) -> None:
    assert affinity({4}, {5}, rdma=rdma).verdict.value == verdict


def test_a_virtual_nic_is_near_nothing() -> None:
    """A virtio NIC of a guest with two nodes names none, and never will."""
    assert affinity({4}, hypervisor="kvm", vendor=0x1AF4).verdict.value == "notapplicable"
    assert affinity({4}, hypervisor="kvm").verdict.value == "fail"


def test_one_cpu_is_named() -> None:
    assert affinity({1}, {1}).message == "all 2 vectors are on CPU 1"


def test_a_nic_that_cannot_be_placed() -> None:
    assert affinity({0}, node=-1).verdict.value == "unknown"


def test_a_nic_whose_files_disagree() -> None:
    assert affinity({0}, node=1).verdict.value == "unknown"


def test_a_vector_that_was_not_read() -> None:
    finding = affinity({0}, unread="/proc/irq/41 was not recorded")
    assert (finding.verdict.value, finding.message) == ("unknown", "/proc/irq/41 was not recorded")


def test_a_nic_without_vectors_in_use() -> None:
    assert affinity().verdict.value == "notapplicable"


def test_one_node_has_no_remote_cpus() -> None:
    with pytest.raises(NotApplicable):
        affinity({0}, tables=numa("0-7"))


def test_inconsistent_tables() -> None:
    with pytest.raises(Unavailable, match="inconsistent"):
        affinity({0}, tables=numa("0-7", "0-7", problems=("overlap",)))


def balance(
    *, running: Any, configured: tuple[str, ...] = (), free: tuple[str, ...] = (), **more: Any
) -> Finding:
    irqbalance = Irqbalance(
        running=running,
        config="/etc/default/irqbalance",
        one_shot=more.get("one_shot", False),
        bans=more.get("bans", ()),
    )
    (finding,) = judge(
        "irq/irq-balance-policy",
        irqbalance,
        IrqPinning(configured=configured, free=free),
        more.get("tables", TWO),
        irqbalance=more.get("want", "any"),
    )
    return finding


@pytest.mark.parametrize(
    ("want", "running", "verdict"),
    [
        ("running", True, "pass"),
        ("running", False, "fail"),
        ("absent", True, "fail"),
        ("absent", False, "pass"),
    ],
)
def test_a_policy_that_knows_what_it_wants(want: str, running: bool, verdict: str) -> None:
    assert balance(running=running, want=want).verdict.value == verdict


PIN = ("RUN_AFFINITY_TUNER=yes in /etc/infiniband/openib.conf",)
START = ("irqaffinity=0-3",)


@pytest.mark.parametrize(
    ("case", "verdict"),
    [
        ({"running": True}, "pass"),
        ({"running": True, "configured": PIN}, "fail"),
        ({"running": True, "configured": START}, "warn"),
        ({"running": True, "configured": PIN, "bans": ("--banmod=mlx5_core",)}, "pass"),
        ({"running": False}, "pass"),
        ({"running": False, "configured": PIN, "free": (ADDRESS,)}, "pass"),
        ({"running": False, "free": (ADDRESS,)}, "warn"),
        ({"running": False, "free": (ADDRESS,), "one_shot": True}, "pass"),
        ({"running": False, "free": (ADDRESS,), "tables": numa("0-7")}, "pass"),
        ({"running": Absent("missing", "a container")}, "unknown"),
    ],
)
def test_either_but_not_both_and_not_none(case: dict[str, Any], verdict: str) -> None:
    finding = balance(**case)
    assert finding.verdict.value == verdict
    assert finding.message or verdict == "pass"
