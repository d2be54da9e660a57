# SPDX-License-Identifier: Apache-2.0
"""What the machine is: name, vendor, kernel, operating system, virtualization."""

import re

from gpuaudit.facts.base import Fact, probe
from gpuaudit.facts.boot import in_container
from gpuaudit.host import Host, NotApplicable

# DMI product and vendor names of virtual machines, after systemd's src/basic/virt.c
# (detect_vm_dmi_vendor) and the cloud vendors' documentation of their bare-metal names.
HYPERVISORS = {
    "kvm": ("kvm", "qemu", "rhev", "openstack", "cloudstack", "ovirt"),
    "amazon": ("amazon ec2",),
    "google": ("google compute engine",),
    "microsoft": ("virtual machine", "microsoft corporation virtual"),
    "vmware": ("vmware",),
    "xen": ("xen", "hvm domu"),
    "oracle": ("virtualbox",),
    "alibaba": ("alibaba cloud ecs",),
    "bochs": ("bochs",),
    "parallels": ("parallels",),
    "apple": ("apple virtualization",),
}
# A guest without DMI tables (Firecracker, other microVMs) shows its host by the clock it is given:
# clocksource names in Linux arch/x86/kernel/kvmclock.c, drivers/clocksource/hyperv_timer.c and
# arch/x86/xen/time.c, each registered only on that hypervisor.
CLOCKS = {"kvm-clock": "kvm", "hyperv_clocksource": "microsoft", "xen": "xen"}
CLOCK_SOURCES = "/sys/devices/system/clocksource/clocksource0/available_clocksource"
UNKNOWN_HYPERVISOR = "unknown hypervisor"


class Machine(Fact, frozen=True, kw_only=True):
    """Identity of the node.

    /proc/sys/kernel/{hostname,osrelease}, /proc/sys/kernel/random/boot_id, /etc/os-release,
    /sys/class/dmi/id/{sys_vendor,product_name}, /proc/cpuinfo, the clock sources. None where not
    to be had.
    """

    hostname: str | None
    vendor: str | None
    product: str | None
    kernel: str | None
    os: str | None
    architecture: str | None
    boot_id: str | None
    hypervisor: str | None
    """Name of the hypervisor when this is a guest, "" when it is known to be bare metal."""

    container: bool

    @property
    def is_vm(self) -> bool | None:
        """True for a guest, False for bare metal, None when it cannot be told."""
        return None if self.hypervisor is None else bool(self.hypervisor)


@probe
def machine(host: Host) -> Machine:
    """Read the identity; nothing here is required."""
    vendor, product = (
        optional(host, f"/sys/class/dmi/id/{n}") for n in ("sys_vendor", "product_name")
    )
    cpuinfo = optional(host, "/proc/cpuinfo") or ""
    release = optional(host, "/etc/os-release") or optional(host, "/usr/lib/os-release") or ""
    name = re.search(r'^PRETTY_NAME="?([^"\n]*)', release, re.MULTILINE)
    return Machine(
        hostname=optional(host, "/proc/sys/kernel/hostname") or optional(host, "/etc/hostname"),
        vendor=vendor,
        product=product,
        kernel=optional(host, "/proc/sys/kernel/osrelease") or release_in(host, "/proc/version"),
        os=name[1] if name else None,
        architecture=architecture_of(cpuinfo),
        boot_id=optional(host, "/proc/sys/kernel/random/boot_id"),
        hypervisor=hypervisor_of(
            vendor, product, cpuinfo, clocks=optional(host, CLOCK_SOURCES) or ""
        ),
        container=in_container(host),
    )


def release_in(host: Host, path: str) -> str | None:
    """'Linux version 6.1.0-13-amd64 (...' -> 6.1.0-13-amd64."""
    found = re.match(r"Linux version (\S+)", optional(host, path) or "")
    return found[1] if found else None


def optional(host: Host, path: str) -> str | None:
    """The text of a file or None, also in an image, where the kernel's files do not exist."""
    try:
        return host.optional(path) or None
    except NotApplicable:
        return None


def architecture_of(cpuinfo: str) -> str | None:
    """x86_64, aarch64, ppc64 or s390x by words of /proc/cpuinfo; the first that is there counts."""
    words = {
        "IBM/S390": "s390x",
        "vendor_id": "x86_64",
        "CPU implementer": "aarch64",
        "PowerPC": "ppc64",
        "POWER": "ppc64",
    }
    return next((name for word, name in words.items() if word in cpuinfo), None)


def hypervisor_of(
    vendor: str | None, product: str | None, cpuinfo: str, *, clocks: str = ""
) -> str | None:
    """The hypervisor by DMI names, else by the cpuid flag; "" for bare metal; None when untold.

    The clock sources only name a guest that the flag has shown to be one.

    The flag `hypervisor` in /proc/cpuinfo is CPUID leaf 1 ECX bit 31, which hypervisors set and
    hardware leaves zero (Linux arch/x86/include/asm/cpufeatures.h, X86_FEATURE_HYPERVISOR).
    """
    names = f"{vendor or ''} {product or ''}".lower()
    known = (kind for kind, words in HYPERVISORS.items() if any(word in names for word in words))
    flags = re.search(r"^flags\s*:(.*)$", cpuinfo, re.MULTILINE)
    flagged = "hypervisor" in flags[1].split() if flags else None
    # EC2's bare-metal types name themselves like guests: product_name reads "g5g.metal".
    named = "" if names.endswith(".metal") else next(known, "")
    if flagged is False:
        return ""
    if flagged:
        return named or next((n for c, n in CLOCKS.items() if c in clocks), UNKNOWN_HYPERVISOR)
    return named or ("" if vendor and product else None)
