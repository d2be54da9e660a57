# SPDX-License-Identifier: Apache-2.0
"""The highest clocks that a GPU may reach at all, and boost left to chance."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    Severity,
    check,
    expect,
    not_applicable,
    passes,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.generation import GEFORCE
from gpuaudit.facts.gpu import Gpu, Gpus

Mhz = Annotated[int, msgspec.Meta(ge=1, le=20000)]


class ClocksMaximumExpectations(Expectations, frozen=True, kw_only=True):
    """MHz of SMs and memory by PCI ID of the GPU."""

    mhz_by_id: dict[str, tuple[Mhz, Mhz]]


@check("clocks-maximum", severity=Severity.MEDIUM)
def maximum(gpus: Gpus, want: ClocksMaximumExpectations) -> Iterator[Finding]:
    """Every GPU may reach the highest clocks of its product.

    ## Why it matters
    A board with a lower ceiling (another VBIOS, another bin, a power-saving firmware) slows every
    job that it takes part in, and no reason for it is shown.

    ## Evidence
    nvmlDeviceGetMaxClockInfo of SMs and memory, nvmlDeviceGetMaxCustomerBoostClock.

    ## How it is judged
    Neither is below `clocks_maximum.mhz_by_id` for the GPU's PCI ID, nor below another GPU of the
    same PCI ID on this node: a warning, because products exist in more than one version.

    ## Exceptions
    Clocks that were locked do not show here (clocks-locked). A product that the policy does not
    know, alone on its node, is not applicable; so are virtual GPUs, and GeForce boards, whose
    makers choose the clocks.

    ## What to do
    Compare `nvidia-smi -q -d CLOCK` and the VBIOS with a healthy node, and ask the vendor for the
    firmware of this board.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
    """
    asked = gpus.asked()
    for gpu in asked:
        mates = [o for o in asked if o is not gpu and o.pci_id == gpu.pci_id and not of_maker(o)]
        yield of_maximum(gpu, mates, want.mhz_by_id.get(str(gpu.pci_id)))


def of_maximum(gpu: Gpu, mates: list[Gpu], product: tuple[int, int] | None) -> Finding:
    """One GPU against its product and its neighbours."""
    of, absent = gpu.subject, first_absent(gpu)
    if gpu.is_vgpu:
        return not_applicable(of, "a virtual GPU: its clocks are the host's affair")
    if absent is not None:
        return expect(absent, None, of=of)
    told = [ceiling(one) for one in mates if first_absent(one) is None]
    others = told if product is None else [*told, product]
    if not others:
        why = "nothing to compare with: a product that the policy does not know"
        return not_applicable(of, f"{why}{', clocks by its maker' * of_maker(gpu)}")
    mine = ceiling(gpu)
    best = max(sm for sm, _ in others), max(memory for _, memory in others)
    seen, wanted = (f"{sm}/{memory} MHz" for sm, memory in (mine, best))
    if mine[0] >= best[0] and mine[1] >= best[1]:
        return passes(of, seen, expected=wanted)
    text = f"highest clocks {seen} (SM/memory), elsewhere {wanted}"
    cost = f"{max(100 - 100 * mine[at] // best[at] for at in (0, 1))} % of a clock"
    return warns(of, text, seen, expected=wanted, cost=cost)


def of_maker(gpu: Gpu) -> bool:
    """A consumer board: each maker, and each of its models, has clocks of its own."""
    return any(word in str(gpu.name) for word in GEFORCE)


def first_absent(gpu: Gpu) -> Absent | None:
    """Why the ceiling is not known."""
    told = (gpu.sm_clock_max, gpu.memory_clock_max)
    return next((one for one in told if isinstance(one, Absent)), None)


def ceiling(gpu: Gpu) -> tuple[int, int]:
    """SMs and memory in MHz; the boost clock that customers get may be below that of the chip."""
    known = [one for one in (gpu.sm_clock_max, gpu.clock_boost) if isinstance(one, int)]
    memory = gpu.memory_clock_max
    return min(known, default=0), memory if isinstance(memory, int) else 0


@check("clocks-auto-boost", severity=Severity.LOW)
def auto_boost(gpus: Gpus) -> Iterator[Finding]:
    """Auto boost is as the product has it by default.

    ## Why it matters
    On the GPUs that have it (Kepler, Maxwell) it decides whether clocks rise above the base; GPUs
    of one node that differ in it run at different speeds.

    ## Evidence
    nvmlDeviceGetAutoBoostedClocksEnabled: now and by default.

    ## How it is judged
    A mode that is not the default is a warning.

    ## Exceptions
    Not applicable from Pascal on, where boost is always on and the call is not supported.

    ## What to do
    Run `nvidia-smi --auto-boost-default=ENABLED`, and look for the script that changed it.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
    """
    words = ("off", "on")
    for gpu in gpus.asked():
        if isinstance(gpu.auto_boost, Absent):
            yield expect(gpu.auto_boost, None, of=gpu.subject)
            continue
        now, default = (words[mode] for mode in gpu.auto_boost)
        if now == default:
            yield passes(gpu.subject, now, expected=default)
        else:
            yield warns(gpu.subject, f"auto boost is {now}", now, expected=default)
