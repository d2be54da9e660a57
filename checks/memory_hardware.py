# SPDX-License-Identifier: Apache-2.0
"""Memory hardware: modules alike, on all channels, at one speed."""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    Severity,
    check,
    fails,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.dimms import Dimm, Dimms

FEWER = "part of the memory is spread over fewer channels"


class MemoryHardwareExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of the memory modules."""

    modules: Annotated[int, msgspec.Meta(ge=1, le=4096)] | None
    min_speed_mts: Annotated[int, msgspec.Meta(ge=1, le=100_000)] | None


@check("memory-dimm-alike", severity=Severity.MEDIUM)
def dimm_alike(dimms: Dimms) -> Iterator[Finding]:
    """All memory modules have the same size and number of ranks.

    ## Why it matters
    The CPU interleaves addresses over its channels. Where modules differ, part of the memory is
    interleaved over fewer channels and has that much less bandwidth.

    ## Evidence
    SMBIOS structures of type 17 in /sys/firmware/dmi/tables/DMI (needs root).

    ## How it is judged
    Sizes and ranks of all modules are equal; a difference warns.

    ## Exceptions
    Not applicable in guests. Persistent memory and a CPU's own HBM are left out. Memory of Grace is
    soldered on and listed in one or a few structures. Firmware that tells no rank is not held to
    it.

    ## What to do
    Compare `dmidecode -t memory` with a healthy node, and replace the module that differs.

    ## References
    - https://www.dmtf.org/standards/smbios
    - https://docs.nvidia.com/certification-programs/nvidia-certified-configuration-guide/index.html
    """
    yield alike("sizes of the modules", {d.slot: size_of(d) for d in dimms.filled})
    ranks = {d.slot: None if d.rank is None else f"{d.rank} ranks" for d in dimms.filled}
    if any(ranks.values()):
        yield alike("ranks of the modules", ranks)


def size_of(one: Dimm) -> str | None:
    """A size as people say it."""
    if not one.size_mib:
        return None
    return f"{one.size_mib // 1024} GiB" if one.size_mib % 1024 == 0 else f"{one.size_mib} MiB"


def alike(of: str, values: dict[str, str | None], cost: str = FEWER) -> Finding:
    """One value for all; otherwise the slots of the rarest are named."""
    untold = [slot for slot, value in values.items() if value is None]
    if untold:
        return unknown(of, f"the firmware does not tell it of {untold[0]}")
    counts = Counter(values.values())
    seen = ", ".join(f"{number} x {value}" for value, number in counts.most_common())
    if len(counts) == 1:
        return passes(of, seen)
    rarest = counts.most_common()[-1][0]
    slots = ", ".join(slot for slot, value in values.items() if value == rarest)
    message = f"they differ; {rarest} is in {slots[:200]}"
    return warns(of, message, seen, cost=cost)


@check("memory-dimm-population", severity=Severity.MEDIUM)
def dimm_population(dimms: Dimms, want: MemoryHardwareExpectations) -> Iterator[Finding]:
    """Every memory channel has the same number of modules, and none is empty.

    ## Why it matters
    Bandwidth grows with the channels in use, and eight GPUs on PCIe 5.0 x16 can ask host memory for
    8 x 63 GB/s. A module that failed its training at boot is simply missing.

    ## Evidence
    SMBIOS structures of types 16 and 17 in /sys/firmware/dmi/tables/DMI (needs root), and the
    channel in the names of the slots.

    ## How it is judged
    Each channel has as many modules as any other, and at least one. Where the names tell no
    channel, the modules fill all slots or an even part of them, and arrays of several sockets
    equally many. Where `memory_hardware.modules` is set there are as many; fewer fail.

    ## Exceptions
    Not applicable in guests. A board with a channel left empty on purpose warns: set
    `memory_hardware.modules` and waive this. Without names of channels half of them may be empty
    unseen; only `modules` finds that.

    ## What to do
    Look for modules that the BIOS disabled (`dmidecode -t memory`, log of the management
    controller), reseat or replace them. Fill one module a channel first, as the manual says.

    ## References
    - https://www.dmtf.org/standards/smbios
    - https://docs.nvidia.com/certification-programs/nvidia-certified-configuration-guide/index.html
    """
    filled, total = len(dimms.filled), len(dimms.slots)
    if want.modules is not None:
        message = f"{filled} modules instead of {want.modules}"
        answer = fails if filled < want.modules else warns
        fits = filled == want.modules
        yield passes("modules", filled) if fits else answer("modules", message, filled)
    yield by_channel(dimms.channels) if dimms.channels else by_slots(dimms, filled, total)


def by_channel(channels: dict[str, int]) -> Finding:
    """Modules in each channel."""
    empty = [name for name, modules in channels.items() if not modules]
    used, few = len(channels) - len(empty), min(filter(None, channels.values()), default=0)
    seen = f"{sum(channels.values())} modules in {used} of {len(channels)} channels"
    if empty:
        cost = f"{used / len(channels):.0%} of the memory bandwidth, by channels in use"
        return warns("memory channels", f"empty: {', '.join(empty)[:200]}", seen, cost=cost)
    if few == max(channels.values()):
        return passes("memory channels", seen)
    names = ", ".join(name for name, modules in channels.items() if modules == few)
    return warns(
        "memory channels", f"fewer modules than elsewhere: {names[:200]}", seen, cost=FEWER
    )


def by_slots(dimms: Dimms, filled: int, total: int) -> Finding:
    """Without channels: an even part of the slots, and the same in every array."""
    of, seen = "memory slots", f"{filled} modules in {total} slots"
    by_array = Counter(one.array for one in dimms.filled)
    uneven = len({by_array[one.array] for one in dimms.slots}) > 1
    if total % filled == 0 and not uneven:
        return passes(of, seen)
    where = "the sockets have not equally many" if uneven else "no even part of the slots"
    return warns(of, where, seen, cost="some channels are empty or fuller than others")


@check("memory-dimm-speed", severity=Severity.LOW)
def dimm_speed(dimms: Dimms, want: MemoryHardwareExpectations) -> Iterator[Finding]:
    """All memory modules run at one speed.

    ## Why it matters
    Bandwidth is proportional to the speed. A BIOS that found one slow module slows the others of
    its channel or socket, and a node comes back from service slower than its fleet.

    ## Evidence
    Speed and Configured Memory Speed of SMBIOS type 17, /sys/firmware/dmi/tables/DMI (needs root).

    ## How it is judged
    All configured speeds are equal, else it warns. Where `memory_hardware.min_speed_mts` is set, a
    lower one fails.

    ## Exceptions
    A speed below that of the modules is normal with two modules a channel or a CPU that supports
    no more, so it is shown and not judged. Not applicable in guests; soldered memory of Grace has
    one speed.

    ## What to do
    Compare with a healthy node, set the memory speed in the BIOS to automatic, and replace
    modules that are rated lower than the others.

    ## References
    - https://www.dmtf.org/standards/smbios
    """
    speeds = {d.slot: d.configured_mts for d in dimms.filled}
    told = {slot: None if mts is None else f"{mts} MT/s" for slot, mts in speeds.items()}
    rated = sorted({f"{d.rated_mts}" for d in dimms.filled if d.rated_mts})
    known = [mts for mts in speeds.values() if mts is not None]
    finding = alike("speed of the modules", told, share_of_the_slowest(known))
    made_for = f"{finding.observed}; made for {' and '.join(rated)} MT/s"
    yield msgspec.structs.replace(finding, observed=made_for) if rated else finding
    if want.min_speed_mts is not None and known:
        cost = f"{min(known) / want.min_speed_mts:.0%} of the bandwidth, which goes with the speed"
        slow = min(known) < want.min_speed_mts
        seen, least = f"{min(known)} MT/s", f"at least {want.min_speed_mts} MT/s"
        of = "slowest module"
        yield (
            fails(of, "slower than it should be", seen, expected=least, cost=cost)
            if slow
            else passes(of, seen, expected=least)
        )


def share_of_the_slowest(speeds: list[int]) -> str:
    """Bandwidth goes with the speed."""
    share = f"{min(speeds) / max(speeds):.0%}" if speeds else "a part"
    return f"{share} of the bandwidth for the slowest, which goes with the speed"
