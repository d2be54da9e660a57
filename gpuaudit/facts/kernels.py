# SPDX-License-Identifier: Apache-2.0
"""Kernels that are installed, and for which of them there is an NVIDIA module.

Sources: modprobe(8), depmod(8): a module is found through /lib/modules/RELEASE/modules.dep. The
module is nvidia.ko, in Debian's packages nvidia-current.ko or nvidia-current-open.ko.
"""

from gpuaudit.facts.base import Absent, Fact, probe, unread
from gpuaudit.facts.bootunits import BootUnits
from gpuaudit.facts.driver import DriverLibraries
from gpuaudit.facts.grub import release_of, version_key
from gpuaudit.facts.nextboot import NextKernel, require_own_boot
from gpuaudit.facts.present import text_if_there
from gpuaudit.facts.sysctl import is_there, names_in
from gpuaudit.host import Host, NotApplicable, Unavailable

MODULES = "/lib/modules"
USUAL = ("updates/dkms", "extra", "extra/nvidia", "weak-updates/nvidia", "kernel/drivers/video")
DEBIAN = ("nvidia-current", "nvidia-tesla", "nvidia-legacy")
NO_DRIVER = "no kernel here has an NVIDIA module: the driver is not installed, or in a container"


class InstalledKernels(Fact, frozen=True, kw_only=True):
    """/lib/modules/*, /boot/vmlinuz-*, /proc/sys/kernel/osrelease."""

    releases: tuple[str, ...]
    """Kernels that could be booted: with modules and with an image, the newest at the end."""

    running: str | None
    """None in an image."""


class DriverModules(Fact, frozen=True, kw_only=True):
    """/lib/modules/RELEASE/modules.dep and the folders that drivers are put in.

    `built_at_boot`: dkms.service, where it is enabled, builds what is missing (dkms(8)).
    """

    kernels: dict[str, bool | Absent]
    built_at_boot: bool


@probe
def installed_kernels(host: Host) -> InstalledKernels:
    """List the folders. Raises NotApplicable in a container, Unavailable when they are unread."""
    require_own_boot(host)
    images = {release_of(name) for name in names_in(host, "/boot")}
    bootable = [
        name
        for name in names_in(host, MODULES)
        if name in images or is_there(host, f"{MODULES}/{name}/vmlinuz")
    ]
    return InstalledKernels(
        releases=tuple(sorted(bootable, key=version_key)), running=running_release(host)
    )


def running_release(host: Host) -> str | None:
    """The release of the running kernel, None in an image. Raises Unavailable."""
    try:
        return host.read("/proc/sys/kernel/osrelease")
    except NotApplicable:
        return None


@probe
def driver_modules(
    host: Host,
    kernels: InstalledKernels,
    following: NextKernel,
    units: BootUnits,
    libraries: DriverLibraries,
) -> DriverModules:
    """Look for the module of each. Raises NotApplicable where drivers are not kept this way."""
    folders = names_in(host, MODULES)
    if not folders:
        raise NotApplicable(f"{MODULES} holds no kernel: they are kept elsewhere")
    asked = (*kernels.releases, kernels.running, following.release)
    names = dict.fromkeys(name for name in asked if isinstance(name, str) and name in folders)
    found = {name: has_module(host, f"{MODULES}/{name}") for name in names}
    installed = any(path.startswith("/usr/lib") for path in libraries.versions)
    if not any(found.values()) and not installed:
        raise NotApplicable(NO_DRIVER)
    return DriverModules(kernels=found, built_at_boot="dkms.service" in units.enabled)


def has_module(host: Host, folder: str) -> bool | Absent:
    """Whether modprobe finds an NVIDIA module there."""
    usual = (name for place in USUAL for name in host.names(f"{folder}/{place}"))
    if any(map(is_driver, usual)):
        return True
    try:
        text = text_if_there(host, f"{folder}/modules.dep") or ""
    except Unavailable as absent:
        return unread(absent)
    paths = (line.partition(":")[0] for line in text.splitlines() if "nvidia" in line)
    return any(is_driver(path.rpartition("/")[2]) for path in paths)


def is_driver(name: str) -> bool:
    """True for the file of the driver itself, compressed or not."""
    stem, dot, _ = name.partition(".ko")
    return bool(dot) and (stem == "nvidia" or stem.startswith(DEBIAN))
