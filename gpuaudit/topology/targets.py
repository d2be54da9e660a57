# SPDX-License-Identifier: Apache-2.0
"""The speed that software allows on links that run slower than they could."""

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.pci import PciDevices
from gpuaudit.facts.pciconfig import read_config
from gpuaudit.host import Host
from gpuaudit.topology.judged import judge, one_a_slot
from gpuaudit.topology.paths import own_link


class LinkTargets(Fact, frozen=True, kw_only=True):
    """Target Link Speed in GT/s by port, from Link Control 2 of the ports above slow links only.

    /sys/bus/pci/devices/A/config; PCI Express Base Specification 5.0, section 7.5.3.19. A port
    whose registers cannot be read is left out.
    """

    by_port: dict[str, float]


@probe
def link_targets(host: Host, devices: PciDevices) -> LinkTargets:
    """Nothing is read on a node whose links all run at full speed."""
    links = (own_link(devices, device) for device in one_a_slot(devices))
    slow = {link.upper for link in links if link and judge(link.speed).outcome == "low"}
    found = {port: target_of(host, devices, port) for port in sorted(slow) if port}
    return LinkTargets(by_port={port: speed for port, speed in found.items() if speed is not None})


def target_of(host: Host, devices: PciDevices, address: str) -> float | None:
    """The target speed of one port, None when it cannot be read."""
    port = devices.by_address.get(address)
    config = read_config(host, port.path) if port else None
    if config is None or isinstance(config, Absent) or isinstance(config.express, Absent):
        return None
    return config.express.target_speed_gt_per_s
