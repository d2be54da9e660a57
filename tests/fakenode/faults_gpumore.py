# SPDX-License-Identifier: Apache-2.0
"""Single faults of one GPU: repairs, firmware, leftovers, slowdowns that come and go."""

from fakenode import FakeNode
from fakenode.breaking import answer, read_earlier, start
from fakenode.fault import Fault
from fakenode.layout import gpu_addresses

MIB = 1 << 20
MS = 1_000_000
"""Nanoseconds."""


def channel_repair_waits(node: FakeNode) -> None:
    answer(node, 5, "RepairStatus", [1, 0])


def memory_beyond_repair(node: FakeNode) -> None:
    answer(node, 5, "UnrepairableMemoryFlag_v1", 1)


def gsp_of_another_release(node: FakeNode) -> None:
    answer(node, 5, "GspFirmwareVersion", "550.54.15")


def gsp_switched_off(node: FakeNode) -> None:
    answer(node, 5, "GspFirmwareMode", [0, 1])


def another_inforom(node: FakeNode) -> None:
    answer(node, 5, "InforomImageVersion", "G520.0200.00.03")


def a_process_is_left(node: FakeNode) -> None:
    answer(node, 5, "ComputeRunningProcesses", [31337])


def the_mps_server_stays(node: FakeNode) -> None:
    """It is no leftover; whether its compute mode suits it is another question."""
    start(node, 31338, "nvidia-cuda-mps", "")
    answer(node, 5, "ComputeRunningProcesses", [31338])


def memory_without_a_process(node: FakeNode) -> None:
    memory = node.nvml["devices"][5]["nvmlDeviceGetMemoryInfo_v2"]["v"]
    answer(node, 5, "MemoryInfo_v2", memory | {"used": 9000 * MIB})


def lower_ceiling(node: FakeNode) -> None:
    answer(node, 5, "MaxClockInfo(1)", 1755)
    answer(node, 5, "MaxCustomerBoostClock(0)", 1755)


def auto_boost_off(node: FakeNode) -> None:
    answer(node, 5, "AutoBoostedClocksEnabled", [0, 1])


def hot_now_and_then(node: FakeNode) -> None:
    answer(node, 5, "FieldValues(75)", 400_000 * MS)
    read_earlier(node, {gpu_addresses()[5]: {"thermal-ms": 100_000}})


def hot_long_ago(node: FakeNode) -> None:
    """No fault: a minute since boot, in which an hour may have been bad, is within the limit."""
    answer(node, 5, "FieldValues(75)", 30_000 * MS)


FAULTS: tuple[Fault, ...] = (
    Fault(channel_repair_waits, {"gpu-repair-pending": "warn"}),
    Fault(memory_beyond_repair, {"gpu-unrepairable-memory": "fail"}),
    Fault(gsp_of_another_release, {"gpu-gsp-firmware": "fail"}),
    Fault(gsp_switched_off, {"gpu-gsp-firmware": "warn"}),
    Fault(another_inforom, {"gpu-inforom-alike": "warn"}),
    Fault(a_process_is_left, {"gpu-processes-left": "warn"}),
    Fault(the_mps_server_stays, {"mps-compute-mode": "warn"}),
    Fault(memory_without_a_process, {"gpu-memory-free": "warn"}),
    Fault(lower_ceiling, {"clocks-maximum": "warn"}),
    Fault(auto_boost_off, {"clocks-auto-boost": "warn"}),
    Fault(hot_now_and_then, {"clocks-throttle-history": "fail"}),
    Fault(hot_long_ago, {}),
)
