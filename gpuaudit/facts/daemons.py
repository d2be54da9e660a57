# SPDX-License-Identifier: Apache-2.0
"""The daemons that start jobs, and the limits each of them hands down."""

from typing import NamedTuple

import msgspec

from gpuaudit.facts import systemd
from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.boot import boots_elsewhere, in_container
from gpuaudit.facts.limits import Reading, absence, reading_of
from gpuaudit.facts.manager import configured, of_unit
from gpuaudit.facts.services import HIDDEN
from gpuaudit.host import Host, NotApplicable, Process, Unavailable


class Context(NamedTuple):
    """One way in which jobs are started: names of processes, and of units."""

    processes: tuple[str, ...]
    units: tuple[str, ...]


# k3s and rke2 hold kubelet in themselves and start containerd, which inherits their limits.
CONTEXTS = {
    "slurmd": Context(("slurmd",), ("slurmd.service",)),
    "containerd": Context(("containerd", "crio"), ("containerd.service", "crio.service")),
    "docker": Context(("dockerd",), ("docker.service",)),
    "kubelet": Context(
        ("kubelet", "k3s-server", "k3s-agent", "rke2"),
        (
            "kubelet.service",
            "k3s.service",
            "k3s-agent.service",
            "rke2-server.service",
            "rke2-agent.service",
        ),
    ),
    "sshd": Context(("sshd",), ("ssh.service", "sshd.service")),
}
ADVISORY = dict.fromkeys(
    ("kubelet", "kubelet.service"), "kubelet starts no container, the runtime does"
)
# What runs below these belongs to a container, not to the node.
CONTAINER_PARENTS = ("containerd-shim", "conmon", "lxc-start", "systemd-nspawn")


class JobDaemons(Fact, frozen=True, kw_only=True):
    """The limits of slurmd, containerd, docker, kubelet and sshd, by context.

    Running: the process table and /proc/<pid>/limits. Next boot: the unit, its drop-ins and
    system.conf. A context is Absent (unsupported) when it is known to have neither.
    """

    contexts: dict[str, tuple[Reading, ...] | Absent]
    docker_owns_containerd: bool = False


@probe
def job_daemons(host: Host) -> JobDaemons:
    """Read the process table once and each context from it; never raises."""
    table = process_table(host)
    owned = isinstance(table, dict) and any(
        p.name == "containerd" and parent_name(p, table) == "dockerd" for p in table.values()
    )
    return JobDaemons(
        contexts={name: context(host, one, table) for name, one in CONTEXTS.items()},
        docker_owns_containerd=owned,
    )


def process_table(host: Host) -> dict[int, Process] | Absent:
    """The processes by their ID, or why they cannot all be seen.

    With the mount option hidepid= of /proc a user sees only its own processes, and the first
    process is not among them (proc(5)).
    """
    try:
        table = {process.pid: process for process in host.processes()}
    except (Unavailable, NotApplicable) as absent:
        return absence(absent)
    if 1 not in table or not table[1].name:
        return Absent("denied", "the processes of other users are hidden: needs root")
    return table


def parent_name(process: Process, table: dict[int, Process]) -> str:
    """The name of the parent, empty without one."""
    parent = table.get(process.parent or 0)
    return parent.name if parent else ""


def is_of_the_node(process: Process, table: dict[int, Process]) -> bool:
    """False inside a container of this node, and for a child of the same daemon."""
    seen: set[int] = set()
    at = table.get(process.parent or 0)
    while at is not None and at.pid not in seen:
        if at.name == process.name or at.name.startswith(CONTAINER_PARENTS):
            return False
        seen.add(at.pid)
        at = table.get(at.parent or 0)
    return process.state != "zombie"


def context(
    host: Host, one: Context, table: dict[int, Process] | Absent
) -> tuple[Reading, ...] | Absent:
    """All that is known of one context; what could not be seen stays in it as Absent."""
    name = one.processes[0]
    parts = {
        name: running(host, one, table),
        f"{name} at the next boot": configured_units(host, one),
    }
    found = [reading for part in parts.values() if isinstance(part, tuple) for reading in part]
    gaps = {
        subject: part
        for subject, part in parts.items()
        if isinstance(part, Absent) and part.kind != "unsupported"
    }
    if found:
        holes = (
            Reading(subject=subject, memlock=why, nofile=why, now=subject == name)
            for subject, why in gaps.items()
        )
        return (*found, *holes)
    return next(iter(gaps.values()), Absent("unsupported", f"{name} is not part of this node"))


def running(
    host: Host, one: Context, table: dict[int, Process] | Absent
) -> tuple[Reading, ...] | Absent:
    """The limits of the daemons that run now."""
    if isinstance(table, Absent):
        return table
    mine = (p for p in table.values() if p.name in one.processes and is_of_the_node(p, table))
    found = tuple(advised(reading_of(host, p.pid, p.name), p.name) for p in mine)
    return found or (HIDDEN if in_container(host) else ())


def configured_units(host: Host, one: Context) -> tuple[Reading, ...] | Absent:
    """What each unit that is there gives at the next boot. An alias of another counts once."""
    found: dict[str, Reading] = {}
    if (elsewhere := boots_elsewhere(host)) is not None:
        return elsewhere
    try:
        for name in one.units:
            unit = systemd.unit(host, name)
            if unit is not None and not unit.masked:
                reading = advised(of_unit(unit, configured(host)), name)
                found.setdefault(host.resolve(unit.path), reading)
    except Unavailable as absent:
        return absence(absent)
    return tuple(found.values())


def advised(reading: Reading, name: str) -> Reading:
    """Mark what is only advice."""
    return msgspec.structs.replace(reading, advisory=ADVISORY.get(name, ""))
