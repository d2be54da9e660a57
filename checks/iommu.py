# SPDX-License-Identifier: Apache-2.0
"""What the IOMMU does with the traffic of GPUs and NICs."""

from collections.abc import Iterator
from typing import Literal

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    check,
    fails,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.iommu import IommuGroup, IommuGroups
from gpuaudit.facts.node import Machine
from gpuaudit.facts.pci import PciDevices
from gpuaudit.topology import Platform, Rate, own_link, platform_of

KEEP: dict[Platform, str] = {
    "guest": "a guest's IOMMU is virtual: translation is the host's matter",
    "vfio-host": "a GPU or NIC is bound to VFIO, which needs translation",
}


class IommuExpectations(Expectations, frozen=True, kw_only=True):
    """Which domain types are right on bare metal, and how bad another one is."""

    accepted: tuple[Literal["identity", "none", "DMA", "DMA-FQ"], ...]
    otherwise: Literal["fail", "warn"]


@check("iommu-mode", severity=Severity.MEDIUM)
def mode(
    groups: IommuGroups, devices: PciDevices, machine: Machine, want: IommuExpectations
) -> Iterator[Finding]:
    """The IOMMU passes the traffic of GPUs and NICs through untranslated.

    ## Why it matters
    In a translated domain every DMA of a GPU or NIC needs a page table lookup in the IOMMU, and
    peer-to-peer traffic has to go up to the root complex. Large transfers miss its small cache.

    ## Evidence
    The group of each device (/sys/bus/pci/devices/A/iommu_group) and its type in
    /sys/kernel/iommu_groups/N/type. The kernel command line is not asked: kernels turn an IOMMU
    on without a word there.

    ## How it is judged
    The type must be one of `iommu.accepted`; `none` is a device in no group.

    ## Exceptions
    Guests, and hosts with a GPU or NIC bound to VFIO, are not judged. Arm machines need their SMMU
    (pass-through is right there too): a translated domain, or none at all, only warns. Kernels
    older than 4.18 show no type: unknown.

    ## What to do
    Boot with `iommu=pt` (x86) or `iommu.passthrough=1` (Arm) on the kernel command line, then
    run this check again. On x86 without guests the IOMMU may also be switched off in the firmware.

    ## References
    - https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-kernel-iommu_groups
    - https://docs.kernel.org/admin-guide/kernel-parameters.html
    - https://docs.nvidia.com/gpudirect-storage/best-practices-guide/index.html
    """
    platform = platform_of(machine, devices)
    if platform in KEEP:
        raise NotApplicable(KEEP[platform])
    if not groups.by_address:
        raise NotApplicable("no GPU or NIC is on the PCI bus")
    for address, group in groups.by_address.items():
        known = "none" if group is None else type_of(group)
        if isinstance(known, Absent):
            yield unknown(address, known.reason)
        else:
            yield judged(address, known, devices, platform, want)


def type_of(group: IommuGroup | Absent) -> str | Absent:
    """The type, or why it is not known. The kernel says "unknown" without a default domain."""
    known = group if isinstance(group, Absent) else group.type
    if known == "unknown":
        return Absent("missing", "the kernel names no default domain for its IOMMU group")
    return known


def judged(
    address: str, known: str, devices: PciDevices, platform: Platform, want: IommuExpectations
) -> Finding:
    """One device."""
    seen = "no IOMMU" if known == "none" else known
    lost = platform == "arm" and known == "none"
    if known in want.accepted and not lost:
        return passes(address, seen, expected=want.accepted)
    strict = platform == "bare-metal" and want.otherwise == "fail"
    word = fails if strict else warns
    message = (
        "Arm machines need their SMMU" if lost else f"the IOMMU translates its DMA (domain {seen})"
    )
    return word(
        address,
        message,
        seen,
        expected=want.accepted,
        cost=None if lost else cost(address, devices),
    )


def cost(address: str, devices: PciDevices) -> str:
    """How much traffic is translated."""
    link = own_link(devices, devices.by_address[address])
    rate = link.could if link else None
    amount = f"up to {rate.gb_per_s:.1f} GB/s each way" if isinstance(rate, Rate) else "all its DMA"
    return f"{amount} is looked up page by page; peer traffic goes up to the root complex"
