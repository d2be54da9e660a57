# SPDX-License-Identifier: Apache-2.0
"""How the IOMMU treats each GPU and NIC: the type of its group's default domain.

Source: Linux Documentation/ABI/testing/sysfs-kernel-iommu_groups (reserved_regions, type) and
iommu_domain_type_str() in drivers/iommu/iommu.c.
"""

from gpuaudit.facts.base import Absent, Fact, probe, unread
from gpuaudit.facts.pci import PciDevice, PciDevices
from gpuaudit.facts.pcilink import reading
from gpuaudit.host import Host, Unavailable

TYPES = frozenset({"auto", "blocked", "DMA", "DMA-FQ", "identity", "unknown", "unmanaged"})


class IommuGroup(Fact, frozen=True, kw_only=True):
    """/sys/bus/pci/devices/A/iommu_group -> N, /sys/kernel/iommu_groups/N/type.

    Types: identity (no translation), DMA and DMA-FQ (translated), blocked, unmanaged.
    """

    number: str
    type: str | Absent


class IommuGroups(Fact, frozen=True, kw_only=True):
    """Group of each GPU and NIC; None where it is known that the device is in none."""

    by_address: dict[str, IommuGroup | Absent | None]


@probe
def iommu_groups(host: Host, devices: PciDevices) -> IommuGroups:
    """Only GPUs and NICs: theirs is the traffic that counts."""
    judged = devices.of("gpu", "nic")
    return IommuGroups(by_address={d.address: read_group(host, d) for d in judged})


def read_group(host: Host, device: PciDevice) -> IommuGroup | Absent | None:
    """The group by its link, then its type."""
    try:
        link = f"{device.path}/iommu_group"
        number = host.resolve(link).rpartition("/")[2] if host.exists(link) else None
    except Unavailable as absent:
        return unread(absent)
    if number is None:
        return None
    return IommuGroup(
        number=number, type=read_type(host, f"/sys/kernel/iommu_groups/{number}/type")
    )


def read_type(host: Host, path: str) -> str | Absent:
    """One of the words the kernel has for it."""
    word = reading(host, path)
    if isinstance(word, Absent) or word in TYPES:
        return word
    return Absent("failed", f"{path} reads {word[:40]!r}")
