# SPDX-License-Identifier: Apache-2.0
"""Repairs of a GPU that wait, and memory that cannot be repaired."""

from collections.abc import Iterator

from gpuaudit.check import Finding, Severity, check, expect, fails, passes, warns
from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpu import Gpus

PARTS = ("a memory channel", "a TPC")


@check("gpu-repair-pending", severity=Severity.HIGH)
def repair_pending(gpus: Gpus) -> Iterator[Finding]:
    """No repair of a memory channel or of an SM group waits for a reset.

    ## Why it matters
    The GPU found a broken part and has a spare one, but uses the broken one until it is reset.

    ## Evidence
    nvmlDeviceGetRepairStatus: channel and TPC (the group of SMs) repair pending, from driver 580.

    ## How it is judged
    Either is a warning: the reset can wait for the end of the job, not longer.

    ## Exceptions
    Not applicable on drivers before 580 and on GPUs without it (nvidia-smi -q shows N/A). In a
    guest the reset is the guest's reboot or the host's affair.

    ## What to do
    Drain the node, then run `nvidia-smi --gpu-reset -i INDEX` or reboot, and look again.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/change-log.html
    - https://docs.nvidia.com/deploy/nvidia-smi/index.html
    """
    for gpu in gpus.asked():
        if isinstance(gpu.repairs, Absent):
            yield expect(gpu.repairs, None, of=gpu.subject)
            continue
        waiting = [part for part, flag in zip(PARTS, gpu.repairs, strict=True) if flag]
        seen = " and ".join(waiting)
        if waiting:
            yield warns(gpu.subject, f"the repair of {seen} waits for a reset", seen)
        else:
            yield passes(gpu.subject, "none")


@check("gpu-unrepairable-memory", severity=Severity.CRITICAL)
def unrepairable_memory(gpus: Gpus) -> Iterator[Finding]:
    """No GPU has memory that it can no longer repair.

    ## Why it matters
    The spare rows, banks and channels are used up: the next access to the broken place ends the job
    with an uncorrectable error.

    ## Evidence
    nvmlDeviceGetUnrepairableMemoryFlag_v1, from driver 590 (580 has the call on some GPUs).

    ## How it is judged
    A set flag fails.

    ## Exceptions
    Not applicable on drivers and GPUs that do not answer it; ecc-row-remap-failed judges the row
    remapper on those.

    ## What to do
    Drain the node and have the GPU replaced; run `nvidia-bug-report.sh` first, for the vendor.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/change-log.html
    - https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html
    """
    for gpu in gpus.asked():
        flag = gpu.unrepairable
        if isinstance(flag, Absent):
            yield expect(flag, None, of=gpu.subject)
        elif flag:
            yield fails(gpu.subject, "it has memory that cannot be repaired", "unrepairable")
        else:
            yield passes(gpu.subject, "none")
