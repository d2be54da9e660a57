# SPDX-License-Identifier: Apache-2.0
"""One fault at a time on the healthy node: the checks that should change do, and no other."""

from collections import Counter
from collections.abc import Callable

import pytest
from fakenode import FakeNode, healthy_node
from fakenode.fault import Fault
from fakenode.faults_driver import FAULTS as DRIVER_FAULTS
from fakenode.faults_environment import FAULTS as ENVIRONMENT_FAULTS
from fakenode.faults_gpu import FAULTS as GPU_FAULTS
from fakenode.faults_gpumore import FAULTS as GPUMORE_FAULTS
from fakenode.faults_host import FAULTS as HOST_FAULTS
from fakenode.faults_hostconfig import FAULTS as HOSTCONFIG_FAULTS
from fakenode.faults_hoststate import FAULTS as HOSTSTATE_FAULTS
from fakenode.faults_kernellog import FAULTS as KERNELLOG_FAULTS
from fakenode.faults_machine import FAULTS as MACHINE_FAULTS
from fakenode.faults_network import FAULTS as NETWORK_FAULTS
from fakenode.faults_nvlink import FAULTS as NVLINK_FAULTS
from fakenode.faults_pci import FAULTS as PCI_FAULTS
from fakenode.faults_pcie import FAULTS as PCIE_FAULTS
from fakenode.faults_policy import FAULTS as POLICY_FAULTS
from fakenode.faults_rates import FAULTS as RATE_FAULTS
from fakenode.faults_rdma import FAULTS as RDMA_FAULTS
from fakenode.faults_storage import FAULTS as STORAGE_FAULTS

from gpuaudit import audit
from gpuaudit.check import Verdict
from gpuaudit.report import Result

FAULTS = (
    *PCI_FAULTS,
    *HOST_FAULTS,
    *HOSTCONFIG_FAULTS,
    *HOSTSTATE_FAULTS,
    *GPU_FAULTS,
    *GPUMORE_FAULTS,
    *NVLINK_FAULTS,
    *DRIVER_FAULTS,
    *KERNELLOG_FAULTS,
    *NETWORK_FAULTS,
    *STORAGE_FAULTS,
    *ENVIRONMENT_FAULTS,
    *PCIE_FAULTS,
    *RDMA_FAULTS,
    *RATE_FAULTS,
    *MACHINE_FAULTS,
    *POLICY_FAULTS,
)
OF_OTHER_MACHINES = {
    "gpu-c2c-link": "needs a Grace CPU: tests/checks/test_gpu_more.py",
    "memory-page-size": "needs a Grace CPU: tests/checks/test_memory_size.py",
}
"""No fault of an x86 node can change these."""

GOOD = {Verdict.PASS, Verdict.NOT_APPLICABLE}


Judge = Callable[[FakeNode, str], dict[str, Result]]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Judge:
    """Every result of bring-up on a node, under the text of a site policy."""
    folder = tmp_path_factory.mktemp("policies")

    def judge(node: FakeNode, policy: str) -> dict[str, Result]:
        path = folder / "site.yaml"
        path.write_text(policy or "policy: 1\n", encoding="utf-8")
        request = audit.Request(profile="bringup", policy_files=(str(path),))
        return {r.check: r for r in audit.run(node.host(), request).report.results}

    return judge


@pytest.fixture(scope="module")
def healthy() -> FakeNode:
    return healthy_node()


@pytest.fixture(scope="module")
def before(healthy: FakeNode, judged: Judge) -> dict[str, dict[str, Result]]:
    """What each policy says of the healthy node."""
    return {policy: judged(healthy, policy) for policy in {fault.policy for fault in FAULTS}}


def test_the_healthy_node_is_healthy(before: dict[str, dict[str, Result]]) -> None:
    every = [result for results in before.values() for result in results.values()]
    assert [result for result in every if result.verdict not in GOOD] == []


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_a_fault_changes_what_it_should(
    healthy: FakeNode, before: dict[str, dict[str, Result]], judged: Judge, fault: Fault
) -> None:
    broken = healthy.copied()
    fault.breaks(broken)
    was, after = before[fault.policy], judged(broken, fault.policy)
    changed = {c: r.verdict.value for c, r in after.items() if r.verdict is not was[c].verdict}
    assert changed == fault.changes
    for result in (after[check] for check in changed):
        told = [f.message for f in result.findings if f.verdict is result.verdict]
        explained = result.verdict is Verdict.PASS or result.reason or all(told)
        assert explained, f"{result.check} says {result.verdict.value} and not why"


def test_every_fault_has_its_own_name() -> None:
    assert Counter((fault.name, fault.policy) for fault in FAULTS).most_common(1)[0][1] == 1
    names = {fault.name: fault.breaks for fault in FAULTS}
    assert all(names[fault.name] is fault.breaks for fault in FAULTS)


def test_every_check_has_a_fault_that_it_finds(before: dict[str, dict[str, Result]]) -> None:
    found = {c for fault in FAULTS for c, v in fault.changes.items() if v in {"fail", "warn"}}
    assert set(before[""]) - found == set(OF_OTHER_MACHINES)
