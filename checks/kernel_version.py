# SPDX-License-Identifier: Apache-2.0
"""The kernel itself: its version, the one of the next boot, and what it spends on safety."""

from collections.abc import Iterator
from typing import Literal

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    Verdict,
    check,
    expect,
    fails,
    not_applicable,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.grub import version_key
from gpuaudit.facts.kernels import InstalledKernels
from gpuaudit.facts.kernelsafety import InitOnAlloc, Vulnerabilities
from gpuaudit.facts.nextboot import BootEntry, NextKernel
from gpuaudit.facts.node import Machine

NOTHING_ASKED = "the policy asks for nothing"


class BadKernels(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Releases from `first` on and below `below` (null: no end) that should not be used.

    `only` is text that the release has to contain, such as `el9` or `generic`.
    """

    first: str
    below: str | None
    only: str
    reason: str


class KernelVersionExpectations(Expectations, frozen=True, kw_only=True):
    """Which kernels are right, and what they may spend on safety."""

    minimum: str | None
    bad: tuple[BadKernels, ...]
    mitigations: Literal["any", "complete"]
    init_on_alloc: Literal["any", "on", "off"]


@check("kernel-version", severity=Severity.MEDIUM)
def version(machine: Machine, following: NextKernel, want: KernelVersionExpectations) -> Finding:
    """The kernel is one that the driver supports and that the site accepts.

    ## Why it matters
    The NVIDIA driver is built and tested for a range of kernels. Single releases have faults that
    show only under GPU load, and a fleet with several kernels has several kinds of trouble.

    ## Evidence
    /proc/sys/kernel/osrelease; in an image the kernel of the default boot entry.

    ## How it is judged
    The release must not be below `kernel_version.minimum` and in none of the ranges of
    `kernel_version.bad`, each of which gives its reason. Numbers are compared as numbers.

    ## Exceptions
    In a container this is the host's kernel. Distributions carry fixes back: a range may be
    limited to releases that contain a text (`only`). An image without a boot loader has no kernel
    to judge.

    ## What to do
    Install the kernel that the message asks for and boot it; `uname -r` shows the one that runs.

    ## References
    - https://github.com/NVIDIA/open-gpu-kernel-modules
    """
    release = machine.kernel or following.release
    if isinstance(release, Absent):
        return expect(release, None, of="kernel")
    if not release[:1].isdigit():
        return unknown("kernel", f"{release[:40]!r} is no release")
    for bad in want.bad:
        above = version_key(release) >= version_key(bad.first)
        below = bad.below is None or version_key(release) < version_key(bad.below)
        if above and below and bad.only in release:
            better = f"at least {bad.below}" if bad.below else f"below {bad.first}"
            return fails("kernel", bad.reason, release, expected=better)
    if want.minimum and version_key(release) < version_key(want.minimum):
        message = f"kernel {release} is older than {want.minimum}"
        return fails("kernel", message, release, expected=f"at least {want.minimum}")
    return passes("kernel", release, expected=f"at least {want.minimum}" if want.minimum else "any")


@check("kernel-version-pending", severity=Severity.LOW)
def version_pending(kernels: InstalledKernels, entry: BootEntry) -> Finding:
    """The next boot starts the kernel that runs now.

    ## Why it matters
    A kernel that was updated and not booted is untested on this node. The reboot that brings it
    often comes after a fault, and then two things have changed at once.

    ## Evidence
    /proc/sys/kernel/osrelease; the default entry of the boot loader; /boot and /lib/modules.

    ## How it is judged
    Warns when the default entry starts another release than the running one.

    ## Exceptions
    Not applicable in an image, in a container, and without a boot loader of its own. Unknown where
    the entry does not name a release. Whether the driver is ready for that kernel is the question
    of driver-next-kernel.

    ## What to do
    Drain the node and reboot it to take over the new kernel, or pin the running one (`apt-mark
    hold linux-image-...`, `grubby --set-default`).

    ## References
    - https://www.gnu.org/software/grub/manual/grub/grub.html
    - https://uapi-group.org/specifications/specs/boot_loader_specification/
    """
    if kernels.running is None:
        raise NotApplicable("an image has no running kernel")
    installed = f"installed: {', '.join(kernels.releases) or 'none that can be booted'}"
    where = (entry.file, installed)
    if entry.kernel is None:
        return unknown("kernel", f"{entry.file} does not name the kernel's release", evidence=where)
    if entry.kernel == kernels.running:
        return passes("kernel", kernels.running, expected=entry.kernel, evidence=where)
    message = f"{kernels.running} runs, the next boot starts {entry.kernel}"
    return warns("kernel", message, kernels.running, expected=entry.kernel, evidence=where)


@check("kernel-mitigations", severity=Severity.LOW)
def mitigations(flaws: Vulnerabilities, want: KernelVersionExpectations) -> Iterator[Finding]:
    """CPU flaws are mitigated as the policy wants it.

    ## Why it matters
    Mitigations make each system call and context switch dearer, which launch-bound jobs feel;
    without them a user of the node may read what belongs to others. The site decides, knowingly.

    ## Evidence
    /sys/devices/system/cpu/vulnerabilities/*.

    ## How it is judged
    `any` shows what the kernel says and judges nothing; with `complete`, each flaw that the kernel
    calls vulnerable warns. gpuaudit never asks for mitigations to be switched off.

    ## Exceptions
    A guest sees what its hypervisor lets it see. Kernels before 4.15 do not tell: unknown. Not
    applicable in an image.

    ## What to do
    Take `mitigations=off` and the like off the kernel command line, and install the CPU's
    microcode.

    ## References
    - https://docs.kernel.org/admin-guide/hw-vuln/index.html
    """
    for name, said in flaws.by_name.items():
        open_to = said.removeprefix("KVM: ").startswith("Vulnerable")
        if want.mitigations == "any":
            yield not_applicable(name, NOTHING_ASKED, said)
        elif open_to:
            yield warns(name, "the CPU has this flaw, and it is not mitigated", said)
        else:
            yield passes(name, said)


@check("kernel-init-on-alloc", severity=Severity.LOW)
def init_on_alloc(memory: InitOnAlloc, want: KernelVersionExpectations) -> Finding:
    """Memory is cleared when it is given out only where the policy wants it.

    ## Why it matters
    With it the kernel writes zeros over every page and object before their owner writes over them
    again. NVIDIA recommends to switch it off on Grace; it guards against leaks of old contents.

    ## Evidence
    `init_on_alloc=` of the kernel command line (in an image of the boot entry), else
    CONFIG_INIT_ON_ALLOC_DEFAULT_ON of the kernel's configuration.

    ## How it is judged
    Warns when it is not as `kernel_version.init_on_alloc` says.

    ## Exceptions
    Not applicable where the policy asks for nothing, which is the base: Ubuntu has it on for
    safety. The policy of Grace products asks for `off`.

    ## What to do
    Add `init_on_alloc=0` to GRUB_CMDLINE_LINUX in /etc/default/grub, run `update-grub` and reboot;
    `init_on_alloc=1` where the policy wants it on.

    ## References
    - https://docs.kernel.org/admin-guide/kernel-parameters.html
    - https://nvidia.github.io/grace-cpu-benchmarking-guide/platform/index.html
    """
    if want.init_on_alloc == "any":
        raise NotApplicable(NOTHING_ASKED)
    known = memory.enabled if isinstance(memory.enabled, Absent) else word(memory.enabled)
    message = f"init_on_alloc is {known}: {memory.source}"
    where = (memory.source,)
    return expect(
        known,
        want.init_on_alloc,
        of="init_on_alloc",
        message=message,
        evidence=where,
        otherwise=Verdict.WARN,
    )


def word(value: bool) -> str:  # noqa: FBT001 - the only argument
    """As the policy writes it."""
    return "on" if value else "off"
