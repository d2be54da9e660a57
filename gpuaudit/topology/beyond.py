# SPDX-License-Identifier: Apache-2.0
"""What the PCI tree does not show of it: NVLink, and what is left when all GPUs move at once."""

from typing import Literal

import msgspec

from gpuaudit.facts.base import Absent
from gpuaudit.facts.nvlink import TO_SWITCH, GpuLinks, NvLinks
from gpuaudit.host import NotApplicable
from gpuaudit.topology.uplinks import Uplink, shared_uplinks
from gpuaudit.topology.whole import Topology


class NvLinkView(msgspec.Struct, frozen=True, kw_only=True):
    """The NVLinks of one GPU. `gb_per_s`: all that are up, in each direction."""

    address: str
    links: int
    up: int
    gb_per_s: float | None
    to: Literal["switch", "gpu"] | None


class NvPair(msgspec.Struct, frozen=True, kw_only=True):
    """Two GPUs that reach each other over NVLink.

    `links` and `gb_per_s` (each direction) are of the GPU with fewer; None where the links go to
    several GPUs directly, since NVML then tells of the pair only that it is joined.
    """

    one: str
    other: str
    links: int | None
    gb_per_s: float | None


class UplinkView(msgspec.Struct, frozen=True, kw_only=True):
    """A link that several devices share. Rates in one direction, when all talk to the host.

    `each_gb_per_s`: what a GPU gets when all GPUs below it move at once.
    """

    upper: str
    lower: str
    gpus: tuple[str, ...]
    others: tuple[str, ...]
    gb_per_s: float | None
    each_gb_per_s: float | None


class Beyond(msgspec.Struct, frozen=True, kw_only=True):
    """Devices are named by PCI address."""

    nvlinks: tuple[NvLinkView, ...] = ()
    nvpairs: tuple[NvPair, ...] = ()
    uplinks: tuple[UplinkView, ...] = ()


def beyond(tree: Topology, links: NvLinks | None) -> Beyond:
    """All of it; without NVML's answers the uplinks alone. A guest's uplinks are made up."""
    return Beyond(
        nvlinks=tuple(nvlink_view(one) for one in links.gpus if one.links) if links else (),
        nvpairs=tuple(joined_pairs(links)) if links else (),
        uplinks=() if tree.is_vm else uplink_views(tree),
    )


def nvlink_view(found: GpuLinks) -> NvLinkView:
    """One GPU."""
    return NvLinkView(
        address=found.gpu.address or found.gpu.subject,
        links=len(found.links),
        up=len(found.up),
        gb_per_s=rate_of(found),
        to=None if found.to is None else ("switch" if found.to == TO_SWITCH else "gpu"),
    )


def rate_of(found: GpuLinks) -> float | None:
    """Gigabytes a second in each direction over all links that are up."""
    rates = [link.mb_per_s for link in found.up]
    known = [rate for rate in rates if not isinstance(rate, Absent)]
    return round(sum(known) / 1000, 1) if known and len(known) == len(rates) else None


def joined_pairs(links: NvLinks) -> list[NvPair]:
    """Every pair that NVML calls joined."""
    by_index = {one.gpu.index: one for one in links.gpus}
    return [
        nvpair(by_index[a], by_index[b], len(links.gpus))
        for (a, b), pair in links.pairs.items()
        if pair.joined and a in by_index and b in by_index
    ]


def nvpair(one: GpuLinks, other: GpuLinks, gpus: int) -> NvPair:
    """Through a switch, or with no third GPU, all links serve the pair."""
    whole = gpus == 2 or (one.to == TO_SWITCH and other.to == TO_SWITCH)
    rates = [rate_of(one), rate_of(other)]
    return NvPair(
        one=one.gpu.address or one.gpu.subject,
        other=other.gpu.address or other.gpu.subject,
        links=min(len(one.up), len(other.up)) if whole else None,
        gb_per_s=min(r for r in rates if r is not None) if whole and None not in rates else None,
    )


def uplink_views(tree: Topology) -> tuple[UplinkView, ...]:
    """The links that at least two GPUs share, the narrowest share first."""
    try:
        found = [one for one in shared_uplinks(tree.devices) if len(one.gpus) > 1]
    except NotApplicable:
        return ()
    return tuple(uplink_view(one) for one in found)


def uplink_view(found: Uplink) -> UplinkView:
    """One link."""
    rate, each = found.rate, found.each_gb_per_s
    return UplinkView(
        upper=found.hop.upper,
        lower=found.hop.lower,
        gpus=tuple(gpu.address for gpu in found.gpus),
        others=tuple(other.address for other in found.others),
        gb_per_s=None if isinstance(rate, Absent) else round(rate.gb_per_s, 2),
        each_gb_per_s=None if isinstance(each, Absent) else round(each, 2),
    )
