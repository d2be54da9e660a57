# SPDX-License-Identifier: Apache-2.0
"""The variables that steer CUDA, NCCL and their like: where each of them is set."""

from collections.abc import Iterator

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.boot import boots_elsewhere
from gpuaudit.facts.environmentfiles import FILES, NCCL_FILE, PLAIN, Assignment, Place, file_of
from gpuaudit.facts.environmentunits import units
from gpuaudit.facts.limits import absence
from gpuaudit.facts.systemd import drop_ins
from gpuaudit.host import Host, NotApplicable, Unavailable

__all__ = ["Assignment", "Environment", "environment"]

CALLER = "/proc/self/environ"
CALLING_SHELL = "the calling shell"
PROFILE = "/etc/profile.d"
USER_UNITS = ("/etc/environment.d", "/usr/lib/environment.d")
NCCL_CONF = "/etc/nccl.conf"
JOB_IDS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID")


class Environment(Fact, frozen=True, kw_only=True):
    """Variables that matter (gpuaudit.host.environ), with the file and line that sets each.

    Files: /etc/environment, pam_env.conf, /etc/profile, /etc/profile.d, bashrc and their like,
    environment.d, /etc/nccl.conf; systemd's DefaultEnvironment= and the units that start jobs.
    Caller: /proc/self/environ, what the audit itself was started with.
    """

    assignments: tuple[Assignment, ...]
    """Node-wide, in the order of reading. Empty values are among them."""

    caller: dict[str, str] | Absent
    gaps: dict[str, Absent]
    """Path or unit -> why what it sets is not known."""

    @property
    def job(self) -> str | None:
        """The variable that says the audit runs in a batch job, None outside of one."""
        known = {} if isinstance(self.caller, Absent) else self.caller
        return next((name for name in JOB_IDS if known.get(name)), None)

    def value(self, name: str) -> str | None:
        """The caller's value; None when it is not set, or not known (see `caller`)."""
        return None if isinstance(self.caller, Absent) else self.caller.get(name)

    def everywhere(self) -> Iterator[Assignment]:
        """Node-wide assignments, then those that the audit was started with."""
        yield from self.assignments
        for name, value in {} if isinstance(self.caller, Absent) else self.caller.items():
            yield Assignment(name, value, CALLER, CALLING_SHELL)

    def named(self, *names: str) -> tuple[Assignment, ...]:
        """Every assignment of one of these variables, of the caller too."""
        return tuple(one for one in self.everywhere() if one.name in names)


@probe
def environment(host: Host) -> Environment:
    """Read every place; never raises, a place that cannot be read is a gap."""
    found: list[Assignment] = []
    gaps: dict[str, Absent] = {}
    for path, place in places(host, gaps):
        try:
            found += file_of(host, path, place)
        except (Unavailable, NotApplicable) as absent:
            gaps[path] = absence(absent)
    if boots_elsewhere(host) is None:
        found += units(host, gaps)
    return Environment(assignments=tuple(found), caller=caller(host), gaps=gaps)


def places(host: Host, gaps: dict[str, Absent]) -> Iterator[tuple[str, Place]]:
    """The files to read, with the syntax and the reach of each."""
    yield from FILES.items()
    try:
        for name in host.list(PROFILE) if host.exists(PROFILE) else ():
            if name.endswith((".sh", ".csh")):
                yield f"{PROFILE}/{name}", FILES["/etc/profile"]
    except Unavailable as absent:
        gaps[PROFILE] = absence(absent)
    try:
        for path in drop_ins(host, list(USER_UNITS)):
            yield path, Place(PLAIN, "user services")
    except Unavailable as absent:
        gaps[USER_UNITS[0]] = absence(absent)
    yield NCCL_CONF, NCCL_FILE


def caller(host: Host) -> dict[str, str] | Absent:
    """The environment the audit was started with."""
    try:
        text = host.read(CALLER)
    except (Unavailable, NotApplicable) as absent:
        return absence(absent)
    return dict(word.partition("=")[::2] for word in text.split("\0") if "=" in word)
