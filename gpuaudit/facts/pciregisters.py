# SPDX-License-Identifier: Apache-2.0
"""Device and link control words of devices in use and of the ports above them.

Offsets and bits: PCI Express Base Specification 5.0, sections 7.5.3.3 (Device Capabilities),
7.5.3.4 (Device Control), 7.5.3.6 and 7.5.3.7 (Link Capabilities and Control), 7.5.3.15 and
7.5.3.16 (Device Capabilities 2 and Control 2), 7.8.6 (Resizable BAR); the same numbers stand in
Linux include/uapi/linux/pci_regs.h (PCI_EXP_*, PCI_REBAR_*).
"""

from typing import NamedTuple

from gpuaudit.facts.base import Absent, Fact, probe, unread
from gpuaudit.facts.node import Machine
from gpuaudit.facts.pci import PciDevice, PciDevices
from gpuaudit.facts.pciconfig import (
    CONVENTIONAL_SIZE,
    EXPRESS,
    capabilities,
    decode,
    double,
    find_extended,
    word,
)
from gpuaudit.facts.pciways import in_use, with_ports
from gpuaudit.host import Host, Unavailable

RESIZABLE = 0x0015
RELAXED, EXTENDED_TAG, TEN_BIT_TAG = 0x10, 0x100, 0x1000
L0S, L1 = 1, 2
L1_EXIT_US = (1, 2, 4, 8, 16, 32, 64, 64)
"""Upper bounds by code; 7 says more than 64."""


class Resizable(NamedTuple):
    """One BAR that can be resized: its index, its size now, and the largest it offers."""

    bar: int
    bytes_now: int
    bytes_most: int


class Registers(NamedTuple):
    """The words of one function. `capability_2` is None before version 2 of the capability."""

    capability: int
    control: int
    link_capability: int
    link_control: int
    capability_2: int | None
    control_2: int
    resizable: tuple[Resizable, ...] | Absent

    @property
    def payload(self) -> int:
        """Max_Payload_Size in bytes."""
        return 128 << (self.control >> 5 & 7)

    @property
    def payload_most(self) -> int:
        """Max_Payload_Size Supported in bytes."""
        return 128 << (self.capability & 7)

    @property
    def read_request(self) -> int:
        """Max_Read_Request_Size in bytes."""
        return 128 << (self.control >> 12 & 7)

    @property
    def reports(self) -> tuple[bool, bool, bool]:
        """Whether it tells the root port of correctable, non-fatal and fatal errors."""
        return bool(self.control & 1), bool(self.control & 2), bool(self.control & 4)

    @property
    def ten_bit_requester(self) -> bool:
        """It can send requests with ten-bit tags."""
        return bool((self.capability_2 or 0) & 1 << 17)

    @property
    def ten_bit_completer(self) -> bool:
        """It can answer requests with ten-bit tags."""
        return bool((self.capability_2 or 0) & 1 << 16)

    @property
    def tags(self) -> int:
        """Requests it may have under way; of ten bits the lowest quarter is not used."""
        if self.control_2 & TEN_BIT_TAG and self.ten_bit_requester:
            return 768
        return 256 if self.control & EXTENDED_TAG else 32

    @property
    def aspm(self) -> int:
        """Link states this end may enter: bit 0 L0s, bit 1 L1."""
        return self.link_control & 3

    @property
    def l1_exit_us(self) -> int:
        """How long this end takes at most to leave L1."""
        return L1_EXIT_US[self.link_capability >> 15 & 7]


class PciRegisters(Fact, frozen=True, kw_only=True):
    """/sys/bus/pci/devices/A/config by address; empty in a guest, where they mean little.

    A port whose way could carry larger payloads brings everything else below its root port too.
    """

    by_address: dict[str, Registers | Absent]


@probe
def pci_registers(host: Host, devices: PciDevices, machine: Machine) -> PciRegisters:
    """Read what is in use; what shares a root port with it only where that matters."""
    if machine.is_vm:
        return PciRegisters(by_address={})
    used = in_use(devices)
    wanted = with_ports(devices, [*used, *(devices.function_0(d) for d in used)])
    found = {d.address: registers_of(host, d) for d in wanted}
    small = {d.parents[0] for d in used if d.parents and could_be_larger(d, found)}
    beside = (d for d in devices.by_address.values() if d.parents and d.parents[0] in small)
    rest = [d for d in beside if not d.virtual_function and d.address not in found]
    return PciRegisters(by_address={**found, **{d.address: registers_of(host, d) for d in rest}})


def could_be_larger(device: PciDevice, found: dict[str, Registers | Absent]) -> bool:
    """True when all on the way of a device support a larger payload than is set."""
    way = [found.get(a) for a in (*device.parents, device.address)]
    known = [r for r in way if isinstance(r, Registers)]
    return bool(known) and max(r.payload for r in known) < min(r.payload_most for r in known)


def registers_of(host: Host, device: PciDevice) -> Registers | Absent:
    """Read and decode; Absent when nothing can be read."""
    try:
        space = host.read_bytes(f"{device.path}/config")
    except Unavailable as absent:
        return unread(absent)
    return decode_registers(space)


def decode_registers(space: bytes) -> Registers | Absent:
    """Config space of any length. Nothing is concluded from bytes that are not there."""
    config = decode(space)
    if isinstance(config, Absent):
        return config
    if isinstance(config.express, Absent):
        return config.express
    at = capabilities(space).at[EXPRESS]
    newer = word(space, at + 2) & 0xF >= 2
    return Registers(
        capability=double(space, at + 4),
        control=word(space, at + 8),
        link_capability=double(space, at + 0x0C),
        link_control=word(space, at + 0x10),
        capability_2=double(space, at + 0x24) if newer else None,
        control_2=word(space, at + 0x28) if newer else 0,
        resizable=decode_resizable(space),
    )


def decode_resizable(space: bytes) -> tuple[Resizable, ...] | Absent:
    """A capability and a control word for each BAR; how many stands in the first control word."""
    at = find_extended(space, RESIZABLE, 12)
    if isinstance(at, Absent):
        return at
    count = double(space, at + 8) >> 5 & 7
    if not 1 <= count <= 6 or at + 4 + 8 * count > max(len(space), CONVENTIONAL_SIZE):
        return Absent("failed", f"the Resizable BAR capability names {count} BARs")
    return tuple(resizable(space, at + 4 + 8 * i) for i in range(count))


def resizable(space: bytes, at: int) -> Resizable:
    """Bit n of the sizes, counted from bit 4, stands for 2^n MiB."""
    sizes, control = double(space, at) >> 4, double(space, at + 4)
    return Resizable(
        bar=control & 7,
        bytes_now=1 << 20 + (control >> 8 & 0x3F),
        bytes_most=1 << 20 + max(sizes.bit_length() - 1, 0),
    )
