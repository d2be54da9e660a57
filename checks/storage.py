# SPDX-License-Identifier: Apache-2.0
"""Local drives. See also storage_*.py."""

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    Verdict,
    check,
    counted,
    expect,
    expect_at_least,
    fails,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.blockdev import Array, Arrays, Controller, Drive, NvmeDrives

Findings = Iterator[Finding]
PASSING = frozenset({"new", "resetting", "connecting"})
"""States that a controller is in for seconds (Linux drivers/nvme/host/nvme.h, nvme_ctrl_state)."""


class StorageExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of local drives."""

    nvme_schedulers: tuple[str, ...]
    read_ahead_min_kib: Annotated[int, msgspec.Meta(ge=0)]
    degraded_array: Literal["warn", "fail"]


@check("storage-nvme-scheduler", severity=Severity.LOW)
def nvme_scheduler(found: NvmeDrives, want: StorageExpectations) -> Findings:
    """NVMe drives take requests in the order they come.

    ## Why it matters
    An NVMe drive has many queues and sorts them itself. A scheduler in front of it puts all CPUs
    through one lock, which costs operations a second and CPU time.

    ## Evidence
    The word in brackets in /sys/block/nvme*n*/queue/scheduler.

    ## How it is judged
    It is one of `storage.nvme_schedulers`; any other is a warning.

    ## Exceptions
    Not applicable without NVMe. `mq-deadline` keeps latency of reads even under heavy writing: a
    site that wants it adds it to the policy. Devices of virtual machines that are no NVMe are not
    looked at.

    ## What to do
    Run `echo none > /sys/block/X/queue/scheduler`, and write a udev rule with
    ATTR{queue/scheduler}="none"; tuned's `elevator=` may set it again.

    ## References
    - https://docs.kernel.org/block/switching-sched.html
    - https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-block
    """
    for one in namespaces(found):
        yield expect(
            one.scheduler,
            want.nvme_schedulers,
            of=one.name,
            message=f"its scheduler is {one.scheduler}",
            otherwise=Verdict.WARN,
        )


@check("storage-read-ahead", severity=Severity.LOW)
def read_ahead(found: NvmeDrives, want: StorageExpectations) -> Findings:
    """NVMe drives read ahead of a program that reads in order.

    ## Why it matters
    Data loaders stream large files. Without read-ahead each read waits for the drive in turn, and
    the GPUs wait for the loader.

    ## Evidence
    /sys/block/nvme*n*/queue/read_ahead_kb.

    ## How it is judged
    At least `storage.read_ahead_min_kib`. Less is a warning.

    ## Exceptions
    Not applicable without NVMe. Databases turn it off on purpose. Direct I/O and GPUDirect Storage
    use none of it. Network file systems have a setting of their own.

    ## What to do
    Run `echo 4096 > /sys/block/X/queue/read_ahead_kb` for streaming, 128 for the kernel's default,
    and write a udev rule with ATTR{queue/read_ahead_kb}.

    ## References
    - https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-block
    """
    for one in namespaces(found):
        of, least = one.name, want.read_ahead_min_kib
        yield expect_at_least(
            one.read_ahead_kib,
            least,
            of=of,
            unit="KiB",
            message=f"the kernel reads {one.read_ahead_kib} KiB ahead",
            otherwise=Verdict.WARN,
        )


def namespaces(found: NvmeDrives) -> tuple[Drive, ...]:
    """Those that can be used. Raises NotApplicable."""
    if not found.drives:
        raise NotApplicable("no NVMe namespace")
    return found.drives


@check("storage-nvme-state", severity=Severity.HIGH)
def nvme_state(found: NvmeDrives) -> Findings:
    """Every NVMe controller is alive and has a namespace.

    ## Why it matters
    A controller that died takes its data with it; jobs that read or write there hang or end, and
    scratch striped over it is lost.

    ## Evidence
    /sys/class/nvme/X/{state,cntrltype}, and the namespaces in the folder.

    ## How it is judged
    `live` passes, `dead` and the states of going away fail, states of a reset are unknown. A live
    controller without a namespace is a warning, unless it is there for discovery.

    ## Exceptions
    Not applicable without NVMe. Controllers of NVMe over Fabrics count too: "connecting" there
    means that the target does not answer. A drive passed through to a guest is not listed here.

    ## What to do
    Look for the drive in `dmesg | grep nvme`; `nvme reset /dev/X`, else a power cycle and then the
    vendor. A drive without a namespace gets one with `nvme create-ns` and `nvme attach-ns`.

    ## References
    - https://github.com/torvalds/linux/blob/master/drivers/nvme/host/sysfs.c
    - https://nvmexpress.org/specification/nvm-express-base-specification/
    """
    for one in found.controllers:
        yield judge_controller(one)


def judge_controller(one: Controller) -> Finding:
    """One controller."""
    if isinstance(one.state, Absent):
        return expect(one.state, None, of=one.name)
    if one.state in PASSING:
        return unknown(one.name, f"it is {one.state}: ask again in a minute", one.state)
    if one.state != "live":
        return fails(one.name, f"the controller is {one.state}", one.state, expected="live")
    if isinstance(one.namespaces, Absent):
        return expect(one.namespaces, None, of=one.name)
    if not one.namespaces and one.stores:
        return warns(one.name, "live, but it has no namespace to store anything in", "live")
    return passes(one.name, f"live, {counted(one.namespaces, 'namespace')}", expected="live")


@check("storage-raid-degraded", severity=Severity.HIGH)
def raid_degraded(found: Arrays, want: StorageExpectations) -> Findings:
    """Every software RAID array has all its members.

    ## Why it matters
    An array that lacks a member works on, slower, and the next drive takes the node down, or all of
    its scratch.

    ## Evidence
    /proc/mdstat.

    ## How it is judged
    An array that is not active fails. One with a failed or missing member gets
    `storage.degraded_array`.

    ## Exceptions
    Not applicable without an array. Containers of Intel VROC and DDF are never active and are left
    out; the arrays in them count. Striping (raid0) has no members to spare: a lost one shows as
    broken or inactive. A check or resync of a complete array passes. Hardware RAID, btrfs, LVM and
    ZFS are not seen.

    ## What to do
    Run `mdadm --detail /dev/mdN`, replace the drive and add it with
    `mdadm /dev/mdN --add /dev/X`. Start the node's next job after the recovery: it takes bandwidth.

    ## References
    - https://man7.org/linux/man-pages/man4/md.4.html
    """
    for one in found.arrays:
        yield judge_array(one, want)


def judge_array(one: Array, want: StorageExpectations) -> Finding:
    """One array."""
    seen = " ".join(filter(None, (one.state, one.level, one.doing)))
    if one.state != "active":
        return fails(one.name, f"the array is {one.state}", seen, expected="active")
    if one.missing or one.failed:
        answer = fails if want.degraded_array == "fail" else warns
        gone = f"; failed: {', '.join(one.failed)}" if one.failed else ""
        message = f"{one.missing} of {one.members} members missing{gone}"
        return answer(one.name, message, seen, expected="all members")
    return passes(one.name, seen)
