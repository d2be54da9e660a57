# SPDX-License-Identifier: Apache-2.0
"""Packets that GPUs had to send again over their PCI Express links."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from gpuaudit.check import HOUR, Expectations, Finding, Severity, Verdict, check, expect_rate
from gpuaudit.facts.base import Absent
from gpuaudit.facts.counters import Earlier
from gpuaudit.facts.gpureplays import REPLAYS, GpuReplays


class PcieReplayExpectations(Expectations, frozen=True, kw_only=True):
    """How many packets may be sent again."""

    max_per_hour: Annotated[int, msgspec.Meta(ge=0)]


@check("pcie-replay-rate", severity=Severity.MEDIUM)
def replay_rate(
    replays: GpuReplays, earlier: Earlier, want: PcieReplayExpectations
) -> Iterator[Finding]:
    """No GPU has to repeat many packets on its PCIe link.

    ## Why it matters
    A replay is a packet that did not arrive whole. Many of them mean a bad contact or cable: the
    link carries less, and may drop to a lower speed or fall off the bus.

    ## Evidence
    nvmlDeviceGetPcieReplayCounter, which counts since the GPU was last reset.

    ## How it is judged
    It grows by at most `pcie_replay.max_per_hour` between two readings. The total alone says
    little: a few replays from link training are normal.

    ## Exceptions
    Holds in guests too: the counter is the GPU's own. GPUs without the counter are not applicable.

    ## What to do
    Reseat the GPU, riser or cable and look at `pcie-aer-correctable` for its port; if replays go
    on, have the board replaced.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
    - https://github.com/NVIDIA/DCGM (DCGM_LIMIT_MAX_PCIREPLAY_RATE)
    """
    for subject, (kept, now) in replays.by_subject.items():
        growth = (
            now if isinstance(now, Absent) else earlier.growth(kept, REPLAYS, now, since_boot=False)
        )
        yield expect_rate(
            growth,
            want.max_per_hour,
            per_s=HOUR,
            of=subject,
            what="PCIe replays",
            otherwise=Verdict.WARN,
        )
