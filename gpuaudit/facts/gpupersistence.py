# SPDX-License-Identifier: Apache-2.0
"""Who keeps the persistence mode: the daemon or the driver's legacy mode."""

from gpuaudit.facts.base import Fact, probe
from gpuaudit.host import Host, Unavailable

COMM = "nvidia-persiste"
"""The kernel cuts names at 15 bytes (TASK_COMM_LEN, Linux include/linux/sched.h)."""


class PersistenceDaemon(Fact, frozen=True, kw_only=True):
    """Whether nvidia-persistenced is in the process table; None when that is not to be had."""

    running: bool | None

    @property
    def seen(self) -> str:
        """For the evidence of a finding."""
        if self.running is None:
            return "the process table was not recorded"
        return f"nvidia-persistenced {'runs' if self.running else 'does not run'}"


@probe
def persistence_daemon(host: Host) -> PersistenceDaemon:
    """Look for the process."""
    try:
        running = any(one.name.startswith(COMM) for one in host.processes())
    except Unavailable:
        return PersistenceDaemon(running=None)
    return PersistenceDaemon(running=running)
