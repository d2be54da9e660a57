# SPDX-License-Identifier: Apache-2.0
"""What people call a device: mlx5_0, ens3, nvme0, or the model that udev's database knows."""

from gpuaudit.facts.base import Fact, probe
from gpuaudit.facts.pci import PciDevice, PciDevices
from gpuaudit.host import Host, NotApplicable, Unavailable

FOLDERS = ("infiniband", "net", "nvme")


class DeviceNames(Fact, frozen=True, kw_only=True):
    """Names below /sys/bus/pci/devices/A/{infiniband,net,nvme}, else udev's model, by address."""

    by_address: dict[str, str]


@probe
def device_names(host: Host, devices: PciDevices) -> DeviceNames:
    """Names of everything the topology shows; a device without one is left out."""
    shown = devices.seen("gpu", "accelerator", "nvswitch", "nic", "nvme", "storage")
    models = udev_models(host)
    named = {d.address: own_names(host, d) or models.get(d.address, "") for d in shown}
    return DeviceNames(by_address={address: name for address, name in named.items() if name})


def own_names(host: Host, device: PciDevice) -> str:
    """'mlx5_0, ib0'."""
    if device.role not in {"nic", "nvme"}:
        return ""
    return ", ".join(n for folder in FOLDERS for n in host.names(f"{device.path}/{folder}"))


def udev_models(host: Host) -> dict[str, str]:
    """Model names by address; none where udev was not asked."""
    try:
        answers = host.udev("pci")
    except (Unavailable, NotApplicable):
        return {}
    return {
        properties.get("PCI_SLOT_NAME", ""): properties.get("ID_MODEL_FROM_DATABASE", "")
        for properties in answers
    }
