# SPDX-License-Identifier: Apache-2.0
"""Links that went down while the node ran, by the kernel's log."""

import re
from collections.abc import Iterator
from typing import Annotated, NamedTuple

import msgspec

from gpuaudit.check import (
    HOUR,
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    check,
    counted,
    fails,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.kernellog import KernelLog, Line
from gpuaudit.facts.pci import PciDevice, PciDevices

# Texts: Linux drivers/pci/hotplug/pciehp_{ctrl,hpc}.c and drivers/pci/pcie/{dpc,err}.c.
DOWN = ("): Link Down", "): Card not present", "containment event, status")
ON_PURPOSE = "): Link Down/Up ignored"
"""A reset that the kernel did itself (Linux 6.16), or DPC, which has a line of its own."""

GAVE_UP = "device recovery failed"
ADDRESS = re.compile(r"\b[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]\b")
ENUMERATED_S = 180
"""Before that slots are scanned and links come up; what they say then is no event."""


class PcieHotplugExpectations(Expectations, frozen=True, kw_only=True):
    """How recent an event must be to count fully, and how far back the kernel's log has to go."""

    within_hours: Annotated[float, msgspec.Meta(ge=0, le=8760)]


class Event(NamedTuple):
    """A line about one port or device."""

    address: str
    line: Line


@check("pcie-hotplug-events", severity=Severity.HIGH)
def hotplug_events(
    log: KernelLog, devices: PciDevices, want: PcieHotplugExpectations
) -> Iterator[Finding]:
    """No PCIe link of a GPU, NIC or drive went down since the node was started.

    ## Why it matters
    A GPU or NIC whose link drops takes the job with it. It may be back after a rescan, and drop
    again; the cause is power, a cable, a riser or the board.

    ## Evidence
    The kernel log since boot: "Link Down" and "Card not present" of pciehp, "containment event" of
    DPC, "device recovery failed" of error recovery; and what is below the port named.

    ## How it is judged
    A link that went down or was cut off in the last `pcie_hotplug.within_hours` fails where a GPU
    or an RDMA NIC hangs on it. It warns when it is longer ago, and elsewhere: drives are pulled,
    and nothing says what hung on a port that is empty now. A recovery that failed warns:
    pcie-aer-uncorrectable judges the error itself.

    ## Exceptions
    The first three minutes, in which slots are scanned, do not count, nor does a link that the
    kernel itself took down for a reset ("Link Down/Up ignored", Linux 6.16). A reset that a driver
    does on its own at a slot for hot-plugging looks like a link that dropped. Without such a line,
    a log that neither holds the boot nor goes back that many hours is unknown. In a guest it may
    have been the host that took the device away; one without ports is not applicable.

    ## What to do
    Drain the node, look at `dmesg | grep -e pciehp -e DPC -e AER` around the time named and at the
    board's event log (`ipmitool sel list`); reseat or replace the card, riser or cable.

    ## References
    - https://github.com/torvalds/linux/blob/master/drivers/pci/hotplug/pciehp_ctrl.c
    - https://github.com/torvalds/linux/blob/master/drivers/pci/pcie/dpc.c
    - https://docs.kernel.org/PCI/pcieaer-howto.html
    """
    if not any(device.parents for device in devices.seen("gpu", "nic", "nvme")):
        raise NotApplicable("no port stands above a GPU, NIC or drive")
    found: dict[str, list[Event]] = {}
    for event in events(log):
        found.setdefault(event.address, []).append(event)
    for address, of_port in found.items():
        recent = any(is_recent(log, event.line, want.within_hours) for event in of_port)
        yield judged(address, of_port, devices, recent=recent)
    if found:
        return
    if gap := log.lacks(want.within_hours):
        yield unknown("kernel log", gap)
    else:
        yield passes("kernel log", "no link went down")


def events(log: KernelLog) -> Iterator[Event]:
    """The lines that speak of a link that was there and is not, with the port they name."""
    for line in log.matching(*DOWN, GAVE_UP):
        early = line.seconds is not None and line.seconds < ENUMERATED_S
        named = ADDRESS.search(line.text.lower())
        if named and not early and ON_PURPOSE not in line.text:
            yield Event(named[0], line)


def is_recent(log: KernelLog, line: Line, hours: float) -> bool:
    """Also where nothing tells how old the line is."""
    age_s = log.age_s(line)
    return age_s is None or age_s <= hours * HOUR


def judged(address: str, events: list[Event], devices: PciDevices, *, recent: bool) -> Finding:
    """One port: what happened first, and how often."""
    down = [e for e in events if any(word in e.line.text for word in DOWN)]
    first = (down or events)[0].line
    below = names_below(address, devices)
    what = f'"{first.text.rpartition(": ")[2] if down else GAVE_UP}"'
    more = f" and {counted(len(events) - 1, 'more line')}" if len(events) > 1 else ""
    names = ", ".join(below) or "nothing that is there now"
    message = f"the kernel log has {what}, {first.when}{more}; below it: {names}"
    lines = tuple(e.line.text for e in events[:3])
    word = fails if down and recent and matters(address, devices) else warns
    return word(address, message, counted(len(events), "line"), expected="none", evidence=lines)


def hanging(address: str, devices: PciDevices) -> list[PciDevice]:
    """Devices at or below an address."""
    every = devices.seen("gpu", "nic", "nvme")
    return [d for d in every if address == d.address or address in d.parents]


def names_below(address: str, devices: PciDevices) -> list[str]:
    """'gpu 0000:18:00.0'."""
    return [f"{d.role} {d.address}" for d in hanging(address, devices)]


def matters(address: str, devices: PciDevices) -> bool:
    """A GPU or an RDMA NIC hangs there."""
    return any(d.role == "gpu" or d.rdma for d in hanging(address, devices))
