# SPDX-License-Identifier: Apache-2.0
"""Sockets, cores and the threads of each, and how long heat held the sockets back."""

from collections import defaultdict
from collections.abc import Mapping

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.counters import Counted, Totals
from gpuaudit.facts.cpu import FOLDER, CpuSets, known, number_of, read_cpu_set
from gpuaudit.facts.node import Machine
from gpuaudit.host import Host, NotApplicable, Unavailable

Cores = tuple[frozenset[int], ...]
THROTTLED_MS = "throttled-ms"
MOST_MS = (1 << 63) - 1
THROTTLED = "thermal_throttle/package_throttle_total_time_ms"
PLACE = ("processor", "physical id", "core id")
"""In this order in each paragraph (Linux arch/x86/kernel/cpu/proc.c, show_cpuinfo)."""


class CpuCores(Fact, frozen=True, kw_only=True):
    """Online CPUs by core and by socket, each core a set of its threads.

    On x86 from `physical id` and `core id` of /proc/cpuinfo, elsewhere from
    /sys/devices/system/cpu/cpuN/topology/thread_siblings_list, which know no sockets.
    """

    cores: Cores
    sockets: Cores | Absent
    hybrid: bool = False
    """Two kinds of cores, of which one has no second thread (Intel client parts)."""


class CpuThrottling(Counted, frozen=True, kw_only=True):
    """Milliseconds for which each socket was held at its trip temperature since boot.

    /sys/devices/system/cpu/cpuN/thermal_throttle/package_throttle_total_time_ms of one CPU a
    socket (Linux Documentation/arch/x86/intel_thermal.rst; Intel only).
    """

    by_socket: dict[str, int | Absent]

    def counters(self) -> Totals:
        """The time of each socket."""
        found = self.by_socket.items()
        return {name: {THROTTLED_MS: ms} for name, ms in found if isinstance(ms, int)}


@probe
def cpu_cores(host: Host, cpus: CpuSets) -> CpuCores:
    """Group the online CPUs. Raises Unavailable."""
    online = known(cpus.online)
    by_place = places(host.optional("/proc/cpuinfo") or "")
    if by_place and online <= by_place.keys():
        here = {cpu: by_place[cpu] for cpu in online}
        sockets = grouped({cpu: place[0] for cpu, place in here.items()})
        cores = grouped(here)
        return CpuCores(cores=cores, sockets=sockets, hybrid=two_kinds(host, cores, cpus))
    cores = siblings(host, online)
    hybrid = two_kinds(host, cores, cpus)
    return CpuCores(cores=cores, sockets=no_sockets(host), hybrid=hybrid)


def no_sockets(host: Host) -> Absent:
    """Why no sockets are known: only a whole file shows an architecture without."""
    text = host.optional("/proc/cpuinfo") or ""
    if "processor" not in text or "physical id" in text:
        return Absent("missing", "/proc/cpuinfo does not name the socket of every CPU")
    return Absent("unsupported", "this architecture does not tell which CPU is on which socket")


def two_kinds(host: Host, cores: Cores, cpus: CpuSets) -> bool:
    """Cores of two kinds: they differ in threads although no CPU is offline, or perf knows both.

    /sys/devices/cpu_atom is there on Intel's hybrid CPUs (Linux arch/x86/events/intel/core.c).
    """
    uneven = len({len(core) for core in cores}) > 1
    return uneven and (cpus.present == cpus.online or bool(host.names("/sys/devices/cpu_atom")))


def places(cpuinfo: str) -> dict[int, tuple[str, str]]:
    """CPU -> (physical id, core id), for those paragraphs that name both (x86)."""
    found = dict[int, tuple[str, str]]()
    cpu, socket = -1, ""
    for line in cpuinfo.split("\n"):
        if line.startswith(PLACE):
            key, _, text = line.partition(":")
            value = text.strip()
            if key.startswith("processor"):
                cpu, socket = int(value) if value.isdecimal() and len(value) < 10 else -1, ""
            elif key.startswith("physical id"):
                socket = value
            elif cpu >= 0 and socket:
                found[cpu] = (socket, value)
    return found


def grouped(places: Mapping[int, object]) -> Cores:
    """CPUs of one place together, in the order of their first CPU."""
    found: defaultdict[object, set[int]] = defaultdict(set)
    for cpu, place in places.items():
        found[place].add(cpu)
    return tuple(sorted((frozenset(cpus) for cpus in found.values()), key=min))


def siblings(host: Host, online: frozenset[int]) -> Cores:
    """Cores by the kernel's lists of sibling threads. Raises Unavailable."""
    found: dict[int, object] = {}
    for cpu in sorted(online):
        folder = f"{FOLDER}/cpu{cpu}/topology"
        threads = read_cpu_set(host, f"{folder}/thread_siblings_list", f"{folder}/thread_siblings")
        if isinstance(threads, Absent):
            raise Unavailable(threads.reason, "not-recorded")
        found[cpu] = min(threads & online, default=cpu)
    return grouped(found)


@probe
def cpu_throttling(host: Host, cores: CpuCores, machine: Machine) -> CpuThrottling:
    """Read one file a socket. Raises NotApplicable where the kernel keeps no such time."""
    if machine.is_vm:
        raise NotApplicable("a guest does not see how hot its host's CPUs are")
    if isinstance(cores.sockets, Absent) and cores.sockets.kind != "unsupported":
        raise Unavailable(cores.sockets.reason, "not-recorded")
    if isinstance(cores.sockets, Absent):
        raise NotApplicable("only CPUs of Intel keep the time for which heat held them back")
    paths = {
        f"socket {number}": f"{FOLDER}/cpu{min(cpus)}/{THROTTLED}"
        for number, cpus in enumerate(cores.sockets)
    }
    found = {name: number_of(host, path, MOST_MS) for name, path in paths.items()}
    if all(isinstance(ms, Absent) and ms.kind == "unsupported" for ms in found.values()):
        raise NotApplicable("the kernel keeps no such time here: it does for CPUs of Intel only")
    return CpuThrottling(by_socket=found)
