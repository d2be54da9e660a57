# SPDX-License-Identifier: Apache-2.0
"""Single faults of drives and file systems."""

from fakenode import FakeNode
from fakenode.breaking import remove, text, write
from fakenode.commands import command
from fakenode.fault import Fault
from fakenode.layout import drive_addresses
from fakenode.pci import path_of
from fakenode.storage import room

QUEUE = "/sys/block/nvme1n1/queue"
DRIVE = f"{path_of(drive_addresses()[1])}/nvme/nvme1"
NFS = (
    "31 24 0:51 / /home rw,relatime - nfs4 filer:/home "
    "rw,vers=4.2,rsize={0},wsize={0},{1},proto=tcp\n"
)
SCRATCH = "30 24 259:1 / /scratch rw,noatime shared:30 - xfs /dev/nvme0n1 rw,noquota\n"


def remount(node: FakeNode, old: str, new: str) -> None:
    """A change in the table of mounts."""
    table = text(node, "/proc/self/mountinfo")
    assert old in table
    node.files["/proc/self/mountinfo"] = table.replace(old, new)


def mount_nfs(node: FakeNode, size: int = 1048576, how: str = "hard") -> None:
    """Home directories from a filer that answers."""
    remount(node, SCRATCH, SCRATCH + NFS.format(size, how))
    node.commands.append(room("/home"))


def told(node: FakeNode, folder: str, **answer: object) -> None:
    """What statvfs says of a folder."""
    node.commands = [one for one in node.commands if one["argv"] != ["@statvfs", folder]]
    node.commands.append({"argv": ["@statvfs", folder], **answer})


def drive_with_a_scheduler(node: FakeNode) -> None:
    write(node, f"{QUEUE}/scheduler", "none mq-deadline kyber [bfq]")


def drive_without_read_ahead(node: FakeNode) -> None:
    write(node, f"{QUEUE}/read_ahead_kb", "0")


def dead_drive(node: FakeNode) -> None:
    write(node, "/sys/class/nvme/nvme1/state", "dead")


def drive_without_namespace(node: FakeNode) -> None:
    remove(node, f"{DRIVE}/nvme1n1", "/sys/block/nvme1n1")


def degraded_array(node: FakeNode) -> None:
    table = text(node, "/proc/mdstat").replace("nvme3n1p2[1]", "nvme3n1p2[1](F)")
    node.files["/proc/mdstat"] = table.replace("[2/2] [UU]", "[2/1] [U_]")


def array_being_checked(node: FakeNode) -> None:
    progress = "      [==>....]  check = 12.6% (118/937) finish=70.1min speed=200000K/sec\n"
    table = text(node, "/proc/mdstat").replace("      bitmap", progress + "      bitmap")
    node.files["/proc/mdstat"] = table


def scratch_mounted_sync(node: FakeNode) -> None:
    remount(node, "/scratch rw,noatime", "/scratch rw,noatime,sync")


def scratch_sync_after_boot(node: FakeNode) -> None:
    node.files["/etc/fstab"] = text(node, "/etc/fstab").replace("xfs noatime", "xfs noatime,sync")


def scratch_with_strict_times(node: FakeNode) -> None:
    remount(node, "/scratch rw,noatime", "/scratch rw")


def scratch_nearly_full(node: FakeNode) -> None:
    told(node, "/scratch", output=room("/scratch", 6)["output"])


def scratch_full(node: FakeNode) -> None:
    told(node, "/scratch", output=room("/scratch", 0)["output"])


def scratch_not_mounted(node: FakeNode) -> None:
    remount(node, SCRATCH, "")


def scratch_went_read_only(node: FakeNode) -> None:
    remount(node, "/scratch rw,noatime shared:30 - xfs /dev/nvme0n1 rw", SCRATCH_READ_ONLY)


def nfs_in_order(node: FakeNode) -> None:
    mount_nfs(node)


def nfs_server_gone(node: FakeNode) -> None:
    mount_nfs(node)
    why = {"kind": "hung", "reason": "@statvfs /home did not answer within 3 s"}
    told(node, "/home", gap=why)


def nfs_handle_stale(node: FakeNode) -> None:
    mount_nfs(node)
    said = command("@statvfs", "/home", stdout="", returncode=116)["output"]
    told(node, "/home", output=said | {"stderr": "Stale file handle"})


def nfs_soft_and_small(node: FakeNode) -> None:
    mount_nfs(node, size=32768, how="soft")


def gpudirect_with_damaged_configuration(node: FakeNode) -> None:
    node.files |= {
        "/proc/driver/nvidia-fs/version": "version: 2.25\n",
        "/etc/cufile.json": '// mine\n{"properties": {"allow_compat_mode": true\n',
    }


SCRATCH_READ_ONLY = "/scratch ro,noatime shared:30 - xfs /dev/nvme0n1 ro"
FAULTS: tuple[Fault, ...] = (
    Fault(drive_with_a_scheduler, {"storage-nvme-scheduler": "warn"}),
    Fault(drive_without_read_ahead, {"storage-read-ahead": "warn"}),
    Fault(dead_drive, {"storage-nvme-state": "fail"}),
    Fault(drive_without_namespace, {"storage-nvme-state": "warn"}),
    Fault(degraded_array, {"storage-raid-degraded": "warn"}),
    Fault(array_being_checked, {}),
    Fault(scratch_mounted_sync, {"storage-mount-options": "warn"}),
    Fault(scratch_sync_after_boot, {"storage-fstab-options": "warn"}),
    Fault(scratch_with_strict_times, {"storage-mount-options": "warn"}),
    Fault(scratch_nearly_full, {"storage-space": "warn"}),
    Fault(scratch_full, {"storage-space": "fail"}),
    Fault(scratch_not_mounted, {"storage-mounts-present": "fail"}),
    Fault(scratch_went_read_only, {"storage-mounts-present": "fail"}),
    Fault(nfs_in_order, {"storage-network-mounts": "pass", "storage-nfs-options": "pass"}),
    Fault(nfs_server_gone, {"storage-network-mounts": "fail", "storage-nfs-options": "pass"}),
    Fault(nfs_handle_stale, {"storage-network-mounts": "fail", "storage-nfs-options": "pass"}),
    Fault(nfs_soft_and_small, {"storage-network-mounts": "pass", "storage-nfs-options": "warn"}),
    Fault(gpudirect_with_damaged_configuration, {"storage-gpudirect": "warn"}),
)
