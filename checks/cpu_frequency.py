# SPDX-License-Identifier: Apache-2.0
"""CPU frequency: governor, energy preference, limits and turbo."""

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    Verdict,
    check,
    expect,
    expect_at_least,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.cpu import named
from gpuaudit.facts.cpufreq import (
    ACTIVE_DRIVERS,
    NO_SCALING,
    Cpufreq,
    FrequencyLimit,
    FrequencyLimits,
    FrequencyPolicy,
    Turbo,
    grouped,
    word,
)
from gpuaudit.facts.node import Machine

PLAIN_DRIVERS = ("acpi-cpufreq", "cppc_cpufreq", "pcc-cpufreq", "powernv-cpufreq")
SLOW_START = "kernel launches, NCCL proxies and data loaders run at a lower clock"


class CpuFrequencyExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of CPU frequency scaling."""

    governors: tuple[str, ...]
    energy_preferences: tuple[str, ...]
    min_allowed_percent: Annotated[int, msgspec.Meta(ge=1, le=100)]
    turbo: Literal["any", "enabled", "disabled"]


@check("cpu-governor", severity=Severity.MEDIUM)
def governor(
    scaling: Cpufreq, machine: Machine, want: CpuFrequencyExpectations
) -> Iterator[Finding]:
    """Every online CPU has a frequency governor for performance.

    ## Why it matters
    The threads that feed a GPU sleep and wake all the time. A governor that clocks up late makes
    them run slowly just when a kernel launch or a network completion waits for them.

    ## Evidence
    scaling_governor and scaling_driver of every policy of /sys/devices/system/cpu/cpufreq, and
    energy_performance_preference where the driver has it.

    ## How it is judged
    Each governor is one of `cpu_frequency.governors`. With intel_pstate or amd-pstate-epp, whose
    only other governor is `powersave`, that passes with an energy preference from
    `cpu_frequency.energy_preferences`. An online CPU without a policy warns.

    ## Exceptions
    Not applicable in a VM without cpufreq: the hypervisor decides. Bare metal without a frequency
    driver warns.

    ## What to do
    Run `cpupower frequency-set -g performance`, and make it last with a tuned profile such as
    throughput-performance.

    ## References
    - https://docs.kernel.org/admin-guide/pm/cpufreq.html
    - https://docs.kernel.org/admin-guide/pm/intel_pstate.html
    """
    if not scaling.policies:
        where = "on bare metal" if machine.is_vm is False else "on this machine"
        yield warns("cpufreq", f"{NO_SCALING} {where}: the firmware alone sets the clock")
        return
    for one, cpus in grouped(scaling.policies, settings):
        yield governor_of(one, cpus, scaling, want)
    bare = scaling.without_policy
    if isinstance(bare, Absent):
        yield unknown("CPUs without a frequency policy", bare.reason)
    elif bare:
        yield warns(named(bare), "online, but without a frequency policy")


def settings(one: FrequencyPolicy) -> tuple[object, object]:
    """What makes CPUs one group in the report."""
    return word(one.governor), word(one.energy_preference)


def governor_of(
    one: FrequencyPolicy, cpus: frozenset[int], scaling: Cpufreq, want: CpuFrequencyExpectations
) -> Finding:
    """The finding for CPUs that have governor and preference in common."""
    of, preference = named(cpus), one.energy_preference
    if one.governor == "powersave" and scaling.driver in ACTIVE_DRIVERS:
        if isinstance(preference, Absent) and preference.kind != "unsupported":
            return unknown(of, preference.reason, "powersave")
        if preference in want.energy_preferences:
            return passes(of, f"powersave with {preference}", expected=want.governors)
    return expect(
        one.governor,
        want.governors,
        of=of,
        message=f"{share(cpus, scaling)}: {one.governor}{with_preference(preference)}",
        cost=SLOW_START,
    )


def share(cpus: frozenset[int], scaling: Cpufreq) -> str:
    """How many CPUs a finding is about."""
    return f"{len(cpus)} of {sum(len(p.cpus) for p in scaling.policies)} CPUs"


def with_preference(preference: str | Absent) -> str:
    """The preference as the end of a sentence."""
    return "" if isinstance(preference, Absent) else f" with {preference}"


@check("cpu-energy-preference", severity=Severity.LOW)
def energy_preference(scaling: Cpufreq, want: CpuFrequencyExpectations) -> Iterator[Finding]:
    """Every online CPU is told to prefer performance to saving energy.

    ## Why it matters
    The preference is a hint to the hardware how fast to clock up. `balance_performance`, the usual
    default, adds milliseconds at low clock after each idle phase.

    ## Evidence
    energy_performance_preference of every policy of /sys/devices/system/cpu/cpufreq.

    ## How it is judged
    Each preference is one of `cpu_frequency.energy_preferences`. Beside the governor `performance`,
    which asks for the highest clock anyway, another one only warns.

    ## Exceptions
    Not applicable with drivers that have no such hint (acpi-cpufreq, cppc_cpufreq), in VMs, and on
    CPUs without HWP or CPPC.

    ## What to do
    Run `cpupower frequency-set -g performance`: with intel_pstate and amd-pstate-epp this sets the
    preference too. Or write `performance` to energy_performance_preference.

    ## References
    - https://docs.kernel.org/admin-guide/pm/intel_pstate.html
    - https://docs.kernel.org/admin-guide/pm/amd-pstate.html
    """
    if not scaling.policies:
        raise NotApplicable(NO_SCALING)
    if scaling.driver in PLAIN_DRIVERS:
        raise NotApplicable(f"the driver {scaling.driver} has no energy preference")
    for one, cpus in grouped(scaling.policies, settings):
        preference = one.energy_preference
        fast = one.governor == "performance"
        yield expect(
            preference,
            want.energy_preferences,
            of=named(cpus),
            message=f"{share(cpus, scaling)}: {preference}",
            cost=None if fast else SLOW_START,
            otherwise=Verdict.WARN if fast else Verdict.FAIL,
        )


@check("cpu-frequency-limits", severity=Severity.MEDIUM)
def frequency_limits(limits: FrequencyLimits, want: CpuFrequencyExpectations) -> Iterator[Finding]:
    """No CPU is held below the clock it can reach.

    ## Why it matters
    A forgotten cap slows kernel launches and data loading by as much as it takes off the clock.

    ## Evidence
    scaling_max_freq and cpuinfo_max_freq of each policy of /sys/devices/system/cpu/cpufreq (with
    acpi-cpufreq scaling_available_frequencies), and intel_pstate/max_perf_pct.

    ## How it is judged
    The allowed clock in percent of the possible one, and max_perf_pct, are each at least
    `cpu_frequency.min_allowed_percent`.

    ## Exceptions
    Limits of firmware, power (RAPL) and heat are not visible here. Not applicable in VMs without
    cpufreq.

    ## What to do
    Run `cpupower frequency-set -u MAX` with the clock of cpuinfo_max_freq, and write 100 to
    /sys/devices/system/cpu/intel_pstate/max_perf_pct where it exists.

    ## References
    - https://docs.kernel.org/admin-guide/pm/cpufreq.html
    """
    for one, cpus in grouped(limits.limits, lambda x: (word(x.allowed_khz), word(x.possible_khz))):
        yield limit_of(one, named(cpus), want.min_allowed_percent)
    percent = limits.max_perf_percent
    if not isinstance(percent, Absent):
        yield expect_at_least(
            percent, want.min_allowed_percent, of="intel_pstate/max_perf_pct", unit="%"
        )


def limit_of(one: FrequencyLimit, of: str, least: int) -> Finding:
    """The finding for CPUs with the same limits."""
    if isinstance(one.allowed_khz, Absent):
        return unknown(of, one.allowed_khz.reason)
    if isinstance(one.possible_khz, Absent) or not one.possible_khz:
        return unknown(of, "the highest clock is not known", f"{one.allowed_khz // 1000} MHz")
    return expect_at_least(
        one.allowed_khz // 1000,
        one.possible_khz * least // 100_000,
        of=of,
        unit="MHz",
        message=f"held at {one.allowed_khz / one.possible_khz:.0%} of the clock it can reach",
        cost=f"work on the CPU runs at {one.allowed_khz / one.possible_khz:.0%} of its speed",
    )


@check("cpu-turbo", severity=Severity.MEDIUM)
def turbo(state: Turbo, want: CpuFrequencyExpectations) -> Finding:
    """Turbo clocks of the CPUs are on or off as the policy says.

    ## Why it matters
    One thread feeds each GPU. Base clock instead of turbo is often a third less.

    ## Evidence
    /sys/devices/system/cpu/intel_pstate/no_turbo, else /sys/devices/system/cpu/cpufreq/boost.

    ## How it is judged
    The switch stands as `cpu_frequency.turbo` says; `any` accepts both.

    ## Exceptions
    Not applicable with drivers that have no switch, in VMs, and with cppc_cpufreq where acpi_cppc
    names no performance above the nominal. Turbo taken away by the BIOS reads as disabled.

    ## What to do
    Write 0 to /sys/devices/system/cpu/intel_pstate/no_turbo or 1 to
    /sys/devices/system/cpu/cpufreq/boost. If the write is refused, enable turbo in the BIOS.

    ## References
    - https://docs.kernel.org/admin-guide/pm/intel_pstate.html
    - https://docs.kernel.org/admin-guide/pm/cpufreq.html#the-boost-file-in-sysfs
    """
    accepted = ("enabled", "disabled") if want.turbo == "any" else (want.turbo,)
    seen = "enabled" if state.enabled else "disabled"
    return expect(seen, accepted, of="turbo", cost=SLOW_START, evidence=(state.source,))
