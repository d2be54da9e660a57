# SPDX-License-Identifier: Apache-2.0
from typing import Any

import msgspec
import pytest
from judging import judge
from machines import machine, numa

from gpuaudit.facts.base import Absent
from gpuaudit.facts.callingcontext import CallingContext
from gpuaudit.facts.cores import CpuCores
from gpuaudit.facts.cpusets import parse_list
from gpuaudit.facts.numa import NumaNodes
from gpuaudit.host import NotApplicable, Unavailable

TWO = numa("0-3", "4-7")
GONE = Absent("failed", "not recorded")
CHECK = "numa_host/numa-nodes-per-socket"


def sockets(*lists: str) -> CpuCores:
    return CpuCores(cores=(), sockets=tuple(map(parse_list, lists)))


@pytest.mark.parametrize(
    ("nodes", "cores", "verdict"),
    [
        (TWO, sockets("0-3", "4-7"), "pass"),
        (numa("0-1", "2-3", "4-5", "6-7"), sockets("0-3", "4-7"), "pass"),
        (numa("0-1", "2-3", "4-7"), sockets("0-3", "4-7"), "warn"),
        (numa("0-7"), sockets("0-3", "4-7"), "warn"),
        (numa("0-7", ""), sockets("0-7"), "pass"),
    ],
)
def test_nodes_of_the_sockets(nodes: NumaNodes, cores: CpuCores, verdict: str) -> None:
    (finding,) = judge(CHECK, nodes, cores, machine())
    assert finding.verdict.value == verdict


@pytest.mark.parametrize(("wanted", "verdict"), [(1, "pass"), (4, "fail")])
def test_a_wanted_number(wanted: int, verdict: str) -> None:
    cores = sockets("0-3", "4-7")
    (finding,) = judge(CHECK, TWO, cores, machine(), nodes_per_socket=wanted)
    assert (finding.verdict.value, finding.expected) == (
        verdict,
        None if verdict == "pass" else "nodes a socket: 4",
    )


def test_what_may_be_a_guest() -> None:
    with pytest.raises(Unavailable, match="guest"):
        judge(CHECK, TWO, sockets("0-7"), machine(None))


def test_a_guest() -> None:
    with pytest.raises(NotApplicable, match="guest"):
        judge(CHECK, TWO, sockets("0-7"), machine("kvm"))


def test_an_architecture_without_sockets() -> None:
    cores = CpuCores(cores=(), sockets=Absent("unsupported", "no sockets are told"))
    with pytest.raises(NotApplicable, match="no sockets"):
        judge(CHECK, TWO, cores, machine())


def test_sockets_that_were_not_recorded() -> None:
    cores = CpuCores(cores=(), sockets=Absent("missing", "cpuinfo was not recorded"))
    with pytest.raises(Unavailable, match="cpuinfo"):
        judge(CHECK, TWO, cores, machine())


def held_to(cpus: str, nodes: str | Absent) -> CallingContext:
    memory = nodes if isinstance(nodes, Absent) else parse_list(nodes)
    return CallingContext(cpus=parse_list(cpus), memory_nodes=memory)


@pytest.mark.parametrize(
    ("cpus", "nodes", "verdict"),
    [
        ("0-7", "0-1", "pass"),
        ("0-3", "0", "pass"),
        ("0-3", "0-1", "pass"),
        ("0-7", "0", "warn"),
        ("4-7", "0", "warn"),
    ],
)
def test_memory_beside_the_cpus(cpus: str, nodes: str, verdict: str) -> None:
    (finding,) = judge("numa_host/numa-memory-allowed", TWO, held_to(cpus, nodes))
    assert finding.verdict.value == verdict


def test_a_node_without_memory_needs_none() -> None:
    bare = msgspec.structs.replace(TWO.nodes[1], memory_kib=0)
    nodes = msgspec.structs.replace(TWO, nodes=(TWO.nodes[0], bare))
    (finding,) = judge("numa_host/numa-memory-allowed", nodes, held_to("0-7", "0"))
    assert finding.verdict.value == "pass"


def test_memory_of_one_node() -> None:
    with pytest.raises(NotApplicable):
        judge("numa_host/numa-memory-allowed", numa("0-7"), held_to("0-7", "0"))


@pytest.mark.parametrize(
    "context", [held_to("0-3", GONE), CallingContext(cpus=GONE, memory_nodes=frozenset({0}))]
)
def test_sets_that_are_not_known(context: CallingContext) -> None:
    with pytest.raises(Unavailable, match="not recorded"):
        judge("numa_host/numa-memory-allowed", TWO, context)


@pytest.mark.parametrize("check", [CHECK, "numa_host/numa-memory-allowed"])
def test_inconsistent_tables(check: Any) -> None:
    broken = numa("0-3", "0-3", problems=("both claim them",))
    with pytest.raises(Unavailable, match="inconsistent"):
        judge(check, broken, sockets("0-3"), machine(), held_to("0-3", "0"))
