# SPDX-License-Identifier: Apache-2.0
"""/etc/fstab: what it asks for, and whether that is there."""

from collections.abc import Iterator

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    check,
    fails,
    passes,
    warns,
)
from gpuaudit.facts.fstab import Line
from gpuaudit.facts.mounts import COSTLY, LOCAL, ConfiguredMounts, Mount, Mounts
from gpuaudit.facts.node import Machine

Findings = Iterator[Finding]
SKIPPED = frozenset({"bind", "rbind", "noauto", "x-systemd.automount", "comment=cloudconfig"})


class StorageFstabExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants."""

    required_mounts: tuple[str, ...]


@check("storage-fstab-options", severity=Severity.LOW)
def fstab_options(lines: ConfiguredMounts, machine: Machine) -> Findings:
    """/etc/fstab asks for no options that make each read or write wait.

    ## Why it matters
    A mount that somebody put right by hand is slow again after the next boot, and every node that
    is made from the image is slow from the first.

    ## Evidence
    The fourth field of the lines of /etc/fstab.

    ## How it is judged
    `sync`, `dirsync` and `strictatime` are a warning.

    ## Exceptions
    Not applicable without such lines and in a container, whose fstab is nobody's. Read-only lines,
    swap and /boot are left out, where nothing is written during a job. Mount units of systemd are
    not read.

    ## What to do
    Take the option out of the line, and run `mount -o remount,async,relatime` on the folder.

    ## References
    - https://man7.org/linux/man-pages/man5/fstab.5.html
    - https://man7.org/linux/man-pages/man8/mount.8.html
    """
    judged = [one for one in lines.lines if is_written(one) and not machine.container]
    if not judged:
        raise NotApplicable("fstab names no file system to be written")
    for line in judged:
        wrong = [option for option in line.options if option in COSTLY and option != "relatime"]
        if wrong:
            cost = "; ".join(COSTLY[one] for one in wrong)
            message = f"{line.where} asks for {', '.join(wrong)}"
            yield warns(line.folder, message, line.type, cost=cost, evidence=(line.where,))
        else:
            yield passes(line.folder, line.type, evidence=(line.where,))


def is_written(line: Line) -> bool:
    """A file system that jobs may write to."""
    real = line.folder.startswith("/") and line.type != "swap"
    return real and "ro" not in line.options and not line.folder.startswith("/boot")


@check("storage-mounts-present", severity=Severity.HIGH)
def mounts_present(
    lines: ConfiguredMounts, table: Mounts, machine: Machine, want: StorageFstabExpectations
) -> Findings:
    """What should be mounted is mounted, and writable.

    ## Why it matters
    Where scratch is not mounted, jobs fill /. ext4 turns itself read-only after a drive's error.

    ## Evidence
    /etc/fstab and /proc/self/mountinfo; `storage_fstab.required_mounts`.

    ## How it is judged
    A line of fstab whose folder is not mounted fails, with nofail it warns. So does a folder of the
    policy. A local file system that fstab wants writable and that is read-only fails; a mount that
    is read-only of a file system that is not is what a service's sandbox sees, and passes.

    ## Exceptions
    Lines with noauto or x-systemd.automount, those that cloud-init guessed, swap and bind mounts.
    Not applicable in a container, whose fstab is nobody's. Mounts of systemd units and of autofs
    are judged only where the policy names their folder.

    ## What to do
    Run `mount FOLDER` and read `dmesg` and `systemctl status` of the mount unit for the reason. A
    file system that went read-only needs `fsck` and a look at its drive before anything else.

    ## References
    - https://man7.org/linux/man-pages/man5/fstab.5.html
    """
    wanted = [one for one in lines.lines if is_wanted(one) and not machine.container]
    if not wanted and not want.required_mounts:
        raise NotApplicable("fstab and the policy ask for no mount")
    mounted = {mount.folder: mount for mount in table.mounts}
    for line in wanted:
        place = lines.links.get(line.folder, line.folder)
        yield judge_line(line, mounted.get(place))
    for folder in want.required_mounts:
        there = mounted.get(folder)
        if there is None:
            yield fails(folder, "not mounted, and the policy wants it", "nothing")
        else:
            yield passes(folder, there.type)


def is_wanted(line: Line) -> bool:
    """A line that the boot mounts by itself, on a folder."""
    real = line.folder.startswith("/") and line.type != "swap"
    return real and SKIPPED.isdisjoint(line.options)


def judge_line(line: Line, mount: Mount | None) -> Finding:
    """One line of fstab."""
    if mount is None or mount.type == "autofs":
        answer = warns if "nofail" in line.options or mount else fails
        return answer(line.folder, f"not mounted, though {line.where} asks for it", "nothing")
    if mount.type in LOCAL and "ro" in mount.super_options and "ro" not in line.options:
        message = f"read-only, though {line.where} asks for a writable one"
        return fails(line.folder, message, "ro", expected="rw", cost="nothing can be written")
    return passes(line.folder, mount.type)
