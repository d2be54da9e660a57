# SPDX-License-Identifier: Apache-2.0
"""The GPUs of one node are of one kind."""

from collections.abc import Callable, Iterator
from typing import Annotated

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    check,
    expect,
    not_applicable,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpu import Gpu, Gpus, majority
from gpuaudit.facts.gpuvalues import Memory

Percent = Annotated[float, msgspec.Meta(ge=0, le=50)]


class GpuAlikeExpectations(Expectations, frozen=True, kw_only=True):
    """How far GPUs of one node may differ."""

    memory_spread_max_percent: Percent


def several(gpus: Gpus) -> tuple[Gpu, ...]:
    """The GPUs, when there are at least two to compare."""
    found = gpus.asked()
    if len(found) < 2:
        raise NotApplicable("there is only one GPU to compare")
    return found


def same_model(gpus: Gpus) -> Iterator[tuple[Gpu, list[Gpu]]]:
    """Each GPU with all GPUs of its model and MIG mode; those alone in theirs are left out.

    A GPU whose model could not be read stays in, to be told as unknown.
    """
    found = several(gpus)
    groups = {gpu.index: [o for o in found if likeness(o) == likeness(gpu)] for gpu in found}
    if all(len(group) < 2 for group in groups.values()):
        raise NotApplicable("no two GPUs are of one model")
    told = (gpu for gpu in found if len(groups[gpu.index]) > 1 or isinstance(gpu.name, Absent))
    yield from ((gpu, groups[gpu.index]) for gpu in told)


def likeness(gpu: Gpu) -> tuple[object, bool]:
    """What has to agree before the rest is compared."""
    return (gpu.name, gpu.mig_runs)


def usual(group: list[Gpu], read: Callable[[Gpu], object]) -> object:
    """What most of a group have."""
    values = (read(gpu) for gpu in group)
    return majority(value for value in values if not isinstance(value, Absent))


@check("gpu-models-alike", severity=Severity.HIGH)
def models_alike(gpus: Gpus) -> Iterator[Finding]:
    """All GPUs of the node are of one model.

    ## Why it matters
    A collective runs at the pace of the slowest GPU and must fit the smallest memory.

    ## Evidence
    nvmlDeviceGetName of every GPU.

    ## How it is judged
    Every name equals the most frequent one.

    ## Exceptions
    One GPU alone is not compared, nor is a GPU with an active display or the display card of a DGX
    Station. For nodes that are mixed by design skip the check in the site policy.

    ## What to do
    Swap the GPU that differs for one of the node's model, or `skip: {gpu-models-alike: reason}`.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
    """
    found = several(gpus)
    workers = [gpu for gpu in found if not gpu.has_display] or list(found)
    wanted = usual(workers, lambda gpu: gpu.name)
    for gpu in found:
        if gpu.has_display and gpu.name != wanted:
            yield not_applicable(gpu.subject, "it is there for a display", gpu.name)
        else:
            message = f"it is another model: {gpu.name}"
            yield expect(gpu.name, wanted, of=gpu.subject, message=message)


@check("gpu-vbios-alike", severity=Severity.LOW)
def vbios_alike(gpus: Gpus) -> Iterator[Finding]:
    """All GPUs of one model run the same VBIOS.

    ## Why it matters
    VBIOS releases differ in power, clock and link settings, so ranks run unevenly, and a fault
    that one release has shows on some GPUs only.

    ## Evidence
    nvmlDeviceGetVbiosVersion of every GPU.

    ## How it is judged
    Every version equals the most frequent one among GPUs of that model.

    ## Exceptions
    A model of which the node has one is not compared.

    ## What to do
    Bring the named GPU to the others' release with the firmware package of the server's vendor.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
    """
    for gpu, group in same_model(gpus):
        others = usual(group, lambda one: one.vbios)
        message = f"its VBIOS is {gpu.vbios}, others have {others}"
        yield expect(gpu.vbios, others, of=gpu.subject, message=message)


@check("gpu-memory-alike", severity=Severity.HIGH)
def memory_alike(gpus: Gpus, want: GpuAlikeExpectations) -> Iterator[Finding]:
    """All GPUs of one model have the same amount of memory.

    ## Why it matters
    The smallest GPU decides what fits; the job runs out of memory on that one alone.

    ## Evidence
    nvmlDeviceGetMemoryInfo_v2, total.

    ## How it is judged
    Within `gpu_alike.memory_spread_max_percent` of the most frequent size of that model.

    ## Exceptions
    GPUs in different MIG modes are compared apart: MIG reserves some memory.

    ## What to do
    Reset the named GPU with `nvidia-smi --gpu-reset -i INDEX` and compare again. If it stays
    smaller, compare board part numbers and have it replaced.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/structnvmlMemory__v2__t.html
    """
    for gpu, group in same_model(gpus):
        memory = gpu.memory
        if isinstance(memory, Absent):
            yield expect(memory, None, of=gpu.subject)
        else:
            yield size(gpu.subject, memory, usual(group, lambda one: one.memory), want)


def size(subject: str, memory: Memory, usual_one: object, want: GpuAlikeExpectations) -> Finding:
    """One GPU's memory beside that of the others."""
    total = usual_one.total if isinstance(usual_one, Memory) else memory.total
    near = abs(memory.total - total) * 100 <= total * want.memory_spread_max_percent
    mine, theirs = (f"{value >> 20} MiB" for value in (memory.total, total))
    message = f"it has {mine} of memory, others have {theirs}"
    return expect(theirs if near else mine, theirs, of=subject, message=message)
