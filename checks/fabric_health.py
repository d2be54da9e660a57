# SPDX-License-Identifier: Apache-2.0
"""Health of the NVLink fabric as each GPU reports it."""

from collections.abc import Iterator

from gpuaudit.check import (
    Finding,
    Severity,
    check,
    expect,
    fails,
    not_applicable,
    passes,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpu import Gpus
from gpuaudit.facts.gpuvalues import FABRIC_COMPLETED, Fabric

TRUE, FALSE = 1, 2
FAILING = {
    0: "bandwidth is degraded",
    2: "a route is being recovered",
    4: "a route is unhealthy",
    6: "an access timeout is being recovered",
}
"""Shifts of the two-bit fields of healthMask (nvml.h, NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_...)."""

CONFIGURATION_SHIFT = 8
CONFIGURATIONS = {
    2: "wrong system GUID",
    3: "wrong chassis serial number",
    4: "no partition",
    5: "too few NVLinks",
    6: "incompatible GPU firmware",
    7: "wrong location",
    8: "invalid GPU state",
}
PARTITION_SHIFT, MANAGER_SHIFT = 12, 14
SUMMARIES = {2: "unhealthy", 3: "limited capacity"}


@check("fabric-health", severity=Severity.CRITICAL)
def health(gpus: Gpus) -> Iterator[Finding]:
    """No GPU reports trouble with its NVLink fabric.

    ## Why it matters
    A degraded or wrongly configured fabric still answers, at a part of its bandwidth.

    ## Evidence
    nvmlDeviceGetGpuFabricInfoV: healthMask, from driver 580 on healthSummary too.

    ## How it is judged
    Degraded bandwidth, route recovery, unhealthy routes, access timeouts and a wrong configuration
    fail (value 1, or 2 and above for the configuration); so does an unhealthy summary. A missing
    partition or fabric manager connection and limited capacity warn.

    ## Exceptions
    Fields with value 0 are not reported by this GPU. Not applicable where all are 0, where the
    GPU has no fabric, and before the registration is complete (fabric-state).

    ## What to do
    Drain the node, read the Fabric Manager log for the GPU and the SXid lines of the kernel log,
    then reset all GPUs of the board together with `nvidia-smi --gpu-reset`.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlFabricDefs.html
    """
    for gpu in gpus.asked():
        if isinstance(gpu.fabric, Absent):
            yield expect(gpu.fabric, None, of=gpu.subject)
        else:
            yield of_fabric(gpu.subject, gpu.fabric)


def of_fabric(subject: str, fabric: Fabric) -> Finding:
    """One GPU."""
    if fabric.state == 0:
        return not_applicable(subject, "this GPU has no NVLink fabric")
    if fabric.state != FABRIC_COMPLETED:
        return not_applicable(subject, "the GPU has not joined its fabric: see fabric-state")
    mask, summary = fabric.health_mask or 0, fabric.health_summary or 0
    if not mask and not summary:
        return not_applicable(subject, "this GPU or driver does not report the fabric's health")
    seen = f"mask {mask:#x}"
    if bad := failing(mask) or ([SUMMARIES[2]] if summary == 2 else []):
        return fails(subject, ", ".join(bad), seen, cost="NVLink at a part of its bandwidth")
    if odd := doubtful(mask, summary):
        return warns(subject, ", ".join(odd), seen)
    return passes(subject, seen)


def failing(mask: int) -> list[str]:
    """The bits that say something is broken."""
    found = [text for shift, text in FAILING.items() if mask >> shift & 3 == TRUE]
    configuration = mask >> CONFIGURATION_SHIFT & 0xF
    if configuration >= 2:
        found.append(CONFIGURATIONS.get(configuration, f"wrong configuration {configuration}"))
    return found


def doubtful(mask: int, summary: int) -> list[str]:
    """The bits that may be meant: shared systems hand out partitions later."""
    found = ["no partition is assigned"] if mask >> PARTITION_SHIFT & 3 == FALSE else []
    if mask >> MANAGER_SHIFT & 3 == FALSE:
        found.append("the fabric manager is not connected")
    return found + ([SUMMARIES[3]] if summary == 3 else [])
