# SPDX-License-Identifier: Apache-2.0
"""Shared memory."""

from typing import Annotated

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    Severity,
    check,
    expect,
    expect_at_least,
    fails,
    passes,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.memory import SharedMemory, TotalMemory
from gpuaudit.facts.node import Machine

GIB_KIB = 1 << 20
IN_CONTAINER = "; its runtime sets that: --ipc=host or --shm-size"
COST = "NCCL stops at start when its segments do not fit, data loaders die with a bus error"


class MemoryShmExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of /dev/shm."""

    min_gib: Annotated[float, msgspec.Meta(ge=0, le=1 << 14)]
    min_fraction_of_memory: Annotated[float, msgspec.Meta(ge=0, le=1)]


@check("memory-shm-size", severity=Severity.HIGH)
def shm_size(
    shm: SharedMemory, memory: TotalMemory, machine: Machine, want: MemoryShmExpectations
) -> Finding:
    """Shared memory is large enough for NCCL and data loaders.

    ## Why it matters
    NCCL's shared-memory transport and PyTorch's workers keep their buffers there. Docker gives
    64 MiB: NCCL then stops at start, or a worker dies with a bus error.

    ## Evidence
    The mount on /dev/shm in /proc/self/mountinfo: size=, or half of MemTotal without it.

    ## How it is judged
    At least `memory_shm.min_gib`, and `memory_shm.min_fraction_of_memory` of MemTotal.

    ## Exceptions
    A mount that is not a tmpfs has no size of its own: unknown.

    ## What to do
    In a container start with `--ipc=host` or `--shm-size=1g` or more; on the host run
    `mount -o remount,size=50% /dev/shm` and correct its line in /etc/fstab.

    ## References
    - https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html
    - https://docs.kernel.org/filesystems/tmpfs.html
    """
    of = "/dev/shm"  # noqa: S108 - the subject
    if shm.type is None:
        return fails(of, "nothing is mounted on /dev/shm", "no mount", expected="a tmpfs")
    if shm.size_kib is None:
        return passes(of, "no upper bound")
    floor_gib, size_gib = least_gib(memory, want), gib(shm.size_kib)
    if isinstance(floor_gib, Absent):
        return expect(floor_gib, None, of=of)
    message = f"shared memory holds {size_gib} GiB{IN_CONTAINER if machine.container else ''}"
    return expect_at_least(size_gib, floor_gib, of=of, unit="GiB", message=message, cost=COST)


def gib(kib: int | Absent) -> float | Absent:
    """KiB as GiB."""
    return kib if isinstance(kib, Absent) else round(kib / GIB_KIB, 3)


def least_gib(memory: TotalMemory, want: MemoryShmExpectations) -> float | Absent:
    """The larger of the two minima; the memory of the node counts only where the policy asks."""
    if not want.min_fraction_of_memory:
        return want.min_gib
    total = gib(memory.kib)
    if isinstance(total, Absent):
        return total
    return max(want.min_gib, round(total * want.min_fraction_of_memory, 3))
