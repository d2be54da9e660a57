# SPDX-License-Identifier: Apache-2.0
"""CPU load: what else the node does before a job starts."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    check,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.cpu import CpuSets, known
from gpuaudit.facts.load import Load

Percent = Annotated[float, msgspec.Meta(ge=0, le=10_000)]
WAITS = {
    "cpu": "some task waited for a CPU",
    "memory": "every task waited for memory",
    "io": "every task waited for a disk or a file server",
}


class CpuLoadExpectations(Expectations, frozen=True, kw_only=True):
    """How busy a node may be before a job."""

    max_load_percent: Percent
    max_waiting_percent: dict[str, Percent]


@check("cpu-load", severity=Severity.LOW)
def cpu_load(load: Load, cpus: CpuSets, want: CpuLoadExpectations) -> Finding:
    """The CPUs have little else to do.

    ## Why it matters
    What an earlier job left running takes CPUs away from the next one, and the slowest rank holds
    up every step of all nodes.

    ## Evidence
    The mean of one minute in /proc/loadavg, and the online CPUs.

    ## How it is judged
    The load is at most `cpu_load.max_load_percent` percent of the online CPUs; more warns.

    ## Exceptions
    Meant for the time before a job: with a job on the node its own load is seen. Tasks that wait
    in state D count as load too. In a container, and on a shared node, this is everybody's load.

    ## What to do
    Run `top` or `ps -eo pid,user,stat,pcpu,comm --sort=-pcpu` and end what was left behind; let
    Slurm's epilog do it (`proctrack/cgroup`).

    ## References
    - https://man7.org/linux/man-pages/man5/proc_loadavg.5.html
    """
    online = len(known(cpus.online))
    percent = 100 * load.one_minute / online
    seen = f"{load.one_minute:.2f} on {online} CPUs"
    most = f"at most {want.max_load_percent:g} % of the CPUs"
    if percent <= want.max_load_percent:
        return passes("load", seen, expected=most)
    cost = f"up to {min(percent, 100):.0f} % of the CPUs are taken"
    return warns("load", f"{percent:.0f} % of the CPUs are busy", seen, expected=most, cost=cost)


@check("cpu-pressure", severity=Severity.LOW)
def cpu_pressure(load: Load, want: CpuLoadExpectations) -> Iterator[Finding]:
    """Tasks do not wait for CPUs, memory or disks.

    ## Why it matters
    Time in which tasks wait for memory to be reclaimed, or for a disk, is lost to the job; a node
    that waits while it is meant to be idle will not be faster with a job on it.

    ## Evidence
    avg60 in /proc/pressure/{cpu,memory,io}: the part of the last minute in which some task waited
    for a CPU, and in which every task that was not idle waited for memory or for I/O.

    ## How it is judged
    Each is at most the percentage of `cpu_load.max_waiting_percent`; more warns.

    ## Exceptions
    Meant for the time before a job. Not applicable to kernels without pressure stall information
    (`psi=1` on the kernel command line switches it on). A container sees its host's numbers.

    ## What to do
    Look for memory that is used up (`free -h`, a cgroup at its limit) and for what reads and
    writes (`iotop`, `nfsiostat`).

    ## References
    - https://docs.kernel.org/accounting/psi.html
    """
    values = load.pressure
    if all(isinstance(v, Absent) and v.kind == "unsupported" for v in values.values()):
        raise NotApplicable("the kernel keeps no pressure stall information")
    for name, value in values.items():
        most = want.max_waiting_percent.get(name)
        of = f"/proc/pressure/{name}"
        if isinstance(value, Absent):
            yield unknown(of, value.reason)
        elif most is None or value <= most:
            yield passes(of, f"{value:g} %", expected=most and f"at most {most:g} %")
        else:
            message = f"{WAITS[name]} in {value:g} % of the last minute"
            yield warns(of, message, f"{value:g} %", expected=f"at most {most:g} %")
