# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
from judging import judge, verdicts
from machines import machine, nic, pci
from msgspec.structs import replace
from rdmaparts import port, several

from gpuaudit.facts.base import Absent
from gpuaudit.facts.environment import Environment
from gpuaudit.facts.environmentfiles import Assignment
from gpuaudit.facts.rdma import InfinibandDevices
from gpuaudit.facts.rdmastack import GdrCopy, RdmaStack
from gpuaudit.host import NotApplicable

UNREAD = Absent("missing", "was not recorded")


def drivers(
    *nics: Any, present: Any = (), value: str = "", exclusive: bool = False
) -> list[tuple[str, str]]:
    found = [Assignment("NCCL_IB_HCA", value, "/etc/nccl.conf:1", "all")] if value else []
    environment = Environment(assignments=tuple(found), caller={}, gaps={})
    facts = pci(*nics), InfinibandDevices(names=present, exclusive=exclusive), environment
    return verdicts(judge("rdma_modules/rdma-adapter-driver", *facts))


def test_a_selection_of_ports_on_a_node_without_any() -> None:
    plain = nic("0000:01:00.0", rdma=False)
    assert drivers(plain, value="mlx5") == [("NCCL_IB_HCA=mlx5", "warn")]
    for present in (("rxe0",), UNREAD):
        with pytest.raises(NotApplicable):
            drivers(plain, value="mlx5", present=present)


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
    lent = drivers(nic(one, rdma=True), nic(two, rdma=False), exclusive=True)
    assert lent == [(one, "pass"), (two, "unknown")]
    idle = nic(two, rdma=False, driver=None)
    assert drivers(nic(one, rdma=True), idle) == [(one, "pass"), (two, "warn")]
    handed_out = nic(two, rdma=False, driver="vfio-pci", **fabric)
    assert drivers(nic(one, rdma=True), handed_out) == [(one, "pass")]
    other: dict[str, Any] = {"vendor": 0x8086, "device": 0x1592, "driver": "ice"}
    assert drivers(nic(one, rdma=True, **other), nic(two, rdma=False, **other))[1] == (two, "warn")
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
    assert files(stack(nodes=frozenset({"uverbs7"}))) == "fail"
    assert files(stack(nodes=frozenset({"uverbs7"})), container=True) == "notapplicable"
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
