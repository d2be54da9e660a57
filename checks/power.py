# SPDX-License-Identifier: Apache-2.0
"""Power limits."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from gpuaudit.check import Expectations, Finding, Severity, check, expect, fails, passes
from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpu import Gpu, Gpus


class PowerExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of the power limit."""

    limit_min_percent: Annotated[float, msgspec.Meta(gt=0, le=100)]


@check("power-limit-default", severity=Severity.HIGH)
def limit_default(gpus: Gpus, want: PowerExpectations) -> Iterator[Finding]:
    """Every GPU may draw the power that it was built for.

    ## Why it matters
    A lowered limit lowers the clock under load. One such GPU slows every collective of the job.

    ## Evidence
    nvmlDeviceGetEnforcedPowerLimit, the lowest of all limits in force, and
    nvmlDeviceGetPowerManagementDefaultLimit.

    ## How it is judged
    The enforced limit is at least `power.limit_min_percent` of the default.

    ## Exceptions
    Sites that cap power on purpose set the percentage in their policy. The limit may also come
    from the BMC, where nvidia-smi cannot raise it.

    ## What to do
    Run `nvidia-smi -i INDEX -pl WATTS` with the default, and look for the unit that lowered it. If
    it stays low, lift the cap in the BMC or the rack's power manager.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
    """
    for gpu in gpus.asked():
        yield limit(gpu, want.limit_min_percent)


def limit(gpu: Gpu, percent: float) -> Finding:
    """One GPU."""
    now, default = gpu.power_limit, gpu.power_default
    if isinstance(now, Absent) or isinstance(default, Absent):
        return expect(now if isinstance(now, Absent) else default, None, of=gpu.subject)
    seen, wanted = f"{now / 1000:g} W", f"{default / 1000:g} W"
    if now * 100 >= default * percent:
        return passes(gpu.subject, seen, expected=wanted)
    share = now * 100 // default
    text = f"the power limit is {share} % of the default"
    cost = f"{100 - share} % of the GPU's power"
    return fails(gpu.subject, text, seen, expected=wanted, cost=cost)
