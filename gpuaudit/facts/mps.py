# SPDX-License-Identifier: Apache-2.0
"""The Multi-Process Service of CUDA."""

import re

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.gpuscan import GpuScan
from gpuaudit.facts.services import HIDDEN, Processes
from gpuaudit.host import Host

NAMES = ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server")


class Mps(Fact, frozen=True, kw_only=True):
    """Processes of MPS in the process table, with the user of each (/proc/PID/status).

    The kernel keeps 15 bytes of a name, which daemon and server share. The daemon starts the
    server, so a process whose parent is one of them is a server.
    """

    daemons: dict[int, int | None]
    """PID -> user ID, None when it is not known."""

    servers: dict[int, int | None]
    orphans: tuple[int, ...]
    """Processes of MPS that have died and are still in the table."""

    hidden: Absent | None


@probe
def mps(host: Host, table: Processes, scan: GpuScan) -> Mps:
    """Find them; `scan` ends it where there is no GPU."""
    del scan
    found = table.named(*NAMES)
    alive = [one for one in found if one.state not in {"zombie", "dead"}]
    pids = {one.pid for one in alive}
    return Mps(
        daemons={one.pid: user(host, one.pid) for one in alive if one.parent not in pids},
        servers={one.pid: user(host, one.pid) for one in alive if one.parent in pids},
        orphans=tuple(one.pid for one in found if one.pid not in pids),
        hidden=None if table.complete else HIDDEN,
    )


def user(host: Host, pid: int) -> int | None:
    """The user a process belongs to."""
    text = host.optional(f"/proc/{pid}/status") or ""
    match = re.search(r"^Uid:\s+([0-9]{1,10})\b", text, re.MULTILINE)
    return int(match[1]) if match else None
