# SPDX-License-Identifier: Apache-2.0
"""Single faults that many things of the node show at once."""

from trees import Link as To

from fakenode import FakeNode
from fakenode.breaking import remove, write
from fakenode.cpus import CPU, CPUS, NODE, node_cpus
from fakenode.fault import Fault
from fakenode.faults_rdma import PLACES

EVERY_CPU = f"0-{CPUS - 1}"


def numa_switched_off_in_the_firmware(node: FakeNode) -> None:
    """Memory is interleaved over both sockets: one node, to which no device belongs."""
    remove(node, f"{NODE}/node1", "/sys/bus/node/devices/node1")
    for name in ("online", "possible", "has_cpu", "has_memory"):
        write(node, f"{NODE}/{name}", "0")
    write(node, f"{NODE}/node0/cpulist", EVERY_CPU)
    write(node, f"{NODE}/node0/cpumap", ",".join(["ffffffff"] * (CPUS // 32)))
    write(node, f"{NODE}/node0/distance", "10")
    write(node, f"{NODE}/node0/meminfo", f"Node 0 MemTotal: {2 << 30} kB")
    for cpu in node_cpus(1):
        remove(node, f"{CPU}/cpu{cpu}/node1")
        node.files[f"{CPU}/cpu{cpu}/node0"] = To("../../node/node0")
        node.files[f"{NODE}/node0/cpu{cpu}"] = To(f"../../cpu/cpu{cpu}")
    for path in node.files:
        if path.startswith("/sys/devices/pci") and path.endswith("/numa_node"):
            write(node, path, "-1")
        if path.startswith("/sys/devices/pci") and path.endswith("/local_cpulist"):
            write(node, path, EVERY_CPU)


def a_socket_without_rdma_drivers(node: FakeNode) -> None:
    for number in range(4, 8):
        name = f"mlx5_{number}"
        remove(node, PLACES[name], f"/sys/class/infiniband/{name}")
        remove(
            node, f"/sys/class/infiniband_verbs/uverbs{number}", f"/dev/infiniband/uverbs{number}"
        )


def pages_wait_to_be_retired(node: FakeNode) -> None:
    """A GPU of Volta, which has pages where later ones have rows."""
    answers = node.nvml["devices"][5]
    answers["nvmlDeviceGetRemappedRows"] = answers["nvmlDeviceGetRowRemapperHistogram"] = {"e": 3}
    answers["nvmlDeviceGetRetiredPagesPendingStatus"] = {"v": 1}
    answers["nvmlDeviceGetRetiredPages(0)"] = answers["nvmlDeviceGetRetiredPages(1)"] = {"v": 0}


BETWEEN_NODES = (
    "irq-nic-affinity",
    "memory-hugepages-even",
    "memory-numa-alike",
    "numa-balancing-off",
    "numa-memory-allowed",
    "numa-node-known",
)
"""Have nothing to judge where there is one NUMA node."""

FAULTS: tuple[Fault, ...] = (
    Fault(
        numa_switched_off_in_the_firmware,
        {**dict.fromkeys(BETWEEN_NODES, "notapplicable"), "numa-nodes-per-socket": "warn"},
    ),
    Fault(
        a_socket_without_rdma_drivers,
        {
            "numa-gpu-nic-locality": "fail",
            "rdma-adapter-driver": "fail",
            "rdma-rail-pairing": "fail",
        },
    ),
    Fault(pages_wait_to_be_retired, {"ecc-retired-pages": "fail"}),
)
