# SPDX-License-Identifier: Apache-2.0
"""Processors and NUMA nodes: two sockets of 48 cores with two threads each."""

from trees import Link as To

from fakenode.values import Files

CORES, NODES = 48, (0, 1)
THREADS = 2
CPUS = CORES * len(NODES) * THREADS
CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"
IDLE_STATES = (("POLL", 0), ("C1", 1), ("C1E", 2), ("C6", 290))
"""Name and exit latency in microseconds, as intel_idle has them for this kind."""

MODEL = "Intel(R) Xeon(R) Platinum 8568Y+"
FLAGS = (
    "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat acpi mmx fxsr sse sse2 ht"
)


def node_of(cpu: int) -> int:
    """The node a CPU belongs to: second threads are numbered after all first ones."""
    return cpu // CORES % len(NODES)


def node_cpus(node: int) -> list[int]:
    """The CPUs of a node."""
    return [cpu for cpu in range(CPUS) if node_of(cpu) == node]


def node_list(node: int) -> str:
    """As a CPU list."""
    first = node * CORES
    second = first + CORES * len(NODES)
    return f"{first}-{first + CORES - 1},{second}-{second + CORES - 1}"


def node_mask(node: int) -> str:
    """As a mask of 32-bit words."""
    bits = f"{sum(1 << cpu for cpu in node_cpus(node)):0{CPUS // 4}x}"
    return ",".join(bits[i : i + 8] for i in range(0, len(bits), 8))


def cpu_files() -> Files:
    """Everything below /sys/devices/system, and /proc/cpuinfo."""
    found: Files = {}
    for cpu in range(CPUS):
        found |= one_cpu(cpu) | frequency(cpu) | idle(cpu)
    for node in NODES:
        found |= one_node(node)
    every = f"0-{CPUS - 1}\n"
    found |= {f"{CPU}/{name}": every for name in ("online", "present", "possible")}
    found |= {f"{NODE}/{name}": "0-1\n" for name in ("online", "possible", "has_cpu", "has_memory")}
    found |= {f"{CPU}/{name}": f"{text}\n" for name, text in WHOLE.items()}
    found["/proc/cpuinfo"] = "\n".join(cpuinfo(cpu) for cpu in range(CPUS))
    found["/sys/bus/node/devices/node0"] = To("../../../devices/system/node/node0")
    found["/sys/bus/node/devices/node1"] = To("../../../devices/system/node/node1")
    return found


WHOLE = {
    "offline": "",
    "isolated": "",
    "nohz_full": "",
    "smt/control": "on",
    "smt/active": "1",
    "intel_pstate/status": "active",
    "intel_pstate/no_turbo": "0",
    "intel_pstate/max_perf_pct": "100",
    "intel_pstate/min_perf_pct": "21",
    "cpuidle/current_driver": "intel_idle",
    "cpuidle/current_governor": "menu",
    "cpuidle/current_governor_ro": "menu",
}


def one_cpu(cpu: int) -> Files:
    """Topology of one CPU. CPU 0 cannot be taken offline and has no such file."""
    core = cpu % (CORES * len(NODES))
    here, sibling = f"{CPU}/cpu{cpu}", core + CORES * len(NODES)
    found: Files = {
        f"{here}/topology/physical_package_id": f"{node_of(cpu)}\n",
        f"{here}/topology/core_id": f"{core % CORES}\n",
        f"{here}/topology/thread_siblings_list": f"{core},{sibling}\n",
        f"{here}/node{node_of(cpu)}": To(f"../../node/node{node_of(cpu)}"),
        f"{here}/cpufreq": To(f"../cpufreq/policy{cpu}"),
    }
    return found | ({f"{here}/online": "1\n"} if cpu else {})


def frequency(cpu: int) -> Files:
    """One cpufreq policy a CPU, as intel_pstate has it."""
    values = {
        "affected_cpus": cpu,
        "scaling_driver": "intel_pstate",
        "scaling_governor": "performance",
        "scaling_available_governors": "performance powersave",
        "scaling_min_freq": 800000,
        "scaling_max_freq": 4000000,
        "cpuinfo_min_freq": 800000,
        "cpuinfo_max_freq": 4000000,
        "base_frequency": 2300000,
        "energy_performance_preference": "performance",
    }
    return {f"{CPU}/cpufreq/policy{cpu}/{name}": f"{text}\n" for name, text in values.items()}


def idle(cpu: int) -> Files:
    """Idle states of one CPU; the deepest is switched off."""
    found: Files = {}
    for place, (name, latency) in enumerate(IDLE_STATES):
        values = {
            "name": name,
            "latency": latency,
            "disable": int(name == "C6"),
        }
        folder = f"{CPU}/cpu{cpu}/cpuidle/state{place}"
        found |= {f"{folder}/{key}": f"{value}\n" for key, value in values.items()}
    return found


def one_node(node: int) -> Files:
    """One NUMA node with 1 TiB."""
    here, kib = f"{NODE}/node{node}", 1 << 30
    found: Files = {
        f"{here}/cpulist": f"{node_list(node)}\n",
        f"{here}/cpumap": f"{node_mask(node)}\n",
        f"{here}/distance": "10 21\n" if node == 0 else "21 10\n",
        f"{here}/meminfo": f"Node {node} MemTotal: {kib} kB\nNode {node} MemFree: {kib // 2} kB\n",
    }
    return found | {f"{here}/cpu{cpu}": To(f"../../cpu/cpu{cpu}") for cpu in node_cpus(node)}


def cpuinfo(cpu: int) -> str:
    """One paragraph of /proc/cpuinfo."""
    values = {
        "processor": cpu,
        "vendor_id": "GenuineIntel",
        "cpu family": 6,
        "model": 207,
        "model name": MODEL,
        "physical id": node_of(cpu),
        "siblings": CORES * THREADS,
        "core id": cpu % CORES,
        "cpu cores": CORES,
        "flags": FLAGS,
    }
    return "".join(f"{name}\t: {value}\n" for name, value in values.items())
