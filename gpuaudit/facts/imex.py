# SPDX-License-Identifier: Apache-2.0
"""IMEX, which shares GPU memory between the nodes of an NVLink domain."""

from gpuaudit.facts.base import Absent, Fact, probe, unread
from gpuaudit.facts.gpuscan import GpuScan
from gpuaudit.facts.present import text_if_there
from gpuaudit.host import Host, NotApplicable, Unavailable

NODES = "/etc/nvidia-imex/nodes_config.cfg"
CHANNELS = "/dev/nvidia-caps-imex-channels"
DAEMON = "nvidia-imex"


class Imex(Fact, frozen=True, kw_only=True):
    """The nodes of the configured domain (nodes_config.cfg), the daemon, the channels.

    A list of nodes with fewer than two is no domain. Paths: NVIDIA IMEX Service for NVLink Networks
    User's Guide, chapters "Deployment Models" and "IMEX Channels".
    """

    nodes: int | Absent
    running: bool | Absent
    channels: int | Absent


@probe
def imex(host: Host, scan: GpuScan) -> Imex:
    """Read the list, look for the process, list the channels."""
    del scan
    return Imex(nodes=configured(host), running=running(host), channels=channels(host))


def configured(host: Host) -> int | Absent:
    """Addresses in the list; comments start with #."""
    try:
        text = text_if_there(host, NODES) or ""
    except Unavailable as absent:
        return unread(absent)
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return sum(bool(line) for line in lines)


def running(host: Host) -> bool | Absent:
    """Whether the daemon is in the process table."""
    try:
        table = host.processes()
    except NotApplicable as absent:
        return Absent("unsupported", str(absent))
    except Unavailable as absent:
        return unread(absent)
    if any(one.name == DAEMON for one in table):
        return True
    hidden = all(one.pid != 1 for one in table)
    return (
        Absent("denied", "the processes of other users are hidden: needs root") if hidden else False
    )


def channels(host: Host) -> int | Absent:
    """Channels that users may open."""
    try:
        if not host.exists(CHANNELS):
            return 0
        return sum(name.startswith("channel") for name in host.list(CHANNELS))
    except NotApplicable as absent:
        return Absent("unsupported", str(absent))
    except Unavailable as absent:
        return unread(absent)
