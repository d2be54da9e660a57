# SPDX-License-Identifier: Apache-2.0
"""Which CPUs serve the interrupts of each NIC.

Sources: Linux Documentation/core-api/irq/irq-affinity.rst; Documentation/ABI/testing/
sysfs-bus-pci, msi_irqs. Vectors are found below the PCI function, which for virtio is the parent
of the network device. NVMe is left out: its vectors are managed by the kernel, one a CPU.
"""

import re

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.cpu import CpuSets, known, read_cpu_set, text_of
from gpuaudit.facts.pci import PciDevice, PciDevices
from gpuaudit.facts.services import shell_settings
from gpuaudit.host import Host, NotApplicable, Unavailable

IRQ = "/proc/irq"
NUMBER = re.compile(r"[1-9][0-9]{0,8}")
TUNER = "/etc/infiniband/openib.conf"


class NicVectors(Fact, frozen=True, kw_only=True):
    """Interrupt vectors of one NIC: A/msi_irqs/*, else A/irq.

    `cpus` maps a vector to the CPUs that serve it: effective_affinity_list once it has fired,
    else what was asked for, smp_affinity_list or the hex mask smp_affinity. A vector without a
    folder in /proc/irq is not in use and left out.
    """

    address: str
    cpus: dict[int, frozenset[int]]
    unread: str | None
    """Why a vector could not be read, None when all were."""


class NicInterrupts(Fact, frozen=True, kw_only=True):
    """Vectors of every physical NIC that has a driver, in address order."""

    nics: tuple[NicVectors, ...]


class IrqPinning(Fact, frozen=True, kw_only=True):
    """Whether something other than irqbalance places the interrupts of the NICs.

    `configured` names what does it at every boot: RUN_AFFINITY_TUNER in OFED's openib.conf, which
    runs mlnx_affinity, or `irqaffinity=` on the kernel command line. `free` are NICs whose first
    vector may run on every online CPU, which is what a driver leaves when nobody pins.
    """

    configured: tuple[str, ...]
    free: tuple[str, ...]


@probe
def nic_interrupts(host: Host, pci: PciDevices) -> NicInterrupts:
    """Read the vectors. Raises NotApplicable on a machine without a physical NIC in use."""
    nics = [device for device in pci.of("nic") if not device.unbound]
    if not nics:
        raise NotApplicable("no physical NIC has a driver")
    return NicInterrupts(nics=tuple(nic_vectors(host, nic) for nic in nics))


def nic_vectors(host: Host, nic: PciDevice) -> NicVectors:
    """All vectors of one NIC."""
    numbers = vector_numbers(host, nic)
    if isinstance(numbers, Absent):
        return NicVectors(address=nic.address, cpus={}, unread=numbers.reason)
    served = {n: served_by(host, n) for n in numbers}
    unread = [s.reason for s in served.values() if isinstance(s, Absent) and in_use(s)]
    return NicVectors(
        address=nic.address,
        cpus={n: cpus for n, cpus in served.items() if not isinstance(cpus, Absent)},
        unread=unread[0] if unread else None,
    )


def in_use(served: Absent) -> bool:
    """A vector whose folder is known to be missing was never requested by the driver."""
    return served.kind != "unsupported"


def vector_numbers(host: Host, nic: PciDevice) -> tuple[int, ...] | Absent:
    """MSI and MSI-X vectors, or the one line interrupt of a function that uses neither."""
    try:
        names = host.list(f"{nic.path}/msi_irqs")
    except Unavailable as absent:
        if absent.kind != "missing":
            return Absent("denied" if absent.kind == "denied" else "missing", absent.reason)
        line = text_of(host, f"{nic.path}/irq")
        if isinstance(line, Absent):
            return line
        names = (line,)
    return tuple(sorted(int(name) for name in names if NUMBER.fullmatch(name)))


def served_by(host: Host, number: int) -> frozenset[int] | Absent:
    """The CPUs that serve one vector. Empty or missing effective files tell nothing."""
    effective = read_cpu_set(
        host, f"{IRQ}/{number}/effective_affinity_list", f"{IRQ}/{number}/effective_affinity"
    )
    if not isinstance(effective, Absent) and effective:
        return effective
    return asked_for(host, number)


def asked_for(host: Host, number: int) -> frozenset[int] | Absent:
    """The CPUs a vector may be served by."""
    return read_cpu_set(host, f"{IRQ}/{number}/smp_affinity_list", f"{IRQ}/{number}/smp_affinity")


@probe
def irq_pinning(host: Host, pci: PciDevices, cpus: CpuSets) -> IrqPinning:
    """Read the first vector of each NIC, the one that a driver is least likely to place itself."""
    online = known(cpus.online)
    nics = [device for device in pci.of("nic") if not device.unbound]
    return IrqPinning(
        configured=configured_pinning(host),
        free=tuple(nic.address for nic in nics if is_free(host, nic, online)),
    )


def is_free(host: Host, nic: PciDevice, online: frozenset[int]) -> bool:
    """True when a vector in use may run anywhere. Raises Unavailable when that cannot be read."""
    for number in known(vector_numbers(host, nic)):
        asked = asked_for(host, number)
        if isinstance(asked, Absent) and not in_use(asked):
            continue
        return known(asked) >= online
    return False


def configured_pinning(host: Host) -> tuple[str, ...]:
    """What is set up to pin vectors at boot."""
    settings = shell_settings(host.optional(TUNER) or "")
    words = (host.optional("/proc/cmdline") or "").split()
    found = [word for word in words if word.startswith("irqaffinity=")]
    if settings.get("RUN_AFFINITY_TUNER", "").lower() == "yes":
        found.append(f"RUN_AFFINITY_TUNER=yes in {TUNER}")
    return tuple(found)
