# SPDX-License-Identifier: Apache-2.0
"""How often each GPU had to send something again over its PCIe link."""

from gpuaudit.facts.base import Absent, probe
from gpuaudit.facts.counters import Counted, Totals
from gpuaudit.facts.gpu import Gpus

REPLAYS = "pcie-replays"


class GpuReplays(Counted, frozen=True, kw_only=True):
    """nvmlDeviceGetPcieReplayCounter of each GPU.

    `by_subject`: by what findings call it; the name under which it is kept, and the count.
    """

    by_subject: dict[str, tuple[str, int | Absent]]

    def counters(self) -> Totals:
        """The totals that were read."""
        pairs = self.by_subject.values()
        return {kept: {REPLAYS: count} for kept, count in pairs if isinstance(count, int)}


@probe
def gpu_replays(gpus: Gpus) -> GpuReplays:
    """Raises Unavailable with NVML's own reason when no GPU answers."""
    found = {g.subject: (g.address or g.subject, g.pcie_replays) for g in gpus.asked()}
    return GpuReplays(by_subject=found)
