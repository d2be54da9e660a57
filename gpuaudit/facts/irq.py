# SPDX-License-Identifier: Apache-2.0
"""Which CPUs serve the interrupts of each NIC.

Sources: Linux Documentation/core-api/irq/irq-affinity.rst; Documentation/ABI/testing/
sysfs-bus-pci, msi_irqs. Vectors are found below the PCI function, which for virtio is the parent
of the network device. NVMe is left out: its vectors are managed by the kernel, one a CPU.
"""

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.cpu import read_cpu_set, text_of
from gpuaudit.facts.pci import PciDevice, PciDevices
from gpuaudit.host import Host, NotApplicable, Unavailable

IRQ = "/proc/irq"


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

    requested: frozenset[int] | Absent
    """What the first vector asks for: one CPU or one node when somebody pins vectors."""


class NicInterrupts(Fact, frozen=True, kw_only=True):
    """Vectors of every physical NIC that has a driver, and /proc/irq/default_smp_affinity."""

    nics: tuple[NicVectors, ...]
    default: frozenset[int] | Absent


@probe
def nic_interrupts(host: Host, pci: PciDevices) -> NicInterrupts:
    """Read the vectors. Raises NotApplicable on a machine without a physical NIC in use."""
    nics = [device for device in pci.of("nic") if device.driver is not None]
    if not nics:
        raise NotApplicable("no physical NIC with a driver")
    return NicInterrupts(
        nics=tuple(nic_vectors(host, nic) for nic in nics),
        default=read_cpu_set(host, f"{IRQ}/default_smp_affinity_list", f"{IRQ}/default_smp_affinity"),
    )


def nic_vectors(host: Host, nic: PciDevice) -> NicVectors:
    """All vectors of one NIC."""
    numbers = vector_numbers(host, nic)
    if isinstance(numbers, Absent):
        return NicVectors(address=nic.address, cpus={}, unread=numbers.reason, requested=numbers)
    served = {n: served_by(host, n) for n in numbers}
    unread = [s.reason for s in served.values() if isinstance(s, Absent) and not_in_use(s) is False]
    return NicVectors(
        address=nic.address,
        cpus={n: cpus for n, cpus in served.items() if not isinstance(cpus, Absent)},
        unread=unread[0] if unread else None,
        requested=asked_for(host, numbers[0]) if numbers else NONE_ASKED,
    )


NONE_ASKED = Absent("unsupported", "the NIC uses no interrupt")


def not_in_use(served: Absent) -> bool:
    """A vector whose folder is known to be missing was never requested by the driver."""
    return served.kind == "unsupported"


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
    return tuple(sorted(int(name) for name in names if name.isdigit() and name != "0"))


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
