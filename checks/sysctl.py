# SPDX-License-Identifier: Apache-2.0
"""Kernel settings: values that suit a GPU node, and whether they outlive the next boot."""

from collections.abc import Iterator

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    Unavailable,
    check,
    expect,
    passes,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.sysctl import SysctlFiles, SysctlSetting
from gpuaudit.facts.sysctlvalues import Sysctls, place

Range = tuple[int | None, int | None]


class SysctlExpectations(Expectations, frozen=True, kw_only=True):
    """Lowest and highest good value of each key (null: no bound), and keys that have to last."""

    ranges: dict[str, Range]
    lasting: tuple[str, ...]


@check("sysctl-values", severity=Severity.LOW)
def values(sysctls: Sysctls, want: SysctlExpectations) -> Iterator[Finding]:
    """Kernel settings that matter to GPU jobs lie in the ranges of the policy.

    ## Why it matters
    Too few memory maps or process IDs end a large job with errors that name neither. Strict
    accounting of memory forbids the fork of a process that has mapped much, as data loaders do.

    ## Evidence
    /proc/sys; in an image the files of sysctl.d in their order.

    ## How it is judged
    Each key of `sysctl.ranges` has to lie between its two values. Warns else. In an image only keys
    that a file sets are judged: the kernel's defaults are not known there.

    ## Exceptions
    Keys that this kernel does not have are left out. In a container most keys are the host's.

    ## What to do
    Run `sysctl -w KEY=VALUE` and write the same to /etc/sysctl.d/90-gpuaudit.conf; where a file is
    named, correct it there.

    ## References
    - https://docs.kernel.org/admin-guide/sysctl/vm.html
    - https://docs.kernel.org/admin-guide/sysctl/kernel.html
    - https://docs.kernel.org/mm/overcommit-accounting.html
    """
    found = 0
    for key, (low, high) in want.ranges.items():
        value, where = sysctls.now(key)
        if value is None:
            continue
        found += 1
        yield in_range(key, value, (low, high), where)
    if not found:
        raise NotApplicable("no file sets a key of the policy, and nothing runs here")


def in_range(key: str, value: str | Absent, bounds: Range, where: str) -> Finding:
    """One key."""
    if isinstance(value, Absent):
        return expect(value, None, of=key)
    low, high = bounds
    least, most = f"at least {low}", f"at most {high}"
    both = f"{low} to {high}" if low != high else str(low)
    expected = least if high is None else most if low is None else both
    number = int(value) if value.isdecimal() and len(value) < 20 else -1
    if (low or 0) <= number and (high is None or number <= high):
        return passes(key, value, expected=expected, evidence=(where,))
    return warns(key, f"{key} is {value}", value, expected=expected, evidence=(where,))


@check("sysctl-persisted", severity=Severity.LOW)
def persisted(sysctls: Sysctls, want: SysctlExpectations) -> Iterator[Finding]:
    """Kernel settings hold now as the files set them at the next boot.

    ## Why it matters
    A value that somebody set by hand is gone after a reboot, and one that a forgotten file sets
    comes back. The node then behaves in another way than the one that was tested.

    ## Evidence
    /proc/sys; the files of {/etc,/run,/usr/lib}/sysctl.d in the order in which they take effect,
    /etc/sysctl.conf where it counts.

    ## How it is judged
    For each key of `sysctl.lasting` that a file sets, the running value has to be that of the last
    file that sets it, which is named with its line. Warns else.

    ## Exceptions
    Keys that no file sets are not judged; those of tuned's profile are tuned-matches' question
    (sysctl.d wins over tuned unless its reapply_sysctl is off). NUMA balancing and zone reclaim
    have checks of their own. Not applicable in an image, in a container, and where systemd does not
    run: nothing tells whether such a machine reads these files.

    ## What to do
    Correct the line that is named, or run `sysctl --system` where the file is right and the running
    value is not.

    ## References
    - https://www.freedesktop.org/software/systemd/man/latest/sysctl.d.html
    - https://tuned-project.org/docs/manual/tuned-main.conf.5.html
    """
    if sysctls.image:
        raise NotApplicable("nothing runs in an image")
    if isinstance(sysctls.applied, Absent):
        raise Unavailable(sysctls.applied.reason, "not-recorded")
    if not sysctls.applied:
        raise NotApplicable("systemd does not run here: nothing tells that a boot reads sysctl.d")
    if isinstance(sysctls.files, Absent):
        yield expect(sysctls.files, None, of="sysctl.d")
        return
    settings = {key: sysctls.files.effective(key) for key in want.lasting}
    judged = 0
    for key, setting in settings.items():
        value, _ = sysctls.now(key)
        if setting is not None and value is not None and not overruled(sysctls.files, key, value):
            judged += 1
            yield lasts(key, value, setting)
    if not judged:
        raise NotApplicable("no file sets a key of the policy")


def overruled(files: SysctlFiles, key: str, value: str | Absent) -> bool:
    """Setting dirty_bytes makes dirty_ratio 0 (sysctl/vm.rst): then the file's ratio is no more."""
    twin = key.replace("_ratio", "_bytes") if key.startswith("vm.dirty") else key
    return twin != key and value == "0" and files.effective(twin) is not None


def lasts(key: str, value: str | Absent, setting: SysctlSetting) -> Finding:
    """One key."""
    if isinstance(value, Absent):
        return expect(value, None, of=key)
    where, later = place(setting), " ".join(setting.value.split())
    if value == later:
        return passes(key, value, expected=later, evidence=(where,))
    message = f"runs with {value}, and {where} sets {later} at the next boot"
    return warns(key, message, value, expected=later, evidence=(where,))
