# SPDX-License-Identifier: Apache-2.0
"""CPU frequency scaling: driver, governor, energy preference, limits and turbo.

Sources: Linux Documentation/admin-guide/pm/{cpufreq,intel_pstate,amd-pstate}.rst.
"""

import re
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.cpu import FOLDER, CpuSets, known, number_of, text_of
from gpuaudit.facts.node import Machine
from gpuaudit.host import Host, NotApplicable, Unavailable

ACTIVE_DRIVERS = ("intel_pstate", "amd-pstate-epp")
"""Drivers whose hardware picks the clock; their `powersave` is guided by an energy preference."""

POLICY = re.compile(r"policy([0-9]{1,5})")
NUMBER = re.compile(r"\b[0-9]{1,5}\b")
STEP = re.compile(r"\b[0-9]{1,9}\b")
MAX_KHZ = 100_000_000  # no CPU clocks at 100 GHz
BOOST = f"{FOLDER}/cpufreq/boost"
NO_SCALING = "no CPU frequency driver is loaded"


class FrequencyPolicy(Fact, frozen=True, kw_only=True):
    """One cpufreq policy: /sys/devices/system/cpu/cpufreq/policyN, formerly cpuN/cpufreq."""

    path: str
    cpus: frozenset[int]
    governor: str | Absent
    energy_preference: str | Absent
    """energy_performance_preference; only drivers in active mode have it."""


class Cpufreq(Fact, frozen=True, kw_only=True):
    """The policies of the online CPUs. No policies: the kernel is known to scale nothing.

    The kernel has one scaling driver at a time (drivers/cpufreq/cpufreq.c, cpufreq_driver).
    """

    driver: str | Absent
    policies: tuple[FrequencyPolicy, ...]
    without_policy: frozenset[int] | Absent
    """Online CPUs known to have no policy."""


class FrequencyLimit(Fact, frozen=True, kw_only=True):
    """scaling_max_freq (what is allowed) and the highest clock one may ask for, in kHz.

    That is cpuinfo_max_freq. acpi-cpufreq puts the boost clock there, which is no step of its table
    and is reached with scaling_max_freq at the highest step too: on EPYC 2.45 GHz beside 3.53 GHz
    is no cap. There the highest of scaling_available_frequencies counts (Linux commit 538b0188da46,
    "cpufreq: ACPI: Set cpuinfo.max_freq directly if max boost is known").
    """

    cpus: frozenset[int]
    allowed_khz: int | Absent
    possible_khz: int | Absent


class FrequencyLimits(Fact, frozen=True, kw_only=True):
    """Limits of every policy, and /sys/devices/system/cpu/intel_pstate/max_perf_pct."""

    limits: tuple[FrequencyLimit, ...]
    max_perf_percent: int | Absent


class Turbo(Fact, frozen=True, kw_only=True):
    """Whether CPUs may clock above their base: intel_pstate/no_turbo or cpufreq/boost."""

    enabled: bool
    source: str


Group = TypeVar("Group", FrequencyPolicy, FrequencyLimit)
Member = tuple[Group, frozenset[int]]


@probe
def cpufreq(host: Host, cpus: CpuSets, machine: Machine) -> Cpufreq:
    """Read governors. Raises NotApplicable in a VM known to have no frequency scaling."""
    online = known(cpus.online)
    places = policy_places(host, online)
    if not places:
        return without_scaling(host, online, machine)
    first = next(iter(places))
    preference = text_of(host, f"{first}/energy_performance_preference")
    policies = tuple(
        read_policy(host, path, members, preference) for path, members in places.items()
    )
    return Cpufreq(
        driver=text_of(host, f"{first}/scaling_driver"),
        policies=policies,
        without_policy=known_bare(host, online.difference(*(p.cpus for p in policies))),
    )


def known_bare(host: Host, cpus: frozenset[int]) -> frozenset[int] | Absent:
    """The CPUs whose policy is missing, unless it may only not have been recorded."""
    for cpu in sorted(cpus):
        path = f"{FOLDER}/cpu{cpu}/cpufreq"
        try:
            if host.exists(path):
                return Absent("failed", f"{path} is there, but no policy names CPU {cpu}")
        except Unavailable as absent:
            return Absent("missing", absent.reason)
    return cpus


def without_scaling(host: Host, online: frozenset[int], machine: Machine) -> Cpufreq:
    """No policy was seen: known to be so, or raises Unavailable; a VM raises NotApplicable."""
    if host.exists(f"{FOLDER}/cpu{min(online)}/cpufreq"):
        raise Unavailable(f"{FOLDER}/cpu{min(online)}/cpufreq holds no policy", "garbled")
    if machine.is_vm:
        raise NotApplicable("a VM without cpufreq: the hypervisor sets the CPU frequency")
    return Cpufreq(driver=Absent("unsupported", NO_SCALING), policies=(), without_policy=online)


def read_policy(
    host: Host, path: str, members: frozenset[int], first_preference: str | Absent
) -> FrequencyPolicy:
    """One policy. The preference is not looked for where the first policy has none."""
    return FrequencyPolicy(
        path=path,
        cpus=members,
        governor=text_of(host, f"{path}/scaling_governor"),
        energy_preference=first_preference
        if isinstance(first_preference, Absent)
        else text_of(host, f"{path}/energy_performance_preference"),
    )


def policy_places(host: Host, online: frozenset[int]) -> dict[str, frozenset[int]]:
    """Folder of every policy that has online CPUs -> those CPUs."""
    names = (POLICY.fullmatch(name) for name in host.names(f"{FOLDER}/cpufreq"))
    numbers = sorted(int(match[1]) for match in names if match)
    if not numbers:
        return per_cpu_places(host, online)
    own = [n for n in numbers if n in online]
    if len(own) == len(online):
        return {f"{FOLDER}/cpufreq/policy{n}": frozenset({n}) for n in own}
    places = {f"{FOLDER}/cpufreq/policy{n}": n for n in numbers}
    members = {path: policy_cpus(host, path, n) & online for path, n in places.items()}
    return {path: cpus for path, cpus in members.items() if cpus}


def per_cpu_places(host: Host, online: frozenset[int]) -> dict[str, frozenset[int]]:
    """The layout before Linux 4.3: a folder (or a link to one) in every CPU."""
    places: dict[str, frozenset[int]] = {}
    for cpu in sorted(online):
        try:
            path = host.resolve(f"{FOLDER}/cpu{cpu}/cpufreq")
        except Unavailable:
            continue
        places[path] = places.get(path, frozenset()) | {cpu}
    return places


def policy_cpus(host: Host, path: str, number: int) -> frozenset[int]:
    """affected_cpus: the online CPUs of a policy, space between. Unreadable: all are offline."""
    for name in ("affected_cpus", "related_cpus"):
        if found := NUMBER.findall(host.optional(f"{path}/{name}") or ""):
            return frozenset(map(int, found))
    return frozenset({number})


@probe
def frequency_limits(host: Host, scaling: Cpufreq) -> FrequencyLimits:
    """Read both maxima of every policy. cpuinfo_cur_freq is left alone: it asks the hardware."""
    if not scaling.policies:
        raise NotApplicable(NO_SCALING)
    has_steps = scaling.driver == "acpi-cpufreq"
    return FrequencyLimits(
        limits=tuple(
            FrequencyLimit(
                cpus=policy.cpus,
                allowed_khz=number_of(host, f"{policy.path}/scaling_max_freq", MAX_KHZ),
                possible_khz=(has_steps and highest_step(host, policy.path))
                or number_of(host, f"{policy.path}/cpuinfo_max_freq", MAX_KHZ),
            )
            for policy in scaling.policies
        ),
        max_perf_percent=number_of(host, f"{FOLDER}/intel_pstate/max_perf_pct", 100),
    )


def highest_step(host: Host, folder: str) -> int | Absent | None:
    """The highest of scaling_available_frequencies; None when there is known to be none."""
    steps = text_of(host, f"{folder}/scaling_available_frequencies")
    if isinstance(steps, Absent):
        return None if steps.kind == "unsupported" else steps
    return max(map(int, STEP.findall(steps)), default=None)


@probe
def turbo(host: Host) -> Turbo:
    """Read the switch of the driver. Raises NotApplicable when neither driver offers one."""
    switches = {f"{FOLDER}/intel_pstate/no_turbo": 0, BOOST: 1}
    seen = {path: number_of(host, path, 1) for path in switches}
    for path, value in seen.items():
        if not isinstance(value, Absent):
            if path == BOOST and value == 0 and not has_boost(host):
                raise NotApplicable("the CPU has no clock above its nominal one (acpi_cppc)")
            return Turbo(enabled=value == switches[path], source=path)
    unread = [x for x in seen.values() if isinstance(x, Absent) and x.kind != "unsupported"]
    if unread:
        raise Unavailable(unread[0].reason, "not-recorded")
    raise NotApplicable("the frequency driver offers no turbo switch")


def has_boost(host: Host) -> bool:
    """False when firmware is known to name no performance above the nominal one.

    Not asked of intel_pstate, where turbo that the BIOS took away looks the same. cppc_cpufreq
    shows its switch, off, on such CPUs too and refuses to turn it on (Linux
    drivers/cpufreq/cppc_cpufreq.c; Documentation/admin-guide/acpi/cppc_sysfs.rst).
    """
    names = ("highest_perf", "nominal_perf")
    best, nominal = (number_of(host, f"{FOLDER}/cpu0/acpi_cppc/{name}") for name in names)
    return isinstance(best, Absent) or isinstance(nominal, Absent) or best > nominal


def grouped(items: Iterable[Group], key: Callable[[Group], Hashable]) -> list[Member[Group]]:
    """Items of equal key as one: the first of them and the CPUs of all, in order of first CPU."""
    found: dict[Hashable, Member[Group]] = {}
    for item in items:
        first, cpus = found.get(key(item), (item, frozenset[int]()))
        found[key(item)] = (first, cpus | item.cpus)
    return sorted(found.values(), key=lambda pair: min(pair[1], default=-1))


def word(value: object) -> object:
    """What counts of a value when CPUs are compared: not the path in a reason."""
    return value.kind if isinstance(value, Absent) else value
