# SPDX-License-Identifier: Apache-2.0
"""Network adapters of clouds: AWS's EFA and Google's gVNIC."""

from typing import NamedTuple

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.limits import absence
from gpuaudit.facts.pci import PciDevices
from gpuaudit.host import Host, NotApplicable, Unavailable

AMAZON = 0x1D0F
EFA_IDS = frozenset({0xEFA0, 0xEFA1, 0xEFA2, 0xEFA3, 0xEFA4})
"""efa_pci_tbl of efa_main.c: Linux drivers/infiniband/hw/efa, and for the last one AWS's own
kernel/linux/efa/src (https://github.com/amzn/amzn-drivers)."""

GVNIC, VIRTIO_NET = (0x1AE0, 0x0042), ((0x1AF4, 0x1000), (0x1AF4, 0x1041))
"""Linux drivers/net/ethernet/google/gve/gve.h; virtio specification 1.2, section 4.1.2."""

LIBFABRIC = tuple(
    f"/opt/amazon/efa/{folder}/libfabric.so.1" for folder in ("lib", "lib64")
)  # the installer's folders: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start.html
PLUGINS = tuple(
    f"{folder}/libnccl-net{kind}.so"
    for folder in (
        "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu",
        "/opt/amazon/ofi-nccl/lib/aarch64-linux-gnu",
        "/opt/amazon/ofi-nccl/lib64",
        "/opt/amazon/ofi-nccl/lib",
        "/opt/aws-ofi-nccl/lib",
    )
    for kind in ("", "-ofi")
)


class CloudNic(NamedTuple):
    """One function. `driver_known` is False when nothing says whether one is bound."""

    address: str
    driver: str | None
    driver_known: bool
    rdma: bool | None


class Efa(Fact, frozen=True, kw_only=True):
    """EFA functions on the PCI bus, and where libfabric and NCCL's plug-in for it are.

    /sys/bus/pci/devices; /opt/amazon. None: known to be in none of the installer's folders.
    """

    nics: tuple[CloudNic, ...]
    libfabric: str | Absent | None
    plugin: str | Absent | None


class GoogleNics(Fact, frozen=True, kw_only=True):
    """gVNIC and virtio functions: /sys/bus/pci/devices."""

    gvnic: tuple[CloudNic, ...]
    virtio: tuple[CloudNic, ...]


@probe
def efa(host: Host, pci: PciDevices) -> Efa:
    """Look for the devices, and only with them for the libraries. Raises NotApplicable."""
    found = of_kind(pci, *((AMAZON, one) for one in EFA_IDS))
    if not found:
        raise NotApplicable("no EFA device on the PCI bus")
    return Efa(nics=found, libfabric=first(host, LIBFABRIC), plugin=first(host, PLUGINS))


def of_kind(pci: PciDevices, *kinds: tuple[int, int]) -> tuple[CloudNic, ...]:
    """Functions by vendor and device. Raises Unavailable when one could not be identified."""
    return tuple(
        CloudNic(one.address, one.driver, one.driver_known, one.rdma)
        for one in pci.of("nic")
        if (one.vendor, one.device) in kinds
    )


def first(host: Host, paths: tuple[str, ...]) -> str | Absent | None:
    """The first that is there."""
    for path in paths:
        try:
            if host.exists(path):
                return path
        except (Unavailable, NotApplicable) as absent:
            return absence(absent)
    return None


@probe
def google_nics(pci: PciDevices) -> GoogleNics:
    """By their PCI IDs. Raises Unavailable."""
    return GoogleNics(gvnic=of_kind(pci, GVNIC), virtio=of_kind(pci, *VIRTIO_NET))
