# SPDX-License-Identifier: Apache-2.0
"""Boot, services and kernel settings of the made-up machine: as they run, so they will boot."""

from fakenvml import DRIVER
from trees import Link as To

from fakenode.system import COMMAND_LINE, KERNEL
from fakenode.values import Files

OLDER = "6.8.0-79-generic"
GROUPS = "/sys/fs/cgroup/system.slice"
CPU = "/sys/devices/system/cpu"
FLAWS = {
    "meltdown": "Not affected",
    "retbleed": "Not affected",
    "spectre_v1": "Mitigation: usercopy/swapgs barriers and __user pointer sanitization",
    "spectre_v2": "Mitigation: Enhanced / Automatic IBRS; IBPB: conditional",
}
PROFILE = """\
[main]
summary=Throughput of the example cluster
include=throughput-performance

[sysctl]
kernel.numa_balancing=0
"""
PARENT = """\
[main]
summary=Throughput

[cpu]
governor=performance
energy_perf_bias=performance

[sysctl]
vm.dirty_ratio=40
vm.swappiness=10
"""
MENU = """\
if [ -s $prefix/grubenv ]; then
  set have_grubenv=true
  load_env
fi
if [ "${{next_entry}}" ] ; then
   set default="${{next_entry}}"
   set next_entry=
else
   set default="0"
fi
function savedefault {{
  if [ -z "${{boot_once}}" ]; then
    saved_entry="${{chosen}}"
  fi
}}
menuentry 'Ubuntu' --class ubuntu $menuentry_id_option 'gnulinux-simple-1' {{
\trecordfail
\tlinux\t/boot/vmlinuz-{kernel} {arguments}
\tinitrd\t/boot/initrd.img-{kernel}
}}
submenu 'Advanced options for Ubuntu' $menuentry_id_option 'gnulinux-advanced-1' {{
\tmenuentry 'Ubuntu, with Linux {kernel}' $menuentry_id_option 'gnulinux-{kernel}-1' {{
\t\tlinux\t/boot/vmlinuz-{kernel} {arguments}
\t}}
\tmenuentry 'Ubuntu, with Linux {older}' $menuentry_id_option 'gnulinux-{older}-1' {{
\t\tlinux\t/boot/vmlinuz-{older} {arguments}
\t}}
}}
"""


def hostconfig_files() -> Files:
    """What the checks of kernel, sysctl, services, tuned and the driver at boot read."""
    return boot() | kernels() | units() | running() | updates() | tuned()


def boot() -> Files:
    """GRUB's menu; the semicolon has to be quoted there, or GRUB ends the command at it."""
    arguments = COMMAND_LINE.partition(" ")[2].replace(";", "\\;")
    options = COMMAND_LINE.partition(" ro ")[2].replace(";", "\\\\;")
    return {
        "/boot/grub/grub.cfg": MENU.format(kernel=KERNEL, older=OLDER, arguments=arguments),
        "/boot/grub/grubenv": "# GRUB Environment Block\n#######\n",
        "/etc/default/grub": (
            f'GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT="{options}"\nGRUB_CMDLINE_LINUX=""\n'
        ),
        "/etc/debian_version": "trixie/sid\n",
        "/etc/default/grub.d": None,
    }


def kernels() -> Files:
    """Two kernels, with the driver built for both."""
    found: Files = {}
    for name in (KERNEL, OLDER):
        found |= {
            f"/boot/vmlinuz-{name}": b"MZ",
            f"/usr/lib/modules/{name}/modules.dep": "updates/dkms/nvidia.ko.zst:\n",
            f"/usr/lib/modules/{name}/updates/dkms/nvidia.ko.zst": b"\x28\xb5\x2f\xfd",
        }
    return found


def units() -> Files:
    """Services that run have a control group; the graphical target is no boot target here."""
    names = ("nvidia-persistenced", "nvidia-fabricmanager", "ssh", "containerd", "slurmd", "tuned")
    lib = "/usr/lib/systemd/system"
    return {
        **{f"{GROUPS}/{name}.service": None for name in names},
        f"{lib}/multi-user.target": "[Unit]\nDescription=Multi-User System\n",
        f"{lib}/default.target": To("multi-user.target"),
        f"{lib}/apt-daily-upgrade.timer": "[Timer]\nOnCalendar=*-*-* 6:00\n",
        "/etc/systemd/system/timers.target.wants/apt-daily-upgrade.timer": To(
            "../../../../usr/lib/systemd/system/apt-daily-upgrade.timer"
        ),
        f"{lib}/tuned.service": "[Service]\nExecStart=/usr/sbin/tuned -l -P\n",
        "/etc/systemd/system/multi-user.target.wants/tuned.service": To(
            "../../../../usr/lib/systemd/system/tuned.service"
        ),
    }


def running() -> Files:
    """The kernel: CPUs, pages, values."""
    pages = "/sys/kernel/mm/hugepages/hugepages-2048kB"
    nodes = "/sys/devices/system/node/node{}/hugepages/hugepages-2048kB/nr_hugepages"
    return {
        f"{CPU}/isolated": "\n",
        f"{CPU}/nohz_full": "\n",
        "/sys/fs/cgroup/cpuset.cpus.isolated": "\n",
        **{f"{CPU}/vulnerabilities/{name}": f"{said}\n" for name, said in FLAWS.items()},
        f"{pages}/nr_hugepages": "4096\n",
        f"{pages}/free_hugepages": "4096\n",
        f"{pages}/resv_hugepages": "0\n",
        "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "0\n",
        **{nodes.format(node): "2048\n" for node in (0, 1)},
        "/sys/kernel/mm/ksm/run": "0\n",
        "/proc/sys/vm/dirty_ratio": "40\n",
        "/proc/sys/vm/min_free_kbytes": "1048576\n",
        "/proc/sys/vm/panic_on_oom": "0\n",
        "/proc/sys/fs/aio-max-nr": "1048576\n",
    }


def updates() -> Files:
    """Security updates come by themselves; the driver is held."""
    held = (
        f"Package: nvidia-driver-570-server-open\nStatus: hold ok installed\n"
        f"Version: {DRIVER}-0ubuntu1\n"
    )
    manager = (
        f"Package: nvidia-fabricmanager-570\nStatus: install ok installed\nVersion: {DRIVER}-1\n"
    )
    return {
        "/usr/bin/unattended-upgrade": b"#!/usr/bin/python3\n",
        "/etc/apt/apt.conf.d/20auto-upgrades": 'APT::Periodic::Unattended-Upgrade "1";\n',
        "/etc/apt/preferences.d": None,
        "/var/lib/dpkg/status": f"{manager}\n{held}",
    }


def tuned() -> Files:
    """A profile of the site over one of the distribution."""
    return {
        "/etc/tuned/active_profile": "example-gpu\n",
        "/etc/tuned/example-gpu/tuned.conf": PROFILE,
        "/usr/lib/tuned/throughput-performance/tuned.conf": PARENT,
    }
