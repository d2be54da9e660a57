# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
from judging import judge, verdicts
from machines import machine, nic, pci
from msgspec.structs import replace
from rdmaparts import port, several

from gpuaudit.facts.base import Absent
from gpuaudit.facts.rdmastack import GdrCopy, RdmaStack
from gpuaudit.host import NotApplicable

UNREAD = Absent("missing", "was not recorded")


def drivers(*nics: Any) -> list[tuple[str, str]]:
    return verdicts(judge("rdma_modules/rdma-adapter-driver", pci(*nics)))


def test_adapter_driver() -> None:
    one, two = "0000:01:00.0", "0000:02:00.0"
    fabric: dict[str, Any] = {"class_code": 0x020700}
    assert drivers(nic(one, rdma=True, **fabric)) == [(one, "pass")]
    assert drivers(nic(one, rdma=False, **fabric)) == [(one, "fail")]
    assert drivers(nic(one, rdma=None, **fabric)) == [(one, "unknown")]
    assert drivers(nic(one, rdma=True), nic(two, rdma=False)) == [(one, "pass"), (two, "fail")]
    bonded = nic("0000:01:00.1", rdma=False)
    assert drivers(nic(one, rdma=True), bonded) == [
        (one, "pass"),
        ("0000:01:00.1", "notapplicable"),
    ]
    idle = nic(two, rdma=False, driver=None)
    assert drivers(nic(one, rdma=True), idle) == [(one, "pass"), (two, "warn")]
    handed_out = nic(two, rdma=False, driver="vfio-pci", **fabric)
    assert drivers(nic(one, rdma=True), handed_out) == [(one, "pass")]
    for ordinary in (nic(one, rdma=False), handed_out):
        with pytest.raises(NotApplicable, match="no RDMA adapter"):
            drivers(ordinary)


def stack(**more: Any) -> RdmaStack:
    values: dict[str, Any] = {"taints": {}, "verbs": {"mlx5_0": "uverbs0"}}
    return RdmaStack(**({**values, "nodes": frozenset({"uverbs0"})} | more))


def files(given: RdmaStack, *, container: bool = False) -> str:
    host = replace(machine(), container=container)
    (finding,) = judge("rdma_modules/rdma-device-files", several(port()), given, host)
    return finding.verdict.value


def test_device_files() -> None:
    assert files(stack()) == "pass"
    assert files(stack(verbs={})) == "fail"
    assert files(stack(verbs={"mlx5_1": "uverbs1"})) == "fail"
    assert files(stack(nodes=frozenset())) == "fail"
    assert files(stack(verbs=UNREAD)) == files(stack(nodes=UNREAD)) == "unknown"
    assert files(stack(), container=True) == "pass"
    with pytest.raises(NotApplicable, match="container"):
        files(stack(nodes=frozenset()), container=True)


def test_driver_flavour() -> None:
    for taint, word in (("OE", "a package"), ("", "the kernel's own")):
        taints = dict.fromkeys(("ib_core", "mlx5_core", "mlx5_ib"), taint)
        (finding,) = judge("rdma_modules/rdma-driver-flavour", stack(taints=taints))
        assert finding.verdict.value == "pass"
        assert word in str(finding.observed)
    for odd, verdict in (("OE", "warn"), (UNREAD, "unknown")):
        mixed = stack(taints={"ib_core": odd, "mlx5_core": ""})
        (finding,) = judge("rdma_modules/rdma-driver-flavour", mixed)
        assert finding.verdict.value == verdict
    with pytest.raises(NotApplicable):
        judge("rdma_modules/rdma-driver-flavour", stack(taints={"ib_core": "OE"}))


def test_gdrcopy() -> None:
    check = "rdma_modules/rdma-gdrcopy"
    cases = {(True, True): "pass", (True, False): "fail", (False, False): "fail"}
    for (module, node), verdict in cases.items():
        (finding,) = judge(check, GdrCopy(module=module, node=node), gdrcopy="required")
        assert finding.verdict.value == verdict
    (finding,) = judge(check, GdrCopy(module=UNREAD, node=True), gdrcopy="required")
    assert finding.verdict.value == "unknown"
    with pytest.raises(NotApplicable):
        judge(check, GdrCopy(module=UNREAD, node=UNREAD))
