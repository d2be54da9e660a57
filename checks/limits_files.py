# SPDX-License-Identifier: Apache-2.0
"""Open files in every context that starts jobs."""

from collections.abc import Iterator
from itertools import chain
from typing import Annotated

import msgspec

from gpuaudit.check import Expectations, Finding, Severity, check, expect, fails, passes, warns
from gpuaudit.facts.base import Absent
from gpuaudit.facts.daemons import JobDaemons
from gpuaudit.facts.docker import DockerLimits
from gpuaudit.facts.limits import ProcessLimits, RdmaNeed, Reading, reaches, show_limit
from gpuaudit.facts.pam import LoginLimits

Files = Annotated[int, msgspec.Meta(ge=256, le=1 << 30)]


class LimitsFilesExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of the number of open files."""

    soft: Files
    hard: Files


@check("limits-open-files", severity=Severity.LOW)
def open_files(
    process: ProcessLimits,
    daemons: JobDaemons,
    docker: DockerLimits,
    login: LoginLimits,
    need: RdmaNeed,
    want: LimitsFilesExpectations,
) -> Iterator[Finding]:
    """Jobs may open as many files and sockets as large runs need.

    ## Why it matters
    NCCL holds sockets for each channel and peer, data loaders a file descriptor for each tensor.

    ## Evidence
    As for locked memory: this process, slurmd, containerd, docker, SSH logins.

    ## How it is judged
    A hard limit below `limits_files.hard` fails; a soft one below `limits_files.soft` warns,
    because a program may raise that itself. What only the next boot brings warns while the system
    runs.

    ## Exceptions
    systemd keeps the soft limit at 1024 for programs that use select().

    ## What to do
    Set `LimitNOFILE=65536:524288` in a drop-in of the daemon's unit, or `* - nofile 524288` in
    /etc/security/limits.d for logins.

    ## References
    - https://0pointer.net/blog/file-descriptor-limits.html
    """
    contexts = (daemons.contexts["slurmd"], daemons.contexts["containerd"])
    groups = (*contexts, docker.readings, login.readings)
    readings = chain.from_iterable(group for group in groups if isinstance(group, tuple))
    for reading in (process.reading, *readings):
        yield judge_files(reading, need, want)
    gaps = (group for group in groups if isinstance(group, Absent) and group.kind != "unsupported")
    yield from {
        gap.reason: expect(gap, None, of="daemons that start jobs") for gap in gaps
    }.values()


def judge_files(reading: Reading, need: RdmaNeed, want: LimitsFilesExpectations) -> Finding:
    """Open files: the hard limit decides, the soft one is a hint."""
    limit = reading.nofile
    if isinstance(limit, Absent):
        return expect(limit, None, of=reading.subject)
    shown = show_limit(limit, of_bytes=False)
    wanted = f"soft {want.soft}, hard {want.hard}"
    fields = {"expected": f"at least {wanted}", "evidence": reading.evidence}
    hard_is_good = reaches(limit.hard, want.hard)
    if hard_is_good and reaches(limit.soft, want.soft):
        return passes(reading.subject, shown, **fields)
    answer = warns if hard_is_good or not (reading.now or need.image) else fails
    return answer(reading.subject, f"open files are limited to {shown}", shown, **fields)
