# SPDX-License-Identifier: Apache-2.0
"""Memory management."""

from typing import Literal

from gpuaudit.check import Expectations, Finding, Severity, check, expect
from gpuaudit.facts.memory import TransparentHugepage


class MemoryExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of memory management."""

    thp_enabled: tuple[Literal["always", "madvise", "never"], ...]


@check("memory-thp-enabled", severity=Severity.MEDIUM)
def thp_enabled(thp: TransparentHugepage, want: MemoryExpectations) -> Finding:
    """Transparent huge pages run in a mode the policy accepts.

    ## Why it matters
    With 4 KiB pages, pinned staging buffers and data loaders miss the TLB far more often. `never`
    takes huge pages even from programs that ask for them.

    ## Evidence
    The word in brackets in /sys/kernel/mm/transparent_hugepage/enabled.

    ## How it is judged
    The mode must be one of `memory.thp_enabled`.

    ## Exceptions
    Advice differs: tuned's hpc-compute profile wants `always`, latency-bound services `madvise`.
    On kernels with 64 KiB pages a huge page is 512 MiB; set the policy per SKU there.

    ## What to do
    Write the wanted word to the file, and make it last with `transparent_hugepage=` on the kernel
    command line or a tmpfiles.d entry. A tuned profile may set it again.

    ## References
    - https://docs.kernel.org/admin-guide/mm/transhuge.html
    """
    return expect(thp.enabled, want.thp_enabled, of="transparent_hugepage/enabled")
