# SPDX-License-Identifier: Apache-2.0
"""What the drivers of data interfaces say of themselves: rings, offloads, flow control."""

import msgspec

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.limits import absence
from gpuaudit.facts.netdev import NetDevices
from gpuaudit.host import Host, NotApplicable, Unavailable

NOT_SUPPORTED = "the driver does not support the question"


class NetDriver(msgspec.Struct, frozen=True, kw_only=True):
    """Answers to ethtool's read-only questions; {} or None where the driver has none.

    `rings`: rx, rx_max, tx, tx_max in descriptors. `features`: name -> on, off, and "fixed" behind
    it where nobody can change it. `pause`: rx, tx. `bridging`: pfc (priorities with flow control)
    and dscp (how many DSCP values have a priority). `failed`: question -> reason.
    """

    driver: dict[str, str] = {}
    rings: dict[str, int] = {}
    channels: dict[str, int] = {}
    pause: dict[str, bool] = {}
    features: dict[str, str] = {}
    bridging: dict[str, list[int] | int] | None = None
    failed: dict[str, str] = {}

    def lacking(self, question: str) -> Absent:
        """Why there is no answer to one question."""
        if question in self.failed:
            return Absent("failed", self.failed[question])
        return Absent("unsupported", NOT_SUPPORTED)


class NetDrivers(Fact, frozen=True, kw_only=True):
    """ioctl SIOCETHTOOL and RTM_GETDCB of each data interface (gpuaudit/host/calls.py)."""

    by_name: dict[str, NetDriver | Absent]


@probe
def net_drivers(host: Host, interfaces: NetDevices) -> NetDrivers:
    """Ask every data interface. Raises Unavailable, NotApplicable."""
    return NetDrivers(by_name={one.name: asked(host, one.name) for one in interfaces.data})


def asked(host: Host, name: str) -> NetDriver | Absent:
    """One interface, or why it does not answer."""
    try:
        said = host.run("@ethtool", name)
    except (Unavailable, NotApplicable) as absent:
        return absence(absent)
    if said.returncode:
        return Absent("failed", f"ethtool {name}: {said.stderr}")
    try:
        return msgspec.json.decode(said.stdout, type=NetDriver)
    except (msgspec.MsgspecError, RecursionError) as error:
        return Absent("failed", f"ethtool {name}: {error}")
