# SPDX-License-Identifier: Apache-2.0
"""RDMA devices of the running kernel."""

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.host import Host, NotApplicable, Unavailable

FOLDER = "/sys/class/infiniband"


class InfinibandDevices(Fact, frozen=True, kw_only=True):
    """The names in /sys/class/infiniband: InfiniBand, RoCE, EFA and other verbs devices.

    Empty when ib_core is not loaded and the folder is known not to be there.
    """

    names: tuple[str, ...] | Absent


@probe
def infiniband_devices(host: Host) -> InfinibandDevices:
    """List the devices; never raises, since no device is an answer too."""
    try:
        return InfinibandDevices(names=host.list(FOLDER))
    except NotApplicable as absent:
        return InfinibandDevices(names=Absent("unsupported", absent.reason))
    except Unavailable as absent:
        if absent.kind == "missing":
            return InfinibandDevices(names=())
        return InfinibandDevices(names=Absent("failed", absent.reason))
