# SPDX-License-Identifier: Apache-2.0
"""Automatic NUMA balancing: what runs now, and what the next boot will set.

Source: Linux Documentation/admin-guide/sysctl/kernel.rst, numa_balancing; the parameter
`numa_balancing=` in kernel-parameters.rst; CONFIG_NUMA_BALANCING_DEFAULT_ENABLED in init/Kconfig.
"""

import re

from gpuaudit.facts.base import Absent, Fact, probe, unread
from gpuaudit.facts.boot import boots_elsewhere
from gpuaudit.facts.cmdline import command_line
from gpuaudit.facts.cpu import number_of
from gpuaudit.facts.numa import node_ids
from gpuaudit.facts.present import text_if_there
from gpuaudit.facts.sysctl import sysctl_files
from gpuaudit.facts.tuned import tuned
from gpuaudit.host import Host, NotApplicable, Unavailable

KEY = "kernel.numa_balancing"
RUNNING = "/proc/sys/kernel/numa_balancing"
MODES = ("0", "1", "2", "3")
WORDS = {"enable": 1, "disable": 0}
# Debian and RHEL; the last is that of image-based systems, which have an empty /boot.
CONFIGS = ("/boot/config-{}", "/usr/lib/modules/{}/config", "/lib/modules/{}/config")
DEFAULT = re.compile(r"^CONFIG_NUMA_BALANCING_DEFAULT_ENABLED=y$", re.MULTILINE)


class NextBoot(Fact, frozen=True, kw_only=True):
    """The value after a reboot, and what sets it: file and line, or the kernel's default."""

    value: int | Absent
    source: str


class NumaBalancing(Fact, frozen=True, kw_only=True):
    """/proc/sys/kernel/numa_balancing: 0 off, bit 0 balancing, bit 1 memory tiering."""

    running: int | Absent | None
    """None in an image, where nothing runs."""

    nodes: int | None
    """Online NUMA nodes, None when not known. With one there is nothing to balance."""

    next_boot: NextBoot


@probe
def numa_balancing(host: Host) -> NumaBalancing:
    """Read both. In an image only the next boot has a value."""
    return NumaBalancing(
        running=running_value(host), nodes=node_count(host), next_boot=next_boot(host)
    )


def running_value(host: Host) -> int | Absent | None:
    """The sysctl; unsupported where the kernel is known to have none."""
    try:
        return number_of(host, RUNNING)
    except NotApplicable:
        return None


def node_count(host: Host) -> int | None:
    """How many nodes are online; a kernel known to have no NUMA has one."""
    try:
        return len(node_ids(host))
    except NotApplicable:
        return None
    except Unavailable as absent:
        return 1 if absent.kind == "missing" else None


def next_boot(host: Host) -> NextBoot:
    """sysctl.d, then tuned, then the command line, then the kernel's default."""
    if (elsewhere := boots_elsewhere(host)) is not None:
        return NextBoot(value=elsewhere, source="no file of the node")
    try:
        return from_sysctl(host) or from_tuned(host) or from_kernel(host)
    except Unavailable as absent:
        value = unread(absent)
        return NextBoot(value=value, source="no file that could be read")


def from_sysctl(host: Host) -> NextBoot | None:
    """The assignment in sysctl.d that wins."""
    setting = sysctl_files(host).effective(KEY)
    if setting is None or setting.value not in MODES:
        return None
    return NextBoot(value=int(setting.value), source=f"{setting.file}:{setting.line}")


def from_tuned(host: Host) -> NextBoot | None:
    """The [sysctl] section of the active tuned profile."""
    setting = tuned(host).settings.get(("sysctl", KEY))
    if setting is None or setting.value not in MODES:
        return None
    return NextBoot(value=int(setting.value), source=setting.file)


def from_kernel(host: Host) -> NextBoot:
    """The command line in use, or what the kernel was built with. Raises Unavailable."""
    line = command_line(host)
    word = line.value("numa_balancing")
    if word in WORDS:
        return NextBoot(value=WORDS[word], source=f"numa_balancing={word} in {line.lines[0].file}")
    file, text = kernel_config(host, kernel_release(host))
    return NextBoot(value=int(bool(DEFAULT.search(text))), source=f"the kernel's default ({file})")


def kernel_config(host: Host, release: str) -> tuple[str, str]:
    """The file a kernel's configuration stands in, and its text. Raises Unavailable."""
    places = (folder.format(release) for folder in CONFIGS)
    found = ((place, text_if_there(host, place)) for place in places)
    known = next(((place, text) for place, text in found if text is not None), None)
    if known is None:
        raise Unavailable(f"the configuration of kernel {release} is in none of the usual places")
    return known


def kernel_release(host: Host) -> str:
    """The running release, in an image that of the only configuration below /boot."""
    try:
        return host.read("/proc/sys/kernel/osrelease")
    except NotApplicable:
        found = [name for name in host.names("/boot") if name.startswith("config-")]
    if len(found) != 1:
        raise Unavailable(f"{len(found)} kernels are below /boot, not one", "missing")
    return found[0].removeprefix("config-")
