# SPDX-License-Identifier: Apache-2.0
"""How long each GPU was held below its clocks by heat or by its power supply."""

from gpuaudit.facts.base import Absent, probe
from gpuaudit.facts.counters import Counted, Totals
from gpuaudit.facts.gpu import Gpu, Gpus
from gpuaudit.facts.gpuanswer import absence, release_of
from gpuaudit.facts.gpurecord import Call
from gpuaudit.facts.nvlink import total
from gpuaudit.facts.nvml import Nvml
from gpuaudit.host.answers import NvmlAnswers

NS_PER_MS = 1_000_000
THERMAL = {75: "thermal-ms"}
REASONS = {269: "software-thermal-ms", 270: "hardware-thermal-ms", 271: "power-brake-ms"}
SINCE = 580
"""From this release on: 575 had other numbers for the three, and 269 told something else."""
NONE = Absent("failed", "NVML answered something else than a time")


class GpuThrottle(Counted, frozen=True, kw_only=True):
    """Index -> milliseconds by reason since the driver was loaded.

    NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN, _HW_THERM_SLOWDOWN, _HW_POWER_BRAKE_SLOWDOWN
    (ns), before 580 NVML_FI_DEV_PERF_POLICY_THERMAL.
    """

    by_gpu: dict[int, dict[str, int] | Absent]
    addresses: dict[int, str]

    def counters(self) -> Totals:
        """By PCI address."""
        known = {i: t for i, t in self.by_gpu.items() if isinstance(t, dict)}
        return {self.addresses[i]: t for i, t in known.items() if i in self.addresses}


@probe
def gpu_throttle(nvml: Nvml, gpus: Gpus) -> GpuThrottle:
    """Read the counters. Raises Unavailable where there is no GPU to ask."""
    asked = gpus.asked()
    fields = REASONS if release_of(gpus.driver) >= SINCE else THERMAL
    by_gpu: dict[int, dict[str, int] | Absent] = {}
    for gpu in asked:
        told = ((name, total(nvml.answers, gpu, field)) for field, name in fields.items())
        found = {name: ns // NS_PER_MS for name, ns in told if ns is not None}
        by_gpu[gpu.index] = gpu.lost or found or why(nvml.answers, gpu, min(fields), gpus.driver)
    return GpuThrottle(by_gpu=by_gpu, addresses={g.index: g.address for g in asked if g.address})


def why(answers: NvmlAnswers, gpu: Gpu, field: int, driver: str | None) -> Absent:
    """Why there is no counter, by the first of them."""
    answer = answers.of_device(gpu.index, f"nvmlDeviceGetFieldValues({field})")
    return NONE if answer.ok else absence(answer, Call(f"FieldValues({field})", int), driver)
