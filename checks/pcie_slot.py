# SPDX-License-Identifier: Apache-2.0
"""PCI Express slots that can do less than the device in them."""

from collections.abc import Iterator
from typing import Literal

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    check,
    fails,
    not_applicable,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.node import Machine
from gpuaudit.facts.pci import PciDevice, PciDevices
from gpuaudit.topology import GUEST, Hop, judge_slot, linked, loss


class PcieSlotExpectations(Expectations, frozen=True, kw_only=True):
    """Whose slots are judged, and how bad a small one is."""

    too_small: Literal["fail", "warn", "accept"]
    roles: tuple[Literal["gpu", "nic", "nvme"], ...]


@check("pcie-slot-limit", severity=Severity.LOW)
def slot_limit(
    devices: PciDevices, machine: Machine, want: PcieSlotExpectations
) -> Iterator[Finding]:
    """No device is in a slot that can do less than the device.

    ## Why it matters
    A Gen5 x16 card in a Gen4 or x8 slot has a healthy link, and half its bandwidth is lost.

    ## Evidence
    max_link_speed and max_link_width in /sys/bus/pci/devices of the port above and of function 0.

    ## How it is judged
    The port's maxima must not be below the device's, for the roles in `pcie_slot.roles`.
    `pcie_slot.too_small` says whether that is a warning, a failure or accepted.

    ## Exceptions
    In a guest the port is emulated. Some machines have such slots by design: accept it there.

    ## What to do
    Move the card to a slot of its own size, or raise the slot's bifurcation and link speed in the
    BIOS; if the machine is built so, set `pcie_slot.too_small: accept` for it.

    ## References
    - https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci
    """
    if machine.is_vm:
        raise NotApplicable(GUEST)
    if want.too_small == "accept":
        raise NotApplicable("the policy accepts slots that can do less than their devices")
    for device, link, reason in linked(devices, is_vm=machine.is_vm):
        if link is None or reason:
            yield not_applicable(device.address, reason)
        else:
            yield slot_finding(device, link, want)


def slot_finding(device: PciDevice, link: Hop, want: PcieSlotExpectations) -> Finding:
    """Words for the slot of one device."""
    if device.role not in want.roles:
        return not_applicable(device.address, f"the policy does not ask it of a {device.role}")
    slot = judge_slot(link)
    if slot.outcome == "unknown" or slot.port is None or slot.device is None:
        return unknown(device.address, slot.reason)
    if slot.outcome == "good":
        return passes(device.address, str(slot.port), expected=f"at least {slot.device}")
    word = fails if want.too_small == "fail" else warns
    return word(
        device.address,
        f"the slot at {link.upper} can do less than the device",
        str(slot.port),
        expected=f"at least {slot.device}",
        cost=loss(slot.port, slot.device),
    )
