# SPDX-License-Identifier: Apache-2.0
"""NUMA nodes as the firmware described them, and what is wrong with that description.

Attribute meaning: Linux Documentation/ABI/stable/sysfs-devices-node; drivers/base/node.c.
"""

import re
from collections import Counter

from gpuaudit.facts.base import Absent, Fact, probe, unread
from gpuaudit.facts.cpu import CpuSets, read_cpu_set, text_of
from gpuaudit.facts.cpusets import format_list
from gpuaudit.facts.pci import PciDevice
from gpuaudit.host import Host, Unavailable
from gpuaudit.host.errors import Kind

FOLDER = "/sys/devices/system/node"
NODE = re.compile(r"node([0-9]{1,5})")
DISTANCES = re.compile(r"[0-9]{1,5}(\s+[0-9]{1,5})*")
TOTAL = re.compile(r"MemTotal:\s*([0-9]{1,18})\s*kB")
KINDS: dict[str, Kind] = {"missing": "not-recorded", "denied": "denied", "unsupported": "missing"}
NO_NUMA = "the kernel has no NUMA support"


class NumaNode(Fact, frozen=True, kw_only=True):
    """One node and its online CPUs: /sys/devices/system/node/nodeN/{cpulist,cpumap,meminfo}."""

    id: int
    cpus: frozenset[int]
    memory_kib: int | Absent


class NumaNodes(Fact, frozen=True, kw_only=True):
    """Every online node, in order of id: /sys/devices/system/node.

    `distances` has a row a node, with one number for each node of `nodes`, in that order (10 is
    local). `problems` is not empty when the tables contradict themselves or the online CPUs:
    nothing about locality may then be concluded.
    """

    nodes: tuple[NumaNode, ...]
    distances: dict[int, tuple[int, ...]]
    problems: tuple[str, ...]
    unread: str = ""
    """Why a row of distances could not be read; "" when all were, or the kernel has none."""

    @property
    def wrong(self) -> str:
        """The problems in one line."""
        return f"inconsistent NUMA tables: {'; '.join(self.problems)}"

    @property
    def cpu_nodes(self) -> tuple[int, ...]:
        """Ids of the nodes that have CPUs. Nodes without are memory (GPU, HBM, CXL)."""
        return tuple(node.id for node in self.nodes if node.cpus)

    def cpus_of(self, node_id: int) -> frozenset[int]:
        """The CPUs of a node; none for a node that is not online."""
        return next((node.cpus for node in self.nodes if node.id == node_id), frozenset())


@probe
def numa_nodes(host: Host, cpus: CpuSets) -> NumaNodes:
    """Read the nodes that have a folder. A kernel known to have none is one node."""
    try:
        ids = node_ids(host)
    except Unavailable as absent:
        if absent.kind != "missing" or isinstance(cpus.online, Absent):
            raise
        only = NumaNode(id=0, cpus=cpus.online, memory_kib=Absent("unsupported", NO_NUMA))
        return NumaNodes(nodes=(only,), distances={0: (10,)}, problems=())
    nodes = tuple(read_node(host, node_id, cpus.online) for node_id in ids)
    if not any(node.cpus for node in nodes):
        raise Unavailable("no NUMA node has a CPU that is online", "garbled")
    rows = {n: read_distances(host, n) for n in ids}
    distances = {n: row for n, row in rows.items() if not isinstance(row, Absent)}
    gaps = [r.reason for r in rows.values() if isinstance(r, Absent) and r.kind != "unsupported"]
    problems = (*cpu_problems(nodes, cpus.online), *distance_problems(ids, distances))
    unread = gaps[0] if gaps and len(ids) > 1 else ""
    return NumaNodes(nodes=nodes, distances=distances, problems=problems, unread=unread)


def node_ids(host: Host) -> tuple[int, ...]:
    """Ids of the online nodes; only those have a folder. Raises Unavailable."""
    found = (NODE.fullmatch(name) for name in host.list(FOLDER))
    ids = tuple(sorted(int(match[1]) for match in found if match))
    if not ids:
        raise Unavailable(f"{FOLDER} holds no node", "garbled")
    return ids


def read_node(host: Host, node_id: int, online: frozenset[int] | Absent) -> NumaNode:
    """One node. Kernels before 4.14 list offline CPUs too. Raises Unavailable without its CPUs."""
    folder = f"{FOLDER}/node{node_id}"
    cpus = read_cpu_set(host, f"{folder}/cpulist", f"{folder}/cpumap")
    if isinstance(cpus, Absent):
        raise Unavailable(cpus.reason, KINDS.get(cpus.kind, "garbled"))
    cpus = cpus if isinstance(online, Absent) else cpus & online
    return NumaNode(id=node_id, cpus=cpus, memory_kib=read_memory(host, folder))


def read_memory(host: Host, folder: str) -> int | Absent:
    """MemTotal of a node in KiB."""
    try:
        text = host.read(f"{folder}/meminfo")
    except Unavailable as absent:
        return unread(absent)
    match = TOTAL.search(text)
    return int(match[1]) if match else Absent("failed", f"{folder}/meminfo names no MemTotal")


def read_distances(host: Host, node_id: int) -> tuple[int, ...] | Absent:
    """A row of the distance table; unsupported where the kernel is known to have none."""
    path = f"{FOLDER}/node{node_id}/distance"
    text = text_of(host, path)
    if isinstance(text, Absent):
        return text
    if not DISTANCES.fullmatch(text):
        return Absent("failed", f"{path} reads {text[:40]!r}")
    return tuple(map(int, text.split()))


def cpu_problems(nodes: tuple[NumaNode, ...], online: frozenset[int] | Absent) -> tuple[str, ...]:
    """CPUs claimed twice, and online CPUs that no node claims."""
    found = []
    claims = Counter(cpu for node in nodes for cpu in node.cpus)
    if twice := {cpu for cpu, claimed in claims.items() if claimed > 1}:
        claimants = {node.id for node in nodes if node.cpus & twice}
        found.append(f"nodes {format_list(claimants)} all claim CPUs {format_list(twice)}")
    if not isinstance(online, Absent) and (homeless := online - claims.keys()):
        found.append(f"CPUs {format_list(homeless)} are online and on no node")
    return tuple(found)


def distance_problems(
    ids: tuple[int, ...], distances: dict[int, tuple[int, ...]]
) -> tuple[str, ...]:
    """Rows of the wrong length, and nodes that are nearer to another node than to themselves.

    The kernel prints one number for each online node, its own the smallest (ACPI 6.5, 5.2.17).
    """
    found = []
    for position, node_id in enumerate(ids):
        row = distances.get(node_id)
        if row is None:
            continue
        if len(row) != len(ids):
            found.append(f"node {node_id} has {len(row)} distances for {len(ids)} nodes")
        elif min(row) < row[position]:
            found.append(f"node {node_id} is nearer to another node than to itself")
    return tuple(found)


def locate(device: PciDevice, numa: NumaNodes) -> int | Absent:
    """The CPU node a device hangs on, when its two sysfs files do not contradict each other.

    numa_node -1 means firmware said nothing. Then, or where only local_cpus was recorded, the
    node whose CPUs are exactly the local ones is the answer (old kernels know it by the bus).
    """
    if numa.problems:
        return Absent("failed", f"inconsistent NUMA tables: {numa.problems[0]}")
    if len(numa.cpu_nodes) == 1:
        return numa.cpu_nodes[0]
    if disagreement := contradiction(device, numa):
        return Absent("failed", disagreement)
    if isinstance(device.numa_node, int) and device.numa_node >= 0:
        return device.numa_node
    return node_of_cpus(device, numa)


def node_of_cpus(device: PciDevice, numa: NumaNodes) -> int | Absent:
    """The one node whose CPUs are the local CPUs of a device without a node of its own."""
    same = [node.id for node in numa.nodes if node.cpus and node.cpus == device.local_cpus]
    if len(same) == 1:
        return same[0]
    if isinstance(device.numa_node, Absent):
        return device.numa_node
    return Absent("missing", "firmware gave it no NUMA node (numa_node is -1)")


def contradiction(device: PciDevice, numa: NumaNodes) -> str | None:
    """What is wrong between numa_node, local_cpulist and the nodes; None when nothing is."""
    node, local = device.numa_node, device.local_cpus
    if isinstance(node, Absent) or node < 0:
        return None
    if node not in numa.cpu_nodes:
        return f"numa_node is {node}, which is not a node with CPUs"
    if isinstance(local, Absent):
        return None
    known = local & frozenset[int]().union(*(n.cpus for n in numa.nodes))
    if known == numa.cpus_of(node):
        return None
    return f"numa_node is {node}, but local_cpulist is {format_list(local) or 'empty'}"


def require_consistent(numa: NumaNodes) -> None:
    """Nothing may be concluded from tables that contradict themselves. Raises Unavailable."""
    if numa.problems:
        raise Unavailable(numa.wrong, "garbled")
