# SPDX-License-Identifier: Apache-2.0
"""Time that the GPUs spent below their clocks since the last audit."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from gpuaudit.check import (
    HOUR,
    Expectations,
    Finding,
    Severity,
    Verdict,
    check,
    expect,
    expect_rate,
    passes,
    worst,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.counters import Earlier
from gpuaudit.facts.gpu import Gpu, Gpus
from gpuaudit.facts.gputhrottle import GpuThrottle


class ClocksHistoryExpectations(Expectations, frozen=True, kw_only=True):
    """Milliseconds of slowdown by heat or power brake in an hour."""

    slowed_max_ms_per_hour: Annotated[int, msgspec.Meta(ge=0, le=3_600_000)]


@check("clocks-throttle-history", severity=Severity.HIGH)
def throttle_history(
    gpus: Gpus, times: GpuThrottle, earlier: Earlier, want: ClocksHistoryExpectations
) -> Iterator[Finding]:
    """No GPU spends a share of its time slowed down by heat or power supply.

    ## Why it matters
    A slowdown that comes and goes hides from a single look, yet every step of a job waits for the
    GPU that it hits.

    ## Evidence
    NVML's clocks event reason counters of software thermal, hardware thermal and power brake
    slowdown (driver 580 and later; before it the thermal policy counter), and an earlier reading.

    ## How it is judged
    By rate: more than `clocks_history.slowed_max_ms_per_hour` of any of them fails. Without an
    earlier reading the mean since boot is what is judged, or the total if it is small.

    ## Exceptions
    The power cap is no fault and not counted. Not applicable on GPUs and drivers without the
    counters, with vGPU. They start at zero when the driver is loaded.

    ## What to do
    Look at fans, filters, air flow or coolant, and for power brake at the power supplies and the
    BMC's cap; `nvidia-smi -q -d PERFORMANCE` shows the counters.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlFieldValueEnums.html
    - https://docs.nvidia.com/deploy/nvidia-smi/index.html
    """
    for gpu in gpus.asked():
        yield of_times(gpu, times.by_gpu[gpu.index], earlier, want.slowed_max_ms_per_hour)


def of_times(gpu: Gpu, found: dict[str, int] | Absent, earlier: Earlier, limit: int) -> Finding:
    """One GPU by the worst of its counters."""
    if isinstance(found, Absent):
        return expect(found, None, of=gpu.subject)
    judged = [
        expect_rate(
            earlier.growth(gpu.address or "", name, total, since_boot=True),
            limit,
            per_s=HOUR,
            of=gpu.subject,
            what=f"milliseconds of {name.removesuffix('-ms').replace('-', ' ')} slowdown",
            cost="every GPU of the job waits for this one while it is slowed down",
        )
        for name, total in found.items()
    ]
    decides = worst(finding.verdict for finding in judged)
    if decides is Verdict.PASS:
        longest = f"at most {max(found.values())} ms since the driver was loaded"
        return passes(gpu.subject, longest, expected=judged[0].expected)
    return next(finding for finding in judged if finding.verdict is decides)
