# SPDX-License-Identifier: Apache-2.0
"""The running system: identity, memory, limits, processes, mounts."""

from typing import Any

from trees import Link as To

from fakenode.values import Files

KERNEL = "6.14.0-29-generic"
GIB_IN_KIB = 1 << 20
COMMAND_LINE = (
    f"BOOT_IMAGE=/boot/vmlinuz-{KERNEL} root=/dev/md0 ro intel_iommu=on iommu=pt "
    "transparent_hugepage=madvise pci=disable_acs_redir=pci:1000:c030;pci:8086:352a"
)
SYSCTLS = {
    "kernel/numa_balancing": "0",
    "vm/zone_reclaim_mode": "0",
    "vm/swappiness": "10",
    "vm/overcommit_memory": "0",
    "vm/max_map_count": "1048576",
    "kernel/pid_max": "4194304",
    "fs/file-max": "9223372036854775807",
    "fs/nr_open": "1048576",
}
PROCESSES = {
    1: "systemd",
    2: "kthreadd",
    1601: "nvidia-persiste",
    1650: "nv-fabricmanage",
    1702: "sshd",
    1730: "chronyd",
    1811: "containerd",
    1944: "slurmd",
    1975: "irqbalance",
    2044: "munged",
}
"""comm is cut at 15 bytes (TASK_COMM_LEN in the kernel's include/linux/sched.h)."""

STATUS = "Name:\tgpuaudit\nUid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n"

MOUNTS = """\
24 1 9:0 / / rw,relatime shared:1 - ext4 /dev/md0 rw
25 24 0:23 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw
26 24 0:24 / /proc rw,nosuid,nodev,noexec,relatime shared:12 - proc proc rw
27 24 0:5 / /dev rw,nosuid,relatime shared:2 - devtmpfs udev rw,size=1056964608k,mode=755
28 27 0:25 / /dev/shm rw,nosuid,nodev shared:4 - tmpfs tmpfs rw,size=1056964608k,inode64
29 24 0:26 / /run rw,nosuid,nodev,noexec,relatime shared:5 - tmpfs tmpfs rw,size=211392922k,mode=755
30 24 259:1 / /scratch rw,noatime shared:30 - xfs /dev/nvme0n1 rw,noquota
"""


def system_files() -> Files:
    """Everything of the running system that is neither PCI nor CPU nor the NVIDIA driver."""
    return {**kernel_files(), **process_files(), **identity()}


def identity() -> Files:
    """Names."""
    dmi = {
        "sys_vendor": "Example Systems",
        "product_name": "EX-8000",
        "board_vendor": "Example Systems",
        "board_name": "EX-8000-MB",
        "bios_vendor": "Example Systems",
        "bios_version": "2.4.1",
        "chassis_type": "23",
    }
    return {
        **{f"/sys/devices/virtual/dmi/id/{name}": f"{text}\n" for name, text in dmi.items()},
        "/sys/class/dmi/id": To("../../devices/virtual/dmi/id"),
        "/etc/hostname": "node017\n",
        "/etc/os-release": To("../usr/lib/os-release"),
        "/usr/lib/os-release": 'PRETTY_NAME="Ubuntu 24.04.3 LTS"\nID=ubuntu\nVERSION_ID="24.04"\n',
        "/proc/sys/kernel/hostname": "node017\n",
        "/proc/sys/kernel/osrelease": f"{KERNEL}\n",
        "/proc/sys/kernel/random/boot_id": "0f0e0d0c-1111-4222-8333-444455556666\n",
        "/proc/version": f"Linux version {KERNEL} (builder@example) #29-Ubuntu SMP\n",
        "/proc/cmdline": f"{COMMAND_LINE}\n",
        "/proc/uptime": "864000.00 160000000.00\n",
    }


def kernel_files() -> Files:
    """Memory management and sysctl values of the running kernel."""
    thp = "/sys/kernel/mm/transparent_hugepage"
    total = 2048 * GIB_IN_KIB
    meminfo = f"MemTotal: {total} kB\nMemAvailable: {total * 9 // 10} kB\nSwapTotal: 0 kB\n"
    return {
        f"{thp}/enabled": "always [madvise] never\n",
        f"{thp}/defrag": "always defer defer+madvise [madvise] never\n",
        f"{thp}/khugepaged/defrag": "1\n",
        "/proc/meminfo": meminfo,
        "/proc/swaps": "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n",
        "/proc/self/mountinfo": MOUNTS,
        "/proc/irq/default_smp_affinity": f"{','.join(['ffffffff'] * 6)}\n",
        "/sys/class/iommu/dmar0": None,
        "/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory hugetlb pids rdma misc\n",
        "/run/systemd/system": None,
        **{f"/proc/sys/{name}": f"{value}\n" for name, value in SYSCTLS.items()},
    }


def limits(*, memlock: str = "unlimited", nofile: int = 1048576) -> str:
    """/proc/<pid>/limits, in the kernel's columns."""
    rows = [
        ("Limit", "Soft Limit", "Hard Limit", "Units"),
        ("Max stack size", "8388608", "unlimited", "bytes"),
        ("Max core file size", "0", "unlimited", "bytes"),
        ("Max processes", "8255000", "8255000", "processes"),
        ("Max open files", str(nofile), str(nofile), "files"),
        ("Max locked memory", memlock, memlock, "bytes"),
        ("Max address space", "unlimited", "unlimited", "bytes"),
    ]
    return "".join(f"{a:<26}{b:<21}{c:<21}{d:<10}\n" for a, b, c, d in rows)


def process_files() -> Files:
    """/proc/<pid> of the services, and of the audit itself."""
    found: Files = {"/proc/self/limits": limits(), "/proc/self/status": STATUS}
    found["/proc/self/cgroup"] = "0::/system.slice/slurmd.service\n"
    for pid, name in PROCESSES.items():
        found |= {
            f"/proc/{pid}/comm": f"{name}\n",
            f"/proc/{pid}/limits": limits(),
            f"/proc/{pid}/cgroup": f"0::/system.slice/{name}.service\n",
            f"/proc/{pid}/environ": b"PATH=/usr/bin\0",
        }
    return found


def process_table() -> list[dict[str, Any]]:
    """processes.json."""
    return [
        {"pid": pid, "name": name, "state": "sleeping", "parent": None if pid == 1 else 1}
        for pid, name in PROCESSES.items()
    ]
