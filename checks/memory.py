# SPDX-License-Identifier: Apache-2.0
"""Memory management."""

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    Severity,
    Verdict,
    check,
    expect,
    fails,
    passes,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.memory import TransparentHugepage, ZoneReclaim
from gpuaudit.facts.node import Machine
from gpuaudit.facts.swap import Swap
from gpuaudit.facts.sysctl import SysctlSetting

Findings = Iterator[Finding]


class MemoryExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of memory management."""

    thp_enabled: tuple[Literal["always", "madvise", "never"], ...]
    thp_defrag: tuple[Literal["always", "defer", "defer+madvise", "madvise", "never"], ...]
    swap: Literal["none", "any"]
    zone_reclaim_mode: tuple[Annotated[int, msgspec.Meta(ge=0, le=7)], ...]


@check("memory-thp-enabled", severity=Severity.MEDIUM)
def thp_enabled(thp: TransparentHugepage, want: MemoryExpectations) -> Findings:
    """Transparent huge pages run in a mode the policy accepts.

    ## Why it matters
    With 4 KiB pages, pinned staging buffers and data loaders miss the TLB far more often. `never`
    takes huge pages even from programs that ask for them.

    ## Evidence
    The word in brackets in /sys/kernel/mm/transparent_hugepage/enabled; transparent_hugepage= in
    /proc/cmdline.

    ## How it is judged
    The mode must be one of `memory.thp_enabled`. A kernel command line that sets another one warns:
    the next boot starts with that.

    ## Exceptions
    Advice differs: tuned's hpc-compute profile wants `always`, latency-bound services `madvise`.
    On kernels with 64 KiB pages a huge page is 512 MiB; set the policy per SKU there.

    ## What to do
    Write the wanted word to the file, and make it last with `transparent_hugepage=` on the kernel
    command line or a tmpfiles.d entry. A tuned profile may set it again.

    ## References
    - https://docs.kernel.org/admin-guide/mm/transhuge.html
    """
    yield expect(thp.enabled, want.thp_enabled, of="transparent_hugepage/enabled")
    if isinstance(thp.boot, str):
        message = (
            f"the kernel command line says {thp.boot}: something has to set it after each boot"
        )
        of = "transparent_hugepage= of the kernel command line"
        yield expect(thp.boot, want.thp_enabled, of=of, message=message, otherwise=Verdict.WARN)


@check("memory-thp-defrag", severity=Severity.LOW)
def thp_defrag(thp: TransparentHugepage, want: MemoryExpectations) -> Finding:
    """Making huge pages stalls no program that did not ask for them.

    ## Why it matters
    With `always` every page fault may wait for direct reclaim and compaction, milliseconds at a
    time on a node whose page cache is full. The slowest rank holds up the whole step.

    ## Evidence
    The word in brackets in /sys/kernel/mm/transparent_hugepage/defrag.

    ## How it is judged
    It must be one of `memory.thp_defrag`.

    ## Exceptions
    Not applicable to a kernel without transparent huge pages.

    ## What to do
    Write `madvise` to /sys/kernel/mm/transparent_hugepage/defrag, and a tmpfiles.d entry that does
    so at boot.

    ## References
    - https://docs.kernel.org/admin-guide/mm/transhuge.html
    """
    return expect(thp.defrag, want.thp_defrag, of="transparent_hugepage/defrag")


@check("memory-swap-off", severity=Severity.MEDIUM)
def swap_off(swap: Swap, machine: Machine, want: MemoryExpectations) -> Findings:
    """No swap is on, and none comes on at the next boot.

    ## Why it matters
    A rank whose heap is paged out waits for a disk while thousands of others wait for it. kubelet
    refuses to start with swap unless it is told otherwise.

    ## Evidence
    /proc/swaps; for the next boot /etc/fstab, *.swap units and zram services that are pulled in,
    zram-generator.conf.

    ## How it is judged
    Fails when swap is on, warns when only the next boot brings it. In an image the latter fails.

    ## Exceptions
    `memory.swap: any` accepts swap. A swap partition that systemd finds by its GPT type is not seen
    before it is on. In a container this is the host's swap,
    and its files say nothing of the next boot.

    ## What to do
    Run `swapoff -a` while enough memory is free, comment out the swap lines of /etc/fstab and
    `systemctl mask` the swap unit. Remove zram-generator's configuration for zram swap.

    ## References
    - https://docs.kernel.org/admin-guide/sysctl/vm.html#swappiness
    - https://www.freedesktop.org/software/systemd/man/latest/systemd.swap.html
    """
    here = "; it belongs to the host" if machine.container else ""
    yield judge_swap(swap.running, want, "swap", f"swap is on{here}", Verdict.FAIL)
    only_next = next_boot_verdict(is_unsupported(swap.running))
    yield judge_swap(
        swap.next_boot, want, "swap at the next boot", "the next boot turns swap on", only_next
    )


def judge_swap(
    areas: tuple[str, ...] | Absent,
    want: MemoryExpectations,
    of: str,
    message: str,
    otherwise: Verdict,
) -> Finding:
    """No areas, unless the policy accepts any."""
    if isinstance(areas, Absent):
        return expect(areas, None, of=of)
    observed = ", ".join(areas) or "none"
    if not areas or want.swap == "any":
        return passes(of, observed, expected=want.swap)
    answer = fails if otherwise is Verdict.FAIL else warns
    cost = "a rank that is paged out waits for a disk at each step"
    return answer(of, message, observed, expected=want.swap, cost=cost)


@check("memory-zone-reclaim", severity=Severity.LOW)
def zone_reclaim(zone: ZoneReclaim, want: MemoryExpectations) -> Findings:
    """The kernel uses memory of other NUMA nodes before it drops caches.

    ## Why it matters
    With zone reclaim a node whose memory is full drops page cache and stalls the allocation, with
    free memory one hop away. Data loaders live on that cache.

    ## Evidence
    /proc/sys/vm/zone_reclaim_mode; for the next boot the sysctl.d files.

    ## How it is judged
    The mode must be one of `memory.zone_reclaim_mode`. A file that sets another one for the next
    boot warns, in an image it fails.

    ## Exceptions
    Not applicable to a kernel without NUMA. tuned's hpc-compute sets 1 for partitioned work; allow
    it in the policy where that profile is wanted.

    ## What to do
    Run `sysctl -w vm.zone_reclaim_mode=0` and write `vm.zone_reclaim_mode = 0` to
    /etc/sysctl.d/90-zone-reclaim.conf.

    ## References
    - https://docs.kernel.org/admin-guide/sysctl/vm.html#zone-reclaim-mode
    """
    yield expect(zone.mode, want.zone_reclaim_mode, of="vm.zone_reclaim_mode")
    of, image = "vm.zone_reclaim_mode at the next boot", is_unsupported(zone.mode)
    if isinstance(zone.next_boot, Absent):
        yield expect(zone.next_boot, None, of=of)
    elif zone.next_boot or image:
        value, place = next_value(zone.next_boot)
        words = tuple(map(str, want.zone_reclaim_mode))
        yield expect(value, words, of=of, evidence=(place,), otherwise=next_boot_verdict(image))


def next_value(setting: SysctlSetting | None) -> tuple[str, str]:
    """The value of the next boot and its place; without a setting the kernel's default."""
    return (setting.value, f"{setting.file}:{setting.line}") if setting else ("0", "kernel default")


def is_unsupported(value: object) -> bool:
    """True for a running value in an image, where there is none."""
    return isinstance(value, Absent) and value.kind == "unsupported"


def next_boot_verdict(image: bool) -> Verdict:  # noqa: FBT001 - the only argument
    """A wrong value at the next boot fails an image and is a warning on a node that runs well."""
    return Verdict.FAIL if image else Verdict.WARN
