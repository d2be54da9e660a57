# SPDX-License-Identifier: Apache-2.0
"""PCI Express errors that the kernel counted since boot.

Linux Documentation/ABI/testing/sysfs-bus-pci-devices-aer (aer_dev_*). The files exist for every
function with the capability, whoever handles its errors (drivers/pci/pcie/aer.c, pci_aer_init and
aer_stats_attrs_are_visible). The kernel counts only below root ports whose service `aer` it runs:
the firmware must have granted it and the command line must not say pci=noaer
(drivers/pci/pcie/portdrv.c, get_port_device_capability).
"""

from collections.abc import Iterable
from typing import NamedTuple

from gpuaudit.facts.base import Absent, probe, unread
from gpuaudit.facts.counters import Counted, Totals
from gpuaudit.facts.kernelline import Line
from gpuaudit.facts.node import Machine
from gpuaudit.facts.pci import PciDevice, PciDevices
from gpuaudit.facts.pciways import in_use, with_ports
from gpuaudit.host import Host, Unavailable

SERVICES = "/sys/bus/pci_express/drivers/aer"
KINDS = ("correctable", "nonfatal", "fatal")
ROOT_PORT_SERVICE = ":pcie002"
"""Behind the address of a root port: port type 4 counts from 0, and bit 1 is AER."""

STATUS, MASK, SEVERITY = "AER: aer_status: ", "aer_mask: ", "AER: aer_uncor_severity: "
"""What the kernel writes of an error that firmware hands it (pci_print_aer of
drivers/pci/pcie/aer.c); the severity only where the error was not corrected."""

UNANSWERED_BIT = 1 << 20
"""PCI_ERR_UNC_UNSUP of Linux include/uapi/linux/pci_regs.h."""

UNANSWERED = ("UnsupReq", "Unsupported Request")
NO_CAPABILITY = Absent("unsupported", "it has no Advanced Error Reporting")
FIRMWARE = Absent(
    "unsupported",
    "the kernel does not handle errors of its root port: the firmware does, or pci=noaer is set",
)

ROOT_BUS = Absent("unsupported", "it stands on the root bus: no root port collects its errors")


class Errors(NamedTuple):
    """How many of one severity, and of which kinds."""

    total: int
    kinds: dict[str, int]

    @property
    def serious(self) -> int:
        """Without requests that nobody answers, which scanning and probing bring about.

        Such a request has to be reported even where software expects it (PCI Express Base
        Specification 5.0, section 2.3.1).
        """
        return self.total - min(self.total, sum(self.kinds.get(k, 0) for k in UNANSWERED))

    @property
    def leading(self) -> str:
        """'BadTLP 12, Rollover 3', most frequent first; "" when there are none."""
        found = sorted(self.kinds.items(), key=lambda kind: -kind[1])
        return ", ".join(f"{name} {count}" for name, count in found if count)


class PciErrors(Counted, frozen=True, kw_only=True):
    """aer_dev_{correctable,nonfatal,fatal} by address: of devices in use and the ports above them.

    Empty in a guest: what its devices report goes to the host's root ports.
    """

    by_address: dict[str, dict[str, Errors | Absent]]

    def counters(self) -> Totals:
        """The totals of each severity, without those that do not count."""
        return {
            address: {f"aer-{k}": e.serious for k, e in errors.items() if isinstance(e, Errors)}
            for address, errors in self.by_address.items()
        }


@probe
def pci_errors(host: Host, devices: PciDevices, machine: Machine) -> PciErrors:
    """Read the counts where the kernel keeps them."""
    if machine.is_vm:
        return PciErrors(by_address={})
    native = native_ports(host)
    found = with_ports(devices, in_use(devices))
    return PciErrors(by_address={d.address: errors_of(host, d, native) for d in found})


def native_ports(host: Host) -> frozenset[str] | Absent:
    """Root ports whose errors the kernel handles; none when the driver is known not to be there."""
    try:
        names = host.list(SERVICES)
    except Unavailable as absent:
        if absent.kind == "missing":
            return frozenset()
        return unread(absent)
    ports = (name for name in names if name.endswith(ROOT_PORT_SERVICE))
    return frozenset(name.removesuffix(ROOT_PORT_SERVICE).lower() for name in ports)


def errors_of(
    host: Host, device: PciDevice, native: frozenset[str] | Absent
) -> dict[str, Errors | Absent]:
    """Every severity of one function, or why there is none."""
    why = native if isinstance(native, Absent) else not_counted(device, native)
    if why is not None:
        return dict.fromkeys(KINDS, why)
    return {kind: read_errors(host, f"{device.path}/aer_dev_{kind}") for kind in KINDS}


def not_counted(device: PciDevice, native: frozenset[str]) -> Absent | None:
    """Why the kernel counts nothing of this function."""
    if not device.root:
        return Absent("missing", "the recording does not hold the PCI tree")
    top = device.parents[0] if device.parents else device.address
    if top in native:
        return None
    return FIRMWARE if device.parents or device.role == "bridge" else ROOT_BUS


def read_errors(host: Host, path: str) -> Errors | Absent:
    """Lines `BadTLP 3`, and at the end `TOTAL_ERR_COR 3`."""
    try:
        text = host.read(path)
    except Unavailable as absent:
        return NO_CAPABILITY if absent.kind == "missing" else unread(absent)
    kinds: dict[str, int] = {}
    for line in text.splitlines():
        name, _, count = line.rpartition(" ")
        if not name or not (count.isascii() and count.isdigit() and len(count) < 21):
            return Absent("failed", f"aer counts read {line[:40]!r}")
        kinds[name.strip()] = int(count)
    totals = [kinds.pop(name) for name in list(kinds) if name.startswith("TOTAL_")]
    if len(totals) != 1:
        return Absent("failed", f"{path} has no total")
    return Errors(totals[0], kinds)


def told_by_firmware(lines: Iterable[Line]) -> dict[str, list[Line]]:
    """Errors that were not corrected, by address; without requests that nobody answers."""
    last: dict[str, tuple[int, Line]] = {}
    found: dict[str, list[Line]] = {}
    for line in lines:
        address = line.text.partition(": AER: ")[0].rpartition(" ")[2].lower()
        if STATUS in line.text:
            bits = hex_behind(line.text, STATUS) & ~hex_behind(line.text, MASK) & ~UNANSWERED_BIT
            last[address] = bits, line
        elif address in last:
            bits, told = last.pop(address)
            found.setdefault(address, []).extend([told] * bool(bits))
    return {address: told for address, told in found.items() if told}


def hex_behind(text: str, word: str) -> int:
    """0x00200000 behind a word, 0 for nonsense."""
    try:
        return int(text.partition(word)[2].split(",")[0].split()[0], 16)
    except (IndexError, ValueError):
        return 0
