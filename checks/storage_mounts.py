# SPDX-License-Identifier: Apache-2.0
"""Mounted file systems: options, room, and whether they answer. See also storage_fstab."""

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    check,
    expect,
    fails,
    not_applicable,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.mounts import (
    COSTLY,
    LOCAL,
    FileSystemSpace,
    Mount,
    Mounts,
    NetworkMounts,
    Space,
    is_judged,
)

Findings = Iterator[Finding]
Percent = Annotated[float, msgspec.Meta(ge=0, le=100)]


class StorageMountsExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants."""

    access_times: tuple[Literal["noatime", "relatime"], ...]
    free_min_percent: Percent
    free_fail_percent: Percent
    free_enough_gib: Annotated[int, msgspec.Meta(ge=1)]


@check("storage-mount-options", severity=Severity.MEDIUM)
def mount_options(table: Mounts, want: StorageMountsExpectations) -> Findings:
    """No data is mounted with options that make each read or write wait.

    ## Why it matters
    With `sync` a checkpoint is written at the pace of single flushes, and with strict access times
    each read of a data set writes as well.

    ## Evidence
    /proc/self/mountinfo.

    ## How it is judged
    `sync` and `dirsync` are a warning, and so is a local file system with none of
    `storage_mounts.access_times`: without relatime and noatime the kernel keeps strict times.

    ## Exceptions
    relatime, the default, writes once a day and is accepted beside noatime. Mounts that are
    read-only, of other kinds than local and network file systems, below /boot, and those of
    container runtimes are left out. Network file systems keep access times on the server. In an
    image nothing is mounted: see storage-fstab-options.

    ## What to do
    Take the option out of /etc/fstab or the mount unit and run `mount -o remount,async,relatime`
    on the folder.

    ## References
    - https://man7.org/linux/man-pages/man8/mount.8.html
    - https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html
    """
    judged = [m for m in table.mounts if is_judged(m) or m.network]
    judged = [m for m in judged if not m.folder.startswith("/boot") and m.type != "tmpfs"]
    judged = [m for m in judged if "ro" not in m.options]
    if not judged:
        raise NotApplicable("no local or network file system is mounted to be written")
    for mount in judged:
        wrong = sorted(costly(mount, want))
        if wrong:
            cost = "; ".join(COSTLY[one] for one in wrong)
            yield warns(mount.folder, f"mounted with {', '.join(wrong)}", mount.type, cost=cost)
        else:
            yield passes(mount.folder, mount.type)


def costly(mount: Mount, want: StorageMountsExpectations) -> Iterator[str]:
    """The kernel prints no word for strict access times."""
    yield from mount.all_options & {"sync", "dirsync"}
    if mount.type in LOCAL and mount.all_options.isdisjoint(want.access_times):
        yield "relatime" if "relatime" in mount.all_options else "strictatime"


@check("storage-space", severity=Severity.MEDIUM)
def space(found: FileSystemSpace, want: StorageMountsExpectations) -> Findings:
    """Local file systems have room and inodes left.

    ## Why it matters
    A full scratch ends a job at its next checkpoint, a full / or /var ends logging and logins.

    ## Evidence
    statvfs(2) of local file systems that are mounted writable, and of tmpfs on /tmp and /scratch.

    ## How it is judged
    Below `storage_mounts.free_min_percent` of blocks or inodes free to users it is a warning,
    below `storage_mounts.free_fail_percent` it fails. `storage_mounts.free_enough_gib` of room are
    enough on a disk of any size.

    ## Exceptions
    Network file systems, whose room is the site's matter, read-only ones, and mounts of container
    runtimes. btrfs and others without a fixed number of inodes are judged by blocks. Quotas are not
    seen. In a container the root is the node's file system below its layers.

    ## What to do
    Run `du -xhd1 FOLDER | sort -h`, or `du --inodes -xd1 FOLDER` for inodes; clear what jobs left
    behind in the epilog, and limit container images and journals.

    ## References
    - https://man7.org/linux/man-pages/man3/statvfs.3.html
    """
    if not found.by_mount:
        raise NotApplicable("no local file system is mounted to be written")
    for mount, room in found.by_mount.items():
        if isinstance(room, Absent):
            yield expect(room, None, of=mount.folder)
        elif not room.total_kib:
            yield not_applicable(mount.folder, "a file system without a size")
        else:
            yield judge_room(mount.folder, room, want)


def judge_room(folder: str, room: Space, want: StorageMountsExpectations) -> Finding:
    """The scarcer of blocks and inodes."""
    enough = room.free_kib >= want.free_enough_gib << 20
    shares = {"free space": 100 * room.free_kib / room.total_kib}
    if room.inodes:
        shares["free inodes"] = 100 * room.free_inodes / room.inodes
    what, share = min(shares.items(), key=lambda item: item[1])
    seen = f"{share:.1f} % {what}, {room.free_kib / (1 << 20):.1f} GiB free"
    expected = f"at least {want.free_min_percent:g} %"
    if what == "free space" and enough:
        return passes(folder, seen, expected=f"at least {want.free_enough_gib} GiB")
    if share < want.free_fail_percent:
        return fails(folder, f"almost full: {seen}", seen, expected=expected)
    if share < want.free_min_percent:
        return warns(folder, f"nearly full: {seen}", seen, expected=expected)
    return passes(folder, seen, expected=expected)


@check("storage-network-mounts", severity=Severity.HIGH)
def network_mounts(found: NetworkMounts) -> Findings:
    """Every mounted network file system answers.

    ## Why it matters
    What touches a mount whose server is gone sleeps for ever: the job, its epilog, `df`, the node.

    ## Evidence
    statvfs(2) of each mount of NFS, Lustre, GPFS, BeeGFS, Weka, Ceph, CIFS and network FUSE.

    ## How it is judged
    No answer in 3 seconds, or an error such as "Stale file handle", fails.

    ## Exceptions
    Not applicable without such a mount. Automounts that nobody uses are not woken up. After one
    silent mount the others are not asked and are unknown. FUSE mounts that a user made for itself
    alone answer nobody else and are left out.

    ## What to do
    Check the server and the way to it (`nfsstat -m`, `lfs check servers`, `mmgetstate`), then
    `umount -l` the folder and mount it again. Drain the node until then.

    ## References
    - https://man7.org/linux/man-pages/man5/nfs.5.html
    - https://man7.org/linux/man-pages/man3/statvfs.3.html
    """
    for mount, answer in found.answers.items():
        if isinstance(answer, Space):
            yield passes(mount.folder, mount.type)
        elif answer.kind == "failed" and is_error(mount.folder, answer.reason):
            yield fails(mount.folder, answer.reason, mount.type, cost="jobs that touch it hang")
        else:
            yield unknown(mount.folder, answer.reason, mount.type)


def is_error(folder: str, reason: str) -> bool:
    """The file system said no, or nothing at all: words of the probe and of the patient child."""
    return reason.startswith((f"{folder} answers: ", f"@statvfs {folder} did not answer within "))
