# SPDX-License-Identifier: Apache-2.0
"""Single faults of boot, services and kernel settings."""

from trees import Link

from fakenode import FakeNode
from fakenode.breaking import remove, sysctl, text, write
from fakenode.fault import Fault
from fakenode.hostconfig import CPU, GROUPS, OLDER
from fakenode.system import KERNEL

MENU = "/boot/grub/grub.cfg"
UNITS = "/etc/systemd/system"
PAGES = "/sys/kernel/mm/hugepages/hugepages-2048kB"


def change(node: FakeNode, path: str, old: str, new: str) -> None:
    """Replace text in a file that has it."""
    before = text(node, path)
    assert old in before, (path, old)
    node.files[path] = before.replace(old, new)


def parameter_not_booted_yet(node: FakeNode) -> None:
    for path in (MENU, "/etc/default/grub"):
        change(node, path, "iommu=pt ", "iommu=pt nohz_full=2-9 ")


def parameter_gone_after_boot(node: FakeNode) -> None:
    for path in (MENU, "/etc/default/grub"):
        change(node, path, "intel_iommu=on ", "")


def grub_not_generated(node: FakeNode) -> None:
    change(node, "/etc/default/grub", "iommu=pt", "iommu=pt init_on_alloc=0")


def semicolon_not_quoted(node: FakeNode) -> None:
    """GRUB's shell ends the command there: the second address is lost, and all behind it."""
    change(node, MENU, "\\;", ";")
    change(node, "/etc/default/grub", "\\\\;", ";")


def word_without_effect(node: FakeNode) -> None:
    for path in ("/proc/cmdline", MENU, "/etc/default/grub"):
        change(node, path, "intel_iommu=on", "intel_iommu=on,pt")


def no_message_signaled_interrupts(node: FakeNode) -> None:
    for path in ("/proc/cmdline", MENU, "/etc/default/grub"):
        change(node, path, "pci=disable", "pci=nomsi,disable")


def kernel_not_booted_yet(node: FakeNode) -> None:
    change(node, MENU, 'set default="0"', f'set default="gnulinux-advanced-1>gnulinux-{OLDER}-1"')


def grub_reboot_asked_for_once(node: FakeNode) -> None:
    node.files["/boot/grub/grubenv"] = "# GRUB Environment Block\nnext_entry=1>1\n###\n"


def next_kernel_without_driver(node: FakeNode) -> None:
    newer = "6.14.0-33-generic"
    change(node, MENU, KERNEL, newer)
    node.files |= {
        f"/boot/vmlinuz-{newer}": b"MZ",
        f"/usr/lib/modules/{newer}/modules.dep": "kernel/drivers/net/ethernet/igb/igb.ko.zst:\n",
    }


def kernel_too_old(node: FakeNode) -> None:
    old = "2.6.32-754.el6.x86_64"
    write(node, "/proc/sys/kernel/osrelease", old)
    for path, content in dict(node.files).items():
        if KERNEL in path:
            node.files[path.replace(KERNEL, old)] = content
    change(node, MENU, KERNEL, old)


def cpus_of_a_socket_isolated(node: FakeNode) -> None:
    write(node, f"{CPU}/isolated", "48-95,144-190")


def cpus_beside_gpus_isolated(node: FakeNode) -> None:
    write(node, f"{CPU}/isolated", "48-95,144-191")


def tick_stopped_on_busy_cpus(node: FakeNode) -> None:
    write(node, f"{CPU}/nohz_full", "2-47")


def huge_pages_lie_idle(node: FakeNode) -> None:
    """400 GiB, half on each node."""
    for name in ("nr_hugepages", "free_hugepages"):
        write(node, f"{PAGES}/{name}", "204800")
    for number in (0, 1):
        share = f"/sys/devices/system/node/node{number}/hugepages/hugepages-2048kB/nr_hugepages"
        write(node, share, "102400")


def huge_pages_on_one_node(node: FakeNode) -> None:
    for number, pages in ((0, "4096"), (1, "0")):
        share = f"/sys/devices/system/node/node{number}/hugepages/hugepages-2048kB/nr_hugepages"
        write(node, share, pages)


def pages_are_merged(node: FakeNode) -> None:
    write(node, "/sys/kernel/mm/ksm/run", "1")


def strict_overcommit(node: FakeNode) -> None:
    sysctl(node, "vm.overcommit_memory", "2")


def sysctl_set_by_hand(node: FakeNode) -> None:
    sysctl(node, "vm.max_map_count", "262144")


def tuned_overruled(node: FakeNode) -> None:
    sysctl(node, "vm.dirty_ratio", "20")


def tuned_profile_of_a_desktop(node: FakeNode) -> None:
    node.files["/etc/tuned/active_profile"] = "balanced\n"
    node.files["/usr/lib/tuned/balanced/tuned.conf"] = "[sysctl]\nvm.dirty_ratio=40\n"


def tuned_stopped(node: FakeNode) -> None:
    remove(node, f"{GROUPS}/tuned.service")


def login_screen(node: FakeNode) -> None:
    lib = "/usr/lib/systemd/system"
    node.files |= {
        f"{lib}/default.target": Link("graphical.target"),
        f"{lib}/graphical.target": "[Unit]\nWants=display-manager.service\n",
        f"{lib}/gdm.service": "[Service]\nExecStart=/usr/sbin/gdm3\n",
        f"{UNITS}/display-manager.service": Link(f"{lib}/gdm.service"),
    }


def numad_runs(node: FakeNode) -> None:
    node.files[f"{GROUPS}/numad.service"] = None


def driver_not_held(node: FakeNode) -> None:
    change(node, "/var/lib/dpkg/status", "hold ok", "install ok")


def persistence_off_after_boot(node: FakeNode) -> None:
    """Ubuntu's own unit says so; what runs now was started by hand."""
    path = "/usr/lib/systemd/system/nvidia-persistenced.service"
    change(node, path, "--verbose", "--no-persistence-mode --verbose")


def no_boot_loader(node: FakeNode) -> None:
    """Booted over the network: nothing on the disk says what comes next."""
    remove(node, MENU, "/boot/grub/grubenv", "/etc/default/grub")


def booted_over_the_network(node: FakeNode) -> None:
    """By iPXE, which names no image; the menu on the disk is left over."""
    change(node, "/proc/cmdline", f"BOOT_IMAGE=/boot/vmlinuz-{KERNEL} ", "")


NEXT = "kernel-cmdline-next-boot"
FROM_OUTSIDE = dict.fromkeys(
    (NEXT, "kernel-cmdline-generated", "kernel-version-pending", "driver-next-kernel"),
    "notapplicable",
)
FAULTS: tuple[Fault, ...] = (
    Fault(parameter_not_booted_yet, {NEXT: "warn"}),
    Fault(parameter_gone_after_boot, {NEXT: "warn"}),
    Fault(grub_not_generated, {"kernel-cmdline-generated": "warn"}),
    Fault(semicolon_not_quoted, {NEXT: "warn"}),
    Fault(word_without_effect, {"kernel-cmdline-conflicts": "warn"}),
    Fault(no_message_signaled_interrupts, {"kernel-cmdline-conflicts": "fail"}),
    Fault(kernel_not_booted_yet, {"kernel-version-pending": "warn"}),
    Fault(grub_reboot_asked_for_once, {"kernel-version-pending": "warn"}),
    Fault(
        next_kernel_without_driver,
        {"kernel-version-pending": "warn", "driver-next-kernel": "fail"},
    ),
    Fault(kernel_too_old, {"kernel-version": "fail"}),
    Fault(cpus_of_a_socket_isolated, {"kernel-cpus-isolated": "warn"}),
    Fault(cpus_beside_gpus_isolated, {"kernel-cpus-isolated": "fail"}),
    Fault(tick_stopped_on_busy_cpus, {"kernel-cpus-nohz-full": "warn"}),
    Fault(huge_pages_lie_idle, {"memory-hugepages-idle": "warn"}),
    Fault(huge_pages_on_one_node, {"memory-hugepages-even": "warn"}),
    Fault(pages_are_merged, {"memory-ksm-off": "warn"}),
    Fault(strict_overcommit, {"sysctl-values": "warn"}),
    Fault(sysctl_set_by_hand, {"sysctl-persisted": "warn"}),
    Fault(tuned_overruled, {"tuned-matches": "warn"}),
    Fault(tuned_profile_of_a_desktop, {"tuned-profile": "warn"}),
    Fault(tuned_stopped, {"tuned-profile": "warn"}),
    Fault(login_screen, {"services-costly": "warn"}),
    Fault(numad_runs, {"services-costly": "warn"}),
    Fault(driver_not_held, {"services-driver-updates": "warn"}),
    Fault(persistence_off_after_boot, {"driver-persistence-enabled": "warn"}),
    Fault(no_boot_loader, FROM_OUTSIDE),
    Fault(booted_over_the_network, FROM_OUTSIDE),
)
