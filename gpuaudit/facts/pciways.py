# SPDX-License-Identifier: Apache-2.0
"""The devices an audit cares for that are in use, and the ports above them."""

from collections.abc import Iterable

from gpuaudit.facts.pci import PciDevice, PciDevices
from gpuaudit.host import NotApplicable

NOTHING = "no GPU, NIC or NVMe drive is in use on the PCI bus"


def in_use(devices: PciDevices) -> tuple[PciDevice, ...]:
    """GPUs, and NICs and NVMe drives with a driver. Raises NotApplicable when there is none."""
    found = devices.of("gpu", "nic", "nvme")
    used = tuple(d for d in found if d.role == "gpu" or not d.unbound)
    if not used:
        raise NotApplicable(NOTHING)
    return used


def movers(devices: PciDevices) -> tuple[PciDevice, ...]:
    """Those that move a job's data: a NIC without RDMA serves management. Raises NotApplicable."""
    found = tuple(d for d in in_use(devices) if d.role != "nic" or d.rdma is not False)
    if not found:
        raise NotApplicable("no GPU, RDMA NIC or NVMe drive is in use")
    return found


def with_ports(devices: PciDevices, below: Iterable[PciDevice]) -> tuple[PciDevice, ...]:
    """These devices and every bridge above one of them, in bus order."""
    wanted = {a for d in below for a in (*d.parents, d.address)}
    return tuple(d for a, d in devices.by_address.items() if a in wanted)


def below_port(devices: PciDevices, port: str) -> tuple[PciDevice, ...]:
    """Everything in use somewhere below a port."""
    return tuple(d for d in in_use(devices) if port in d.parents)
