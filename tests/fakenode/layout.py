# SPDX-License-Identifier: Apache-2.0
"""Where everything sits on the PCI buses of the made-up EX-8000: a table, then a tree.

Two sockets, each with two root ports that lead to a PCIe switch with 2 GPUs, 2 InfiniBand NICs and
an NVMe drive. Real vendor and device IDs (pci.ids), a machine of our own invention.
"""

from typing import NamedTuple

from fakenode.registers import Link, PortType


class Model(NamedTuple):
    """What a PCI function is."""

    vendor: int
    device: int
    class_code: int
    port: PortType
    most: Link
    driver: str | None
    irqs: int = 0


class Slot(NamedTuple):
    """A function at an address, its link upwards, and what is below it."""

    address: str
    model: Model
    link: Link
    below: "tuple[Slot, ...]" = ()


GEN1, GEN2, GEN3, GEN4, GEN5 = 1, 2, 3, 4, 5
WIDE = Link(GEN5, 16)
ROOT_PORT = Model(0x8086, 0x352A, 0x060400, "root", WIDE, "pcieport", 1)
CHIPSET_PORT = Model(0x8086, 0x1BBE, 0x060400, "root", Link(GEN3, 4), "pcieport", 1)
UPSTREAM = Model(0x1000, 0xC030, 0x060400, "upstream", WIDE, "pcieport")
DOWNSTREAM = Model(0x1000, 0xC030, 0x060400, "downstream", WIDE, "pcieport", 1)
DRIVE_PORT = DOWNSTREAM._replace(most=Link(GEN5, 4))
NVSWITCH_PORT = DOWNSTREAM._replace(most=Link(GEN4, 2))
GPU = Model(0x10DE, 0x2330, 0x030200, "endpoint", WIDE, "nvidia", 1)
HCA = Model(0x15B3, 0x1021, 0x020700, "endpoint", WIDE, "mlx5_core", 17)
STORAGE_NIC = Model(0x15B3, 0x101D, 0x020000, "endpoint", Link(GEN4, 16), "mlx5_core", 9)
DRIVE = Model(0x144D, 0xA80A, 0x010802, "endpoint", Link(GEN4, 4), "nvme", 9)
NVSWITCH = Model(0x10DE, 0x22A3, 0x068000, "endpoint", Link(GEN4, 2), "nvidia-nvswitch", 1)
MANAGEMENT_NIC = Model(0x8086, 0x1521, 0x020000, "endpoint", Link(GEN2, 4), "igb", 5)
BMC_VGA = Model(0x1A03, 0x2000, 0x030000, "endpoint", Link(GEN1, 1), "ast")

SWITCH_BUSES = {0x15: 0, 0x37: 0, 0x97: 1, 0xB7: 1}
"""First bus of each host bridge that leads to a switch -> its NUMA node."""


class HostBridge(NamedTuple):
    """A host bridge folder such as pci0000:15, and what is below it."""

    name: str
    node: int
    ports: tuple[Slot, ...]


def host_bridges() -> tuple[HostBridge, ...]:
    """The whole machine."""
    switches = [
        HostBridge(f"pci0000:{bus:02x}", node, (switch(bus),)) for bus, node in SWITCH_BUSES.items()
    ]
    return (
        HostBridge("pci0000:00", 0, (management(), console())),
        HostBridge("pci0000:59", 0, (storage(0x59),)),
        HostBridge("pci0000:5d", 0, (nvswitches(0x5D),)),
        *switches,
    )


def switch(bus: int) -> Slot:
    """Root port, switch, and behind it GPU, NIC, GPU, NIC, drive."""
    devices = [(GPU, DOWNSTREAM), (HCA, DOWNSTREAM)] * 2 + [(DRIVE, DRIVE_PORT)]
    ports = tuple(
        Slot(at(bus + 2, i), port, WIDE, (Slot(at(bus + 3 + i), model, model.most),))
        for i, (model, port) in enumerate(devices)
    )
    return Slot(at(bus, 1), ROOT_PORT, WIDE, (Slot(at(bus + 1), UPSTREAM, WIDE, ports),))


def nvswitches(bus: int) -> Slot:
    """Four NVSwitches behind a small switch; each has two lanes by design."""
    up = UPSTREAM._replace(most=Link(GEN4, 8))
    ports = tuple(
        Slot(
            at(bus + 2, i),
            NVSWITCH_PORT,
            up.most,
            (Slot(at(bus + 3 + i), NVSWITCH, NVSWITCH.most),),
        )
        for i in range(4)
    )
    return Slot(at(bus, 1), ROOT_PORT, WIDE, (Slot(at(bus + 1), up, up.most, ports),))


def storage(bus: int) -> Slot:
    """A card with two Ethernet ports."""
    card = tuple(Slot(at(bus + 1, 0, f), STORAGE_NIC, STORAGE_NIC.most) for f in (0, 1))
    return Slot(at(bus, 1), ROOT_PORT, WIDE, card)


def management() -> Slot:
    """The NIC of the management network, behind the chipset."""
    card = Slot(at(2), MANAGEMENT_NIC, MANAGEMENT_NIC.most)
    return Slot(at(0, 0x1C), CHIPSET_PORT, WIDE, (card,))


def console() -> Slot:
    """The screen of the management controller."""
    screen = Slot(at(3), BMC_VGA, BMC_VGA.most)
    return Slot(at(0, 0x1C, 5), CHIPSET_PORT._replace(most=Link(GEN3, 1)), WIDE, (screen,))


def at(bus: int, device: int = 0, function: int = 0) -> str:
    """The address in domain 0."""
    return f"0000:{bus:02x}:{device:02x}.{function}"


def gpu_addresses() -> tuple[str, ...]:
    """GPUs in PCI order, which is NVML's order too."""
    return tuple(at(bus + 3 + i) for bus in SWITCH_BUSES for i in (0, 2))


def hca_addresses() -> tuple[str, ...]:
    """InfiniBand NICs in PCI order."""
    return tuple(at(bus + 3 + i) for bus in SWITCH_BUSES for i in (1, 3))


def drive_addresses() -> tuple[str, ...]:
    """NVMe drives in PCI order."""
    return tuple(at(bus + 7) for bus in SWITCH_BUSES)


STORAGE_ADDRESSES = (at(0x5A), at(0x5A, 0, 1))
MANAGEMENT_ADDRESS = at(2)
NVSWITCH_ADDRESSES = tuple(at(0x60 + i) for i in range(4))
