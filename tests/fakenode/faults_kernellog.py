# SPDX-License-Identifier: Apache-2.0
"""What the kernel's log tells of, one thing at a time."""

from fakenode import FakeNode
from fakenode.breaking import remove, text, write
from fakenode.fault import Fault, unknown
from fakenode.kernellog import NOW_S, record
from fakenode.layout import NVSWITCH_ADDRESSES, gpu_addresses

LOG, FLAGS = "/dev/kmsg", "/proc/sys/kernel/tainted"
AT = 1000.0
SWITCH = NVSWITCH_ADDRESSES[0]
XIDS = ("xid-fatal", "xid-worth-watching", "xid-application", "xid-nvswitch")
FROM_KERNEL = ("kernel-out-of-memory", "kernel-machine-checks", "kernel-hung-tasks")
FROM_LOG = (*XIDS, *FROM_KERNEL, "pcie-hotplug-events")
ADDRESS = gpu_addresses()[0]
GPU = f"PCI:{ADDRESS[:-2]}"
LOADED = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build"


def logged(node: FakeNode, *texts: str, level: int = 3, apart_s: int = 1) -> None:
    """Let the kernel say this, before the last line of its log."""
    first, last = text(node, LOG).rstrip("\n").rsplit("\n", 1)
    lines = [record(level, 1000 + n, AT + n * apart_s, one) for n, one in enumerate(texts)]
    write(node, LOG, f"{first}\n{''.join(lines)}{last}")


def gpu_fell_off_the_bus_and_says_so(node: FakeNode) -> None:
    logged(node, f"NVRM: Xid ({GPU}): 79, pid='<unknown>', name=<unknown>, GPU is gone.")


def gpu_lost_while_the_driver_loads(node: FakeNode) -> None:
    logged(
        node,
        f"NVRM: The NVIDIA GPU {ADDRESS}",
        "NVRM: (PCI ID: 10de:2330) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    )


def gsp_silent_until_the_driver_was_reloaded(node: FakeNode) -> None:
    logged(node, f"NVRM: Xid ({GPU}): 119, pid=77, name=nvidia-smi, Timeout after 6s", LOADED)


def recovery_asked_for_and_done(node: FakeNode) -> None:
    change = f"NVRM: Xid ({GPU}): 154, GPU recovery action changed from"
    logged(
        node,
        f"NVRM: Xid ({GPU}): 95, pid=77, name=train, uncontained",
        f"{change} 0x0 (None) to 0x1 (GPU Reset Required)",
        f"{change} 0x1 (GPU Reset Required) to 0x0 (None)",
    )


def recovery_asked_for_and_had_without_a_line(node: FakeNode) -> None:
    change = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
    logged(node, f"NVRM: Xid ({GPU}): 95, pid=77, name=train", f"NVRM: Xid ({GPU}): 154, {change}")


def nvlink_error_that_is_not_fatal(node: FakeNode) -> None:
    logged(node, f"NVRM: Xid ({GPU}): 145, RLW_REMAP            Nonfatal XC1 i0 Link 08 (0x1 0x2)")


def nvlink_error_that_is_fatal(node: FakeNode) -> None:
    logged(node, f"NVRM: Xid ({GPU}): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x1 0x2)")


def contained_memory_error(node: FakeNode) -> None:
    logged(
        node,
        f"NVRM: Xid ({GPU}): 48, pid=77, name=train, double bit error",
        f"NVRM: Xid ({GPU}): 94, pid=77, name=train, contained",
    )


def xid_of_a_later_release(node: FakeNode) -> None:
    logged(node, f"NVRM: Xid ({GPU}): 4711, pid=77, name=train, something new")


def one_page_fault_of_a_program(node: FakeNode) -> None:
    logged(node, f"NVRM: Xid ({GPU}): 31, pid=77, name=train, Ch 0001, MMU Fault")


def page_faults_by_the_hundred(node: FakeNode) -> None:
    line = f"NVRM: Xid ({GPU}): 31, pid=77, name=train, Ch 0001, MMU Fault"
    logged(node, *[line] * 101, apart_s=60)


def nvswitch_lost_a_link(node: FakeNode) -> None:
    head = f"nvidia-nvswitch1: SXid (PCI:{SWITCH}): 20034,"
    logged(node, f"{head} Fatal, Link 30 LTSSM Fault Up", f"{head} Severity 1 Engine instance 30")


def nvswitch_too_hot(node: FakeNode) -> None:
    logged(node, f"nvidia-nvswitch1: SXid (PCI:{SWITCH}): 10004, Non-fatal, Thermal alert")


def node_out_of_memory(node: FakeNode) -> None:
    logged(node, "Out of memory: Killed process 1650 (nv-fabricmanage) total-vm:2kB, UID:0")


def job_out_of_its_own_memory(node: FakeNode) -> None:
    logged(node, "Memory cgroup out of memory: Killed process 77 (train) total-vm:2kB, UID:1000")


def uncorrected_machine_check(node: FakeNode) -> None:
    bank = "mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 7: be00000000800400"
    logged(node, bank)
    write(node, FLAGS, str(12288 | 1 << 4))


def machine_check_that_the_log_forgot(node: FakeNode) -> None:
    write(node, FLAGS, str(12288 | 1 << 4))


def corrected_machine_checks_by_the_dozen(node: FakeNode) -> None:
    logged(node, *["{1}[Hardware Error]: event severity: corrected"] * 12)


def corrected_pcie_errors_from_firmware(node: FakeNode) -> None:
    event = ("event severity: recoverable", " Error 0, type: recoverable", PCIE)
    logged(node, *[f"{{1}}[Hardware Error]: {line}" for line in event * 12])


PCIE = "  section_type: PCIe error"


def boot_before_ended_in_a_hardware_error(node: FakeNode) -> None:
    logged(node, "[Hardware Error]: event severity: fatal")


def task_blocked_for_minutes(node: FakeNode) -> None:
    logged(node, "INFO: task python3:4711 blocked for more than 120 seconds.")


def cpu_stuck(node: FakeNode) -> None:
    logged(node, "watchdog: BUG: soft lockup - CPU#3 stuck for 26s! [train:77]")
    write(node, FLAGS, str(12288 | 1 << 14))


def kernel_ran_into_an_oops(node: FakeNode) -> None:
    logged(node, "BUG: unable to handle page fault for address: ffffa0", "Oops: 0002 [#1] SMP")
    write(node, FLAGS, str(12288 | 1 << 7))


def kernel_log_overwritten(node: FakeNode) -> None:
    write(node, LOG, record(6, 9000, NOW_S - 3600, "eth0: link up").rstrip("\n"))


def kernel_log_denied(node: FakeNode) -> None:
    remove(node, LOG)
    node.gaps[LOG] = {"kind": "denied", "reason": f"{LOG}: no permission, needs root"}


FAULTS = (
    Fault(gpu_fell_off_the_bus_and_says_so, {"xid-fatal": "fail"}),
    Fault(gpu_lost_while_the_driver_loads, {"xid-fatal": "fail"}),
    Fault(gsp_silent_until_the_driver_was_reloaded, {"xid-fatal": "warn"}),
    Fault(recovery_asked_for_and_done, {"xid-fatal": "warn"}),
    Fault(recovery_asked_for_and_had_without_a_line, {"xid-fatal": "warn"}),
    Fault(nvlink_error_that_is_not_fatal, {"xid-worth-watching": "warn"}),
    Fault(nvlink_error_that_is_fatal, {"xid-fatal": "fail"}),
    Fault(contained_memory_error, {"xid-worth-watching": "warn"}),
    Fault(xid_of_a_later_release, {"xid-worth-watching": "warn"}),
    Fault(one_page_fault_of_a_program, {}),
    Fault(page_faults_by_the_hundred, {"xid-application": "warn"}),
    Fault(nvswitch_lost_a_link, {"xid-nvswitch": "fail"}),
    Fault(nvswitch_too_hot, {"xid-nvswitch": "warn"}),
    Fault(node_out_of_memory, {"kernel-out-of-memory": "warn"}),
    Fault(job_out_of_its_own_memory, {}),
    Fault(uncorrected_machine_check, {"kernel-machine-checks": "fail"}),
    Fault(machine_check_that_the_log_forgot, {"kernel-machine-checks": "warn"}),
    Fault(corrected_machine_checks_by_the_dozen, {"kernel-machine-checks": "warn"}),
    Fault(corrected_pcie_errors_from_firmware, {}),
    Fault(boot_before_ended_in_a_hardware_error, {"kernel-machine-checks": "warn"}),
    Fault(task_blocked_for_minutes, {"kernel-hung-tasks": "warn"}),
    Fault(cpu_stuck, {"kernel-hung-tasks": "warn"}),
    Fault(kernel_ran_into_an_oops, {"kernel-oops": "fail"}),
    Fault(kernel_log_overwritten, unknown(FROM_LOG)),
    Fault(kernel_log_denied, unknown(FROM_LOG)),
)
