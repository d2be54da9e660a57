# SPDX-License-Identifier: Apache-2.0
"""The kernel's log of the healthy node, as /dev/kmsg hands it out, and the kernel's flags."""

from fakenode.system import KERNEL
from fakenode.values import Files

NOW_S = 863990.0  # a little before /proc/uptime
MESSAGES = (
    (5, 0.0, f"Linux version {KERNEL} (buildd@lcy02-amd64-011) (x86_64-linux-gnu-gcc-13) #29"),
    (6, 0.0, "Command line: BOOT_IMAGE=/boot/vmlinuz root=/dev/md0 ro"),
    (6, 1.25, "pcieport 0000:15:01.0: PME: Signaling with IRQ 25"),
    (4, 9.5, "nvidia: loading out-of-tree module taints kernel."),
    (6, 9.75, "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build"),
    (6, NOW_S, 'audit: type=1400 audit(1767225600.100:99): apparmor="STATUS"'),
)
FLAGS = "12288\n"  # a module from outside the kernel, without a signature


def record(level: int, number: int, seconds: float, text: str) -> str:
    """One record (Linux Documentation/ABI/testing/dev-kmsg)."""
    return f"{level},{number},{int(seconds * 1e6)},-;{text}\n"


def kernel_log_files() -> Files:
    """The log since boot and /proc/sys/kernel/tainted."""
    log = "".join(record(level, n, at, text) for n, (level, at, text) in enumerate(MESSAGES))
    return {"/dev/kmsg": log, "/proc/sys/kernel/tainted": FLAGS}
