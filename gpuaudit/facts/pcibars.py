# SPDX-License-Identifier: Apache-2.0
"""The address windows (BARs) of GPUs, as the kernel assigned them.

/sys/bus/pci/devices/A/resource: a line `start end flags` for each of six BARs, then the ROM and
those of virtual functions (Linux Documentation/PCI/sysfs-pci.rst; drivers/pci/pci-sysfs.c,
resource_show). Flags: Linux include/linux/ioport.h. A BAR that found no room is left with the flag
IORESOURCE_UNSET, or with zeros once the kernel gave up (drivers/pci/setup-bus.c, reset_resource).
"""

from typing import NamedTuple

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.pci import PciDevices
from gpuaudit.facts.pcilink import reading
from gpuaudit.host import Host, NotApplicable

MEMORY, PREFETCH, UNSET = 0x200, 0x2000, 0x20000000
BARS = 6


class Bar(NamedTuple):
    """One window. A BAR that is not there has size 0."""

    number: int
    start: int
    size: int
    flags: int

    @property
    def unset(self) -> bool:
        """The kernel found no address for it."""
        return bool(self.flags & UNSET)

    @property
    def window(self) -> bool:
        """It is the large kind: prefetchable memory."""
        return self.size > 0 and bool(self.flags & MEMORY) and bool(self.flags & PREFETCH)


class PciBars(Fact, frozen=True, kw_only=True):
    """The BARs of every GPU by address."""

    by_address: dict[str, tuple[Bar, ...] | Absent]


@probe
def pci_bars(host: Host, devices: PciDevices) -> PciBars:
    """Raises NotApplicable without a GPU."""
    gpus = devices.of("gpu")
    if not gpus:
        raise NotApplicable("no NVIDIA GPU on this machine")
    return PciBars(by_address={d.address: parse(reading(host, f"{d.path}/resource")) for d in gpus})


def parse(text: str | Absent) -> tuple[Bar, ...] | Absent:
    """Six lines of three hex numbers, or why not."""
    if isinstance(text, Absent):
        return text
    lines = [line.split() for line in text.splitlines()[:BARS]]
    try:
        found = tuple(bar(i, *(int(word, 16) for word in words)) for i, words in enumerate(lines))
    except (ValueError, TypeError):
        found = ()
    return found if len(found) == BARS else Absent("failed", f"resource reads {text[:40]!r}")


def bar(number: int, start: int, end: int, flags: int) -> Bar:
    """Zeros are no BAR at all."""
    return Bar(number, start, end - start + 1 if end > start else 0, flags)
