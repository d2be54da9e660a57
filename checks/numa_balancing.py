# SPDX-License-Identifier: Apache-2.0
"""NUMA balancing: whether the kernel moves pages about."""

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
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.numabalancing import KEY, NextBoot, NumaBalancing

MOVES = "the kernel moves pages between nodes"
SCAN = "page faults while up to 256 MiB of each process is unmapped a scan"


class NumaBalancingExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of automatic NUMA balancing."""

    automatic: Literal["disabled", "any"]


@check("numa-balancing-off", severity=Severity.MEDIUM)
def balancing_off(balancing: NumaBalancing, want: NumaBalancingExpectations) -> Iterator[Finding]:
    """Automatic NUMA balancing is off, now and after the next boot.

    ## Why it matters
    The kernel unmaps pages to see who touches them, 256 MiB a scan: page faults, and step jitter.

    ## Evidence
    /proc/sys/kernel/numa_balancing. For the next boot: sysctl.d in its order of precedence, the
    active tuned profile, `numa_balancing=` of the kernel command line, the kernel's configuration.

    ## How it is judged
    0 passes, 1 and 3 fail, 2 (memory tiering) warns, a 0 that the next boot will not keep, or of
    which nothing says what the next boot sets, warns. In an image only the next boot is judged.

    ## Exceptions
    Not applicable with one NUMA node or a kernel without the feature.

    ## What to do
    Run `sysctl -w kernel.numa_balancing=0`, and make it last with a line
    `kernel.numa_balancing = 0` in /etc/sysctl.d/90-gpuaudit.conf.

    ## References
    - https://docs.kernel.org/admin-guide/sysctl/kernel.html#numa-balancing
    - https://www.freedesktop.org/software/systemd/man/latest/sysctl.d.html
    """
    if balancing.nodes == 1:
        raise NotApplicable("one NUMA node: nothing to balance")
    if want.automatic == "any":
        raise NotApplicable("the policy accepts any value")
    now, after = balancing.running, balancing.next_boot
    if now is not None:
        worst = Verdict.WARN if now == 2 else Verdict.FAIL
        yield expect(now, 0, of=KEY, message=MOVES, cost=SCAN, otherwise=worst)
    if not now:
        yield at_boot(after, Verdict.FAIL if now is None else Verdict.WARN)


def at_boot(after: NextBoot, otherwise: Verdict) -> Finding:
    """What the next boot sets. Off now and nothing to be told of it is worth a look, no more."""
    of, value = f"{KEY} at boot", after.value
    if isinstance(value, Absent) and value.kind != "unsupported" and otherwise is Verdict.WARN:
        return warns(of, f"off now, but what the next boot sets cannot be told: {value.reason}")
    sets = f"{after.source} sets it to {value}"
    return expect(value, 0, of=of, message=sets, otherwise=otherwise)
