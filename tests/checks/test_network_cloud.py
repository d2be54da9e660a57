# SPDX-License-Identifier: Apache-2.0
"""EFA and gVNIC."""

from typing import Any

import pytest
from judging import judge, verdicts
from machines import gpu, machine, pci

from gpuaudit.check import NotApplicable
from gpuaudit.facts.base import Absent
from gpuaudit.facts.netcloud import CloudNic, Efa, GoogleNics

GOOD = CloudNic("0000:00:1d.0", "efa", driver_known=True, rdma=True)
GVE = CloudNic("0000:00:04.0", "gve", driver_known=True, rdma=False)
VIRTIO = GVE._replace(driver="virtio-pci")
GPU = gpu("0000:00:05.0")


def adapters(nic: CloudNic, **libraries: Any) -> Efa:
    usual: dict[str, Any] = {"libfabric": "/opt/lib", "plugin": "/opt/plugin"}
    return Efa(nics=(nic,), **(usual | libraries))


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "pass"),
        ({"driver": None}, "fail"),
        ({"driver": "vfio-pci"}, "fail"),
        ({"rdma": False}, "fail"),
        ({"rdma": None}, "unknown"),
        ({"driver": None, "driver_known": False}, "unknown"),
    ],
)
def test_efa_adapters(changes: dict[str, Any], verdict: str) -> None:
    facts = adapters(GOOD._replace(**changes)), machine("amazon")
    found = judge("network_cloud/network-efa", *facts)
    assert verdicts(found)[0] == (GOOD.address, verdict)


@pytest.mark.parametrize(
    ("plugin", "verdict"),
    [("/opt/x", "pass"), (None, "warn"), (Absent("failed", "not recorded"), "unknown")],
)
def test_efa_libraries(plugin: Any, verdict: str) -> None:
    found = judge("network_cloud/network-efa", adapters(GOOD, plugin=plugin), machine("amazon"))
    assert verdicts(found)[1:] == [("libfabric", "pass"), ("aws-ofi-nccl", verdict)]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (GoogleNics(gvnic=(GVE,), virtio=()), ["pass"]),
        (GoogleNics(gvnic=(GVE._replace(driver=None),), virtio=()), ["fail"]),
        (GoogleNics(gvnic=(GVE._replace(driver_known=False),), virtio=()), ["unknown"]),
        (GoogleNics(gvnic=(), virtio=(VIRTIO,)), ["warn"]),
    ],
)
def test_gvnic(found: GoogleNics, expected: list[str]) -> None:
    seen = judge("network_cloud/network-gvnic", found, pci(GPU), machine("google"))
    assert [one.verdict.value for one in seen] == expected


@pytest.mark.parametrize(
    ("found", "gpus", "hypervisor"),
    [
        (GoogleNics(gvnic=(), virtio=(VIRTIO,)), [GPU], "kvm"),
        (GoogleNics(gvnic=(), virtio=(VIRTIO,)), [], "google"),
        (GoogleNics(gvnic=(), virtio=()), [GPU], "google"),
    ],
    ids=["elsewhere", "no-gpu", "no-nic"],
)
def test_gvnic_does_not_apply(found: GoogleNics, gpus: list[Any], hypervisor: str) -> None:
    with pytest.raises(NotApplicable):
        judge("network_cloud/network-gvnic", found, pci(*gpus), machine(hypervisor))
