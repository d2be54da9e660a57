# SPDX-License-Identifier: Apache-2.0
"""Errors on NVLink, judged by how fast they come."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from gpuaudit.check import (
    DAY,
    MINUTE,
    Expectations,
    Finding,
    Severity,
    Verdict,
    check,
    expect,
    expect_rate,
    not_applicable,
    passes,
    worst,
)
from gpuaudit.facts.counters import Earlier
from gpuaudit.facts.nvlink import GpuLinks, NvLinks

Limit = Annotated[int, msgspec.Meta(ge=0)]
CRC = ("crc-errors", "crc-data-errors")
REPLAYS = ("replays",)
RECOVERIES = ("recoveries", "failed-recoveries")
PACKETS = ("malformed-packets", "receive-errors", "integrity-errors", "effective-errors")
NO_COUNTERS = "this GPU or driver has no such counter"


class NvlinkErrorsExpectations(Expectations, frozen=True, kw_only=True):
    """Errors of one link (of all links of a GPU until Ampere)."""

    crc_max_per_minute: Limit
    replays_max_per_day: Limit
    recoveries_max_per_day: Limit
    packets_max_per_day: Limit


@check("nvlink-crc-errors", severity=Severity.MEDIUM)
def crc_errors(
    links: NvLinks, earlier: Earlier, want: NvlinkErrorsExpectations
) -> Iterator[Finding]:
    """CRC errors on NVLink come no faster than a working link makes them.

    ## Why it matters
    Each one is repaired by sending again. Many of them take bandwidth, and announce a link that
    will go down in the middle of a job.

    ## Evidence
    NVML_FI_DEV_NVLINK_ERROR_DL_CRC of each link (Hopper), the CRC totals of a GPU before; an
    earlier reading of the same counters.

    ## How it is judged
    By rate: more than `nvlink_errors.crc_max_per_minute` on a link is a warning.

    ## Exceptions
    The counters live in the GPU and outlast what made them: without an earlier reading a total
    above the limit is unknown. Blackwell counts other errors (nvlink-recovery-errors). Not
    applicable without NVLink, with MIG and vGPU.

    ## What to do
    Run `nvidia-smi nvlink -e -i INDEX` twice under load; reset the GPUs of the board, and have the
    board or bridge looked at when the errors return.

    ## References
    - https://github.com/NVIDIA/DCGM/blob/master/dcgmlib/dcgm_errors.h
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlFieldValueEnums.html
    """
    for one in links.gpus:
        names = [n for n in one.errors() if kind_of(n) in CRC]
        yield of_errors(one, names, earlier, want.crc_max_per_minute, MINUTE)


@check("nvlink-replays", severity=Severity.MEDIUM)
def replays(links: NvLinks, earlier: Earlier, want: NvlinkErrorsExpectations) -> Iterator[Finding]:
    """NVLink seldom has to send packets again.

    ## Why it matters
    A replay stops the link for a moment; links that replay all day are on their way to a recovery.

    ## Evidence
    NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY of each link (Hopper), the replay total of a GPU before.

    ## How it is judged
    By rate: more than `nvlink_errors.replays_max_per_day` on a link is a warning.

    ## Exceptions
    As for nvlink-crc-errors. NVIDIA's DCGM objects to any replay at all, even of long ago.

    ## What to do
    Run `nvidia-smi nvlink -e -i INDEX` twice under load, and reset the GPUs of the board when the
    numbers grow.

    ## References
    - https://github.com/NVIDIA/DCGM/blob/master/dcgmlib/dcgm_errors.h
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlFieldValueEnums.html
    """
    for one in links.gpus:
        names = [n for n in one.errors() if kind_of(n) in REPLAYS]
        yield of_errors(one, names, earlier, want.replays_max_per_day, DAY)


@check("nvlink-recovery-errors", severity=Severity.HIGH)
def recovery_errors(
    links: NvLinks, earlier: Earlier, want: NvlinkErrorsExpectations
) -> Iterator[Finding]:
    """No NVLink had to recover.

    ## Why it matters
    A recovery takes the link down and up again: jobs stall, and the next one may fail and end them.

    ## Evidence
    NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY of each link (Hopper), the recovery total of a GPU before;
    on Blackwell NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS and _FAILED_EVENTS.

    ## How it is judged
    By rate: more than `nvlink_errors.recoveries_max_per_day` on a link fails.

    ## Exceptions
    As for nvlink-crc-errors. A reset of the GPUs sets the counters to zero.

    ## What to do
    Drain the node and read the kernel log for Xid 74, 144 to 150 and SXid lines; reset the GPUs of
    the board together, and replace the board or bridge when they come back.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/change-log.html
    - https://docs.nvidia.com/deploy/xid-errors/index.html
    """
    for one in links.gpus:
        names = [n for n in one.errors() if kind_of(n) in RECOVERIES]
        yield of_errors(one, names, earlier, want.recoveries_max_per_day, DAY, Verdict.FAIL)


@check("nvlink-packet-errors", severity=Severity.MEDIUM)
def packet_errors(
    links: NvLinks, earlier: Earlier, want: NvlinkErrorsExpectations
) -> Iterator[Finding]:
    """No NVLink of fifth generation receives broken packets.

    ## Why it matters
    On Blackwell errors that the coding could not correct show here first, before the link has to
    recover.

    ## Evidence
    NVML_FI_DEV_NVLINK_COUNT_MALFORMED_PACKET_ERRORS, _RCV_ERRORS, _LOCAL_LINK_INTEGRITY_ERRORS and
    _EFFECTIVE_ERRORS of each link.

    ## How it is judged
    By rate: more than `nvlink_errors.packets_max_per_day` of one kind on a link is a warning.

    ## Exceptions
    Not applicable before Blackwell, which counts CRC errors instead (nvlink-crc-errors). Without an
    earlier reading a total above the limit is unknown: links make errors while they train.

    ## What to do
    Run `nvidia-smi nvlink -e -i INDEX` twice under load, and look at the link's partner on the
    switch tray when the numbers grow.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/change-log.html
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlFieldValueEnums.html
    """
    for one in links.gpus:
        names = [n for n in one.errors() if kind_of(n) in PACKETS]
        yield of_errors(one, names, earlier, want.packets_max_per_day, DAY)


def kind_of(name: str) -> str:
    """The word "replays" of "replays-12"."""
    head, _, tail = name.rpartition("-")
    return head if tail.isdigit() else name


def of_errors(
    one: GpuLinks,
    names: list[str],
    earlier: Earlier,
    limit: int,
    per_s: float,
    otherwise: Verdict = Verdict.WARN,
) -> Finding:
    """One GPU by the worst of its counters."""
    of, address, totals = one.gpu.subject, one.gpu.address or "", one.errors()
    if one.absent is not None:
        return expect(one.absent, None, of=of)
    if one.gpu.mig_runs or one.gpu.is_vgpu:
        return not_applicable(of, "MIG or a virtual GPU")
    if not names:
        none_at_all = one.silent is not None and not totals
        return expect(one.silent, None, of=of) if none_at_all else not_applicable(of, NO_COUNTERS)
    found = [
        expect_rate(
            earlier.growth(address, name, totals[name], since_boot=False),
            limit,
            per_s=per_s,
            of=of,
            what=words(name),
            otherwise=otherwise,
        )
        for name in names
    ]
    decides = worst(finding.verdict for finding in found)
    if decides is Verdict.PASS:
        most = max(totals[name] for name in names)
        return passes(of, f"at most {most} on a link", expected=found[0].expected)
    return next(finding for finding in found if finding.verdict is decides)


def words(name: str) -> str:
    """For people: "receive errors on link 3"."""
    head, _, tail = name.replace("crc-", "CRC-").rpartition("-")
    if not tail.isdigit():
        return f"{name.replace('-', ' ')} on NVLink"
    return f"{head.replace('-', ' ')} on link {tail}"
