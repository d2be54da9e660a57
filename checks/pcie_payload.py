# SPDX-License-Identifier: Apache-2.0
"""The largest payload that packets may have on the way to a device."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    check,
    expect,
    fails,
    not_applicable,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.node import Machine
from gpuaudit.facts.pci import PciDevice, PciDevices
from gpuaudit.facts.pciregisters import PciRegisters, Registers
from gpuaudit.facts.pciways import movers
from gpuaudit.topology import GUEST, Rate, own_link

OVERHEAD_BYTES = 24
FLITS_FROM_GT_PER_S = 64.0
UNREAD = Absent("missing", "its registers were not read")
Steps = list[tuple[str, Registers]]


class PciePayloadExpectations(Expectations, frozen=True, kw_only=True):
    """How large payloads should be where all on the way support it."""

    wanted_bytes: Literal[128, 256, 512, 1024]


@check("pcie-max-payload", severity=Severity.MEDIUM)
def max_payload(
    devices: PciDevices, registers: PciRegisters, machine: Machine, want: PciePayloadExpectations
) -> Iterator[Finding]:
    """PCIe payload sizes agree on each way and are not needlessly small.

    ## Why it matters
    A port drops packets larger than it is set to take: the transfer is lost and the device reset.
    Small payloads spend the link on headers.

    ## Evidence
    Max_Payload_Size in Device Control and Device Capabilities of the device and of every port above
    it, in /sys/bus/pci/devices/A/config. Reading it needs root.

    ## How it is judged
    No device may be set to more than the port above it: that fails. A port set to more than the
    device below it warns, unless the device asks for no more than it can take at once. Where all
    agree, less than `pcie_payload.wanted_bytes` warns if everything below the same root port
    supports more.

    ## Exceptions
    NICs without RDMA are left out. Not applicable in guests, whose ports are made up and whose
    registers the hypervisor filters.
    With `pci=pcie_bus_peer2peer` 128 bytes are wanted: set the policy's value to 128 there.

    ## What to do
    Set "PCIe max payload size" to auto in the BIOS, or boot with `pci=pcie_bus_safe`,
    which sets the largest size that all support.

    ## References
    - https://docs.kernel.org/admin-guide/kernel-parameters.html
    - https://github.com/torvalds/linux/blob/master/drivers/pci/probe.c
    - https://enterprise-support.nvidia.com/s/article/understanding-pcie-configuration-for-maximum-performance
    """
    if machine.is_vm:
        raise NotApplicable(GUEST)
    for device in movers(devices):
        steps = way(device, registers)
        if device.root and not device.parents:
            yield not_applicable(device.address, "no port stands above it")
        elif isinstance(steps, Absent):
            yield expect(steps, None, of=device.address)
        else:
            yield judged(device, steps, devices, registers, want.wanted_bytes)


def way(device: PciDevice, registers: PciRegisters) -> Steps | Absent:
    """The registers from the root port down to the device, or the first that is not to be had."""
    if not device.root:
        return Absent("missing", "the recording does not hold the PCI tree")
    steps: Steps = []
    for address in (*device.parents, device.address):
        found = registers.by_address.get(address, UNREAD)
        if isinstance(found, Absent):
            return Absent(found.kind, f"{address}: {found.reason}")
        steps.append((address, found))
    return steps


def judged(
    device: PciDevice, steps: Steps, devices: PciDevices, registers: PciRegisters, wanted: int
) -> Finding:
    """First what breaks, then what costs."""
    sizes = [r.payload for _, r in steps]
    alike = len(set(sizes)) == 1
    seen = f"{sizes[0] if alike else ' -> '.join(map(str, sizes))} bytes"
    for (upper, one), (lower, other) in pairwise(steps):
        if other.payload > one.payload:
            message = f"{lower} may send {other.payload} bytes, {upper} above takes {one.payload}"
            return fails(device.address, message, seen, cost="larger packets are lost")
    if alike:
        return by_size(device, steps, devices, registers, wanted)
    if steps[-1][1].read_request > sizes[-1]:
        message = "a port above may send larger payloads than the device takes"
        return warns(device.address, message, seen)
    return passes(device.address, f"{seen}, and it asks for no more at once")


def by_size(
    device: PciDevice, steps: Steps, devices: PciDevices, registers: PciRegisters, wanted: int
) -> Finding:
    """All agree: whether all could do more, those beside the device too."""
    now, best = steps[0][1].payload, min(r.payload_most for _, r in steps)
    aim = min(wanted, best)
    seen, least = f"{now} bytes", f"at least {aim} bytes"
    if now >= aim:
        return passes(device.address, seen, expected=least)
    for address, found in beside(device, devices, registers):
        if isinstance(found, Registers):
            aim = min(aim, found.payload_most)
        elif found.kind != "unsupported":
            return unknown(device.address, f"{address}: {found.reason}", seen, expected=least)
    if now >= aim:
        return passes(device.address, f"{seen}: more does not suit all below its root port")
    message = f"payloads have at most {now} bytes, and all below its root port support {aim}"
    cost = share(devices, device, now, aim)
    return warns(device.address, message, seen, expected=f"at least {aim} bytes", cost=cost)


def beside(
    device: PciDevice, devices: PciDevices, registers: PciRegisters
) -> Iterator[tuple[str, Registers | Absent]]:
    """What else hangs below the same root port."""
    for other in devices.by_address.values():
        if other.parents[:1] == device.parents[:1] and not other.virtual_function:
            yield other.address, registers.by_address.get(other.address, UNREAD)


def share(devices: PciDevices, device: PciDevice, now: int, best: int) -> str | None:
    """What the link carries besides headers, with both sizes.

    A packet with a 64-bit address has 24 bytes around its payload: 4 of framing and sequence
    number, 16 of header, 4 of check sum (PCI Express Base Specification 5.0, sections 2.2.4.1,
    3.6.2 and 4.2.2.3). Links of 64 GT/s pack otherwise.
    """
    link = own_link(devices, device)
    rate = link.could if link else None
    if not isinstance(rate, Rate) or rate.speed_gt_per_s >= FLITS_FROM_GT_PER_S:
        return None
    carried = [rate.gb_per_s * size / (size + OVERHEAD_BYTES) for size in (now, best)]
    return f"at most {carried[0]:.1f} instead of {carried[1]:.1f} GB/s each way"
