# SPDX-License-Identifier: Apache-2.0
"""PCI Express links of GPUs, NICs and NVMe drives, and the way above them. See also pcie_slot."""

from collections.abc import Callable, Iterator
from typing import Annotated, Literal

import msgspec
from msgspec.structs import replace

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
from gpuaudit.facts.gpulink import GpuLinksNow, LinkNow
from gpuaudit.facts.node import Machine
from gpuaudit.facts.pci import PciDevice, PciDevices
from gpuaudit.facts.pcilink import GENERATION_OF_GT_PER_S
from gpuaudit.topology import GUEST, Hop, Judged, LinkTargets, judge, judge_way, linked, loss

PciId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{4}:[0-9a-f]{4}$")]
Lanes = Literal[1, 2, 4, 8, 12, 16, 32]
IDLE = "a GPU at rest may lower its link; load it (nvbandwidth, or a job) and run this again"


class PcieExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of PCI Express links."""

    wired_width_by_id: dict[PciId, Lanes]
    guest_width_by_id: dict[PciId, Lanes]
    keeps_speed_at_rest: tuple[PciId, ...]


def each(
    devices: PciDevices, machine: Machine, judged: Callable[[PciDevice, Hop], Finding]
) -> Iterator[Finding]:
    """A finding for every device whose link says something about the node."""
    for device, link, reason in linked(devices, is_vm=machine.is_vm):
        if link is None or reason:
            yield not_applicable(device.address, reason)
        else:
            yield replace(judged(device, link), evidence=(f"link {link.name}",))


def settled(device: PciDevice, found: Judged, seen: str, best: str) -> Finding | None:
    """The finding for a link that is good or cannot be judged; None for one that is low."""
    if found.outcome == "unknown":
        return unknown(device.address, found.reason, seen if found.now else None)
    return passes(device.address, seen, expected=best) if found.outcome == "good" else None


@check("pcie-link-width", severity=Severity.HIGH)
def link_width(devices: PciDevices, machine: Machine, want: PcieExpectations) -> Iterator[Finding]:
    """Every GPU, NIC and NVMe link has all the lanes that both ends support.

    ## Why it matters
    A link that trained with half its lanes halves every copy, and nothing reports it.

    ## Evidence
    current_link_width and max_link_width in /sys/bus/pci/devices of the port above and of
    function 0 of the device, read before NVML opens a GPU.

    ## How it is judged
    The width must be the smaller of both ends' maxima. Ends that disagree or read 63 are unknown.

    ## Exceptions
    Width does not drop to save power. Boards that wire fewer lanes than both ends could drive are
    named in `pcie.wired_width_by_id`. In a guest the port above is emulated: only the device's own
    end and `pcie.guest_width_by_id` count. NICs and drives without a driver are not judged.

    ## What to do
    Reseat the card, riser or cable, then look at the slot's bifurcation in the BIOS; if
    the width stays low, have the board or the device replaced.

    ## References
    - https://docs.kernel.org/PCI/sysfs-pci.html
    - https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci
    """
    wired = want.wired_width_by_id
    if machine.is_vm:
        wired = {**wired, **want.guest_width_by_id}
    yield from each(devices, machine, lambda d, link: width_finding(d, link, wired.get(d.id)))


def width_finding(device: PciDevice, link: Hop, wired: int | None) -> Finding:
    """Words for the width of one link."""
    found = judge(link.width, wired)
    now, best = f"x{found.now:g}", f"x{found.want:g}"
    return settled(device, found, now, best) or fails(
        device.address,
        f"the link has {found.now:g} of {found.want:g} lanes",
        now,
        expected=best,
        cost=link.loss(width=int(found.now), wired=wired),
    )


@check("pcie-link-speed", severity=Severity.HIGH)
def link_speed(
    devices: PciDevices,
    machine: Machine,
    targets: LinkTargets,
    now: GpuLinksNow,
    want: PcieExpectations,
) -> Iterator[Finding]:
    """Every GPU, NIC and NVMe link runs at the speed that both ends support.

    ## Why it matters
    One generation less is half the bandwidth. Signal errors or firmware settings hold links down.

    ## Evidence
    current_link_speed and max_link_speed of the port above and of function 0 of the device, read
    before NVML opens a GPU. Where they differ also Link Control 2 in config of the port above, and
    NVML's link generation, performance state and persistence mode.

    ## How it is judged
    The speed now must be the smaller of both ends' maxima. A NIC or NVMe drive below it fails. A
    GPU below it fails when NVML too sees the low generation while the GPU is in P0 with persistence
    on, passes when NVML sees the full generation, and is unknown otherwise: it may be at rest.
    Load it and run again.

    ## Exceptions
    GPU models named in `pcie.keeps_speed_at_rest` fail like a NIC. A device in a D3 power state
    is unknown. In a guest only the device's own end counts.

    ## What to do
    Put load on a GPU and run this check again. If the link stays slow, look for link errors
    (aer_dev_correctable, `dmesg`), reseat the card, and set the slot's link speed to auto in the
    BIOS.

    ## References
    - https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
    """
    fast = want.keeps_speed_at_rest

    def finding(device: PciDevice, link: Hop) -> Finding:
        if device.id in fast:
            return speed_finding(device, link, targets, LinkNow(generation=None, awake=True))
        return speed_finding(device, link, targets, now.by_address.get(device.address))

    yield from each(devices, machine, finding)


def speed_finding(
    device: PciDevice, link: Hop, targets: LinkTargets, later: LinkNow | None
) -> Finding:
    """Words for the speed of one link. `later` is what NVML saw of a GPU a moment after."""
    found = judge(link.speed)
    now, best = f"{found.now:g} GT/s", f"{found.want:g} GT/s"
    if (told := settled(device, found, now, best)) is not None:
        return told
    if device.role == "gpu" and later is not None and rose(later, found.want):
        return passes(device.address, f"{now} at rest, {best} when awake", expected=best)
    if (reason := at_rest(device, later)) is not None:
        return unknown(device.address, reason, now, expected=best)
    told_to = targets.by_port.get(link.upper, found.want)
    limit = f"; the port above is told not to exceed {told_to:g} GT/s (Link Control 2)"
    return fails(
        device.address,
        f"the link runs at {found.now:g} of {found.want:g} GT/s"
        + (limit if told_to < found.want else ""),
        now,
        expected=best,
        cost=link.loss(speed_gt_per_s=found.now),
    )


def rose(later: LinkNow, want_gt_per_s: float) -> bool:
    """True when NVML saw the full generation."""
    wanted = GENERATION_OF_GT_PER_S.get(want_gt_per_s)
    return later.generation is not None and wanted is not None and later.generation >= wanted


def at_rest(device: PciDevice, later: LinkNow | None) -> str | None:
    """Why a low speed may only be rest; None when it is a fault."""
    if (device.power_state or "D0") != "D0":
        return f"it is in power state {device.power_state}; wake it first"
    if device.role == "gpu" and (later is None or not later.awake):
        return IDLE
    return None


@check("pcie-path-narrowest", severity=Severity.HIGH)
def path_narrowest(devices: PciDevices, machine: Machine) -> Iterator[Finding]:
    """No link above a GPU, NIC or NVMe drive is narrower than its own.

    ## Why it matters
    Behind a switch whose uplink lost lanes, a GPU with a healthy link reaches host memory at the
    uplink's rate. Looking at the device alone does not show it.

    ## Evidence
    current_link_speed and _width, and their maxima, of both ends of every link on the way.

    ## How it is judged
    Each link above must carry now what the device's own can at its best. The narrowest is named.
    One that runs at its own best, and is built for less than the device, only warns.

    ## Exceptions
    Ends that disagree are unknown: outer ports of some switches report made-up values. A slow
    link that leads only to GPUs at rest is unknown. Guests and devices directly below a root port
    have nothing above to judge. NVSwitch links are narrow by design and not looked at.

    ## What to do
    Reseat the riser, retimer card or cable between the two ports named, and check that link's
    settings in the BIOS; compare with a healthy node of the same model.

    ## References
    - https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html
    - https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci
    """
    if machine.is_vm:
        raise NotApplicable(GUEST)
    yield from each(devices, machine, lambda device, _: way_finding(devices, device))


def way_finding(devices: PciDevices, device: PciDevice) -> Finding:
    """Words for the way above one device."""
    if not device.root:
        return unknown(device.address, "the recording does not hold the PCI tree")
    way = judge_way(devices, device)
    if way is None or way.hop is None:
        return not_applicable(device.address, "no other link stands above its own")
    seen = f"{way.now} at {way.hop.name}" if way.now else None
    least = f"at least {way.want} on every link above" if way.want else None
    if way.outcome == "unknown":
        return unknown(device.address, f"{way.hop.name}: {way.reason}", seen)
    if way.outcome == "good":
        return passes(device.address, seen, expected=least)
    cost = loss(way.now, way.want) if way.now and way.want else None
    if way.outcome == "built":
        message = f"{way.hop.name} runs at its best, which is less than the device's own link"
        return warns(device.address, message, seen, expected=least, cost=cost)
    message = f"{way.hop.name} is narrower than the device's own link"
    return fails(device.address, message, seen, expected=least, cost=cost)
