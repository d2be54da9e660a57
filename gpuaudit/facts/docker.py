# SPDX-License-Identifier: Apache-2.0
"""The limits that containers of Docker get."""

import re

import msgspec

from gpuaudit.facts import systemd
from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.daemons import JobDaemons
from gpuaudit.facts.limits import Limit, Reading, absence
from gpuaudit.host import Host, Unavailable

DAEMON_JSON = "/etc/docker/daemon.json"
FLAG = re.compile(r"--default-ulimit[=\s]+[\"']?(memlock|nofile)=(-?\d{1,19})(?::(-?\d{1,19}))?")
RESOURCES = ("memlock", "nofile")


class DockerLimits(Fact, frozen=True, kw_only=True):
    """What a container gets that asks for no limits of its own.

    `default-ulimits` of /etc/docker/daemon.json, or --default-ulimit in docker.service (dockerd
    refuses to start with both). Without either the container inherits the limits of containerd,
    which starts it (moby daemon/oci_linux.go, WithRlimits).
    """

    readings: tuple[Reading, ...] | Absent


@probe
def docker_limits(host: Host, daemons: JobDaemons) -> DockerLimits:
    """Default limits where they are set, else those of containerd; never raises."""
    docker = daemons.contexts["docker"]
    if isinstance(docker, Absent):
        return DockerLimits(readings=docker)
    inherited = docker if daemons.docker_owns_containerd else parents(daemons, docker)
    chosen = default_ulimits(host)
    return DockerLimits(readings=tuple(container(reading, chosen) for reading in inherited))


def parents(daemons: JobDaemons, docker: tuple[Reading, ...]) -> tuple[Reading, ...]:
    """The readings of containerd; those of dockerd where it starts containerd itself."""
    containerd = daemons.contexts["containerd"]
    return docker if isinstance(containerd, Absent) else containerd


def container(parent: Reading, chosen: dict[str, Limit | Absent | None]) -> Reading:
    """What a container gets below one parent."""
    inherits = chosen["memlock"] is None
    when = "" if parent.now else " at the next boot"
    return Reading(
        subject=f"docker containers{when}",
        memlock=parent.memlock if inherits else chosen["memlock"],  # type: ignore[arg-type]  # not None
        nofile=parent.nofile if chosen["nofile"] is None else chosen["nofile"],
        now=parent.now,
        evidence=parent.evidence if inherits else (DAEMON_JSON,),
    )


def default_ulimits(host: Host) -> dict[str, Limit | Absent | None]:
    """The default limits by name, None where nothing sets one."""
    try:
        unit = systemd.unit(host, "docker.service")
        command = unit.last("Service", "ExecStart") if unit else None
        flags = (
            {m[1]: limit(m[2], m[3] or m[2]) for m in FLAG.finditer(command.value)}
            if command
            else {}
        )
        text = host.read(DAEMON_JSON) if host.exists(DAEMON_JSON) else ""
    except Unavailable as absent:
        return dict.fromkeys(RESOURCES, absence(absent))
    return {name: flags.get(name) or from_json(text, name) for name in RESOURCES}


def from_json(text: str, name: str) -> Limit | Absent | None:
    """default-ulimits.<name> of daemon.json, None when it is not set."""
    try:
        content = msgspec.json.decode(text) if text else {}
        entry = content.get("default-ulimits", {}).get(name)
        return None if entry is None else limit(entry["Soft"], entry["Hard"])
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        why = f"{DAEMON_JSON}: default-ulimits cannot be read ({type(error).__name__})"
        return Absent("failed", why)


def limit(soft: object, hard: object) -> Limit:
    """-1 is unlimited (docker run --ulimit). Raises ValueError or TypeError."""
    numbers = [int(n) for n in (soft, hard)]  # type: ignore[call-overload]  # a TypeError is the answer
    return Limit(*(None if n < 0 else n for n in numbers))
