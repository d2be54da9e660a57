# SPDX-License-Identifier: Apache-2.0
"""The kernel command line: now, at the next boot, and as the settings ask for it."""

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
from gpuaudit.facts.bootintent import BootIntent
from gpuaudit.facts.nextboot import (
    ADDED_UP,
    POOLS,
    BootEntry,
    EffectiveLine,
    matters,
)

OF = "kernel command line"
ALLOWED = {
    "numa_balancing": ("enable", "disable"),
    "transparent_hugepage": ("always", "madvise", "never"),
}
"""Of these the kernel takes no other word (kernel-parameters.txt; mm/mempolicy.c, mm/huge_memory.c)
and carries on as if the parameter were not there."""

PASS_THROUGH = frozenset({"pt", "nopt"})
"""Words of iommu= that intel_iommu= and amd_iommu= do not have: both print "Unknown option"
(drivers/iommu/intel/iommu.c, drivers/iommu/amd/init.c)."""


class KernelExpectations(Expectations, frozen=True, kw_only=True):
    """Which parameters matter, and which should not be there.

    `parameters` are names with shell patterns and _ for -. `unwanted` maps a word, or a name with
    its option such as pci=noaer, to what it costs; `refused` are those of them that fail.
    """

    parameters: tuple[str, ...]
    unwanted: dict[str, str]
    refused: tuple[str, ...]


@check("kernel-cmdline-next-boot", severity=Severity.MEDIUM)
def cmdline_next_boot(
    line: EffectiveLine, entry: BootEntry, want: KernelExpectations
) -> Iterator[Finding]:
    """The next boot takes the kernel parameters that hold now.

    ## Why it matters
    A parameter that was set and not booted yet does nothing. One that only runs now is gone after
    the next reboot, which may be the one that a repair needs: the node comes back slower.

    ## Evidence
    /proc/cmdline. The default entry of the boot loader: grub.cfg with grubenv below /boot/grub,
    /boot/grub2 or /boot/efi/EFI, or the files in loader/entries.

    ## How it is judged
    Parameters named in `kernel.parameters` have to be the same in both; another value, or one that
    only one of the two has, warns. root=, console= and the like do not matter.

    ## Exceptions
    Not applicable in an image, where nothing runs, in a container, and to a node without a boot
    loader of its own (network boot, a guest whose hypervisor holds the kernel). Unknown with
    unified kernel images and extlinux, and where the entries of systemd-boot disagree.

    ## What to do
    Reboot at a good moment to take over what is pending, or write what should stay to
    GRUB_CMDLINE_LINUX in /etc/default/grub and run `update-grub` (RHEL: `grubby --args`).

    ## References
    - https://docs.kernel.org/admin-guide/kernel-parameters.html
    - https://www.gnu.org/software/grub/manual/grub/grub.html
    """
    if not line.running:
        raise NotApplicable("nothing runs in an image: there is one command line, that of the boot")
    now = matters(line.words, want.parameters)
    later = matters(entry.words, want.parameters)
    if now == later:
        yield passes(OF, shown(now), evidence=(line.file, entry.file))
    for name in sorted(n for n in now | later if now.get(n) != later.get(n)):
        what = (
            "is set for the next boot and does not hold yet"
            if name not in now
            else "holds now and is gone after the next boot"
            if name not in later
            else "changes with the next boot"
        )
        yield warns(
            name,
            f"{name} {what}",
            value_of(now, name),
            expected=value_of(later, name),
            evidence=(line.file, entry.file),
        )


def shown(settings: dict[str, str]) -> str:
    """The parameters that matter, as they stand on a command line."""
    return " ".join(f"{k}={v}" if v else k for k, v in settings.items()) or "none that matters"


def value_of(settings: dict[str, str], name: str) -> str:
    """The value of one parameter."""
    return "not set" if name not in settings else settings[name] or "set"


@check("kernel-cmdline-generated", severity=Severity.MEDIUM)
def cmdline_generated(
    intent: BootIntent, entry: BootEntry, line: EffectiveLine, want: KernelExpectations
) -> Iterator[Finding]:
    """What the boot settings ask for stands in the boot loader's files.

    ## Why it matters
    /etc/default/grub is only a wish: without `update-grub` or `grub2-mkconfig` no boot sees it. An
    edit that was forgotten there looks done, and comes as a surprise with some later update.

    ## Evidence
    GRUB_CMDLINE_LINUX and GRUB_CMDLINE_LINUX_DEFAULT of /etc/default/grub (on Debian also of
    grub.d/*.cfg), without it /etc/kernel/cmdline; the default entry of the boot loader.

    ## How it is judged
    Each parameter of `kernel.parameters` that is asked for has to be in the entry with that value.
    Else it warns; in an image, which is to be right from its first boot, it fails. What only the
    entry has is not judged: grubby and tuned write there by design.

    ## Exceptions
    Not applicable in containers and without such settings. Unknown where they are a program that
    only a shell could run.

    ## What to do
    Run `update-grub`, on RHEL `grub2-mkconfig -o /boot/grub2/grub.cfg --update-bls-cmdline`, and
    look into the file that it made.

    ## References
    - https://www.gnu.org/software/grub/manual/grub/grub.html
    - https://www.freedesktop.org/software/systemd/man/latest/kernel-install.html
    """
    asked, made = (matters(words, want.parameters) for words in (intent.words, entry.words))
    where = (intent.file, entry.file)
    if not missing(asked, made):
        yield passes(OF, shown(asked), evidence=where)
    for name in missing(asked, made):
        message = f"{intent.file} asks for it, the boot loader's entry says otherwise"
        value, expected = value_of(made, name), value_of(asked, name)
        answer = warns if line.running else fails
        yield answer(name, message, value, expected=expected, evidence=where)


def missing(asked: dict[str, str], made: dict[str, str]) -> list[str]:
    """Parameters that are not there as asked. Of a list of options each has to be there."""
    kept = {
        name
        for name, value in asked.items()
        if made.get(name) == value
        or (name in ADDED_UP and {*value.split(",")} <= {*made.get(name, "").split(",")})
    }
    return sorted(asked.keys() - kept)


@check("kernel-cmdline-conflicts", severity=Severity.MEDIUM)
def cmdline_conflicts(line: EffectiveLine, want: KernelExpectations) -> Iterator[Finding]:
    """No kernel parameter is without effect, contradicts another or costs.

    ## Why it matters
    The kernel says nothing of words it does not know: `intel_iommu=pt` or `numa_balancing=0` look
    right and do nothing. Others are left over from a search for a fault and slow the node for ever.

    ## Evidence
    /proc/cmdline; in an image the default entry of the boot loader.

    ## How it is judged
    Warns of a value that the parameter does not have, of pass-through beside `iommu=off`, of a
    parameter given twice with different values, and of the words in `kernel.unwanted`; those in
    `kernel.refused` fail.

    ## Exceptions
    `amd_iommu=on` is no option either, but its IOMMU is on without it: not judged. What
    `intel_iommu=off` and `amd_iommu=off` say is of one maker's CPUs, and not held against
    `iommu=pt`. A guest's line is judged like any other. In a container it is the host's.

    ## What to do
    Take the word out of GRUB_CMDLINE_LINUX in /etc/default/grub (or write what was meant:
    `iommu=pt`, `numa_balancing=disable`), run `update-grub` and reboot.

    ## References
    - https://docs.kernel.org/admin-guide/kernel-parameters.html
    """
    found = {
        **dict.fromkeys(unwanted(line.words, want), ""),
        **without_effect(line.words),
        **given_twice(line.words, want.parameters),
    }
    for word, message in found.items():
        answer = fails if word in want.refused else warns
        yield answer(word, message or want.unwanted[word], evidence=(line.file,))
    if not found:
        yield passes(OF, shown(matters(line.words, want.parameters)), evidence=(line.file,))


def options_of(words: tuple[str, ...], name: str) -> set[str]:
    """The options of a parameter that takes a list, of all its occurrences."""
    return {*matters(words, (name,)).get(name, "").split(",")} - {""}


def unwanted(words: tuple[str, ...], want: KernelExpectations) -> list[str]:
    """Words of the policy that stand there; pci=noaer also as one of several options."""
    return [
        one
        for one in want.unwanted
        if one in words
        or (one.endswith("=") and any(word.startswith(one) for word in words))
        or one.partition("=")[2] in options_of(words, one.partition("=")[0])
    ]


def without_effect(words: tuple[str, ...]) -> dict[str, str]:
    """What the kernel passes over."""
    found = {}
    for name, allowed in ALLOWED.items():
        value = matters(words, (name,)).get(name)
        if value is not None and value not in allowed:
            found[f"{name}={value}"] = f"has no effect: it takes {' or '.join(allowed)}"
    for name in ("intel_iommu", "amd_iommu"):
        for option in sorted(options_of(words, name) & PASS_THROUGH):
            found[f"{name}={option}"] = f"has no effect: the parameter is iommu={option}"
    if {"off", "pt"} <= options_of(words, "iommu"):
        found["iommu=pt"] = "asks for pass-through, and iommu=off switches the IOMMU off"
    return found


def given_twice(words: tuple[str, ...], patterns: tuple[str, ...]) -> dict[str, str]:
    """Parameters with two values of which the last counts."""
    given: dict[str, list[str]] = {}
    for word in words:
        name, _, value = word.partition("=")
        given.setdefault(name.replace("-", "_"), []).append(value)
    judged = matters(words, patterns).keys() - ADDED_UP - POOLS
    return {
        name: f"is given as {' and then '.join(given[name])}: the last one counts"
        for name in sorted(judged)
        if len(set(given[name])) > 1
    }
