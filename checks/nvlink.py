# SPDX-License-Identifier: Apache-2.0
"""NVLink: are the links of each GPU up, as many and as fast as its product has."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
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
from gpuaudit.facts.gpu import majority
from gpuaudit.facts.node import Machine
from gpuaudit.facts.nvlink import TO_GPU, GpuLinks, NvLinks

MB_PER_GB = 1000
WHOLE_BOARD = 8
Links = Annotated[int, msgspec.Meta(ge=0, le=36)]
Speed = Annotated[float, msgspec.Meta(gt=0, le=1000)]


class NvlinkExpectations(Expectations, frozen=True, kw_only=True):
    """Links by PCI ID of the GPU: how many are up, and GB/s of one in each direction.

    A number of links of 0 among others means that a bridge may be missing by design.
    """

    active_links_by_id: dict[str, tuple[Links, ...]]
    link_gb_per_s_by_id: dict[str, Speed]


@check("nvlink-links-active", severity=Severity.CRITICAL)
def links_active(links: NvLinks, node: Machine, want: NvlinkExpectations) -> Iterator[Finding]:
    """Every GPU has as many NVLinks up as its product has.

    ## Why it matters
    Each link that is down takes its share of the bandwidth between the GPUs, and a ring runs at the
    pace of its narrowest member. On NVSwitch boards a job may not start at all.

    ## Evidence
    nvmlDeviceGetNvLinkState, and NVML_FI_DEV_NVLINK_GET_STATE, which knows that a link sleeps.

    ## How it is judged
    The number of links that are up is one of `nvlink.active_links_by_id` for the GPU's PCI ID. A
    product that the policy does not know is compared with its neighbours: a difference warns. So
    do two GPUs or more without a link beside others of their model that have a bridge. A link that
    does not tell is unknown.

    ## Exceptions
    An answer of "not supported" is no link that is down: not applicable (PCIe boards, Grace without
    switches, one GPU given to a guest), unless others of its model have their links. A link that
    sleeps is up. H100 NVL and PCIe use 12 of 18 links, and none without a bridge; one GPU that is
    left over has no partner. Guests with fewer than eight GPUs may have a part of the links by
    design: compared with each other, unless one of them has the product's number. Not applicable
    with MIG, vGPU, a guest's only GPU.

    ## What to do
    Run `nvidia-smi nvlink -s -i INDEX`, read the Fabric Manager log and the SXid and Xid 74 lines
    of the kernel log, then reset the GPUs of the board together. A bridge: seat it again.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/group__NvLink.html
    - https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide
    - https://resources.nvidia.com/en-us-tensor-core/nvidia-tensor-core-gpu-datasheet
    """
    guest = node.is_vm is not False
    part = guest and len(links.gpus) < WHOLE_BOARD
    for one in links.gpus:
        alone = guest and len(links.gpus) == 1
        left = of_silent(one, links, want) or left_out(one, alone=alone)
        left = left or of_bridge(one, links, want, part=part)
        yield left or of_count(one, want, most_links(one, links), part=part)


def left_out(one: GpuLinks, *, alone: bool = False) -> Finding | None:
    """The finding for a GPU whose links are not to be judged, or None."""
    of = one.gpu.subject
    if one.absent is not None:
        return expect(one.absent, None, of=of)
    if one.gpu.mig_runs:
        return not_applicable(of, "MIG is on: its instances have no NVLink")
    if one.gpu.is_vgpu:
        return not_applicable(of, "a virtual GPU: its links are the host's affair")
    if alone and not one.up:
        return not_applicable(of, "the only GPU of a guest: its links lead to none of its own")
    return None


def of_silent(one: GpuLinks, links: NvLinks, want: NvlinkExpectations) -> Finding | None:
    """The finding for a GPU that says it has no links, though its model always has, or None."""
    gpu, allowed = one.gpu, want.active_links_by_id.get(str(one.gpu.pci_id), (0,))
    if one.absent is None or one.absent.kind != "unsupported" or 0 in allowed:
        return None
    joined = [o for o in links.gpus if o.up and o.gpu.pci_id == gpu.pci_id]
    if not joined or gpu.mig_runs or gpu.is_vgpu:
        return None
    text = f"it has no NVLink at all, {len(joined)} of its model have"
    return fails(gpu.subject, text, "none", expected=allowed, cost=lost_bandwidth(one, 0))


def of_bridge(
    one: GpuLinks, links: NvLinks, want: NvlinkExpectations, *, part: bool
) -> Finding | None:
    """The finding for a GPU without links whose product is joined by bridges, or None.

    A bridge that came loose leaves every GPU below it without links.
    """
    kin = [o for o in links.gpus if o.gpu.pci_id == one.gpu.pci_id and o.links]
    joined = [other for other in kin if other.up]
    known = want.active_links_by_id.get(str(one.gpu.pci_id))
    bridged = any(o.to == TO_GPU for o in joined) if known is None else 0 in known
    if one.up or not bridged:
        return None
    lonely = len([o for o in kin if not o.up and not o.gpu.mig_runs])
    if not joined or lonely < 2 or part:
        return not_applicable(one.gpu.subject, "no bridge")
    text = f"it and {lonely - 1} more have no NVLink, {len(joined)} of their model have a bridge"
    return warns(one.gpu.subject, text, "no bridge", expected="a bridge on all or on none")


def most_links(one: GpuLinks, links: NvLinks) -> int:
    """How many are up on the best GPU of its model."""
    return max(len(o.up) for o in links.gpus if o.gpu.pci_id == one.gpu.pci_id)


def of_count(one: GpuLinks, want: NvlinkExpectations, same: int, *, part: bool) -> Finding:
    """One GPU by its number of links."""
    of, count = one.gpu.subject, len(one.up)
    seen = f"{count} of {len(one.links)}"
    allowed = want.active_links_by_id.get(str(one.gpu.pci_id))
    if one.broken is not None and count == len(one.links):
        return expect(one.broken, None, of=of)
    if allowed is not None and count in allowed:
        return passes(of, seen, expected=allowed)
    if allowed is None or (part and same not in allowed):
        if count != same:
            return warns(of, f"{seen} links are up, other GPUs have {same}", seen, expected=same)
        why = "the host gave out a part of a board" if part else "the policy has no number for it"
        return not_applicable(of, f"{seen} links are up, as on its neighbours; {why}")
    down = ", ".join(str(link.number) for link in one.links if not link.up)
    text = f"{seen} NVLinks are up (down: {down or 'none'})"
    return fails(of, text, seen, expected=allowed, cost=lost_bandwidth(one, max(allowed)))


def lost_bandwidth(one: GpuLinks, most: int) -> str | None:
    """What is left and what there should be: links times the speed of one that is up."""
    speed = majority(link.mb_per_s for link in one.up if isinstance(link.mb_per_s, int))
    if not one.up:
        return "all NVLink bandwidth of this GPU"
    if not isinstance(speed, int) or most <= len(one.up):
        return None
    left, all_of_it = (number * speed / MB_PER_GB for number in (len(one.up), most))
    return f"{left:.0f} instead of {all_of_it:.0f} GB/s each way"


@check("nvlink-link-speed", severity=Severity.HIGH)
def link_speed(links: NvLinks, want: NvlinkExpectations) -> Iterator[Finding]:
    """Every NVLink that is up runs at the speed of its product.

    ## Why it matters
    A link that trained at a lower speed slows every ring that uses it, and nothing else tells.

    ## Evidence
    NVML_FI_DEV_NVLINK_GET_SPEED of each link, in MB/s of one direction.

    ## How it is judged
    No link is below 99 % of `nvlink.link_gb_per_s_by_id` for the GPU's PCI ID (readings are cut to
    whole MB/s). For other products a link that is slower than most of its GPU warns.

    ## Exceptions
    Not applicable where no link is up (nvlink-links-active judges that), with MIG and vGPU, and on
    GPUs or drivers without this field. Links in their low power state keep the speed.

    ## What to do
    Run `nvidia-smi nvlink -s -i INDEX`, reset the GPUs of the board together, and look for NVLink
    lines (Xid 74, SXid) in the kernel log if it comes back.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlFieldValueEnums.html
    """
    for one in links.gpus:
        yield left_out(one) or of_speed(one, want.link_gb_per_s_by_id.get(str(one.gpu.pci_id)))


def of_speed(one: GpuLinks, gb_per_s: float | None) -> Finding:
    """One GPU by its slowest link."""
    of = one.gpu.subject
    if not one.up:
        return not_applicable(of, "no NVLink is up")
    told = {n.number: n.mb_per_s for n in one.up if isinstance(n.mb_per_s, int) and n.mb_per_s}
    if len(told) < len(one.up):
        absent = next((n.mb_per_s for n in one.up if isinstance(n.mb_per_s, Absent)), None)
        return expect(absent, None, of=of) if absent else unknown(of, "a link tells no speed")
    usual = majority(told.values()) or 0
    wanted = usual if gb_per_s is None else gb_per_s * MB_PER_GB
    slow = sorted(number for number, speed in told.items() if speed < wanted * 0.99)
    seen, expected = (f"{x / MB_PER_GB:.1f} GB/s" for x in (min(told.values()), wanted))
    if not slow:
        return passes(of, seen, expected=expected)
    judge = warns if gb_per_s is None else fails
    lost = sum(wanted - told[number] for number in slow) / MB_PER_GB
    text = f"NVLinks below their speed: {', '.join(map(str, slow))}"
    return judge(of, text, seen, expected=expected, cost=f"{lost:.0f} GB/s less each way")
