# SPDX-License-Identifier: Apache-2.0
"""Who keeps the persistence mode: the daemon or the driver's legacy mode."""

from gpuaudit.facts.base import Fact, probe
from gpuaudit.host import Host, Unavailable

COMM = "nvidia-persiste"
"""The kernel cuts names at 15 bytes (TASK_COMM_LEN, Linux include/linux/sched.h)."""


class PersistenceDaemon(Fact, frozen=True, kw_only=True):
    """Whether nvidia-persistenced is in the process table; None when that is not to be had."""

    running: bool | None


@probe
def persistence_daemon(host: Host) -> PersistenceDaemon:
    """Look for the process."""
    try:
        table = host.processes()
    except Unavailable:
        return PersistenceDaemon(running=None)
    running = any(one.name.startswith(COMM) for one in table)
    hidden = not running and all(one.pid != 1 for one in table)
    return PersistenceDaemon(running=None if hidden else running)
