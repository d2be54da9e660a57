# SPDX-License-Identifier: Apache-2.0
"""One fault at a time on the healthy node: the checks that should change do, and no other."""

from collections import Counter

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
from fakenode.faults_network import FAULTS as NETWORK_FAULTS
from fakenode.faults_nvlink import FAULTS as NVLINK_FAULTS
from fakenode.faults_pci import FAULTS as PCI_FAULTS
from fakenode.faults_pcie import FAULTS as PCIE_FAULTS
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
)
GOOD = {Verdict.PASS, Verdict.NOT_APPLICABLE}


def judged(node: FakeNode) -> dict[str, Result]:
    report = audit.run(node.host(), audit.Request(profile="bringup")).report
    return {result.check: result for result in report.results}


@pytest.fixture(scope="module")
def healthy() -> FakeNode:
    return healthy_node()


@pytest.fixture(scope="module")
def before(healthy: FakeNode) -> dict[str, Result]:
    return judged(healthy)


def test_the_healthy_node_is_healthy(before: dict[str, Result]) -> None:
    assert [r for r in before.values() if r.verdict not in GOOD] == []


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_a_fault_changes_what_it_should(
    healthy: FakeNode, before: dict[str, Result], fault: Fault
) -> None:
    broken = healthy.copied()
    fault.breaks(broken)
    after = judged(broken)
    changed = {c: r.verdict.value for c, r in after.items() if r.verdict is not before[c].verdict}
    assert changed == fault.changes
    for result in (after[check] for check in changed):
        told = [f.message for f in result.findings if f.verdict is result.verdict]
        explained = result.verdict is Verdict.PASS or result.reason or all(told)
        assert explained, f"{result.check} says {result.verdict.value} and not why"


def test_every_fault_has_its_own_name() -> None:
    assert Counter(fault.name for fault in FAULTS).most_common(1)[0][1] == 1
    assert len(FAULTS) >= 50
