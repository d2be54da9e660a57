# SPDX-License-Identifier: Apache-2.0
"""The tuned daemon: its profile, and whether what it sets holds."""

from collections.abc import Iterator

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    Unavailable,
    check,
    fails,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.bootunits import BootUnits
from gpuaudit.facts.memory import TransparentHugepage
from gpuaudit.facts.sysctlvalues import Sysctls
from gpuaudit.facts.tuned import Tuned, TunedSetting

UNIT = "tuned.service"
NOT_USED = "tuned does not start at boot: other tools set this node up"
WORKED_OUT = ("$", ">", "<", "=")
"""First characters of values that tuned works out or only compares with (tuned-profiles(7))."""


MOVED_BY_OTHERS = frozenset({"vm.min_free_kbytes", "vm.overcommit_memory"})
"""khugepaged raises the one (mm/khugepaged.c, set_recommended_min_free_kbytes), kubelet sets the
other (pkg/kubelet/cm, setupKernelTunables)."""


class TunedExpectations(Expectations, frozen=True, kw_only=True):
    """Profiles that are right (null: any), those that are not with the reason, and need."""

    accepted: tuple[str, ...] | None
    unwanted: dict[str, str]
    required: bool


@check("tuned-profile", severity=Severity.MEDIUM)
def profile(tuned: Tuned, units: BootUnits, want: TunedExpectations) -> Iterator[Finding]:
    """The active tuned profile exists, suits a GPU node and is in force.

    ## Why it matters
    tuned writes governor, idle limits, huge pages and kernel settings at each boot, over what
    others set. A profile meant for desktops clocks the CPUs down that feed the GPUs.

    ## Evidence
    /etc/tuned/active_profile, the folders of profiles, the link that starts tuned.service, its
    control group.

    ## How it is judged
    A profile of `tuned.unwanted` warns with the reason given there, one that is not in
    `tuned.accepted` fails where the policy has such a list. A profile without a file, none at all,
    and a daemon that is enabled and does not run warn.

    ## Exceptions
    Not applicable where tuned does not start at boot, unless `tuned.required`; nor in containers.
    An image without a choice gets the profile that tuned recommends at its first start. The GPU
    Operator's and NVIDIA's own profiles are as good as others.

    ## What to do
    Run `tuned-adm profile throughput-performance` (or the site's own) and `systemctl enable --now
    tuned`, then look with `tuned-adm verify`.

    ## References
    - https://tuned-project.org/docs/manual/
    - https://docs.nvidia.com/dgx/baseos-9-user-guide/9.0.0/modifying-tuned.html
    """
    now = units.running
    runs = isinstance(now, frozenset) and UNIT in now
    if not tuned.enabled and not runs:
        if not want.required:
            raise NotApplicable(NOT_USED)
        yield warns(UNIT, "does not start at boot", "disabled", expected="enabled")
        return
    if not tuned.profiles and isinstance(now, Absent) and now.kind == "unsupported":
        raise NotApplicable("no profile is chosen yet: tuned takes the one that it recommends")
    yield judged_profile(tuned, want)
    if isinstance(now, frozenset):
        stopped = warns(UNIT, "is enabled and does not run", "stopped", expected="runs")
        yield passes(UNIT, "runs") if runs else stopped


def judged_profile(tuned: Tuned, want: TunedExpectations) -> Finding:
    """The choice itself."""
    of, names = "active profile", tuned.profiles
    bad = next((name for name in names if name in want.unwanted), None)
    seen = " ".join(names) or "none"
    if not names:
        return warns(of, "no profile is active: tuned sets nothing", seen)
    if tuned.missing:
        return warns(of, f"there is no profile {tuned.missing[0]}: tuned sets nothing of it", seen)
    if want.accepted is not None and not set(names) & set(want.accepted):
        return fails(of, f"the profile is {seen}", seen, expected=want.accepted)
    if bad:
        return warns(of, f"{bad}: {want.unwanted[bad]}", seen)
    return passes(of, seen, expected=want.accepted or "any")


@check("tuned-matches", severity=Severity.LOW)
def matches(tuned: Tuned, sysctls: Sysctls, thp: TransparentHugepage) -> Iterator[Finding]:
    """What the active tuned profile sets is what runs.

    ## Why it matters
    Where something else writes the same settings later, the profile's name promises what the node
    does not do, and which of the two wins may change from boot to boot.

    ## Evidence
    The files of the active profile with those it includes, [sysctl] and [vm]
    transparent_hugepages; the running values.

    ## How it is judged
    Warns for each value that differs. What sysctl.d sets too is left to sysctl-persisted, the
    governor to cpu-governor.

    ## Exceptions
    Values that tuned works out itself (variables, conditions) and settings that gpuaudit does not
    read are left out, and so are vm.min_free_kbytes, which the kernel raises for huge pages, and
    vm.overcommit_memory, which kubelet sets. Not applicable where tuned does not start at boot, in
    an image and in containers.

    ## What to do
    Run `tuned-adm verify`, find what else writes the value, and keep one of the two; `systemctl
    restart tuned` applies the profile again.

    ## References
    - https://tuned-project.org/docs/manual/
    """
    if not tuned.enabled:
        raise NotApplicable(NOT_USED)
    found = [*kernel_values(tuned, sysctls), *huge_pages(tuned, thp)]
    if not found:
        raise NotApplicable("the profile sets nothing that is read here")
    yield from found


def plain(tuned: Tuned) -> dict[tuple[str, str], TunedSetting]:
    """Settings with a value that tuned takes as it stands."""
    return {key: one for key, one in tuned.settings.items() if not one.value.startswith(WORKED_OUT)}


def kernel_values(tuned: Tuned, sysctls: Sysctls) -> Iterator[Finding]:
    """The section [sysctl]."""
    if isinstance(sysctls.files, Absent):
        raise Unavailable(sysctls.files.reason)
    for (section, key), setting in plain(tuned).items():
        value = sysctls.running.get(key)
        mine = section == "sysctl" and key not in MOVED_BY_OTHERS
        if mine and value is not None and sysctls.files.effective(key) is None:
            yield compared(key, value, (" ".join(setting.value.split()),), setting.file)


def huge_pages(tuned: Tuned, thp: TransparentHugepage) -> Iterator[Finding]:
    """The section [vm]."""
    for name in ("transparent_hugepages", "transparent_hugepage"):
        setting = plain(tuned).get(("vm", name))
        if setting is not None:
            yield compared("transparent_hugepage", thp.enabled, (setting.value,), setting.file)


def compared(key: str, value: str | Absent, wanted: tuple[str, ...], file: str) -> Finding:
    """One value."""
    if isinstance(value, Absent):
        return unknown(key, value.reason)
    if value in wanted:
        return passes(key, value, expected=wanted, evidence=(file,))
    message = f"the profile sets {' or '.join(wanted)}, {value} runs"
    return warns(key, message, value, expected=wanted, evidence=(file,))
