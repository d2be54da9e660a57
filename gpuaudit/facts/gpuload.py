# SPDX-License-Identifier: Apache-2.0
"""Whether a GPU was under an even load while NVML was asked.

A clock and the reasons that hold it down belong to the moment, the power to the last second
(nvml.h, nvmlDeviceGetPowerUsage). When a job starts or ends they contradict each other: on an H200
power cap showed at 157 of 700 W, and a clock of 1680 of 1980 MHz without any reason.
"""

from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpurecord import Gpu, Utilization


def even_load(gpu: Gpu, *, busy_from_percent: int, swing_percent: float) -> bool:
    """True when the GPU was busy and every reading of its power is within the swing.

    `swing_percent` is of the power limit. What a GPU cannot tell does not count against it.
    """
    if isinstance(gpu.utilization, Utilization) and gpu.utilization.gpu < busy_from_percent:
        return False
    draws = [draw for draw in draws_of(gpu) if not isinstance(draw, Absent)]
    if not draws or isinstance(gpu.power_limit, Absent):
        return False
    return (max(draws) - min(draws)) * 100 <= gpu.power_limit * swing_percent


def draws_of(gpu: Gpu) -> tuple[int | Absent, ...]:
    """Every reading of the power, in mW: means of a second and moments, early and late."""
    return (gpu.power_draw, gpu.power_now, gpu.power_draw_later, gpu.power_now_later)
