# SPDX-License-Identifier: Apache-2.0
"""Memory rows and pages that were taken out of use."""

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    Severity,
    Verdict,
    check,
    counted,
    expect,
    fails,
    not_applicable,
    passes,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpu import Gpu, Gpus
from gpuaudit.facts.gpuvalues import RemappedRows

Count = Annotated[int, msgspec.Meta(ge=0)]


class EccRowsExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of repaired memory."""

    pending: Literal["warn", "fail"]
    banks_without_spare_max: Count
    banks_with_few_spares_max: Count
    retired_pages_max: Count


@check("ecc-row-remap-pending", severity=Severity.MEDIUM)
def row_remap_pending(gpus: Gpus, want: EccRowsExpectations) -> Iterator[Finding]:
    """No repair of a memory row waits for a reset.

    ## Why it matters
    A100, H100 and B200 keep the pages of the bad row out of use until the reset. Other GPUs (GA10x,
    Ada) have no page offlining: they go on using the row, and the next access may kill a job.

    ## Evidence
    nvmlDeviceGetRemappedRows, pending.

    ## How it is judged
    `ecc_rows.pending` says how a waiting repair is judged. Where pages are taken out of use
    running work is not hurt, so the base policy only warns; that of L40S fails.

    ## Exceptions
    Not applicable before Ampere and while MIG is on, when NVML does not tell.

    ## What to do
    Run `nvidia-smi --gpu-reset -i INDEX` when the GPU is idle.

    ## References
    - https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/row-remapping.html
    - https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/supported-gpus.html
    """
    judge = Verdict(want.pending)
    for gpu in gpus.asked():
        rows = gpu.remapped
        waits = (
            rows if isinstance(rows, Absent) else "waits for a reset" if rows.pending else "none"
        )
        message = f"a repair {waits}"
        yield hidden(gpu) or expect(waits, "none", of=gpu.subject, message=message, otherwise=judge)


def hidden(gpu: Gpu) -> Finding | None:
    """The finding for a GPU whose rows NVML does not tell while MIG is on."""
    if gpu.mig_runs and isinstance(gpu.remapped, Absent) and gpu.remapped.kind == "unsupported":
        return not_applicable(gpu.subject, "MIG is on, and NVML tells of repaired rows without it")
    return None


@check("ecc-row-remap-failed", severity=Severity.CRITICAL)
def row_remap_failed(gpus: Gpus) -> Iterator[Finding]:
    """No repair of a memory row ever failed.

    ## Why it matters
    The row stays bad: the next access to it kills a job again.

    ## Evidence
    nvmlDeviceGetRemappedRows, failure occurred.

    ## How it is judged
    The flag is not set. It is set for good, also by failures of the past.

    ## Exceptions
    Not applicable before Ampere and while MIG is on, when NVML does not tell.

    ## What to do
    Drain the node, run NVIDIA's field diagnostic and have the GPU replaced (RMA).

    ## References
    - https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/rma-policy-thresholds-for-row-remapping.html
    """
    for gpu in gpus.asked():
        rows = gpu.remapped
        state = rows if isinstance(rows, Absent) else "failed" if rows.failed else "none failed"
        message = "repairing a memory row failed"
        yield hidden(gpu) or expect(state, "none failed", of=gpu.subject, message=message)


@check("ecc-row-remap-banks", severity=Severity.MEDIUM)
def row_remap_banks(gpus: Gpus, want: EccRowsExpectations) -> Iterator[Finding]:
    """Every memory bank has spare rows left.

    ## Why it matters
    The next uncorrectable error in a bank without spare rows cannot be repaired and ends in an RMA.

    ## Evidence
    nvmlDeviceGetRowRemapperHistogram: banks with none and with few spare rows.

    ## How it is judged
    More than `ecc_rows.banks_without_spare_max` banks without any is a failure, more than
    `ecc_rows.banks_with_few_spares_max` with few a warning.

    ## Exceptions
    Not applicable before Ampere and while MIG is on, when NVML does not tell.

    ## What to do
    Plan the replacement of the named GPU; keep long jobs off it.

    ## References
    - https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/row-remapping.html
    """
    for gpu in gpus.asked():
        yield banks(gpu, want)


def banks(gpu: Gpu, want: EccRowsExpectations) -> Finding:
    """One GPU."""
    if isinstance(gpu.banks, Absent):
        return hidden(gpu) or expect(gpu.banks, None, of=gpu.subject)
    none, few = gpu.banks.none, gpu.banks.low
    seen = f"{none} without, {few} with few spare rows"
    if none > want.banks_without_spare_max:
        return fails(gpu.subject, f"no spare row is left in {counted(none, 'memory bank')}", seen)
    if few > want.banks_with_few_spares_max:
        return warns(gpu.subject, f"few spare rows are left in {counted(few, 'memory bank')}", seen)
    return passes(gpu.subject, seen)


@check("ecc-retired-pages", severity=Severity.HIGH)
def retired_pages(gpus: Gpus, want: EccRowsExpectations) -> Iterator[Finding]:
    """Few memory pages are retired and none waits to be.

    ## Why it matters
    GPUs before Ampere take bad pages out of use for ever, at most 64 of them.

    ## Evidence
    nvmlDeviceGetRetiredPages by both causes, nvmlDeviceGetRetiredPagesPendingStatus.

    ## How it is judged
    No page waits for a reset, and at most `ecc_rows.retired_pages_max` are retired.

    ## Exceptions
    Not applicable from Ampere on, which remap rows.

    ## What to do
    Run `nvidia-smi --gpu-reset -i INDEX` for waiting pages; with too many have the GPU replaced.

    ## References
    - https://docs.nvidia.com/deploy/dynamic-page-retirement/index.html
    """
    for gpu in gpus.asked():
        yield pages(gpu, want.retired_pages_max)


def pages(gpu: Gpu, most: int) -> Finding:
    """One GPU."""
    single, double, waiting = gpu.retired_single, gpu.retired_double, gpu.retired_pending
    remaps = isinstance(gpu.remapped, RemappedRows)
    if isinstance(single, Absent) and single.kind == "unsupported" and remaps:
        return not_applicable(gpu.subject, "this GPU remaps rows instead of retiring pages")
    for value in (single, double, waiting):
        if isinstance(value, Absent):
            return expect(value, None, of=gpu.subject)
    if waiting:
        return fails(gpu.subject, "a page waits to be retired by a reset", "pending")
    total = sum(value for value in (single, double) if isinstance(value, int))
    if total > most:
        return fails(gpu.subject, f"{total} pages are retired", total, expected=f"at most {most}")
    return passes(gpu.subject, total, expected=f"at most {most}")
