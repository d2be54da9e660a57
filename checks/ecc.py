# SPDX-License-Identifier: Apache-2.0
"""Error correction of GPU memory: its mode and what it could not correct."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    Severity,
    Verdict,
    check,
    expect,
    fails,
    not_applicable,
    passes,
    shown,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpu import Gpus

WORDS = {0: "disabled", 1: "enabled"}
Count = Annotated[int, msgspec.Meta(ge=0)]


class EccExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of ECC."""

    enabled: bool | None
    volatile_uncorrected_max: Count
    aggregate_uncorrected_max: Count


@check("ecc-mode-enabled", severity=Severity.HIGH)
def mode_enabled(gpus: Gpus, want: EccExpectations) -> Iterator[Finding]:
    """ECC is on where the product is meant to run with it.

    ## Why it matters
    Without ECC a flipped bit goes unseen into weights and checkpoints.

    ## Evidence
    nvmlDeviceGetEccMode, current.

    ## How it is judged
    The mode is `ecc.enabled`; null means that the product may run either way.

    ## Exceptions
    Not applicable on GPUs without ECC.

    ## What to do
    Run `nvidia-smi -i INDEX -e 1`, then `nvidia-smi --gpu-reset -i INDEX` or reboot.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
    """
    for gpu in gpus.asked():
        mode = gpu.ecc if isinstance(gpu.ecc, Absent) else bool(gpu.ecc.current)
        if want.enabled is None and isinstance(mode, bool):
            reason = "the policy expects nothing for this product"
            yield not_applicable(gpu.subject, reason, mode)
        else:
            message = f"ECC is {shown(mode)}, the policy wants it {shown(want.enabled)}"
            yield expect(mode, want.enabled, of=gpu.subject, message=message)


@check("ecc-mode-settled", severity=Severity.MEDIUM)
def mode_settled(gpus: Gpus) -> Iterator[Finding]:
    """No change of the ECC mode waits for a reset.

    ## Why it matters
    After its next reset the GPU has another mode, and on GDDR products another amount of memory.

    ## Evidence
    nvmlDeviceGetEccMode: current and pending.

    ## How it is judged
    The two are equal.

    ## Exceptions
    Not applicable on GPUs without ECC.

    ## What to do
    Run `nvidia-smi --gpu-reset -i INDEX` on the idle GPU or reboot; or take the change back with
    `nvidia-smi -i INDEX -e 0` (or 1).

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
    """
    for gpu in gpus.asked():
        if isinstance(gpu.ecc, Absent):
            yield expect(gpu.ecc, None, of=gpu.subject)
            continue
        now, after = (WORDS.get(mode, str(mode)) for mode in (gpu.ecc.current, gpu.ecc.pending))
        yield expect(now, after, of=gpu.subject, message=f"the change to {after} waits for a reset")


@check("ecc-volatile-uncorrected", severity=Severity.CRITICAL)
def volatile_uncorrected(gpus: Gpus, want: EccExpectations) -> Iterator[Finding]:
    """No uncorrectable memory error happened since the driver was loaded.

    ## Why it matters
    The job that met the error was killed, and until a reset the bad row is only taken out of use.

    ## Evidence
    nvmlDeviceGetTotalEccErrors, uncorrected, volatile.

    ## How it is judged
    At most `ecc.volatile_uncorrected_max`.

    ## Exceptions
    Not applicable while ECC is off. Correctable errors are normal and not counted.

    ## What to do
    Drain the node and run `nvidia-smi --gpu-reset -i INDEX`. If it comes back run NVIDIA's field
    diagnostic. Clearing the counter only hides it.

    ## References
    - https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html
    """
    for gpu in gpus.asked():
        most = want.volatile_uncorrected_max
        yield at_most(gpu.subject, gpu.volatile_uncorrected, most, "since the driver was loaded")


@check("ecc-aggregate-uncorrected", severity=Severity.HIGH)
def aggregate_uncorrected(gpus: Gpus, want: EccExpectations) -> Iterator[Finding]:
    """Uncorrectable errors over the life of each GPU stay below the limits.

    ## Why it matters
    Many repaired errors foretell the next; SRAM cannot be remapped at all, so a GPU above its
    SRAM threshold has to be replaced.

    ## Evidence
    nvmlDeviceGetTotalEccErrors, uncorrected, aggregate; nvmlDeviceGetSramEccErrorStatus,
    bThresholdExceeded (driver 535 and later).

    ## How it is judged
    The SRAM flag is not set, and the count is at most `ecc.aggregate_uncorrected_max`.

    ## Exceptions
    Not applicable while ECC is off. Errors of DRAM rows that were remapped count for ever.

    ## What to do
    Run NVIDIA's field diagnostic on the named GPU and have it replaced if it confirms the flag.

    ## References
    - https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/rma-policy-thresholds-for-row-remapping.html
    """
    for gpu in gpus.asked():
        most = want.aggregate_uncorrected_max
        counted = at_most(gpu.subject, gpu.aggregate_uncorrected, most, "over its life")
        if not isinstance(gpu.sram, Absent) and gpu.sram.threshold_exceeded:
            seen = f"{gpu.sram.parity} parity, {gpu.sram.secded} SEC-DED errors"
            yield fails(gpu.subject, "too many errors of the on-chip memory (SRAM)", seen)
        elif unread(gpu.sram) and counted.verdict is Verdict.PASS:
            yield expect(gpu.sram, None, of=gpu.subject)
        else:
            yield counted


def unread(value: object) -> bool:
    """A value that the GPU has and that was not to be had: half the evidence is no pass."""
    return isinstance(value, Absent) and value.kind != "unsupported"


def at_most(subject: str, count: int | Absent, most: int, when: str) -> Finding:
    """A counter that has an upper limit."""
    if isinstance(count, Absent):
        return expect(count, None, of=subject)
    if count > most:
        text = f"{count} uncorrectable errors {when}"
        return fails(subject, text, count, expected=f"at most {most}")
    return passes(subject, count, expected=f"at most {most}")
