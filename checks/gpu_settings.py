# SPDX-License-Identifier: Apache-2.0
"""Settings of a GPU that a site may want one way or the other."""

from collections.abc import Iterator
from typing import Literal

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    Verdict,
    check,
    expect,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.confidential import Confidential
from gpuaudit.facts.gpu import Gpus

NOTHING = "the policy asks for nothing"
WORDS = ("off", "on")


class GpuSettingsExpectations(Expectations, frozen=True, kw_only=True):
    """What a site wants; null and `any` ask for nothing."""

    accounting: bool | None
    confidential_computing: Literal["any", "on", "off"]


@check("gpu-accounting-mode", severity=Severity.LOW)
def accounting_mode(gpus: Gpus, want: GpuSettingsExpectations) -> Iterator[Finding]:
    """Accounting of processes is on or off as the policy wants it.

    ## Why it matters
    Sites that bill or find idle jobs read NVML's accounting; where it is off, there is nothing to
    read, and it is lost with every reload of the driver.

    ## Evidence
    nvmlDeviceGetAccountingMode.

    ## How it is judged
    The mode is `gpu_settings.accounting`.

    ## Exceptions
    Not applicable unless the site sets the value, on GPUs without accounting (vGPU), and with MIG,
    which has none.

    ## What to do
    Run `nvidia-smi -am 1` (or 0) from a unit that starts after nvidia-persistenced.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlAccountingStats.html
    """
    if want.accounting is None:
        raise NotApplicable(NOTHING)
    for gpu in gpus.asked():
        mode = gpu.accounting if isinstance(gpu.accounting, Absent) else bool(gpu.accounting)
        if gpu.mig_runs:
            mode = Absent("unsupported", "MIG is on: there is no accounting")
        yield expect(mode, want.accounting, of=gpu.subject, otherwise=Verdict.WARN)


@check("gpu-confidential-computing", severity=Severity.MEDIUM)
def confidential_computing(found: Confidential, want: GpuSettingsExpectations) -> Finding:
    """Confidential computing is on or off as the policy wants it.

    ## Why it matters
    With it on, all traffic over PCIe is encrypted and goes through bounce buffers: copies are
    slower and there is no GPUDirect RDMA. With it off, a site that promised it has none.

    ## Evidence
    nvmlSystemGetConfComputeSettings (feature and multi-GPU mode), nvmlSystemGetConfComputeState.

    ## How it is judged
    On means the feature or a multi-GPU mode (protected PCIe), and must be
    `gpu_settings.confidential_computing`.

    ## Exceptions
    Not applicable with `any`, and on GPUs before Hopper, which have none.

    ## What to do
    Change it from the host with NVIDIA's gpu-admin-tools (`--set-cc-mode=off`, or on) and reset the
    GPU, or write `any` into the site policy.

    ## References
    - https://docs.nvidia.com/confidential-computing/
    """
    if want.confidential_computing == "any":
        raise NotApplicable(NOTHING)
    state = found.on if isinstance(found.on, Absent) else WORDS[found.on]
    text = f"confidential computing is {state}{found.how}"
    return expect(state, want.confidential_computing, of="confidential computing", message=text)
