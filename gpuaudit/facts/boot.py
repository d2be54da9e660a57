# SPDX-License-Identifier: Apache-2.0
"""Whether the files at hand are those that the node boots from."""

from gpuaudit.facts.base import Absent
from gpuaudit.facts.confinement import JOBS, confinement
from gpuaudit.host import Host

ELSEWHERE = Absent("unsupported", "a container's files do not say what its node does at boot")


def in_container(host: Host) -> bool:
    """True when files and processes are known to be a container's and not the node's."""
    return host.source != "image" and confinement(host) not in {None, *JOBS}


def boots_elsewhere(host: Host) -> Absent | None:
    """Why /etc, /usr and /boot say nothing about the next boot; None when they are the node's."""
    return ELSEWHERE if in_container(host) else None
