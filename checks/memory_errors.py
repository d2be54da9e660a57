# SPDX-License-Identifier: Apache-2.0
"""Errors of the host's memory that were counted. Those of the GPUs are in ecc.py."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from gpuaudit.check import (
    DAY,
    Expectations,
    Finding,
    Severity,
    Verdict,
    check,
    counted,
    expect_rate,
    fails,
    for_absent,
    passes,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.counters import Earlier
from gpuaudit.facts.edac import CORRECTED, Controller, MemoryErrors

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 31)]


class MemoryErrorsExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy accepts of errors."""

    corrected_max_per_day: Count
    uncorrected_max: Count


@check("memory-edac-corrected", severity=Severity.MEDIUM)
def edac_corrected(
    errors: MemoryErrors, earlier: Earlier, want: MemoryErrorsExpectations
) -> Iterator[Finding]:
    """Few errors of the host's memory are being corrected.

    ## Why it matters
    A module whose bits need correcting more and more often is on its way to an error that cannot be
    corrected, which kills the job or the node. Each correction also stops a CPU in firmware.

    ## Evidence
    ce_count of each memory controller in /sys/devices/system/edac/mc, labels of the modules.

    ## How it is judged
    The rate stays within `memory_errors.corrected_max_per_day`, controller by controller. Above
    it warns. Two readings are needed unless the total itself settles it.

    ## Exceptions
    Not applicable in guests. Unknown where no EDAC driver is loaded; firmware that handles errors
    first (HPE, Dell) and Grace keep them in the log of the management controller.

    ## What to do
    Reseat or replace the module that is named, at the next maintenance. `ras-mc-ctl --errors` and
    the log of the management controller tell more.

    ## References
    - https://docs.kernel.org/admin-guide/RAS/main.html
    - https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-devices-edac
    """
    for one in errors.controllers:
        now = one.corrected
        growth = (
            now
            if isinstance(now, Absent)
            else earlier.growth(one.name, CORRECTED, now, since_boot=True)
        )
        yield expect_rate(
            growth,
            want.corrected_max_per_day,
            per_s=DAY,
            of=one.name,
            what="corrected memory errors",
            evidence=one.modules,
            cost="the next error may be one that cannot be corrected",
            otherwise=Verdict.WARN,
        )


@check("memory-edac-uncorrected", severity=Severity.CRITICAL)
def edac_uncorrected(errors: MemoryErrors, want: MemoryErrorsExpectations) -> Iterator[Finding]:
    """No error of the host's memory was beyond correction.

    ## Why it matters
    An uncorrected error killed a process or poisoned a page, and the module that had it will have
    another one.

    ## Evidence
    ue_count of each memory controller in /sys/devices/system/edac/mc, labels of the modules.

    ## How it is judged
    No count exceeds `memory_errors.uncorrected_max`.

    ## Exceptions
    The count starts anew at each boot. Not applicable in guests. Unknown where no EDAC driver is
    loaded; firmware that handles errors first, and Grace, keep them to the management controller.

    ## What to do
    Drain the node, run the vendor's memory test and replace the module that is named.

    ## References
    - https://docs.kernel.org/admin-guide/RAS/main.html
    - https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-devices-edac
    """
    for one in errors.controllers:
        yield uncorrected_of(one, want.uncorrected_max)


def uncorrected_of(one: Controller, most: int) -> Finding:
    """One controller."""
    if isinstance(one.uncorrected, Absent):
        return for_absent(one.uncorrected, one.name)
    expected = f"at most {most}"
    if one.uncorrected <= most:
        return passes(one.name, one.uncorrected, expected=expected, evidence=one.modules)
    return fails(
        one.name,
        f"{counted(one.uncorrected, 'memory error')} beyond correction since boot",
        one.uncorrected,
        expected=expected,
        cost="whatever used that memory was lost",
        evidence=one.modules,
    )
