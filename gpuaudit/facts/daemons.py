# SPDX-License-Identifier: Apache-2.0
"""The daemons that start jobs, and the limits each of them hands down."""

from typing import NamedTuple

from gpuaudit.facts import systemd
from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.limits import Reading, absence, parse_limits
from gpuaudit.facts.manager import configured, of_unit
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
ADVISORY = frozenset({"kubelet", "kubelet.service"})
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
    """All that is known of one context."""
    try:
        units = configured_units(host, one.units)
        gap = None
    except Unavailable as absent:
        units, gap = (), absence(absent)
    if isinstance(table, Absent):
        hidden = table if table.kind != "unsupported" else gap
        found = units if table.kind == "unsupported" else (*hole(one, table), *units)
        return found if units else hidden or nothing(one, "it has no unit")
    mine = [p for p in table.values() if p.name in one.processes and is_of_the_node(p, table)]
    running = tuple(process_reading(host, p) for p in mine)
    if gap and not running:
        return gap
    if not running and not units:
        return nothing(one, "neither a process nor a unit has its name")
    return (*running, *units)


def hole(one: Context, why: Absent) -> tuple[Reading, ...]:
    """The reading of a daemon whose process cannot be seen."""
    return (Reading(subject=one.processes[0], memlock=why, nofile=why, now=True),)


def nothing(one: Context, reason: str) -> Absent:
    """This node does not start jobs in this way."""
    return Absent("unsupported", f"no {one.processes[0]} on this node: {reason}")


def process_reading(host: Host, process: Process) -> Reading:
    """The limits of a running daemon. The file is readable by everyone without hidepid=."""
    path = f"/proc/{process.pid}/limits"
    memlock: object
    try:
        limits = parse_limits(host.read(path), path)
        memlock, nofile = limits.memlock, limits.nofile
    except Unavailable as absent:
        why = absence(absent)
        return Reading(subject=process.name, memlock=why, nofile=why, now=True, evidence=(path,))
    return Reading(
        subject=process.name,
        memlock=memlock,
        nofile=nofile,
        now=True,
        evidence=(path,),
        advisory=process.name in ADVISORY,
    )


def configured_units(host: Host, names: tuple[str, ...]) -> tuple[Reading, ...]:
    """What each unit that is there gives at the next boot. An alias of another counts once."""
    found: dict[str, Reading] = {}
    for name in names:
        unit = systemd.unit(host, name)
        if unit is None or unit.masked:
            continue
        reading = of_unit(unit, configured(host))
        found.setdefault(host.resolve(unit.path), advised(reading, name))
    return tuple(found.values())


def advised(reading: Reading, unit: str) -> Reading:
    """Mark what is only advice."""
    return Reading(
        subject=reading.subject,
        memlock=reading.memlock,
        nofile=reading.nofile,
        now=reading.now,
        evidence=reading.evidence,
        advisory=unit in ADVISORY,
    )
