# SPDX-License-Identifier: Apache-2.0
"""CPUs: which are online, SMT, and how deeply they sleep."""

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    Severity,
    check,
    expect,
    fails,
    not_applicable,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.cpu import CpuSets, Smt, known, named
from gpuaudit.facts.cpuidle import IdleState, IdleStates

SWITCHED_OFF = ("off", "forceoff")


class CpuExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of the CPUs."""

    smt: Literal["any", "enabled", "disabled"]
    max_offline_cpus: Annotated[int, msgspec.Meta(ge=0, le=65536)]
    max_idle_latency_us: Annotated[int, msgspec.Meta(ge=0, le=100_000)]


@check("cpu-all-online", severity=Severity.MEDIUM)
def all_online(cpus: CpuSets, smt: Smt, want: CpuExpectations) -> Finding:
    """Every CPU that is present is online.

    ## Why it matters
    Each CPU that is off is one data loader less, and whoever binds to it by number fails.

    ## Evidence
    /sys/devices/system/cpu/{present,online} and /sys/devices/system/cpu/smt/control.

    ## How it is judged
    No more than `cpu.max_offline_cpus` of the present CPUs are offline. CPUs that are possible but
    not present are empty sockets and do not count.

    ## Exceptions
    Where SMT is switched off its sibling threads are offline by intent: as many as are online, or a
    multiple, pass. Any other number is unknown: sysfs no longer says whose siblings they are.

    ## What to do
    Run `echo 1 > /sys/devices/system/cpu/cpuN/online` for each, and look for `maxcpus=` on the
    kernel command line. If one goes off again, look for machine checks in `dmesg`.

    ## References
    - https://docs.kernel.org/admin-guide/cputopology.html
    - https://docs.kernel.org/core-api/cpu_hotplug.html
    """
    online, present = known(cpus.online), known(cpus.present)
    offline, seen = present - online, f"{len(online)} of {len(present)} online"
    if len(offline) <= want.max_offline_cpus:
        return passes("CPUs", seen)
    if smt.control in SWITCHED_OFF:
        if len(offline) % len(online) == 0:
            return passes("CPUs", f"{seen}, SMT is {smt.control}")
        return unknown("CPUs", f"SMT is {smt.control}: some of {named(offline)} are siblings", seen)
    cost = f"{len(offline) / len(present):.0%} of the CPUs do nothing"
    return fails("CPUs", f"offline: {named(offline)}", seen, expected="all", cost=cost)


@check("cpu-smt", severity=Severity.LOW)
def smt_as_wanted(smt: Smt, want: CpuExpectations) -> Finding:
    """SMT (hyper-threading) is on or off as the policy says.

    ## Why it matters
    Job scripts, Slurm's node definition and CPU bindings count threads. A node that differs from
    its fleet binds processes to other cores than intended.

    ## Evidence
    /sys/devices/system/cpu/smt/control.

    ## How it is judged
    `on` is enabled; `off` and `forceoff` are disabled, as on CPUs that do not support SMT.
    `cpu.smt: any` accepts both.

    ## Exceptions
    Kernels before 4.19 and architectures without the switch.

    ## What to do
    Write `on` or `off` to /sys/devices/system/cpu/smt/control, and make it last in the BIOS or with
    `nosmt` on the kernel command line.

    ## References
    - https://docs.kernel.org/admin-guide/kernel-parameters.html
    - https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-devices-system-cpu
    """
    state = smt.control
    if state == "notimplemented":
        state = Absent("unsupported", "the kernel has no SMT switch for this architecture")
    if isinstance(state, str):
        state = "disabled" if state in (*SWITCHED_OFF, "notsupported") else "enabled"
    accepted = ("enabled", "disabled") if want.smt == "any" else (want.smt,)
    return expect(state, accepted, of="SMT", cost="bindings by CPU number hit other cores")


@check("cpu-deepest-idle-state", severity=Severity.LOW)
def deepest_idle_state(idle: IdleStates, want: CpuExpectations) -> Iterator[Finding]:
    """No CPU may sleep so deeply that it wakes late.

    ## Why it matters
    A completion of the network takes about 2 us. A CPU that first has to leave C6 adds 133-290 us,
    and threads that wait for a GPU or a message sleep between any two of them.

    ## Evidence
    /sys/devices/system/cpu/cpuidle/current_driver; name, latency and disable of each state of the
    lowest and the highest online CPU; `disable` of every CPU for states that are disabled there.

    ## How it is judged
    The deepest enabled state wakes within `cpu.max_idle_latency_us`; a deeper one warns.

    ## Exceptions
    A limit that a program holds through /dev/cpu_dma_latency (tuned's force_latency does) is not
    visible, which is why this only warns. In VMs the hypervisor chooses the state.

    ## What to do
    Run `cpupower idle-set -D LATENCY` with the limit in us, or set force_latency in a tuned
    profile. `intel_idle.max_cstate=` and `processor.max_cstate=` do it from boot on.

    ## References
    - https://docs.kernel.org/admin-guide/pm/cpuidle.html
    - https://github.com/torvalds/linux/blob/master/drivers/idle/intel_idle.c
    """
    for cpu in sorted({state.cpu for state in idle.states}):
        states = [s for s in idle.states if s.cpu == cpu]
        yield idle_of(f"CPUs like CPU {cpu}", states, want.max_idle_latency_us)


def idle_of(of: str, states: list[IdleState], limit_us: int) -> Finding:
    """The finding for one CPU that was looked at, which stands for all of its kind."""
    unread = next(
        (v for s in states for v in (s.latency_us, s.enabled_on) if isinstance(v, Absent)), None
    )
    if unread is not None:
        return unknown(of, unread.reason)
    usable = [s for s in states if s.enabled_on]
    if not usable:
        return not_applicable(of, "every idle state is disabled")
    deepest = max(usable, key=latency)
    seen, expected = f"{deepest.name}, {latency(deepest)} us", f"at most {limit_us} us"
    if latency(deepest) <= limit_us:
        return passes(of, seen, expected=expected)
    return warns(
        of,
        f"idle state {deepest.name} is enabled{where(deepest)}",
        seen,
        expected=expected,
        cost=f"up to {latency(deepest)} us more each time a sleeping CPU is needed",
    )


def latency(state: IdleState) -> int:
    """Time to wake, for comparing; states without one were refused before."""
    return 0 if isinstance(state.latency_us, Absent) else state.latency_us


def where(state: IdleState) -> str:
    """Nothing where the CPU looked at has it, since then all of its kind have; else who has it."""
    on = state.enabled_on
    return "" if isinstance(on, Absent) or state.cpu in on else f" on {named(on)}"
