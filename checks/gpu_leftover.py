# SPDX-License-Identifier: Apache-2.0
"""What the last job left on a GPU: processes, and memory that nobody holds."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    check,
    counted,
    expect,
    not_applicable,
    passes,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpu import Gpu, Gpus
from gpuaudit.facts.gpuscan import GpuScan
from gpuaudit.facts.services import Processes

MIB = 1 << 20
PIDS = ("compute_pids", "mps_pids", "graphics_pids")


class GpuLeftoverExpectations(Expectations, frozen=True, kw_only=True):
    """Programs that may stay on a GPU between jobs, and memory that may be in use without any."""

    allowed_programs: tuple[str, ...]
    memory_max_mib: Annotated[int, msgspec.Meta(ge=0)]


def holders(gpu: Gpu) -> set[int] | Absent:
    """Every process that NVML knows on the GPU, or why that is not to be had."""
    told = [getattr(gpu, field) for field in PIDS[: 2 if gpu.has_display else 3]]
    missing = [one for one in told if isinstance(one, Absent) and one.kind != "unsupported"]
    if missing or isinstance(told[0], Absent):
        return missing[0] if missing else told[0]
    return {pid for one in told if not isinstance(one, Absent) for pid in one}


def require_host(scan: GpuScan) -> None:
    """Raise NotApplicable where other processes are not to be told from one's own."""
    if scan.confined:
        raise NotApplicable(f"inside {scan.confined}: what runs may be the job's own")


@check("gpu-processes-left", severity=Severity.MEDIUM)
def processes_left(
    gpus: Gpus, scan: GpuScan, table: Processes, want: GpuLeftoverExpectations
) -> Iterator[Finding]:
    """No process is left on a GPU before a job starts.

    ## Why it matters
    A process that survived its job holds memory and takes time of the next one, which runs out of
    memory or waits at every step.

    ## Evidence
    nvmlDeviceGetComputeRunningProcesses, Graphics and MPSCompute, and the process table for names.

    ## How it is judged
    Any process whose program is not in `gpu_leftover.allowed_programs` is a warning: whether a job
    is meant to run now only the scheduler knows.

    ## Exceptions
    The MPS server and display servers are allowed, and all that draws on a GPU with a display. The
    nightly profile leaves this check out: a GPU
    at work has processes. Not applicable inside a job or a container, where the processes may be
    its own, and with MIG and vGPU.

    ## What to do
    Look at the process with `ps -fp PID`, end it, and have the epilog of the scheduler end what
    outlives its job.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
    - https://slurm.schedmd.com/prolog_epilog.html
    """
    require_host(scan)
    known = {one.pid: one.name for one in table.processes}
    for gpu in gpus.asked():
        yield of_processes(gpu, known, want.allowed_programs)


def of_processes(gpu: Gpu, known: dict[int, str], allowed: tuple[str, ...]) -> Finding:
    """One GPU."""
    of, found = gpu.subject, holders(gpu)
    if gpu.mig_runs or gpu.is_vgpu:
        return not_applicable(of, "MIG or a virtual GPU: processes are seen by their owner only")
    if isinstance(found, Absent):
        return expect(found, None, of=of)
    # The kernel cuts names at 15 bytes.
    short = {program[:15] for program in allowed}
    left = sorted(pid for pid in found if known.get(pid, "")[:15] not in short)
    if not left:
        return passes(of, "none" if not found else "allowed ones only")
    text = ", ".join(f"{known.get(pid, 'unknown program')} ({pid})" for pid in left[:4])
    more = f" and {len(left) - 4} more" if len(left) > 4 else ""
    return warns(
        of, f"left on the GPU: {text}{more}", counted(len(left), "process"), expected="none"
    )


@check("gpu-memory-free", severity=Severity.MEDIUM)
def memory_free(gpus: Gpus, scan: GpuScan, want: GpuLeftoverExpectations) -> Iterator[Finding]:
    """No memory of a GPU is in use without a process that holds it.

    ## Why it matters
    Memory without an owner is what a crashed job leaves when a child or a container still has the
    device open, or the driver lost count: the next job runs out of memory.

    ## Evidence
    nvmlDeviceGetMemoryInfo_v2 (without what the driver reserves), processes as NVML lists them.

    ## How it is judged
    More than `gpu_leftover.memory_max_mib` in use on a GPU without any process is a warning.

    ## Exceptions
    Where processes run, they hold it: gpu-processes-left. The nightly profile leaves it out. Not
    applicable inside a job or container, with MIG and vGPU, with a display, on Grace, where the
    kernel uses GPU memory as its own (C2C), and before driver 510, which counts what it reserves.

    ## What to do
    Run `fuser -v /dev/nvidia*` as root, end what has the GPU open, and reset the GPU with
    `nvidia-smi --gpu-reset -i INDEX` if the memory stays in use.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
    """
    require_host(scan)
    for gpu in gpus.asked():
        yield of_memory(gpu, want.memory_max_mib)


def of_memory(gpu: Gpu, most_mib: int) -> Finding:
    """One GPU."""
    of, found, memory = gpu.subject, holders(gpu), gpu.memory
    if gpu.mig_runs or gpu.is_vgpu or gpu.is_coherent or gpu.has_display:
        return not_applicable(of, "MIG, a virtual GPU, a display, or memory of the kernel (Grace)")
    if isinstance(memory, Absent) or isinstance(found, Absent):
        return expect(memory if isinstance(memory, Absent) else found, None, of=of)
    if memory.reserved is None:
        return not_applicable(of, "this driver counts what it reserves as used")
    used = memory.used // MIB
    if found:
        return not_applicable(of, f"{used} MiB in use, and there are processes")
    if used > most_mib:
        text = f"{used} MiB are in use though NVML lists no process"
        return warns(of, text, f"{used} MiB", expected=f"at most {most_mib} MiB")
    return passes(of, f"{used} MiB", expected=f"at most {most_mib} MiB")
