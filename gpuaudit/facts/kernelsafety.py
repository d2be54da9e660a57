# SPDX-License-Identifier: Apache-2.0
"""What the kernel spends on safety: mitigations of CPU flaws, memory that is cleared when given.

Sources: Linux Documentation/ABI/testing/sysfs-devices-system-cpu (vulnerabilities/*),
kernel-parameters.txt (init_on_alloc=), security/Kconfig.hardening (INIT_ON_ALLOC_DEFAULT_ON).
"""

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.cpu import FOLDER
from gpuaudit.facts.nextboot import effective_line, matters
from gpuaudit.facts.numabalancing import kernel_config, kernel_release
from gpuaudit.host import Host, Unavailable

FLAWS = f"{FOLDER}/vulnerabilities"
PARAMETER = "init_on_alloc"
BUILT_IN = "CONFIG_INIT_ON_ALLOC_DEFAULT_ON=y"
TRUE, FALSE = ("1", "y", "Y", "on", "t", "T"), ("0", "n", "N", "off", "f", "F")


class Vulnerabilities(Fact, frozen=True, kw_only=True):
    """/sys/devices/system/cpu/vulnerabilities/*: flaw -> what the kernel says of it."""

    by_name: dict[str, str]


class InitOnAlloc(Fact, frozen=True, kw_only=True):
    """Whether memory is filled with zeros when it is given out, and what says so.

    init_on_alloc= of /proc/cmdline (in an image of the boot entry), else the kernel's
    configuration below /boot or /lib/modules.
    """

    enabled: bool | Absent
    source: str


@probe
def vulnerabilities(host: Host) -> Vulnerabilities:
    """Read every file. Raises Unavailable; kernels before 4.15 have none."""
    names = host.list(FLAWS)
    found = {name: host.read(f"{FLAWS}/{name}") for name in names}
    if not found:
        raise Unavailable(f"{FLAWS} is empty", "garbled")
    return Vulnerabilities(by_name=found)


@probe
def init_on_alloc(host: Host) -> InitOnAlloc:
    """Ask the command line, then how the kernel was built."""
    try:
        line = effective_line(host)
        value = matters(line.words, (PARAMETER,)).get(PARAMETER)
        if value in {*TRUE, *FALSE}:
            return InitOnAlloc(enabled=value in TRUE, source=f"{PARAMETER}={value} in {line.file}")
        file, text = kernel_config(host, kernel_release(host))
    except Unavailable as absent:
        return InitOnAlloc(enabled=Absent("missing", absent.reason), source="nothing that was read")
    built_in = f"\n{BUILT_IN}\n" in f"\n{text}\n"
    return InitOnAlloc(enabled=built_in, source=f"the kernel's default ({file})")
