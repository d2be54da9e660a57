# SPDX-License-Identifier: Apache-2.0
"""CPUs that a job started from here may use, and how many threads it would start on them."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    Verdict,
    check,
    counted,
    expect_at_least,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.callingcontext import CallingContext
from gpuaudit.facts.cores import CpuCores
from gpuaudit.facts.cpu import CpuSets, known, named
from gpuaudit.facts.environment import Environment
from gpuaudit.facts.pci import PciDevices

NO_GPU = "no NVIDIA GPU for what is started from here"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
RANKS = "LOCAL_WORLD_SIZE"


class CpuContextExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of the calling context."""

    min_cpus_per_gpu: Annotated[int, msgspec.Meta(ge=1, le=1024)]


@check("cpu-affinity-width", severity=Severity.HIGH)
def affinity_width(
    context: CallingContext, cpus: CpuSets, pci: PciDevices, want: CpuContextExpectations
) -> Iterator[Finding]:
    """Jobs started from here get enough CPUs, some of them near each GPU.

    ## Why it matters
    A shell, prolog or pod that is held to one CPU hands that down: every NCCL proxy and data
    loader of all ranks then shares one core, and training runs at a fraction of its speed.

    ## Evidence
    Cpus_allowed_list in /proc/self/status; cpu.max of its cgroup and those above; online CPUs; GPUs
    on the PCI bus with their local CPUs, and CUDA_VISIBLE_DEVICES or NVIDIA_VISIBLE_DEVICES of the
    calling environment.

    ## How it is judged
    The CPUs allowed, or the CPU time where that is less, divided by the visible GPUs, reach
    `cpu_context.min_cpus_per_gpu`. A single CPU for several GPUs fails, otherwise fewer warn.
    Where all GPUs are visible, each has one of its local CPUs among them, else it warns.

    ## Exceptions
    A Slurm step is held to its share by design, so its width counts by visible GPU. A small set is
    not judged in what slurmd itself starts (prolog, health check) and in containers that name no
    GPU, such as a monitor's. Quotas of cgroup v1 are not seen. Which GPUs a shorter list means is
    not judged.

    ## What to do
    Start it without `taskset`; in Slurm ask for `--cpus-per-task` or `--cpus-per-gpu`, in
    Kubernetes for more CPUs; look at CPUAffinity= in systemd and at `/etc/systemd/system.conf`.

    ## References
    - https://man7.org/linux/man-pages/man7/cpuset.7.html
    - https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu
    """
    gpus = pci.of("gpu")
    visible = len(gpus) if context.gpus is None else min(context.gpus, len(gpus))
    if not visible:
        raise NotApplicable(NO_GPU)
    allowed, online = known(context.cpus), known(cpus.online)
    mine = allowed & online
    width: float = len(mine)
    message = f"only {named(mine)} of {len(online)} for {counted(visible, 'GPU')}"
    if context.quota_cpus is not None and context.quota_cpus < width:
        width = context.quota_cpus
        message = f"cpu.max grants the time of {width:g} CPUs for {counted(visible, 'GPU')}"
    if context.not_of_job and width / visible < want.min_cpus_per_gpu:
        raise NotApplicable(f"{message}: {context.not_of_job}")
    one_for_all = width <= 1 and visible > 1
    yield expect_at_least(
        width / visible,
        want.min_cpus_per_gpu,
        of="CPU set",
        unit="CPUs a GPU",
        message=message,
        cost=f"the threads of {counted(visible, 'rank')} share {width:g} of {len(online)} CPUs",
        otherwise=Verdict.FAIL if one_for_all else Verdict.WARN,
    )
    for gpu in gpus if visible == len(gpus) and not context.not_of_job else ():
        local = gpu.local_cpus
        if not isinstance(local, Absent) and local & online and not local & mine:
            near = named(local & online)
            message = f"none of its local CPUs may be used ({near})"
            yield warns(gpu.address, message, cost="its process runs on another socket")


@check("cpu-affinity-cores", severity=Severity.LOW)
def affinity_cores(context: CallingContext, cores: CpuCores) -> Finding:
    """Jobs started from here get whole cores.

    ## Why it matters
    Where a set ends in the middle of a core, the other thread belongs to somebody else: that rank
    shares its core and is slower than the rest, which all wait for it.

    ## Evidence
    Cpus_allowed_list in /proc/self/status; the threads of each core in /proc/cpuinfo or
    thread_siblings_list.

    ## How it is judged
    Either every core of the set is in it with all its threads, or every one with a single thread,
    as `--hint=nomultithread` of Slurm does. A mixture warns.

    ## Exceptions
    Not applicable where cores have one thread (SMT off, Grace), where nothing limits the set, and
    to what is no job, as for cpu-affinity-width.
    A guest sees the cores that its hypervisor tells.

    ## What to do
    In Slurm set `CR_Core` in SelectTypeParameters; in Kubernetes the CPU manager's option
    `full-pcpus-only`. Name both threads where you use `taskset`.

    ## References
    - https://slurm.schedmd.com/slurm.conf.html
    - https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/
    """
    allowed = known(context.cpus)
    if max(map(len, cores.cores)) < 2:
        raise NotApplicable("each core has one thread")
    if all(core <= allowed for core in cores.cores):
        raise NotApplicable("the CPU set is not limited")
    used = [core for core in cores.cores if core & allowed and len(core) > 1]
    cut = [core for core in used if not core <= allowed]
    seen = f"{len(used)} cores, {len(cut)} of them in part"
    single = all(len(core & allowed) == 1 for core in used)
    if not cut or single:
        return passes("CPU set", seen)
    if context.not_of_job:
        raise NotApplicable(f"{seen}: {context.not_of_job}")
    where = named(frozenset().union(*cut) & allowed)
    return warns("CPU set", f"{where}: not all threads of the core", seen, cost="a shared core")


@check("cpu-openmp-threads", severity=Severity.MEDIUM)
def openmp_threads(
    environment: Environment, context: CallingContext, cpus: CpuSets
) -> Iterator[Finding]:
    """OpenMP and MKL start no more threads than there are CPUs for them.

    ## Why it matters
    Threads that share a CPU wait for each other at every barrier of an OpenMP loop; twice as many
    threads as CPUs can be many times slower, not twice.

    ## Evidence
    OMP_NUM_THREADS, MKL_NUM_THREADS, OPENBLAS_NUM_THREADS and LOCAL_WORLD_SIZE of the calling
    environment (/proc/self/environ); Cpus_allowed_list in /proc/self/status.

    ## How it is judged
    The number of threads, times LOCAL_WORLD_SIZE where torchrun set it, is no larger than the CPU
    set; more warns. What is no number warns: the libraries ignore it or end.

    ## Exceptions
    Not applicable where none of them is set: torchrun then sets OMP_NUM_THREADS=1 for each of
    several ranks, other launchers leave one thread for each CPU. srun and mpirun give each rank a
    set of its own, so their ranks are not multiplied.

    ## What to do
    Set OMP_NUM_THREADS to the CPUs of one rank: the CPU set divided by the GPUs it serves.

    ## References
    - https://www.openmp.org/spec-html/5.0/openmpse50.html
    - https://docs.pytorch.org/docs/stable/elastic/run.html
    """
    caller = environment.caller
    if isinstance(caller, Absent):
        yield unknown("calling environment", caller.reason)
        return
    given = {name: caller[name] for name in THREADS if caller.get(name, "").strip()}
    if not given:
        raise NotApplicable("none of the variables is set in the calling environment")
    width = len(known(context.cpus) & known(cpus.online))
    ranks = number_in(caller.get(RANKS, "")) or 1
    for name, value in given.items():
        yield threads_of(name, value, ranks, width)


def number_in(value: str) -> int | None:
    """The first number of `4` or `4,2`, which gives one number for each level of nesting."""
    first = value.partition(",")[0].strip()
    return int(first) if first.isascii() and first.isdecimal() and len(first) < 7 else None


def threads_of(name: str, value: str, ranks: int, width: int) -> Finding:
    """One variable."""
    threads = number_in(value)
    if not threads:
        return warns(name, "no number of threads", value[:40])
    most = max(1, width // ranks)
    shared = f" for each of {ranks} ranks" if ranks > 1 else ""
    if threads <= most:
        return passes(name, threads, expected=f"at most {most}{shared}")
    message = f"{threads} threads{shared} on {width} CPUs"
    cost = f"{threads * ranks / width:.1f} threads wait for each CPU"
    return warns(name, message, threads, expected=f"at most {most}{shared}", cost=cost)
