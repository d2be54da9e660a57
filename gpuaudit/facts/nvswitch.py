# SPDX-License-Identifier: Apache-2.0
"""The NVSwitches on the PCI bus."""

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.gpuscan import GpuScan, is_dead
from gpuaudit.facts.pci import FOLDER, identified
from gpuaudit.host import Host, NotApplicable, Unavailable

NOT_TOLD = Absent("missing", "its driver was not recorded")


class NvSwitches(Fact, frozen=True, kw_only=True):
    """Address -> driver and whether it is dead: /sys/bus/pci/devices/A/driver, .../config."""

    switches: dict[str, tuple[str | Absent | None, bool | Absent]]


@probe
def nv_switches(host: Host, scan: GpuScan) -> NvSwitches:
    """Look at each. Raises Unavailable when the PCI bus was not read."""
    if scan.image:
        raise NotApplicable("an image has no NVSwitches")
    if scan.functions is None:
        raise Unavailable("the PCI bus was not read", "not-recorded")
    found: dict[str, tuple[str | Absent | None, bool | Absent]] = {}
    for address in scan.switches:
        device = identified(host, address)
        driver = device.driver if device.driver_known else NOT_TOLD
        found[address] = (driver, is_dead(host, f"{FOLDER}/{address}"))
    return NvSwitches(switches=found)
