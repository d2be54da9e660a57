# SPDX-License-Identifier: Apache-2.0
"""CPU cores: enough for the GPUs, alike, and not held back by heat."""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated

import msgspec

from gpuaudit.check import (
    HOUR,
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    Verdict,
    check,
    counted,
    expect_at_least,
    expect_rate,
    passes,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.cores import THROTTLED_MS, CpuCores, CpuThrottling
from gpuaudit.facts.counters import Earlier
from gpuaudit.facts.cpu import named
from gpuaudit.facts.pci import PciDevices


class CpuCoresExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of the cores."""

    min_per_gpu: Annotated[int, msgspec.Meta(ge=1, le=1024)]
    throttled_max_ms_per_hour: Annotated[int, msgspec.Meta(ge=0, le=3_600_000)]


@check("cpu-cores-per-gpu", severity=Severity.LOW)
def cores_per_gpu(cores: CpuCores, pci: PciDevices, want: CpuCoresExpectations) -> Finding:
    """The node has enough cores for its GPUs.

    ## Why it matters
    Each GPU needs a core for the process that launches its kernels, others for NCCL's proxy
    threads, the network and the data loaders. Hyperthreads do not replace them.

    ## Evidence
    Online CPUs by `physical id` and `core id` of /proc/cpuinfo, elsewhere by thread_siblings_list;
    GPUs on the PCI bus.

    ## How it is judged
    Cores divided by GPUs reach `cpu_cores.min_per_gpu`; fewer warn.

    ## Exceptions
    In a guest the cores are what its hypervisor tells, often one for each vCPU. In a container
    they are the host's; cpu-affinity-width judges what may be used.

    ## What to do
    Choose a flavour or a server with more cores, bring offline CPUs back, or give the guest more
    vCPUs.

    ## References
    - https://docs.nvidia.com/certification-programs/nvidia-certified-configuration-guide/index.html
    """
    gpus = len(pci.of("gpu"))
    if not gpus:
        raise NotApplicable("no NVIDIA GPU on this machine")
    return expect_at_least(
        len(cores.cores) / gpus,
        want.min_per_gpu,
        of="cores",
        unit="cores a GPU",
        message=f"{len(cores.cores)} cores for {gpus} GPUs",
        cost="GPUs wait for the processes that feed them",
        otherwise=Verdict.WARN,
    )


@check("cpu-siblings-alike", severity=Severity.LOW)
def siblings_alike(cores: CpuCores) -> Finding:
    """All cores have the same number of online threads.

    ## Why it matters
    Slurm, Open MPI and numactl count threads by cores. Where some cores lack a thread, bindings
    shift, and two ranks that look alike run at different speeds.

    ## Evidence
    Online CPUs by `physical id` and `core id` of /proc/cpuinfo, elsewhere by
    /sys/devices/system/cpu/cpuN/topology/thread_siblings_list.

    ## How it is judged
    Each core has as many online threads as every other; a difference warns.

    ## Exceptions
    Not applicable to Intel's hybrid CPUs, whose efficient cores have no second thread. Grace and
    other Arm CPUs have one thread a core. A guest sees what its hypervisor tells.

    ## What to do
    Run `echo 1 > /sys/devices/system/cpu/cpuN/online` for the missing threads, or switch SMT off
    for all cores in /sys/devices/system/cpu/smt/control.

    ## References
    - https://docs.kernel.org/admin-guide/cputopology.html
    """
    if cores.hybrid:
        raise NotApplicable("this CPU has two kinds of cores, one of them without a second thread")
    counts = Counter(map(len, cores.cores))
    seen = ", ".join(
        f"{counted(number, 'core')} with {counted(threads, 'thread')}"
        for threads, number in counts.most_common()
    )
    if len(counts) == 1:
        return passes("threads of the cores", seen)
    fewest = min(counts)
    odd = frozenset(cpu for core in cores.cores if len(core) == fewest for cpu in core)
    message = f"{named(odd)}: {fewest} of {max(counts)} threads of the core online"
    cost = "bindings by core are uneven"
    return warns("threads of the cores", message, seen, cost=cost)


@check("cpu-throttled", severity=Severity.MEDIUM)
def throttled(
    heat: CpuThrottling, earlier: Earlier, want: CpuCoresExpectations
) -> Iterator[Finding]:
    """Heat does not hold the CPUs back.

    ## Why it matters
    At its trip temperature a CPU lowers its clock, for all cores of the socket. The thread that
    feeds a GPU is then late, and with it every rank of the job.

    ## Evidence
    package_throttle_total_time_ms in /sys/devices/system/cpu/cpuN/thermal_throttle, of one CPU a
    socket: the time for which the socket was at its trip temperature since boot.

    ## How it is judged
    It grows by no more than `cpu_cores.throttled_max_ms_per_hour`; more warns. Two readings are
    needed unless the total itself settles it.

    ## Exceptions
    Not applicable to CPUs of AMD and Arm (Grace too), whose kernels keep no such time, to kernels
    before 5.6, and in guests.

    ## What to do
    Look at fans, air flow and dust, heat sinks and the inlet temperature (`ipmitool sdr`), and
    compare with the node's neighbours.

    ## References
    - https://docs.kernel.org/admin-guide/thermal/intel_thermal_throttle.html
    """
    for socket, now in heat.by_socket.items():
        growth = (
            now
            if isinstance(now, Absent)
            else earlier.growth(socket, THROTTLED_MS, now, since_boot=True)
        )
        yield expect_rate(
            growth,
            want.throttled_max_ms_per_hour,
            per_s=HOUR,
            of=socket,
            what="milliseconds at the trip temperature",
            cost="all cores of the socket run at a lower clock",
            otherwise=Verdict.WARN,
        )
