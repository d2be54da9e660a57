# SPDX-License-Identifier: Apache-2.0
"""RDMA devices of the running kernel."""

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.host import Host, NotApplicable, Unavailable

FOLDER = "/sys/class/infiniband"


class InfinibandDevices(Fact, frozen=True, kw_only=True):
    """The names in /sys/class/infiniband: InfiniBand, RoCE, EFA and other verbs devices.

    Empty when ib_core is not loaded and the folder is known not to be there. `exclusive`: each is
    seen in one network namespace only, so that a container may have taken some away
    (/sys/module/ib_core/parameters/netns_mode reads N; Linux drivers/infiniband/core/device.c).
    """

    names: tuple[str, ...] | Absent
    exclusive: bool = False


@probe
def infiniband_devices(host: Host) -> InfinibandDevices:
    """List the devices; never raises, since no device is an answer too."""
    try:
        mode = host.optional("/sys/module/ib_core/parameters/netns_mode")
        return InfinibandDevices(names=host.list(FOLDER), exclusive=mode == "N")
    except NotApplicable as absent:
        return InfinibandDevices(names=Absent("unsupported", absent.reason))
    except Unavailable as absent:
        if absent.kind == "missing":
            return InfinibandDevices(names=())
        return InfinibandDevices(names=Absent("failed", absent.reason))
