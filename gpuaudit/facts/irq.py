# SPDX-License-Identifier: Apache-2.0
"""Which CPUs serve the interrupts of each NIC.

Sources: Linux Documentation/core-api/irq/irq-affinity.rst; Documentation/ABI/testing/
sysfs-bus-pci, msi_irqs. Vectors are found below the PCI function, which for virtio is the parent
of the network device. NVMe is left out: its vectors are managed by the kernel, one a CPU.
"""

import re

from gpuaudit.facts.base import Absent, Fact, probe, unread
from gpuaudit.facts.cpu import CpuSets, known, read_cpu_set, text_of
from gpuaudit.facts.pci import PciDevice, PciDevices
from gpuaudit.facts.present import text_if_there
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
    runs mlnx_affinity, or `irqaffinity=` on the kernel command line. `free` are NICs of which every
    vector in use may run on every online CPU: neither the driver nor anybody else placed one.
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
            return unread(absent)
        line = text_of(host, f"{nic.path}/irq")
        if isinstance(line, Absent):
            return line
        if not line.isascii() or not line.isdigit():
            return Absent("failed", f"{nic.path}/irq reads {line[:40]!r}")
        names = (line,)
    return tuple(sorted(int(name) for name in names if NUMBER.fullmatch(name)))


def served_by(host: Host, number: int) -> frozenset[int] | Absent:
    """The CPUs that serve one vector. Empty or missing effective files tell nothing."""
    effective = read_cpu_set(
        host, f"{IRQ}/{number}/effective_affinity_list", f"{IRQ}/{number}/effective_affinity"
    )
    told = effective.kind == "failed" if isinstance(effective, Absent) else bool(effective)
    return effective if told else asked_for(host, number)


def asked_for(host: Host, number: int) -> frozenset[int] | Absent:
    """The CPUs a vector may be served by."""
    return read_cpu_set(host, f"{IRQ}/{number}/smp_affinity_list", f"{IRQ}/{number}/smp_affinity")


@probe
def irq_pinning(host: Host, pci: PciDevices, cpus: CpuSets) -> IrqPinning:
    """Read the vectors of each NIC up to the first that somebody placed."""
    online = known(cpus.online)
    nics = [device for device in pci.of("nic") if not device.unbound]
    return IrqPinning(
        configured=configured_pinning(host),
        free=tuple(nic.address for nic in nics if is_free(host, nic, online)),
    )


def is_free(host: Host, nic: PciDevice, online: frozenset[int]) -> bool:
    """True when all vectors in use may run anywhere. Raises Unavailable when that is not told."""
    found = False
    for number in known(vector_numbers(host, nic)):
        asked = asked_for(host, number)
        if isinstance(asked, Absent) and not in_use(asked):
            continue
        if not known(asked) >= online:
            return False
        found = True
    return found


def configured_pinning(host: Host) -> tuple[str, ...]:
    """What is set up to pin vectors at boot. Raises Unavailable."""
    settings = shell_settings(text_if_there(host, TUNER) or "")
    words = (text_if_there(host, "/proc/cmdline") or "").split()
    found = [word for word in words if word.startswith("irqaffinity=")]
    if settings.get("RUN_AFFINITY_TUNER", "").lower() == "yes":
        found.append(f"RUN_AFFINITY_TUNER=yes in {TUNER}")
    return tuple(found)
