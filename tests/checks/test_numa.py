# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
from judging import judge, verdicts
from machines import device, gpu, machine, nic, numa, pci

from gpuaudit.facts.base import Absent
from gpuaudit.facts.numa import NumaNodes
from gpuaudit.facts.numabalancing import NextBoot, NumaBalancing
from gpuaudit.host import NotApplicable, Unavailable

TWO = numa("0-3", "4-7")
ONE = numa("0-7")
BROKEN = numa("0-7", "0-7", problems=("nodes 0-1 all claim CPUs 0-7",))
NOT_RECORDED = Absent("missing", "not recorded")
ON_A_NODE = ("numa/numa-node-known", "numa/numa-gpu-nic-locality", "numa/numa-local-cpus-online")


def test_consistent_tables() -> None:
    (finding,) = judge("numa/numa-tables-consistent", TWO)
    assert (finding.verdict.value, finding.observed) == ("pass", "2 nodes, 2 with CPUs")


def test_inconsistent_tables() -> None:
    (finding,) = judge("numa/numa-tables-consistent", BROKEN)
    assert finding.verdict.value == "fail"
    assert finding.message == "inconsistent NUMA tables: nodes 0-1 all claim CPUs 0-7"


@pytest.mark.parametrize("check", ON_A_NODE)
def test_nothing_is_concluded_from_inconsistent_tables(check: str) -> None:
    devices = pci(gpu("0000:01:00.0"), nic("0000:02:00.0", rdma=True))
    with pytest.raises(Unavailable, match="inconsistent NUMA tables"):
        judge(check, BROKEN, devices, machine())


@pytest.mark.parametrize("check", ON_A_NODE)
def test_a_machine_without_devices(check: str) -> None:
    with pytest.raises(NotApplicable):
        judge(check, TWO, pci(), machine())


@pytest.mark.parametrize(
    ("node", "cpus", "hypervisor", "verdict"),
    [
        (1, "4-7", "", "pass"),
        (NOT_RECORDED, "4-7", "", "pass"),
        (-1, "0-7", "", "fail"),
        (-1, "0-7", "kvm", "warn"),
        (-1, "0-7", None, "warn"),
        (1, "0-7", "", "warn"),
        (5, "0-7", "", "warn"),
        (NOT_RECORDED, NOT_RECORDED, "", "unknown"),
    ],
)
def test_node_of_a_device(node: Any, cpus: Any, hypervisor: str | None, verdict: str) -> None:
    devices = pci(gpu("0000:01:00.0", node, cpus))
    (finding,) = judge("numa/numa-node-known", TWO, devices, machine(hypervisor))
    assert (finding.subject, finding.verdict.value) == ("0000:01:00.0", verdict)


def test_a_disagreement_names_both_files() -> None:
    devices = pci(nic("0000:43:00.0", 1, "0-7"))
    (finding,) = judge("numa/numa-node-known", TWO, devices, machine())
    assert finding.message == "numa_node is 1, but local_cpulist is 0-7"


def test_a_nic_without_a_driver_needs_no_node() -> None:
    devices = pci(gpu("0000:01:00.0"), nic("0000:02:00.0", -1, driver=None))
    found = judge("numa/numa-node-known", TWO, devices, machine())
    assert verdicts(found) == [("0000:01:00.0", "pass")]


def test_no_node_is_normal_where_one_node_has_all_cpus() -> None:
    with pytest.raises(NotApplicable, match="every device is local"):
        judge("numa/numa-node-known", ONE, pci(gpu("0000:01:00.0", -1)), machine())


def test_the_virtual_devices_of_a_guest_have_no_node_to_name() -> None:
    devices = pci(gpu("0000:01:00.0"), nic("0000:02:00.0", -1, vendor=0x1AF4))
    found = judge("numa/numa-node-known", TWO, devices, machine("kvm"))
    assert verdicts(found) == [("0000:01:00.0", "pass")]


def locality(
    *devices: Any, hypervisor: str = "", tables: NumaNodes = TWO, **want: Any
) -> list[tuple[str, str]]:
    return verdicts(
        judge(
            "numa/numa-gpu-nic-locality",
            tables,
            pci(*devices),
            machine(hypervisor),
            **{"gpu_nic_too_far": "fail", **want},
        )
    )


def below(bus: str, node: int, **more: Any) -> dict[str, Any]:
    """A device below a root port of its own and a switch of its own."""
    parents = (f"0000:{bus}:01.0", f"0000:{bus}:02.0", f"0000:{bus}:03.0")
    cpus = "0-3" if node == 0 else "4-7"
    return {"root": f"pci0000:{bus}", "parents": parents, "node": node, "cpus": cpus, **more}


def test_a_nic_below_the_switch_of_the_gpu() -> None:
    found = locality(
        gpu("0000:15:00.0", **below("10", 0)),
        nic("0000:16:00.0", **below("10", 0, rdma=True)),
        nic("0000:02:00.0", **below("80", 1)),
        gpu_nic_farthest="PXB",
    )
    assert found == [("0000:15:00.0", "pass")]


@pytest.mark.parametrize(("farthest", "verdict"), [("NODE", "pass"), ("PXB", "fail")])
def test_a_nic_on_the_node_of_the_gpu(farthest: str, verdict: str) -> None:
    found = locality(
        gpu("0000:15:00.0", **below("10", 0)),
        nic("0000:26:00.0", **below("20", 0, rdma=True)),
        gpu_nic_farthest=farthest,
    )
    assert found == [("0000:15:00.0", verdict)]


def test_a_nic_on_the_other_node_is_too_far() -> None:
    found = locality(
        gpu("0000:15:00.0", **below("10", 0)),
        nic("0000:86:00.0", **below("80", 1, rdma=True)),
    )
    assert found == [("0000:15:00.0", "fail")]


@pytest.mark.parametrize(
    ("policy", "more", "verdict"),
    [
        ("warn", (), "warn"),
        ("fail-with-nvswitch", (), "warn"),
        ("fail-with-nvswitch", (device("0000:40:00.0", "nvswitch"),), "fail"),
    ],
)
def test_a_server_with_fewer_nics_than_sockets_is_built_so(
    policy: str, more: tuple[Any, ...], verdict: str
) -> None:
    found = locality(
        gpu("0000:15:00.0", **below("10", 0)),
        nic("0000:86:00.0", **below("80", 1, rdma=True)),
        *more,
        gpu_nic_too_far=policy,
    )
    assert found == [("0000:15:00.0", verdict)]


@pytest.mark.parametrize(
    ("farthest", "node", "verdict"),
    [("NODE", 0, "pass"), ("NODE", 1, "fail"), ("PXB", 0, "unknown"), ("PXB", 1, "fail")],
)
def test_in_a_guest_only_nodes_count(farthest: str, node: int, verdict: str) -> None:
    found = locality(
        gpu("0000:01:00.0", 0, "0-3"),
        nic("0000:02:00.0", node, "0-3" if node == 0 else "4-7", rdma=True),
        hypervisor="kvm",
        gpu_nic_farthest=farthest,
    )
    assert found == [("0000:01:00.0", verdict)]


def test_a_gpu_that_cannot_be_placed() -> None:
    found = locality(
        gpu("0000:15:00.0", **(below("10", 0) | {"node": -1, "cpus": "0-7"})),
        nic("0000:86:00.0", **below("80", 1, rdma=True)),
    )
    assert found == [("0000:15:00.0", "unknown")]


def test_without_an_rdma_nic_there_is_nothing_to_judge() -> None:
    with pytest.raises(NotApplicable, match="RDMA"):
        locality(gpu("0000:01:00.0"), nic("0000:02:00.0"))


def test_gpus_share_the_cpus_of_their_node() -> None:
    devices = pci(
        gpu("0000:01:00.0", 0, "0-3"), gpu("0000:02:00.0", 0, "0-3"), gpu("0000:03:00.0", 1, "4-7")
    )
    found = judge("numa/numa-local-cpus-online", TWO, devices, min_local_cpus_per_gpu=3)
    assert [(f.verdict.value, f.observed) for f in found] == [
        ("fail", "2 CPUs"),
        ("fail", "2 CPUs"),
        ("pass", "4 CPUs"),
    ]


def test_a_gpu_without_a_node_has_no_known_cpus() -> None:
    devices = pci(gpu("0000:01:00.0", -1, "0-7"))
    assert verdicts(judge("numa/numa-local-cpus-online", TWO, devices)) == [
        ("0000:01:00.0", "unknown")
    ]


def balancing(now: Any, after: Any = 0, nodes: int | None = 2) -> NumaBalancing:
    return NumaBalancing(
        running=now, nodes=nodes, next_boot=NextBoot(value=after, source="/etc/a:1")
    )


@pytest.mark.parametrize(
    ("now", "after", "verdict"),
    [
        (0, 0, ["pass", "pass"]),
        (0, 1, ["pass", "warn"]),
        (0, NOT_RECORDED, ["pass", "warn"]),
        (0, Absent("unsupported", "a container"), ["pass", "notapplicable"]),
        (None, NOT_RECORDED, ["unknown"]),
        (1, 0, ["fail"]),
        (2, 0, ["warn"]),
        (3, 0, ["fail"]),
        (NOT_RECORDED, 0, ["unknown"]),
        (Absent("unsupported", "no such file"), 1, ["notapplicable"]),
        (None, 0, ["pass"]),
        (None, 1, ["fail"]),
    ],
)
def test_balancing(now: Any, after: Any, verdict: list[str]) -> None:
    found = judge("numa_balancing/numa-balancing-off", balancing(now, after))
    assert [f.verdict.value for f in found] == verdict


def test_balancing_that_a_reboot_brings_back_names_the_file() -> None:
    found = judge("numa_balancing/numa-balancing-off", balancing(0, 1))
    assert found[-1].message == "/etc/a:1 sets it to 1"


def test_one_node_has_nothing_to_balance() -> None:
    with pytest.raises(NotApplicable):
        judge("numa_balancing/numa-balancing-off", balancing(1, nodes=1))


def test_a_policy_that_accepts_balancing() -> None:
    with pytest.raises(NotApplicable):
        judge("numa_balancing/numa-balancing-off", balancing(1), automatic="any")
