# SPDX-License-Identifier: Apache-2.0
"""Temperatures."""

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
    passes,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpu import Gpu, Gpus
from gpuaudit.facts.gpuload import at_rest

PLAUSIBLE_C = range(41, 151)
"""A threshold outside is no temperature: newer GPUs may answer with a distance, below 0 too."""


class ThermalExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of temperatures."""

    margin_min_c: Annotated[int, msgspec.Meta(ge=0, le=60)]


@check("thermal-margin", severity=Severity.HIGH)
def margin(gpus: Gpus, want: ThermalExpectations) -> Iterator[Finding]:
    """Every GPU is well below the temperature at which it slows down.

    ## Why it matters
    At the limit the driver lowers the clock; a hot GPU without load has a cooling fault.

    ## Evidence
    nvmlDeviceGetMarginTemperature, which is a distance (more is better). Where the driver or the
    GPU does not have it: nvmlDeviceGetTemperature below the lower of the thresholds GPU_MAX and
    SLOWDOWN, and the memory's temperature, where it has one, below MEM_MAX.

    ## How it is judged
    The distance is at least `thermal.margin_min_c`.

    ## Exceptions
    A GPU that is not at rest and not yet at its limit is a warning: it still runs at full clock,
    and its margin stays that of the load for a while after the job. Thresholds of Ada and later are
    used only where they are plausible temperatures.

    ## What to do
    Check fans, filters, air flow or coolant of the slot, and compare with the node's other GPUs.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/structnvmlMarginTemperature__v1__t.html
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
    """
    for gpu in gpus.asked():
        distance = distance_c(gpu)
        if isinstance(distance, Absent):
            yield expect(distance, None, of=gpu.subject)
            continue
        fields = {"expected": f"at least {want.margin_min_c} C", "evidence": (degrees(gpu),)}
        if distance >= want.margin_min_c:
            yield passes(gpu.subject, f"{distance} C", **fields)
        else:
            judge = fails if at_rest(gpu) or distance <= 0 else warns
            yield judge(gpu.subject, told(distance), f"{distance} C", **fields)


def told(distance: int) -> str:
    """What a margin that is too small means."""
    return f"only {distance} C below the limit" if distance > 0 else "at the limit or above it"


def degrees(gpu: Gpu) -> str:
    """The temperature for the evidence."""
    known = isinstance(gpu.temperature, int)
    return f"the GPU has {gpu.temperature} C" if known else "the temperature is not known"


def distance_c(gpu: Gpu) -> int | Absent:
    """Degrees to the temperature at which the GPU slows down."""
    if not isinstance(gpu.thermal_margin, Absent):
        return gpu.thermal_margin
    if isinstance(gpu.temperature, Absent):
        return gpu.temperature
    limits = plausible(gpu.slowdown_at, gpu.highest_operating)
    if not limits:
        return gpu.thermal_margin
    distances = [limit - gpu.temperature for limit in limits]
    if not isinstance(gpu.memory_temperature, Absent):
        hot = gpu.memory_temperature
        distances += [limit - hot for limit in plausible(gpu.memory_slowdown_at)]
    return min(distances)


def plausible(*limits: int | Absent) -> list[int]:
    """Those that can be a temperature at which something slows down."""
    return [limit for limit in limits if isinstance(limit, int) and limit in PLAUSIBLE_C]
