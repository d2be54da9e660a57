# SPDX-License-Identifier: Apache-2.0
"""NUMA nodes and CPUs as the topology command shows them."""

from collections.abc import Iterator

import msgspec

from gpuaudit.facts.base import Absent
from gpuaudit.facts.cpu import CpuSets
from gpuaudit.facts.cpusets import format_list
from gpuaudit.facts.numa import NumaNodes


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """One NUMA node. `cpus` is a CPU list (0-3,8), `distances` has a number for each node."""

    id: int
    cpus: str
    memory_kib: int | None
    distances: tuple[int, ...] | None


class CpuView(msgspec.Struct, frozen=True, kw_only=True):
    """CPU lists; None where it cannot be told. `offline` are present and not online."""

    online: str | None = None
    offline: str | None = None


def node_views(numa: NumaNodes | Absent) -> tuple[NodeView, ...]:
    """Every node that was read."""
    if isinstance(numa, Absent):
        return ()
    return tuple(
        NodeView(
            id=node.id,
            cpus=format_list(node.cpus),
            memory_kib=None if isinstance(node.memory_kib, Absent) else node.memory_kib,
            distances=numa.distances.get(node.id),
        )
        for node in numa.nodes
    )


def cpu_view(cpus: CpuSets) -> CpuView:
    """What is online, and what is present and not online."""
    if isinstance(cpus.online, Absent):
        return CpuView()
    missing = None if isinstance(cpus.present, Absent) else cpus.present - cpus.online
    return CpuView(
        online=format_list(cpus.online),
        offline=None if missing is None else format_list(missing),
    )


def node_lines(nodes: tuple[NodeView, ...], cpus: CpuView) -> Iterator[str]:
    """One line a node, and one for the CPUs that are offline."""
    for node in nodes:
        memory = "" if node.memory_kib is None else f"  {node.memory_kib / 2**20:.0f} GiB"
        rows = "" if not node.distances else f"  distances {' '.join(map(str, node.distances))}"
        yield f"NUMA node {node.id}  CPUs {node.cpus or 'none'}{memory}{rows}"
    if cpus.offline:
        yield f"CPUs offline: {cpus.offline}"
