# SPDX-License-Identifier: Apache-2.0
"""What NVML's answers about links, partitions and slowdowns become."""

from typing import Any

import pytest
from fakenode import FakeNode, breaking, healthy_node
from fakenode.layout import gpu_addresses
from fakenode.pci import path_of

from gpuaudit.engine import Facts
from gpuaudit.facts.base import Absent
from gpuaudit.facts.c2c import C2cLinks
from gpuaudit.facts.confidential import Confidential
from gpuaudit.facts.gputhrottle import GpuThrottle
from gpuaudit.facts.nvlink import NvLinks, Pair
from gpuaudit.host import NotApplicable, Unavailable

GPU = 2
OLD, NEW = "575.57.08", "580.159.04"
MS = 1_000_000


@pytest.fixture
def node() -> FakeNode:
    return healthy_node()


def links(node: FakeNode) -> NvLinks:
    found: NvLinks = Facts(node.host()).get(NvLinks)
    return found


def test_the_healthy_node(node: FakeNode) -> None:
    found = links(node)
    assert [len(one.up) for one in found.gpus] == [18] * 8
    assert {link.mb_per_s for link in found.gpus[0].links} == {26562}
    assert found.gpus[0].links[17].errors == {"replays": 0, "recoveries": 0, "crc-errors": 0}
    assert len(found.pairs) == 28
    assert found.pair(5, 2) == found.pair(2, 5) == Pair(0, 0)
    assert found.pair(2, 2) is None


def test_counters_have_the_address_and_the_link(node: FakeNode) -> None:
    breaking.answer(node, GPU, "FieldValues(162,7)", 4)
    breaking.answer(node, GPU, "FieldValues(52)", 9)
    told = links(node).counters()[gpu_addresses()[GPU]]
    assert (told["recoveries-7"], told["recoveries-8"], told["replays"]) == (4, 0, 9)
    assert len(told) == 3 * 18 + 1


@pytest.mark.parametrize("value", [-1, "many", 2.5, True, None])
def test_a_counter_that_is_no_number_is_none(node: FakeNode, value: Any) -> None:
    breaking.answer(node, GPU, "FieldValues(162,7)", value)
    assert "recoveries" not in links(node).gpus[GPU].links[7].errors


def test_a_gpu_without_links_says_why(node: FakeNode) -> None:
    for link in range(18):
        breaking.error(node, GPU, f"NvLinkState({link})", 3)
    one = links(node).gpus[GPU]
    assert (one.absent, one.links) == (
        Absent("unsupported", "this GPU does not support it (NvLinkState(0))"),
        (),
    )
    breaking.lose_gpu(node, GPU)
    absent = links(node).gpus[GPU].absent
    assert absent is not None
    assert absent.kind == "failed"


def test_a_list_of_links_that_breaks_off(node: FakeNode) -> None:
    assert links(node).gpus[GPU].broken is None
    breaking.error(node, GPU, "NvLinkState(3)", 3)
    breaking.error(node, GPU, "NvLinkState(7)", 999)
    broken = links(node).gpus[GPU].broken
    assert broken is not None
    assert "NvLinkState(7)" in broken.reason
    for link in range(7, 19):
        del node.nvml["devices"][GPU][f"nvmlDeviceGetNvLinkState({link})"]
    assert links(node).gpus[GPU].broken is not None


def test_links_are_known_by_their_numbers(node: FakeNode) -> None:
    breaking.error(node, GPU, "NvLinkState(3)", 3)
    one = links(node).gpus[GPU]
    assert [link.number for link in one.links] == [n for n in range(18) if n != 3]


def test_why_there_are_no_counters(node: FakeNode) -> None:
    assert links(node).gpus[GPU].silent is None
    breaking.error(node, GPU, "FieldValues(163,0)", 4)
    silent = links(node).gpus[GPU].silent
    assert silent is not None
    assert silent.kind == "denied"


def test_without_nvml_there_are_no_links(node: FakeNode) -> None:
    breaking.no_nvml(node, 9)
    with pytest.raises(Unavailable):
        links(node)
    with pytest.raises(Unavailable):
        Facts(node.host()).get(GpuThrottle)


def times(node: FakeNode, driver: str) -> dict[str, int] | Absent:
    node.nvml["system"]["nvmlSystemGetDriverVersion"] = {"v": driver}
    found: GpuThrottle = Facts(node.host()).get(GpuThrottle)
    return found.by_gpu[GPU]


def test_time_below_the_clocks(node: FakeNode) -> None:
    breaking.answer(node, GPU, "FieldValues(75)", 1500 * MS)
    for field in (269, 270, 271):
        breaking.answer(node, GPU, f"FieldValues({field})", field * MS)
    found = {"software-thermal-ms": 269, "hardware-thermal-ms": 270, "power-brake-ms": 271}
    assert times(node, NEW) == found
    assert Facts(node.host()).get(GpuThrottle).counters()[gpu_addresses()[GPU]] == found


def test_a_driver_that_gave_the_numbers_another_meaning(node: FakeNode) -> None:
    breaking.answer(node, GPU, "FieldValues(75)", 1500 * MS)
    breaking.answer(node, GPU, "FieldValues(269)", 3)
    assert times(node, OLD) == {"thermal-ms": 1500}


def test_time_that_is_not_counted(node: FakeNode) -> None:
    breaking.error(node, GPU, "FieldValues(75)", 3)
    told = times(node, OLD)
    assert isinstance(told, Absent)
    assert told.kind == "unsupported"
    assert gpu_addresses()[GPU] not in Facts(node.host()).get(GpuThrottle).counters()


@pytest.mark.parametrize(
    ("settings", "state", "on", "how"),
    [
        ({"v": {"ccFeature": 0, "multiGpuMode": 0}}, {"e": 3}, False, ""),
        ({"v": {"ccFeature": 1, "multiGpuMode": 0}}, {"e": 3}, True, ""),
        ({"v": {"ccFeature": 0, "multiGpuMode": 1}}, {"e": 3}, True, " (protected PCIe)"),
        ({"e": 13}, {"v": {"ccFeature": 1}}, True, ""),
    ],
)
def test_confidential_computing(
    node: FakeNode, settings: Any, state: Any, on: object, how: str
) -> None:
    node.nvml["system"] |= {
        "nvmlSystemGetConfComputeSettings": settings,
        "nvmlSystemGetConfComputeState": state,
    }
    assert Facts(node.host()).get(Confidential) == Confidential(on=on, how=how)  # type: ignore[arg-type]  # parametrized


@pytest.mark.parametrize(("code", "kind"), [(3, "unsupported"), (999, "failed")])
def test_confidential_computing_that_is_not_told(node: FakeNode, code: int, kind: str) -> None:
    for name in ("Settings", "State"):
        node.nvml["system"][f"nvmlSystemGetConfCompute{name}"] = {"e": code}
    on = Facts(node.host()).get(Confidential).on
    assert isinstance(on, Absent)
    assert on.kind == kind


def test_links_to_the_cpu(node: FakeNode) -> None:
    assert Facts(node.host()).get(C2cLinks).down[GPU] == ()
    for link, status in enumerate((1, 0, 1)):
        node.nvml["devices"][GPU][f"nvmlDeviceGetFieldValues(171,{link})"] = {"v": status}
    node.nvml["devices"][GPU]["nvmlDeviceGetFieldValues(171,3)"] = {"e": 999}
    assert Facts(node.host()).get(C2cLinks).down[GPU] == (1,)


def test_a_machine_without_gpus_has_no_links(node: FakeNode) -> None:
    for address in gpu_addresses():
        breaking.remove(node, path_of(address), f"/sys/bus/pci/devices/{address}")
    node.nvml["devices"] = []
    with pytest.raises(NotApplicable):
        links(node)
