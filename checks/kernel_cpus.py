# SPDX-License-Identifier: Apache-2.0
"""CPUs that were taken from the scheduler, and what is left for everybody else."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    Unavailable,
    check,
    counted,
    fails,
    passes,
    warns,
)
from gpuaudit.facts.cpu import CpuSets, known, named
from gpuaudit.facts.cpusets import format_list
from gpuaudit.facts.isolation import IsolatedCpus
from gpuaudit.facts.numa import NumaNodes, require_consistent
from gpuaudit.facts.pci import PciDevices

ONE_CPU = "threads without a pin of their own all stay on one CPU"


class KernelCpusExpectations(Expectations, frozen=True, kw_only=True):
    """How many CPUs of each NUMA node have to be left to the scheduler."""

    min_housekeeping_per_node: Annotated[int, msgspec.Meta(ge=1, le=1024)]


@check("kernel-cpus-isolated", severity=Severity.HIGH)
def isolated(
    cpus: IsolatedCpus, numa: NumaNodes, devices: PciDevices, want: KernelCpusExpectations
) -> Iterator[Finding]:
    """Isolated CPUs leave enough others on each node and near each GPU.

    ## Why it matters
    The scheduler never moves a thread to an isolated CPU and never away from it. Where all CPUs
    near a GPU are isolated, its job runs on far ones; a job that is pinned to isolated CPUs only,
    but not thread by thread, runs on one of them.

    ## Evidence
    /sys/devices/system/cpu/isolated (isolcpus=), cpuset.cpus.isolated of the root control group,
    the CPUs of each NUMA node, the local CPUs of each GPU.

    ## How it is judged
    Warns when a node keeps fewer than `kernel_cpus.min_housekeeping_per_node` CPUs that are not
    isolated. Fails when no CPU local to a GPU is left. Without isolated CPUs it passes.

    ## Exceptions
    isolcpus= with only the flags `managed_irq` or `nohz` takes no CPU from the scheduler, and the
    kernel does not list those. Not applicable in an image. Sites that pin every thread to isolated
    CPUs by intent waive it.

    ## What to do
    Take CPUs out of `isolcpus=` in /etc/default/grub, run `update-grub` and reboot, so that each
    NUMA node keeps some for the kernel, daemons and unpinned threads.

    ## References
    - https://docs.kernel.org/admin-guide/kernel-parameters.html
    - https://docs.kernel.org/admin-guide/cgroup-v2.html
    """
    apart = known(cpus.isolated)
    if not apart:
        yield passes("isolated CPUs", "none")
        return
    require_consistent(numa)
    for node in (one for one in numa.nodes if one.cpus):
        left = len(node.cpus - apart)
        short = left < min(want.min_housekeeping_per_node, len(node.cpus))
        seen, wanted = f"{left} of {len(node.cpus)} CPUs", want.min_housekeeping_per_node
        of, expected = f"NUMA node {node.id}", f"at least {wanted}"
        message = f"{counted(left, 'CPU')} left to the scheduler: {named(apart)} isolated"
        judged = warns(of, message, seen, expected=expected, cost=ONE_CPU)
        yield judged if short else passes(of, seen, expected=expected)
    yield from beside_gpus(devices, apart)


def beside_gpus(devices: PciDevices, apart: frozenset[int]) -> Iterator[Finding]:
    """GPUs all of whose local CPUs are isolated."""
    for address, device in devices.by_address.items():
        local = device.local_cpus if device.role == "gpu" else None
        if isinstance(local, frozenset) and local and local <= apart:
            message = f"every CPU near this GPU is isolated: {format_list(local)}"
            yield fails(address, message, "0 CPUs", expected="at least 1", cost=ONE_CPU)


@check("kernel-cpus-nohz-full", severity=Severity.LOW)
def nohz_full(cpus: IsolatedCpus, sets: CpuSets) -> Finding:
    """CPUs without a tick are also isolated.

    ## Why it matters
    The tick stops only while a single thread is ready on a CPU. On a CPU that the scheduler still
    fills, nohz_full= seldom stops it, and every system call and interrupt pays for its bookkeeping.

    ## Evidence
    /sys/devices/system/cpu/nohz_full, /sys/devices/system/cpu/isolated, cpuset.cpus.isolated of the
    root control group.

    ## How it is judged
    Warns when a CPU of nohz_full is not isolated, and when no CPU is left with a tick. rcu_nocbs=
    is not asked for: nohz_full brings it along.

    ## Exceptions
    Not applicable where no CPU runs without a tick, which is the default, and in an image.

    ## What to do
    Give `isolcpus=` the same CPUs as `nohz_full=` in /etc/default/grub, or drop nohz_full=, then
    run `update-grub` and reboot.

    ## References
    - https://docs.kernel.org/timers/no_hz.html
    - https://docs.kernel.org/admin-guide/kernel-parameters.html
    """
    silent = known(cpus.nohz_full)
    if not silent:
        raise NotApplicable("no CPU runs without a tick (nohz_full is empty)")
    if not isinstance(sets.online, frozenset):
        raise Unavailable("which CPUs are online is not known")
    of, seen = "nohz_full", format_list(silent)
    if sets.online <= silent:
        return warns(of, "no CPU is left with a tick to keep the time for the others", seen)
    shared = silent - known(cpus.isolated)
    if not shared:
        return passes(of, seen)
    names = format_list(shared)
    cost = "bookkeeping at each system call and interrupt"
    return warns(of, f"CPUs {names} have no tick but are not isolated", seen, cost=cost)
