# SPDX-License-Identifier: Apache-2.0
"""Single faults of clock, host memory, load and of what the caller may use."""

from smbios import TABLE, module, table

from fakenode import FakeNode
from fakenode.breaking import remove, stop, text, write
from fakenode.cpus import CPU
from fakenode.fault import Fault
from fakenode.hoststate import CHRONY, CHRONYD, CLOCK, EDAC, THROTTLED, clock, modules

DEAD, STUCK = 4711, 4712
BLOCKED = f"3,900,863900000000,-;INFO: task python:{STUCK} blocked for more than 122 seconds.\n"
LOG = "/dev/kmsg"


def clock_from_hpet(node: FakeNode) -> None:
    write(node, f"{CLOCK}/current_clocksource", "hpet")


def clock_service_stopped(node: FakeNode) -> None:
    stop(node, CHRONYD)


def clock_left_alone(node: FakeNode) -> None:
    clock_service_stopped(node)
    clock_not_synchronised(node)


def clock_not_synchronised(node: FakeNode) -> None:
    others = [one for one in node.commands if one["argv"] != ["@adjtimex"]]
    node.commands = [*others, clock(max_error_us=16_000_000)]


def clock_service_not_enabled(node: FakeNode) -> None:
    remove(node, CHRONY)


def one_module_missing(node: FakeNode) -> None:
    """It failed its training: the slot reads empty, and the node has less."""
    node.files[TABLE] = table(
        *modules()[:-1], module("P2-DIMMH2", "P1_Node0_Channel7_Dimm1", gib=0)
    )


def one_module_smaller(node: FakeNode) -> None:
    last = module("P2-DIMMH2", "P1_Node0_Channel7_Dimm1", gib=32)
    node.files[TABLE] = table(*modules()[:-1], last)


def one_module_slower(node: FakeNode) -> None:
    last = module("P2-DIMMH2", "P1_Node0_Channel7_Dimm1", rated=4800, configured=4800)
    node.files[TABLE] = table(*modules()[:-1], last)


def no_smbios_for_users(node: FakeNode) -> None:
    remove(node, TABLE)
    node.gaps[TABLE] = {"kind": "denied", "reason": f"{TABLE}: needs root"}
    node.files["/sys/firmware/dmi/tables/smbios_entry_point"] = b"_SM3_"


def many_corrected_errors_of_host_memory(node: FakeNode) -> None:
    write(node, f"{EDAC}/mc3/ce_count", "40000")
    write(node, f"{EDAC}/mc3/dimm0/dimm_ce_count", "40000")


def one_uncorrected_error(node: FakeNode) -> None:
    write(node, f"{EDAC}/mc3/ue_count", "1")


def no_edac_driver(node: FakeNode) -> None:
    remove(node, EDAC)


def one_node_with_less_memory(node: FakeNode) -> None:
    write(node, "/sys/devices/system/node/node1/meminfo", "Node 1 MemTotal: 1006632960 kB")


def little_host_memory(node: FakeNode) -> None:
    half = text(node, "/proc/meminfo").replace("2147483648", "536870912")
    node.files["/proc/meminfo"] = half


def many_gpus_for_few_cores(node: FakeNode) -> None:
    """The node says that its CPUs are threads of 32 cores."""
    lines = text(node, "/proc/cpuinfo").splitlines()
    ids = (f"core id\t: {int(one.split()[-1]) % 16}" if "core id" in one else one for one in lines)
    node.files["/proc/cpuinfo"] = "\n".join(ids) + "\n"


def socket_was_too_hot(node: FakeNode) -> None:
    write(node, f"{CPU}/cpu48/{THROTTLED}", "86400000")


def held_to_one_cpu(node: FakeNode) -> None:
    status = text(node, "/proc/self/status").replace("0-191", "5")
    node.files["/proc/self/status"] = status


def held_to_one_socket_and_the_memory_of_the_other(node: FakeNode) -> None:
    status = text(node, "/proc/self/status").replace("0-191", "0-47,96-143")
    node.files["/proc/self/status"] = status.replace("_list:\t0-1", "_list:\t1")


def a_cpu_set_that_cuts_cores(node: FakeNode) -> None:
    status = text(node, "/proc/self/status").replace("0-191", "0-95,96-150")
    node.files["/proc/self/status"] = status


def held_to_little_cpu_time(node: FakeNode) -> None:
    node.files["/sys/fs/cgroup/system.slice/cpu.max"] = "400000 100000\n"


def more_threads_than_cpus(node: FakeNode) -> None:
    content = node.files["/proc/self/environ"]
    assert isinstance(content, bytes)
    node.files["/proc/self/environ"] = content + b"OMP_NUM_THREADS=64\0LOCAL_WORLD_SIZE=8\0"


def threads_that_fit(node: FakeNode) -> None:
    content = node.files["/proc/self/environ"]
    assert isinstance(content, bytes)
    node.files["/proc/self/environ"] = content + b"OMP_NUM_THREADS=24\0LOCAL_WORLD_SIZE=8\0"


def busy_before_the_job(node: FakeNode) -> None:
    write(node, "/proc/loadavg", "96.00 95.00 94.00 97/2400 9000")


def waits_for_memory(node: FakeNode) -> None:
    line = "some avg10=9.00 avg60=9.00 avg300=9.00 total=1\n"
    write(node, "/proc/pressure/memory", line + line.replace("some", "full").strip())


def a_gpu_process_hangs(node: FakeNode) -> None:
    """The kernel said so a moment ago, and it is still there."""
    row = {"pid": STUCK, "name": "python", "state": "disk-sleep", "parent": 1944}
    node.processes.append(row)
    node.files[f"/proc/{STUCK}/wchan"] = "os_acquire_rwlock_write"
    node.files[f"/proc/{STUCK}/status"] = "Name:\tpython\nvoluntary_ctxt_switches:\t700\n"
    log = node.files.get(LOG, b"")
    before = log if isinstance(log, bytes) else str(log).encode()
    node.files[LOG] = before + BLOCKED.encode()


def a_process_waits_for_a_moment(node: FakeNode) -> None:
    node.processes.append({"pid": STUCK, "name": "dd", "state": "disk-sleep", "parent": 1944})


def a_zombie_whose_threads_live(node: FakeNode) -> None:
    node.processes.append({"pid": DEAD, "name": "python", "state": "zombie", "parent": 1944})
    node.files[f"/proc/{DEAD}/task/{DEAD}"] = None
    node.files[f"/proc/{DEAD}/task/{DEAD + 3}"] = None


def many_zombies(node: FakeNode) -> None:
    for pid in range(5000, 5030):
        node.processes.append({"pid": pid, "name": "sh", "state": "zombie", "parent": 1944})


DIMMS = ("memory-dimm-alike", "memory-dimm-population", "memory-dimm-speed")
ERRORS = ("memory-edac-corrected", "memory-edac-uncorrected")

FAULTS: tuple[Fault, ...] = (
    Fault(clock_from_hpet, {"time-clock-source": "fail"}),
    Fault(clock_service_stopped, {"time-service-running": "warn"}),
    Fault(clock_left_alone, {"time-service-running": "fail", "time-synchronised": "fail"}),
    Fault(clock_not_synchronised, {"time-synchronised": "fail"}),
    Fault(clock_service_not_enabled, {"time-service-enabled": "warn"}),
    Fault(one_module_missing, {"memory-dimm-population": "warn"}),
    Fault(one_module_smaller, {"memory-dimm-alike": "warn"}),
    Fault(one_module_slower, {"memory-dimm-speed": "warn"}),
    Fault(no_smbios_for_users, dict.fromkeys(DIMMS, "unknown")),
    Fault(many_corrected_errors_of_host_memory, {"memory-edac-corrected": "warn"}),
    Fault(one_uncorrected_error, {"memory-edac-uncorrected": "fail"}),
    Fault(no_edac_driver, dict.fromkeys(ERRORS, "unknown")),
    Fault(one_node_with_less_memory, {"memory-numa-alike": "warn"}),
    Fault(little_host_memory, {"memory-per-gpu": "warn"}),
    Fault(many_gpus_for_few_cores, {"cpu-cores-per-gpu": "warn"}),
    Fault(socket_was_too_hot, {"cpu-throttled": "warn"}),
    Fault(held_to_one_cpu, {"cpu-affinity-width": "fail", "cpu-affinity-cores": "pass"}),
    Fault(
        held_to_one_socket_and_the_memory_of_the_other,
        {
            "cpu-affinity-cores": "pass",
            "cpu-affinity-width": "warn",
            "numa-memory-allowed": "warn",
        },
    ),
    Fault(a_cpu_set_that_cuts_cores, {"cpu-affinity-cores": "warn"}),
    Fault(held_to_little_cpu_time, {"cpu-affinity-width": "warn"}),
    Fault(more_threads_than_cpus, {"cpu-openmp-threads": "warn"}),
    Fault(threads_that_fit, {"cpu-openmp-threads": "pass"}),
    Fault(busy_before_the_job, {"cpu-load": "warn"}),
    Fault(waits_for_memory, {"cpu-pressure": "warn"}),
    Fault(a_gpu_process_hangs, {"process-uninterruptible": "fail", "kernel-hung-tasks": "warn"}),
    Fault(a_process_waits_for_a_moment, {}),
    Fault(a_zombie_whose_threads_live, {"process-zombies": "warn"}),
    Fault(many_zombies, {"process-zombies": "warn"}),
)
