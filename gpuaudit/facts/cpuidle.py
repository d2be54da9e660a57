# SPDX-License-Identifier: Apache-2.0
"""Idle states of the CPUs: how deep they sleep and how long they take to wake.

Source: Linux Documentation/admin-guide/pm/cpuidle.rst.
"""

import re

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.cpu import FOLDER, CpuSets, known, number_of, text_of
from gpuaudit.host import Host, NotApplicable

STATE = re.compile(r"state[0-9]{1,3}")
WITHOUT_STATES = {
    "none": "no idle driver is loaded",
    "haltpoll": "a VM with haltpoll: the hypervisor chooses the idle state",
}


class IdleState(Fact, frozen=True, kw_only=True):
    """One state of one CPU: /sys/devices/system/cpu/cpuN/cpuidle/stateM/{name,latency}.

    `enabled_on` are CPUs seen with it enabled. Where the first CPU looked at has it enabled no
    other is asked: one deep state decides.
    """

    cpu: int
    name: str
    latency_us: int | Absent
    enabled_on: frozenset[int] | Absent


class IdleStates(Fact, frozen=True, kw_only=True):
    """Driver (/sys/devices/system/cpu/cpuidle/current_driver) and states of the CPUs looked at.

    Those are the lowest and the highest online CPU: hybrid parts put their kinds of cores at the
    ends. Limits set through /dev/cpu_dma_latency (PM QoS) are not visible here.
    """

    driver: str | Absent
    states: tuple[IdleState, ...]


@probe
def idle_states(host: Host, cpus: CpuSets) -> IdleStates:
    """Read the states. Raises NotApplicable where the kernel has none to choose from."""
    driver = text_of(host, f"{FOLDER}/cpuidle/current_driver")
    if isinstance(driver, str) and driver in WITHOUT_STATES:
        raise NotApplicable(WITHOUT_STATES[driver])
    if isinstance(driver, Absent) and driver.kind == "unsupported":
        raise NotApplicable("the kernel has no idle driver")
    online = known(cpus.online)
    looked_at = sorted({min(online), max(online)})
    states = [s for cpu in looked_at for s in states_of(host, cpu, online)]
    return IdleStates(driver=driver, states=tuple(states))


def states_of(host: Host, cpu: int, online: frozenset[int]) -> list[IdleState]:
    """Every state of one CPU. Raises Unavailable when its folder cannot be listed."""
    folder = f"{FOLDER}/cpu{cpu}/cpuidle"
    names = [name for name in host.list(folder) if STATE.fullmatch(name)]
    return [read_state(host, cpu, name, online) for name in names]


def read_state(host: Host, cpu: int, name: str, online: frozenset[int]) -> IdleState:
    """One state, and where it is disabled on this CPU the others that have it enabled."""
    folder = f"{FOLDER}/cpu{cpu}/cpuidle/{name}"
    label = text_of(host, f"{folder}/name")
    return IdleState(
        cpu=cpu,
        name=name if isinstance(label, Absent) else label,
        latency_us=number_of(host, f"{folder}/latency"),
        enabled_on=enabled_cpus(host, cpu, name, online),
    )


def enabled_cpus(
    host: Host, cpu: int, name: str, online: frozenset[int]
) -> frozenset[int] | Absent:
    """CPUs with the state enabled: this one, or else those found by asking every other."""
    here = number_of(host, f"{FOLDER}/cpu{cpu}/cpuidle/{name}/disable")
    if isinstance(here, Absent):
        return here
    if here == 0:
        return frozenset({cpu})
    asked = {c: number_of(host, f"{FOLDER}/cpu{c}/cpuidle/{name}/disable") for c in online - {cpu}}
    enabled = frozenset(c for c, disabled in asked.items() if disabled == 0)
    unread = [d for d in asked.values() if isinstance(d, Absent) and d.kind != "unsupported"]
    return unread[0] if unread and not enabled else enabled
