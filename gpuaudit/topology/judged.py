# SPDX-License-Identifier: Apache-2.0
"""Whether a link, and the way above it, run as they could. The checks word the answer."""

from typing import Literal, NamedTuple

from gpuaudit.facts.base import Absent
from gpuaudit.facts.pci import ENDPOINTS, PciDevice, PciDevices, Role
from gpuaudit.facts.pcilink import LinkEnd
from gpuaudit.host import NotApplicable
from gpuaudit.topology.links import Hop, Quantity, Rate, rate
from gpuaudit.topology.paths import below_ports, hops_of, own_link

# Vendor IDs of devices that hypervisors make up or share out (pci.ids): virtio, QEMU, VMware,
# VirtualBox, Xen, Hyper-V, Google, Amazon. Their links are a fiction.
EMULATED = frozenset({0x1AF4, 0x1B36, 0x15AD, 0x80EE, 0x5853, 0x1414, 0x1AE0, 0x1D0F})
MAY_BE_UNUSED: frozenset[Role] = frozenset({"nic", "nvme"})


class Judged(NamedTuple):
    """good, low or unknown (with the reason); the value now and the one wanted."""

    outcome: Literal["good", "low", "unknown"]
    now: float = 0
    want: float = 0
    reason: str = ""


class Linked(NamedTuple):
    """A device, the link it hangs on, and why that is not judged ("" when it is)."""

    device: PciDevice
    link: Hop | None
    reason: str


def linked(devices: PciDevices, *, is_vm: bool | None) -> tuple[Linked, ...]:
    """Every GPU, NIC and NVMe drive with its link. Raises NotApplicable when there is none."""
    found = one_a_slot(devices)
    if not found:
        raise NotApplicable("no GPU, NIC or NVMe drive is on the PCI bus")
    seen = ((d, seen_link(devices, d, is_vm=is_vm)) for d in found)
    return tuple(Linked(d, link, not_judged(d, link, is_vm=is_vm)) for d, link in seen)


def one_a_slot(devices: PciDevices) -> tuple[PciDevice, ...]:
    """The functions of a slot share its link: one that is in use stands for all."""
    found: dict[str, PciDevice] = {}
    for device in devices.of("gpu", "nic", "nvme"):
        known = found.get(device.slot)
        if known is None or (known.unbound and not device.unbound):
            found[device.slot] = device
    return tuple(found.values())


def is_provided(device: PciDevice, *, is_vm: bool | None) -> bool:
    """True for a device of a guest that its hypervisor makes up or shares out."""
    return bool(is_vm) and device.vendor in EMULATED


def not_judged(device: PciDevice, link: Hop | None, *, is_vm: bool | None) -> str:
    """Why the link of a device says nothing about the node, or "" when it does."""
    if is_provided(device, is_vm=is_vm):
        return "the hypervisor provides this device: its link is emulated"
    if device.unbound and device.role in MAY_BE_UNUSED:
        return "no driver is bound: the device is not in use"
    if link is None:
        return "it has no PCI Express link of its own"
    stateless = isinstance(link.width.now, Absent) and link.width.now.kind == "unsupported"
    alone = bool(device.root) and not device.parents
    if stateless and device.role != "gpu" and (is_vm or alone):
        return "it shows no link state: part of the root complex, a virtual function or emulated"
    return ""


def seen_link(devices: PciDevices, device: PciDevice, *, is_vm: bool | None) -> Hop | None:
    """The link of a device; in a guest only the device's own end, the port above is made up."""
    link = own_link(devices, device)
    if link is None or not is_vm:
        return link
    alone = Absent("missing", "the port above is emulated")
    return Hop(upper="", lower=link.lower, upper_end=alone, lower_end=link.lower_end)


def judge(found: Quantity, wired: float | None = None) -> Judged:
    """Compare a link's speed or width with what both ends could, or with what is wired.

    One known maximum is enough to pass, since no link exceeds either end; never to fail.
    """
    if isinstance(found.now, Absent):
        return Judged("unknown", reason=found.now.reason)
    want = found.best if wired is None else wired
    if isinstance(want, Absent):
        return Judged("unknown", reason=want.reason)
    if found.now >= want:
        return Judged("good", found.now, want)
    if not found.both and wired is None:
        one = "only one end of the link tells its maximum"
        return Judged("unknown", found.now, want, one)
    return Judged("low", found.now, want)


def may_idle(devices: PciDevices, hop: Hop) -> bool:
    """True when the hop leads only to GPUs whose own links run slower than they could.

    An idle GPU lowers the speed of its link; a bridge that belongs to it may follow.
    """
    judged = devices.seen(*ENDPOINTS)
    below = below_ports(judged).get(hop.upper, ())
    return bool(below) and all(d.role == "gpu" and is_slow(devices, d) for d in below)


def is_slow(devices: PciDevices, device: PciDevice) -> bool:
    """True when the link of a device is known to be slower than it could be."""
    link = own_link(devices, device)
    return link is not None and judge(link.speed).outcome != "good"


class Way(NamedTuple):
    """The way above a device's own link: the worst hop, with what it carries and should.

    built: the hop runs as fast as both its ends can, and the device could use more.
    """

    outcome: Literal["good", "low", "unknown", "built"]
    hop: Hop | None = None
    now: Rate | None = None
    want: Rate | None = None
    reason: str = ""


def judge_way(devices: PciDevices, device: PciDevice) -> Way | None:
    """Compare every hop above a device's own link with that link; None without such hops."""
    hops, own = hops_of(devices, device), own_link(devices, device)
    above = [h for h in hops if own is None or h.lower != own.lower]
    if own is None or not above:
        return None
    want = own.could
    if isinstance(want, Absent):
        return Way("unknown", own, reason=want.reason)
    ways = [judge_hop(devices, h, want) for h in above]
    order = {"low": 0, "unknown": 1, "built": 2, "good": 3}
    return min(ways, key=lambda w: (order[w.outcome], w.now.gb_per_s if w.now else 0))


def judge_hop(devices: PciDevices, hop: Hop, want: Rate) -> Way:
    """One hop above. Ends that disagree prove nothing: switches show made-up ports."""
    now = hop.now
    if isinstance(now, Absent):
        return Way("unknown", hop, None, want, now.reason)
    if now.gb_per_s >= want.gb_per_s:
        return Way("good", hop, now, want)
    if now.width >= want.width and may_idle(devices, hop):
        idle = "it leads only to GPUs that may be idle; judge it under load"
        return Way("unknown", hop, now, want, idle)
    best = hop.could
    at_best = isinstance(best, Rate) and now.gb_per_s >= best.gb_per_s and hop.told
    return Way("built" if at_best else "low", hop, now, want)


class Slot(NamedTuple):
    """What the port above a device can do at most, and what the device can."""

    outcome: Literal["good", "low", "unknown"]
    port: Rate | None = None
    device: Rate | None = None
    reason: str = ""


def judge_slot(link: Hop) -> Slot:
    """Compare the maxima of both ends."""
    port, device = most(link.upper_end), most(link.lower_end)
    if isinstance(port, Absent):
        return Slot("unknown", reason=port.reason)
    if isinstance(device, Absent):
        return Slot("unknown", reason=device.reason)
    small = port.width < device.width or port.speed_gt_per_s < device.speed_gt_per_s
    return Slot("low" if small else "good", port, device)


def most(end: LinkEnd | Absent) -> Rate | Absent:
    """The maxima of one end."""
    return end if isinstance(end, Absent) else rate(end.max_speed_gt_per_s, end.max_width)
