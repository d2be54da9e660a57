# SPDX-License-Identifier: Apache-2.0
"""Which resource limits Slurm carries over from the submit host."""

import re

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.limits import absence
from gpuaudit.host import Host, Unavailable

# Debian's older place, the default prefix, AWS ParallelCluster; /run/slurm/conf is a link to what a
# configless slurmd fetched (https://slurm.schedmd.com/configless_slurm.html).
PLACES = (
    "/etc/slurm/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/usr/local/etc/slurm.conf",
    "/opt/slurm/etc/slurm.conf",
    "/run/slurm/conf/slurm.conf",
)
LINE = re.compile(r"\s*(PropagateResourceLimits(?:Except)?)\s*=\s*\"?([A-Za-z_, ]*)", re.IGNORECASE)
INCLUDE = re.compile(r"\s*include\s+(\S+)", re.IGNORECASE)
MAX_FILES = 20


class SlurmLimits(Fact, frozen=True, kw_only=True):
    """PropagateResourceLimits and PropagateResourceLimitsExcept in slurm.conf and its includes.

    `propagates_memlock`: the soft limit of the submit host replaces that of slurmd. It does unless
    one of the two says otherwise (slurm.conf(5); src/common/slurm_rlimits_info.c).
    """

    propagates_memlock: bool | Absent
    where: str


@probe
def slurm_limits(host: Host) -> SlurmLimits:
    """Read the first slurm.conf that is there; never raises."""
    try:
        path = find(host)
        if path is None:
            why = "slurm.conf is not in a known place; see `scontrol show config | grep Propagate`"
            image = host.source == "image"
            gone = Absent("unsupported" if image else "missing", why)
            return SlurmLimits(propagates_memlock=gone, where="slurm.conf")
        propagates, where = decide(assignments(host, path))
    except Unavailable as absent:
        return SlurmLimits(propagates_memlock=absence(absent), where="slurm.conf")
    return SlurmLimits(propagates_memlock=propagates, where=where or path)


def find(host: Host) -> str | None:
    """The slurm.conf in use, None when there is known to be none. Raises Unavailable."""
    places = PLACES[:-1] if host.source == "image" else PLACES
    return next((path for path in places if host.exists(path)), None)


def assignments(host: Host, path: str) -> list[tuple[str, str, str]]:
    """(key in lower case, value, place) in order, includes followed. Raises Unavailable."""
    found, todo, read = [], [path], 0
    while todo and read < MAX_FILES:
        current, read = todo.pop(), read + 1
        text = host.read_bytes(current).decode("utf-8", "replace")
        for number, raw in enumerate(re.split(r"\r\n|[\n\r]", text), 1):
            line = raw.partition("#")[0]
            if match := LINE.match(line):
                found.append((match[1].lower(), match[2].strip(), f"{current}:{number}"))
            elif match := INCLUDE.match(line):
                folder = path.rpartition("/")[0]
                todo.append(match[1] if match[1].startswith("/") else f"{folder}/{match[1]}")
    return found


def decide(found: list[tuple[str, str, str]]) -> tuple[bool, str | None]:
    """Whether MEMLOCK is propagated, and the place that decides it."""
    values = {key: (value, where) for key, value, where in found}
    for key, listed in (
        ("propagateresourcelimitsexcept", False),
        ("propagateresourcelimits", True),
    ):
        value, where = values.get(key, ("", None))
        limits = {word.removeprefix("RLIMIT_") for word in re.split(r"[,\s]+", value.upper())}
        if limits - {""}:
            named = "MEMLOCK" in limits or "ALL" in limits
            return (named if listed else not named), where
    return True, None
