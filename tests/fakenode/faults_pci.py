# SPDX-License-Identifier: Apache-2.0
"""Single faults of PCIe links, ACS, IOMMU, NUMA and interrupts."""

from fakenode import FakeNode
from fakenode.breaking import (
    acs,
    answer,
    attribute,
    busy,
    cut_config,
    one_end,
    retrain,
    write,
)
from fakenode.cpus import NODE, node_list
from fakenode.fault import PCI_WORDS, Fault, unknown
from fakenode.irqs import numbering

GPU, NIC, DRIVE = "0000:18:00.0", "0000:19:00.0", "0000:1c:00.0"
GPU_PORT, NIC_PORT = "0000:17:00.0", "0000:17:01.0"
UPSTREAM_PORT, ROOT_PORT = "0000:16:00.0", "0000:15:01.0"
STORAGE_NIC = "0000:5a:00.0"


def gpu_at_8_lanes(node: FakeNode) -> None:
    retrain(node, GPU, 5, 8)
    answer(node, 0, "CurrPcieLinkWidth", 8)


def nic_at_gen4(node: FakeNode) -> None:
    retrain(node, NIC, 4, 16)


def nic_at_8_lanes(node: FakeNode) -> None:
    retrain(node, NIC, 5, 8)


def drive_at_2_lanes(node: FakeNode) -> None:
    retrain(node, DRIVE, 4, 2)


def drive_at_gen3(node: FakeNode) -> None:
    retrain(node, DRIVE, 3, 4)


def storage_nic_at_gen3(node: FakeNode) -> None:
    retrain(node, STORAGE_NIC, 3, 16)
    one_end(node, "0000:5a:00.1", 3, 16)


def idle_gpu_at_gen1(node: FakeNode) -> None:
    retrain(node, GPU, 1, 16)
    for again in ("", "#2"):
        answer(node, 0, f"CurrPcieLinkGeneration{again}", 1)
        answer(node, 0, f"PerformanceState{again}", 8)
    answer(node, 0, "ClockInfo(2)", 405)


def busy_gpu_at_gen3(node: FakeNode) -> None:
    retrain(node, GPU, 3, 16)
    for again in ("", "#2"):
        answer(node, 0, f"CurrPcieLinkGeneration{again}", 3)
    busy(node, 0, reasons=0, clock_mhz=1980, power_mw=480_000)


def switch_uplink_at_8_lanes(node: FakeNode) -> None:
    retrain(node, UPSTREAM_PORT, 5, 8)


def switch_uplink_at_gen4(node: FakeNode) -> None:
    retrain(node, UPSTREAM_PORT, 4, 16)


def slot_too_slow(node: FakeNode) -> None:
    attribute(node, GPU_PORT, "max_link_speed", "16.0 GT/s PCIe")
    retrain(node, GPU, 4, 16)


def ends_disagree(node: FakeNode) -> None:
    one_end(node, NIC, 4, 16)


def width_unreadable(node: FakeNode) -> None:
    attribute(node, NIC, "current_link_width", "63")
    attribute(node, NIC, "current_link_speed", "Unknown")


def acs_redirects_on_gpu_port(node: FakeNode) -> None:
    acs(node, GPU_PORT, 0x001D)


def acs_request_redirect_on_nic_port(node: FakeNode) -> None:
    acs(node, NIC_PORT, 0x0004)


def acs_on_root_port_above_a_switch(node: FakeNode) -> None:
    """Traffic between the devices of one switch turns round below it; between two it does not."""
    acs(node, ROOT_PORT, 0x001D)


def acs_validates_sources_only(node: FakeNode) -> None:
    for port in (GPU_PORT, NIC_PORT, ROOT_PORT):
        acs(node, port, 0x0011)


def acs_on_management_port(node: FakeNode) -> None:
    acs(node, "0000:00:1c.0", 0x001D)


def iommu_translates(node: FakeNode) -> None:
    for path in node.files:
        if path.startswith("/sys/kernel/iommu_groups/") and path.endswith("/type"):
            write(node, path, "DMA-FQ")


def gpu_without_numa_node(node: FakeNode) -> None:
    attribute(node, GPU, "numa_node", "-1")
    attribute(node, GPU, "local_cpulist", "0-191")
    attribute(node, GPU, "local_cpus", ",".join(["ffffffff"] * 6))


def gpu_on_the_other_node(node: FakeNode) -> None:
    attribute(node, GPU, "numa_node", "1")


def nodes_share_cpus(node: FakeNode) -> None:
    write(node, f"{NODE}/node1/cpulist", node_list(0))


def nic_vectors_on_the_other_node(node: FakeNode) -> None:
    for number in numbering()[NIC]:
        vector(node, number, 50)


def one_vector_on_the_other_node(node: FakeNode) -> None:
    vector(node, numbering()[NIC][3], 60)


def nic_vectors_on_one_cpu(node: FakeNode) -> None:
    for number in numbering()[NIC]:
        vector(node, number, 5)


def vector(node: FakeNode, number: int, cpu: int) -> None:
    for name in ("smp_affinity_list", "effective_affinity_list"):
        write(node, f"/proc/irq/{number}/{name}", str(cpu))


FAULTS: tuple[Fault, ...] = (
    Fault(gpu_at_8_lanes, {"pcie-link-width": "fail"}),
    Fault(nic_at_8_lanes, {"pcie-link-width": "fail"}),
    Fault(nic_at_gen4, {"pcie-link-speed": "fail"}),
    Fault(drive_at_2_lanes, {"pcie-link-width": "fail"}),
    Fault(drive_at_gen3, {"pcie-link-speed": "fail"}),
    Fault(storage_nic_at_gen3, {"pcie-link-speed": "fail"}),
    Fault(idle_gpu_at_gen1, {"pcie-link-speed": "unknown"}),
    Fault(
        busy_gpu_at_gen3,
        {"clocks-locked": "pass", "gpu-processes-left": "warn", "pcie-link-speed": "fail"},
    ),
    Fault(switch_uplink_at_8_lanes, {"pcie-path-narrowest": "fail"}),
    Fault(switch_uplink_at_gen4, {"pcie-path-narrowest": "fail"}),
    Fault(slot_too_slow, {"pcie-slot-limit": "warn"}),
    Fault(ends_disagree, {"pcie-link-speed": "unknown"}),
    Fault(width_unreadable, {"pcie-link-speed": "unknown", "pcie-link-width": "unknown"}),
    Fault(acs_redirects_on_gpu_port, {"acs-redirect-off": "fail"}),
    Fault(acs_request_redirect_on_nic_port, {"acs-redirect-off": "fail"}),
    Fault(acs_on_root_port_above_a_switch, {"acs-redirect-off": "warn"}),
    Fault(acs_validates_sources_only, {}),
    Fault(acs_on_management_port, {}),
    Fault(cut_config, unknown(PCI_WORDS | {"acs-redirect-off", "pcie-max-read-request"})),
    Fault(iommu_translates, {"iommu-mode": "fail"}),
    Fault(gpu_without_numa_node, {"numa-local-cpus-online": "unknown", "numa-node-known": "fail"}),
    Fault(gpu_on_the_other_node, {"numa-local-cpus-online": "unknown", "numa-node-known": "warn"}),
    Fault(
        nodes_share_cpus,
        {
            "irq-nic-affinity": "unknown",
            "memory-numa-alike": "unknown",
            "numa-gpu-nic-locality": "unknown",
            "numa-local-cpus-online": "unknown",
            "numa-memory-allowed": "unknown",
            "numa-node-known": "unknown",
            "numa-nodes-per-socket": "unknown",
            "numa-tables-consistent": "fail",
        },
    ),
    Fault(nic_vectors_on_the_other_node, {"irq-nic-affinity": "fail"}),
    Fault(one_vector_on_the_other_node, {"irq-nic-affinity": "warn"}),
    Fault(nic_vectors_on_one_cpu, {"irq-nic-affinity": "warn"}),
)
