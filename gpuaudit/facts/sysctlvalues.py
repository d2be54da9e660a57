# SPDX-License-Identifier: Apache-2.0
"""Running sysctl values beside those of the next boot.

Sources: sysctl.d(5), tuned-main.conf(5) (reapply_sysctl).
"""

from collections.abc import Callable

from gpuaudit.facts.base import Absent, Fact, probe, unread
from gpuaudit.facts.boot import boots_elsewhere
from gpuaudit.facts.sysctl import SysctlFiles, SysctlSetting, sysctl_files
from gpuaudit.facts.tuned import tuned
from gpuaudit.host import Host, NotApplicable, Unavailable

KEYS = (
    "fs.aio-max-nr",
    "fs.file-max",
    "fs.inotify.max_user_instances",
    "fs.nr_open",
    "kernel.numa_balancing",
    "kernel.pid_max",
    "kernel.threads-max",
    "vm.dirty_background_ratio",
    "vm.dirty_ratio",
    "vm.max_map_count",
    "vm.min_free_kbytes",
    "vm.overcommit_memory",
    "vm.panic_on_oom",
    "vm.swappiness",
    "vm.zone_reclaim_mode",
)
UNASKED = "gpuaudit does not read this key"
"""A policy may only name what was recorded."""


class Sysctls(Fact, frozen=True, kw_only=True):
    """/proc/sys of KEYS, and the files that set them at the next boot (facts/sysctl.py)."""

    running: dict[str, str | Absent]
    """Without the keys that this kernel is known not to have; empty in an image."""

    files: SysctlFiles | Absent
    by_tuned: dict[str, SysctlSetting]
    image: bool
    applied: bool | Absent
    """systemd runs (/run/systemd/system), which reads the files at boot (sd_booted(3))."""

    def now(self, key: str) -> tuple[str | Absent | None, str]:
        """The value and where it stands; None for a key that is not there, or that no file sets."""
        if not self.image:
            unasked = Absent("missing", UNASKED) if key not in KEYS else None
            return self.running.get(key, unasked), f"/proc/sys/{key.replace('.', '/')}"
        if isinstance(self.files, Absent):
            return self.files, ""
        setting = self.next_boot(key)
        return (setting.value, place(setting)) if setting else (None, "")

    def next_boot(self, key: str) -> SysctlSetting | None:
        """What sets the key last; None when nothing does, or when the files were not read."""
        if isinstance(self.files, Absent):
            return None
        return self.files.effective(key) or self.by_tuned.get(key)


def place(setting: SysctlSetting) -> str:
    """File and line; of tuned's profiles only the file is known."""
    return f"{setting.file}:{setting.line}" if setting.line else setting.file


@probe
def sysctls(host: Host) -> Sysctls:
    """Read the values and the files; never raises."""
    elsewhere = boots_elsewhere(host)
    found = {key: value_of(host, key) for key in KEYS} if host.source != "image" else {}
    set_by = {} if elsewhere else or_none(lambda: set_by_tuned(host))
    return Sysctls(
        running={key: value for key, value in found.items() if value is not None},
        files=elsewhere or files_of(host),
        by_tuned=set_by,
        image=host.source == "image",
        applied=with_systemd(host),
    )


def with_systemd(host: Host) -> bool | Absent:
    """Whether systemd runs this machine."""
    try:
        return host.source != "image" and host.exists("/run/systemd/system")
    except Unavailable as absent:
        return unread(absent)


def value_of(host: Host, key: str) -> str | Absent | None:
    """The running value with single spaces; None for a key that is known not to be there."""
    try:
        return " ".join(host.read(f"/proc/sys/{key.replace('.', '/')}").split())
    except Unavailable as absent:
        if absent.kind == "missing":
            return None
        return unread(absent)


def files_of(host: Host) -> SysctlFiles | Absent:
    """The files, or why they were not read."""
    try:
        return sysctl_files(host)
    except Unavailable as absent:
        return unread(absent)


def set_by_tuned(host: Host) -> dict[str, SysctlSetting]:
    """The [sysctl] section of the active profile, without what tuned works out first."""
    return {
        key: SysctlSetting(key=key, value=one.value, file=one.file, line=0)
        for (section, key), one in tuned(host).settings.items()
        if section == "sysctl" and one.value[:1] not in {"$", ">", "<", ""}
    }


def or_none(get: Callable[[], dict[str, SysctlSetting]]) -> dict[str, SysctlSetting]:
    """What tuned sets is asked only in passing: nothing where it cannot be read."""
    try:
        return get()
    except (Unavailable, NotApplicable):
        return {}
