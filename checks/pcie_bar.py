# SPDX-License-Identifier: Apache-2.0
"""The address windows of GPUs, without asking a driver. See also gpu-bar1-size."""

from collections.abc import Iterator
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
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.generation import chip
from gpuaudit.facts.node import Machine
from gpuaudit.facts.pci import PciDevices
from gpuaudit.facts.pcibars import Bar, PciBars
from gpuaudit.facts.pciregisters import PciRegisters, Resizable

GUEST_SIZES = "a hypervisor hides which sizes a BAR may have"
UNREAD = Absent("missing", "its registers were not read")
FOUR_GIB = 1 << 32
UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


class PcieBarExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of windows whose size can be chosen."""

    resizable: Literal["largest", "any"]


@check("pcie-bar-assigned", severity=Severity.HIGH)
def assigned(bars: PciBars, devices: PciDevices) -> Iterator[Finding]:
    """Every address window of each GPU has an address.

    ## Why it matters
    Without its registers a GPU has no driver; without its large window there is no GPUDirect RDMA
    and no peer-to-peer traffic. Firmware that keeps windows below 4 GiB has no room for eight GPUs.

    ## Evidence
    /sys/bus/pci/devices/A/resource: start, end and flags of each BAR. No driver is needed.

    ## How it is judged
    No BAR may be left without an address, and there must be BAR 0, which holds the registers, and a
    prefetchable one, which every NVIDIA GPU with memory of its own has.

    ## Exceptions
    Holds in guests too: their hypervisor must give them the window. A small window below 4 GiB is
    enough for a board with small BARs and passes; its place is shown. The GPU of GB10 (DGX Spark)
    works in the memory of the CPU and has BAR 0 only.

    ## What to do
    Enable "Above 4G Decoding" (and MMIO High Size large enough for all GPUs) in the BIOS,
    and look at `dmesg | grep -e "no space" -e "failed to assign"`; in a guest give the machine
    type a larger 64-bit PCI window.

    ## References
    - https://docs.kernel.org/PCI/sysfs-pci.html
    - https://github.com/torvalds/linux/blob/master/drivers/pci/setup-bus.c
    - https://docs.nvidia.com/cuda/gpudirect-rdma/index.html
    """
    for address, found in bars.by_address.items():
        if isinstance(found, Absent):
            yield expect(found, None, of=address)
        else:
            integrated = chip(devices.by_address[address].id) == "GB10"
            yield assigned_finding(address, found, window=not integrated)


def assigned_finding(address: str, bars: tuple[Bar, ...], *, window: bool) -> Finding:
    """The windows of one GPU; `window` says whether it has to have the large one."""
    lost = [f"BAR {bar.number} ({size(bar.size)})" for bar in bars if bar.unset]
    if lost:
        return fails(address, f"{', '.join(lost)} has no address", "; ".join(told(bars)))
    if not bars[0].size:
        return fails(address, "BAR 0, which holds its registers, has no address")
    if window and not any(bar.window for bar in bars):
        return fails(address, "its large memory window has no address", "; ".join(told(bars)))
    return passes(address, "; ".join(told(bars)))


def told(bars: tuple[Bar, ...]) -> Iterator[str]:
    """'BAR 2 128 GiB above 4 GiB' for each that is there."""
    for bar in bars:
        if bar.size:
            place = "no address" if bar.unset else "above" if bar.start >= FOUR_GIB else "below"
            where = place if bar.unset else f"{place} 4 GiB"
            yield f"BAR {bar.number} {size(bar.size)} {where}"


def size(count: int) -> str:
    """In the largest unit that leaves a whole number."""
    for unit, name in UNITS:
        if count >= unit and count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count} bytes"


@check("pcie-bar-resizable", severity=Severity.LOW)
def resizable(
    registers: PciRegisters, devices: PciDevices, machine: Machine, want: PcieBarExpectations
) -> Iterator[Finding]:
    """Address windows of GPUs whose size can be chosen have the largest one.

    ## Why it matters
    CPU, NICs and other GPUs reach only as much of a GPU's memory at once as its window shows.
    GPUDirect RDMA cannot register more than that.

    ## Evidence
    The Resizable BAR capability (extended capability 0x0015) in /sys/bus/pci/devices/A/config: the
    sizes on offer and the one chosen. Reading it needs root. No driver is needed.

    ## How it is judged
    The size chosen must be the largest on offer; else it warns.

    ## Exceptions
    GPUs without the capability have a window of one size and are not applicable, and so is every
    guest: hypervisors hide the capability. `pcie_bar.resizable: any` accepts all sizes.

    ## What to do
    Enable "Re-Size BAR Support" together with "Above 4G Decoding" in the BIOS.

    ## References
    - https://github.com/torvalds/linux/blob/master/include/uapi/linux/pci_regs.h
    - https://docs.nvidia.com/cuda/gpudirect-rdma/index.html
    """
    gpus = devices.of("gpu")
    if not gpus:
        raise NotApplicable("no NVIDIA GPU on this machine")
    if machine.is_vm:
        raise NotApplicable(GUEST_SIZES)
    if want.resizable == "any":
        raise NotApplicable("the policy accepts any size")
    for gpu in gpus:
        found = registers.by_address.get(gpu.address, UNREAD)
        sizes = found if isinstance(found, Absent) else found.resizable
        if isinstance(sizes, Absent):
            fixed = sizes.kind == "unsupported"
            none = not_applicable(gpu.address, "its window has one size (no Resizable BAR)")
            yield none if fixed else expect(sizes, None, of=gpu.address)
        else:
            yield resizable_finding(gpu.address, sizes)


def resizable_finding(address: str, sizes: tuple[Resizable, ...]) -> Finding:
    """The first that is smaller than it could be."""
    for one in sizes:
        if one.bytes_now < one.bytes_most:
            now, most = size(one.bytes_now), size(one.bytes_most)
            cost = f"others reach {now} of its memory at once, instead of up to {most}"
            message = f"BAR {one.bar} is smaller than it could be"
            return warns(address, message, now, expected=most, cost=cost)
    return passes(address, ", ".join(f"BAR {one.bar} {size(one.bytes_now)}" for one in sizes))
