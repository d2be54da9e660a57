# SPDX-License-Identifier: Apache-2.0
"""Single faults of CPU, memory, limits and settings."""

from fakenode import FakeNode
from fakenode.breaking import limit, remove, start, stop, sysctl, text, write
from fakenode.commands import LIMIT_NAMES, SYSTEMD_LIMITS, command
from fakenode.cpus import CPU, CPUS
from fakenode.fault import PCI_OF_THE_HOST, Fault
from fakenode.system import limits

POLICY = f"{CPU}/cpufreq/policy17"
THP = "/sys/kernel/mm/transparent_hugepage"
SMALL = "8388608"
DOCKER_LIMITS = """\
{"default-ulimits": {"memlock": {"Name": "memlock", "Soft": 8388608, "Hard": 8388608}}}
"""
PIDS = {"slurmd": 1944, "containerd": 1811, "sshd": 1702}


def virtual_machine(node: FakeNode) -> None:
    cpuinfo = text(node, "/proc/cpuinfo")
    node.files["/proc/cpuinfo"] = cpuinfo.replace("flags\t: fpu", "flags\t: fpu hypervisor")
    write(node, "/sys/devices/virtual/dmi/id/sys_vendor", "QEMU")
    write(node, "/sys/devices/virtual/dmi/id/product_name", "Standard PC (Q35 + ICH9, 2009)")


def numa_balancing_on(node: FakeNode) -> None:
    sysctl(node, "kernel.numa_balancing", "1")


def numa_balancing_on_after_boot(node: FakeNode) -> None:
    node.files["/etc/sysctl.d/99-late.conf"] = "kernel.numa_balancing = 1\n"


def one_cpu_in_powersave(node: FakeNode) -> None:
    write(node, f"{POLICY}/scaling_governor", "powersave")


def one_cpu_prefers_power(node: FakeNode) -> None:
    write(node, f"{POLICY}/scaling_governor", "powersave")
    write(node, f"{POLICY}/energy_performance_preference", "balance_power")


def deep_idle_state_on(node: FakeNode) -> None:
    """A state that takes long to wake from; the healthy node has one of 290 us switched off."""
    for cpu in range(CPUS):
        write(node, f"{CPU}/cpu{cpu}/cpuidle/state3/latency", "890")
        write(node, f"{CPU}/cpu{cpu}/cpuidle/state3/disable", "0")


def frequency_capped(node: FakeNode) -> None:
    write(node, f"{POLICY}/scaling_max_freq", "2000000")


def turbo_off(node: FakeNode) -> None:
    write(node, f"{CPU}/intel_pstate/no_turbo", "1")


def one_cpu_offline(node: FakeNode) -> None:
    """The kernel drops its policy, its idle states and its place in the node."""
    write(node, f"{CPU}/online", "0-16,18-191")
    write(node, f"{CPU}/offline", "17")
    write(node, f"{CPU}/cpu17/online", "0")
    write(node, "/sys/devices/system/node/node0/cpulist", "0-16,18-47,96-143")
    remove(node, POLICY, f"{CPU}/cpu17/cpufreq", f"{CPU}/cpu17/topology")
    for path, content in node.files.items():
        if path.endswith("/local_cpulist") and content == "0-47,96-143\n":
            node.files[path] = "0-16,18-47,96-143\n"


def thp_never(node: FakeNode) -> None:
    write(node, f"{THP}/enabled", "always madvise [never]")


def thp_never_after_boot(node: FakeNode) -> None:
    for path in ("/proc/cmdline", "/boot/grub/grub.cfg", "/etc/default/grub"):
        node.files[path] = text(node, path).replace("hugepage=madvise", "hugepage=never")


def thp_defrag_always(node: FakeNode) -> None:
    write(node, f"{THP}/defrag", "[always] defer defer+madvise madvise never")


def swap_on(node: FakeNode) -> None:
    row = "/dev/nvme0n1p2\t\t\t\tpartition\t67108860\t0\t\t-2"
    node.files["/proc/swaps"] = text(node, "/proc/swaps") + row + "\n"


def swap_at_next_boot(node: FakeNode) -> None:
    node.files["/etc/fstab"] = text(node, "/etc/fstab") + "/swap.img none swap sw 0 0\n"


def zone_reclaim_on(node: FakeNode) -> None:
    sysctl(node, "vm.zone_reclaim_mode", "1")


def memlock_of_this_process(node: FakeNode) -> None:
    limit(node, "self", "Max locked memory", SMALL)
    capless = text(node, "/proc/self/status").replace("000001ffffffffff", "0" * 16)
    node.files["/proc/self/status"] = capless


def slurm_carries_limits_over(node: FakeNode) -> None:
    node.files["/etc/slurm/slurm.conf"] = "ClusterName=example\n"


def memlock_after_boot(node: FakeNode) -> None:
    """The manager was told by hand: what it says now is not what its files say."""
    node.files["/etc/systemd/system.conf.d/90-limits.conf"] = "[Manager]\n"


def memlock_of_slurmd(node: FakeNode) -> None:
    limit(node, PIDS["slurmd"], "Max locked memory", SMALL)


def memlock_of_containerd(node: FakeNode) -> None:
    limit(node, PIDS["containerd"], "Max locked memory", SMALL)


def memlock_of_sshd(node: FakeNode) -> None:
    limit(node, PIDS["sshd"], "Max locked memory", SMALL)


def memlock_of_docker(node: FakeNode) -> None:
    """Containers get what the daemon's file says, whatever the daemon itself may lock."""
    start(node, 2100, "dockerd", limits())
    node.files["/etc/docker/daemon.json"] = DOCKER_LIMITS


def memlock_of_kubelet(node: FakeNode) -> None:
    start(node, 2200, "kubelet", limits(memlock=SMALL))


def memlock_of_systemd(node: FakeNode) -> None:
    shown = SYSTEMD_LIMITS.replace("MEMLOCK=infinity", f"MEMLOCK={SMALL}")
    shown = shown.replace("MEMLOCKSoft=infinity", f"MEMLOCKSoft={SMALL}")
    others = [one for one in node.commands if one["argv"][0] != "systemctl"]
    node.commands = [
        *others,
        command("systemctl", "show", f"--property={LIMIT_NAMES}", stdout=shown),
    ]


def memlock_of_logins(node: FakeNode) -> None:
    node.files["/etc/security/limits.d/95-small.conf"] = "* - memlock 64\n"


def few_open_files(node: FakeNode) -> None:
    limit(node, PIDS["slurmd"], "Max open files", "1024")


def small_shared_memory(node: FakeNode) -> None:
    mounts = text(node, "/proc/self/mountinfo")
    node.files["/proc/self/mountinfo"] = mounts.replace(
        "tmpfs tmpfs rw,size=1056964608k,inode64", "tmpfs tmpfs rw,size=65536k,inode64"
    )


def irqbalance_stopped(node: FakeNode) -> None:
    stop(node, 1975)


FAULTS: tuple[Fault, ...] = (
    Fault(
        virtual_machine,
        {
            "acs-redirect-off": "notapplicable",
            "cpu-throttled": "notapplicable",
            "iommu-mode": "notapplicable",
            "kernel-machine-checks": "notapplicable",
            "memory-dimm-alike": "notapplicable",
            "memory-dimm-population": "notapplicable",
            "memory-dimm-speed": "notapplicable",
            "numa-nodes-per-socket": "notapplicable",
            "nvlink-sharp": "notapplicable",
            "network-roce-flow-control": "notapplicable",
            **PCI_OF_THE_HOST,
            "pcie-path-narrowest": "notapplicable",
            "pcie-slot-limit": "notapplicable",
            "rdma-rail-pairing": "notapplicable",
        },
    ),
    Fault(numa_balancing_on, {"numa-balancing-off": "fail"}),
    Fault(numa_balancing_on_after_boot, {"numa-balancing-off": "warn"}),
    Fault(one_cpu_in_powersave, {}),
    Fault(one_cpu_prefers_power, {"cpu-energy-preference": "fail", "cpu-governor": "fail"}),
    Fault(deep_idle_state_on, {"cpu-deepest-idle-state": "warn"}),
    Fault(frequency_capped, {"cpu-frequency-limits": "fail"}),
    Fault(turbo_off, {"cpu-turbo": "fail"}),
    Fault(one_cpu_offline, {"cpu-all-online": "fail", "cpu-siblings-alike": "warn"}),
    Fault(thp_never, {"memory-thp-enabled": "fail"}),
    Fault(thp_never_after_boot, {"memory-thp-enabled": "warn"}),
    Fault(thp_defrag_always, {"memory-thp-defrag": "fail"}),
    Fault(swap_on, {"memory-swap-off": "fail"}),
    Fault(swap_at_next_boot, {"memory-swap-off": "warn"}),
    Fault(zone_reclaim_on, {"memory-zone-reclaim": "fail"}),
    Fault(memlock_of_this_process, {"limits-memlock-process": "fail"}),
    Fault(slurm_carries_limits_over, {"limits-memlock-slurmd": "warn"}),
    Fault(memlock_after_boot, {"limits-memlock-systemd": "warn"}),
    Fault(memlock_of_slurmd, {"limits-memlock-slurmd": "fail"}),
    Fault(memlock_of_containerd, {"limits-memlock-containerd": "warn"}),
    Fault(memlock_of_sshd, {}),
    Fault(memlock_of_docker, {"limits-memlock-docker": "warn"}),
    Fault(memlock_of_kubelet, {"limits-memlock-kubelet": "warn"}),
    Fault(memlock_of_systemd, {"limits-memlock-systemd": "warn"}),
    Fault(memlock_of_logins, {"limits-memlock-login": "fail"}),
    Fault(few_open_files, {"limits-open-files": "fail"}),
    Fault(small_shared_memory, {"memory-shm-size": "fail"}),
    Fault(irqbalance_stopped, {}),
)
