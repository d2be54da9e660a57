# SPDX-License-Identifier: Apache-2.0
"""NUMA nodes of each socket, and the memory of them that a job may use."""

from typing import Annotated

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    Unavailable,
    check,
    fails,
    passes,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.callingcontext import CallingContext
from gpuaudit.facts.cores import CpuCores
from gpuaudit.facts.cpu import known
from gpuaudit.facts.cpusets import format_list
from gpuaudit.facts.node import Machine
from gpuaudit.facts.numa import NumaNodes, require_consistent


class NumaHostExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of the NUMA nodes."""

    nodes_per_socket: Annotated[int, msgspec.Meta(ge=1, le=64)] | None


@check("numa-nodes-per-socket", severity=Severity.LOW)
def nodes_per_socket(
    numa: NumaNodes, cores: CpuCores, machine: Machine, want: NumaHostExpectations
) -> Finding:
    """Every socket has the same number of NUMA nodes, and the wanted one.

    ## Why it matters
    NPS (AMD) and sub-NUMA clustering (Intel) decide how many channels a process interleaves over
    and which CPUs are near a GPU. A node that differs from its fleet binds its ranks differently.

    ## Evidence
    CPUs of each node in /sys/devices/system/node, sockets by `physical id` of /proc/cpuinfo.

    ## How it is judged
    All sockets have equally many nodes, else it warns. Where `numa_host.nodes_per_socket` is set,
    another number fails. The number is shown in any case.

    ## Exceptions
    Not applicable in guests, whose nodes are the hypervisor's choice, and on architectures that do
    not tell sockets (Arm). Nodes without CPUs do not count. Which NPS is best depends on the board.

    ## What to do
    Set NPS or SNC in the BIOS as the board's vendor advises for GPUs, the same on all nodes.

    ## References
    - https://docs.amd.com/v/u/en-US/58011-epyc-9004-tg-bios-and-workload
    - https://docs.nvidia.com/certification-programs/nvidia-certified-configuration-guide/index.html
    """
    require_consistent(numa)
    if machine.is_vm:
        raise NotApplicable("the NUMA nodes of a guest are its hypervisor's choice")
    if isinstance(cores.sockets, Absent) and cores.sockets.kind == "unsupported":
        raise NotApplicable(cores.sockets.reason)
    if isinstance(cores.sockets, Absent):
        raise Unavailable(cores.sockets.reason, "not-recorded")
    if machine.is_vm is None:
        raise Unavailable("whether this is a guest is not known", "not-recorded")
    nodes = [node.cpus for node in numa.nodes if node.cpus]
    counts = [sum(bool(node & socket) for node in nodes) for socket in cores.sockets]
    of, seen = "NUMA nodes", f"nodes a socket: {', '.join(map(str, sorted(set(counts))))}"
    wanted = want.nodes_per_socket
    if any(sum(bool(node & socket) for socket in cores.sockets) > 1 for node in nodes):
        return warns(of, "a node spans several sockets: NUMA is off, or the machine has none", seen)
    if len(set(counts)) > 1:
        return warns(of, "the sockets are divided differently", seen)
    if wanted is not None and counts[0] != wanted:
        return fails(
            of,
            f"{counts[0]} instead of {wanted} nodes a socket",
            seen,
            expected=f"nodes a socket: {wanted}",
        )
    return passes(of, seen)


@check("numa-memory-allowed", severity=Severity.MEDIUM)
def memory_allowed(numa: NumaNodes, context: CallingContext) -> Finding:
    """A job started from here may use the memory beside each of its CPUs.

    ## Why it matters
    A cpuset that grants CPUs of a socket without its memory makes every access of them remote:
    half the bandwidth, and more latency for each kernel launch.

    ## Evidence
    Cpus_allowed_list and Mems_allowed_list in /proc/self/status; the CPUs of each node.

    ## How it is judged
    Each node with allowed CPUs and memory of its own is among the allowed memory nodes, else it
    warns.

    ## Exceptions
    Not applicable with one NUMA node. Memory policies of numactl are no sets and not seen. Nodes
    without CPUs (memory of Grace's GPUs, CXL) do not count.

    ## What to do
    Look at cpuset.mems of the cgroup in /proc/self/cgroup and at what set it: Slurm's cgroup.conf,
    `memoryManagerPolicy` of kubelet, AllowedMemoryNodes= of systemd.

    ## References
    - https://man7.org/linux/man-pages/man7/cpuset.7.html
    - https://docs.kernel.org/admin-guide/cgroup-v2.html#cpuset
    """
    require_consistent(numa)
    if len(numa.cpu_nodes) < 2:
        raise NotApplicable("one NUMA node has all CPUs")
    cpus, allowed = known(context.cpus), context.memory_nodes
    if isinstance(allowed, Absent):
        raise Unavailable(allowed.reason, "not-recorded")
    used = frozenset(n.id for n in numa.nodes if n.cpus & cpus and n.memory_kib != 0)
    nodes = "node" if len(allowed) == 1 else "nodes"
    lacking, seen = used - allowed, f"memory of {nodes} {format_list(allowed)}"
    if not lacking:
        return passes("memory nodes", seen)
    message = f"CPUs of node {format_list(lacking)} may be used, its memory may not"
    return warns("memory nodes", message, seen, cost="every access to memory is remote there")
