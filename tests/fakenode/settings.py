# SPDX-License-Identifier: Apache-2.0
"""Configuration files: what the next boot will do, which is what runs now."""

from fakenvml import DRIVER
from trees import Link as To

from fakenode.system import COMMAND_LINE, KERNEL, SYSCTLS
from fakenode.values import Files

UNITS = {
    "nvidia-persistenced": "/usr/bin/nvidia-persistenced --user nvidia-persistenced --verbose",
    "nvidia-fabricmanager": "/usr/bin/nv-fabricmanager -c /etc/nvidia/fabricmanager.cfg",
    "ssh": "/usr/sbin/sshd -D",
    "containerd": "/usr/bin/containerd",
    "slurmd": "/usr/sbin/slurmd --systemd",
    "irqbalance": "/usr/sbin/irqbalance --foreground",
}
PACKAGES = f"""\
Package: nvidia-fabricmanager-570
Status: install ok installed
Version: {DRIVER}-1

Package: nvidia-driver-570-server-open
Status: install ok installed
Version: {DRIVER}-0ubuntu1
"""


def settings_files() -> Files:
    """Everything below /etc, /usr/lib/systemd, /var and /boot."""
    return files_in_etc() | unit_files() | boot_files()


def files_in_etc() -> Files:
    """Files below /etc, and those in /usr/lib that they stand over."""
    lines = "".join(f"{name.replace('/', '.')} = {value}\n" for name, value in SYSCTLS.items())
    return {
        "/etc/sysctl.d/90-cluster.conf": lines,
        "/etc/sysctl.conf": "# see sysctl.d\n",
        "/usr/lib/sysctl.d/50-default.conf": "kernel.sysrq = 176\n",
        "/etc/fstab": "/dev/md0 / ext4 defaults 0 1\n/dev/nvme0n1 /scratch xfs noatime 0 0\n",
        "/etc/systemd/system.conf": "[Manager]\n",
        "/etc/systemd/system.conf.d/90-limits.conf": (
            "[Manager]\nDefaultLimitMEMLOCK=infinity\nDefaultLimitNOFILE=1048576\n"
        ),
        "/etc/security/limits.conf": "# see limits.d\n",
        "/etc/security/limits.d/90-rdma.conf": (
            "* - memlock unlimited\nroot - memlock unlimited\n* - nofile 1048576\n"
            "root - nofile 1048576\n"
        ),
        "/etc/pam.d/sshd": "@include common-session\nsession required pam_limits.so\n",
        "/etc/pam.d/common-session": "session required pam_unix.so\n",
        "/etc/ssh/sshd_config": "Include /etc/ssh/sshd_config.d/*.conf\nUsePAM yes\n",
        "/etc/ssh/sshd_config.d": None,
        "/etc/slurm/slurm.conf": "ClusterName=example\nPropagateResourceLimitsExcept=MEMLOCK\n",
        "/var/lib/dpkg/status": PACKAGES,
        "/etc/default/irqbalance": 'IRQBALANCE_ARGS="--policyscript=/etc/irqbalance-policy.sh"\n',
        "/etc/modules-load.d/nvidia.conf": "nvidia\nnvidia-uvm\nnvidia-peermem\n",
        "/etc/modprobe.d/nvidia.conf": "blacklist nouveau\noptions nouveau modeset=0\n",
        "/etc/tmpfiles.d": None,
        "/lib": To("usr/lib"),
        "/usr/lib/systemd/systemd-sysctl": b"\x7fELF",
        "/run/sysctl.d": None,
    }


def unit_files() -> Files:
    """The services, and the links that start them."""
    etc, lib = "/etc/systemd/system", "/usr/lib/systemd/system"
    found: Files = {}
    for name, command in UNITS.items():
        found |= {
            f"{lib}/{name}.service": f"[Unit]\nDescription={name}\n[Service]\nExecStart={command}\n"
            "LimitMEMLOCK=infinity\nLimitNOFILE=1048576\n[Install]\nWantedBy=multi-user.target\n",
            f"{etc}/multi-user.target.wants/{name}.service": To(
                f"../../../../usr/lib/systemd/system/{name}.service"
            ),
        }
    return found


def boot_files() -> Files:
    """What the boot loader will start next."""
    arguments = COMMAND_LINE.partition(" ")[2]
    entry = f"menuentry 'Ubuntu' {{\n\tlinux /boot/vmlinuz-{KERNEL} {arguments}\n}}\n"
    options = COMMAND_LINE.partition(" ro ")[2]
    return {
        "/boot/grub/grub.cfg": entry,
        f"/boot/config-{KERNEL}": "CONFIG_NUMA_BALANCING=y\n",
        "/etc/default/grub": f'GRUB_CMDLINE_LINUX_DEFAULT="{options}"\n',
    }
