# SPDX-License-Identifier: Apache-2.0
"""What load a GPU was under while NVML was asked: at work, at rest, evenly or not.

No single answer tells. Clocks and their reasons belong to the moment, utilization and power to the
last second (nvml.h, nvmlDeviceGetUtilizationRates and nvmlDeviceGetPowerUsage): when a job started,
H200s showed a power cap at 157 of 700 W, and 1680 of 1980 MHz without any reason. Processes are
seen of one's own PID namespace only: in a container the list of a busy GPU may be empty.
"""

from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpurecord import Gpu
from gpuaudit.facts.gpuvalues import Utilization

BUSY_FROM_PERCENT = 50
"""Below half of the time the GPU waits for its program, and its clocks tell nothing."""
EVEN_SWING_PERCENT = 20
"""Of the power limit. Moment and mean of an H200 mostly differ by less than 10 % at even work, and
by up to 100 % where a job starts or ends."""
FULL_POWER_FROM_PERCENT = 90
"""Of the power limit: from here the limit decides the clock, whether NVML says so or not."""


def at_work(gpu: Gpu) -> bool | None:
    """Whether something runs on it; None when that cannot be told."""
    if gpu.computes or is_busy(gpu):
        return True
    return None if isinstance(gpu.compute_pids, Absent) else False


def at_rest(gpu: Gpu) -> bool:
    """It is known that nothing runs on it, and that nothing did a moment ago."""
    return gpu.computes is False and is_busy(gpu) is False and is_even(gpu)


def evenly_at_work(gpu: Gpu) -> bool:
    """One moment of it stands for others."""
    return is_busy(gpu) is True and is_even(gpu)


def is_busy(gpu: Gpu) -> bool | None:
    """By its utilization; None where that is not to be had, as with MIG."""
    used = gpu.utilization
    return used.gpu >= BUSY_FROM_PERCENT if isinstance(used, Utilization) else None


def is_even(gpu: Gpu) -> bool:
    """Whether its power of a moment is known and all readings of it are within the swing.

    A mean of the last second alone tells nothing of a job that has just started.
    """
    if isinstance(gpu.power_limit, Absent) or isinstance(gpu.power_now, Absent):
        return False
    draws = known_draws(gpu)
    return (max(draws) - min(draws)) * 100 <= gpu.power_limit * EVEN_SWING_PERCENT


def at_full_power(gpu: Gpu) -> bool:
    """Whether any reading comes near its limit."""
    if isinstance(gpu.power_limit, Absent):
        return False
    most = max(known_draws(gpu), default=0)
    return most * 100 >= gpu.power_limit * FULL_POWER_FROM_PERCENT


def known_draws(gpu: Gpu) -> list[int]:
    """The readings of its power, in mW: means of a second and moments, early and late."""
    draws = (gpu.power_draw, gpu.power_now, gpu.power_draw_later, gpu.power_now_later)
    return [draw for draw in draws if not isinstance(draw, Absent)]
