# SPDX-License-Identifier: Apache-2.0
"""The layout as sysfs shows it: one folder a function, the links to it, IOMMU groups."""

import posixpath
from collections.abc import Iterator
from typing import NamedTuple

from trees import Link as To

from fakenode import irqs
from fakenode.cpus import node_list, node_mask
from fakenode.layout import HostBridge, Slot, host_bridges
from fakenode.registers import Header, config_space
from fakenode.values import Files

SPEEDS = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0"}


class Placed(NamedTuple):
    """A slot with its place in sysfs."""

    slot: Slot
    path: str
    node: int
    group: int


def placed(bridges: tuple[HostBridge, ...]) -> Iterator[Placed]:
    """Every function, bridges first. Ports without ACS share their IOMMU group with all below."""
    group = 0
    for bridge in bridges:
        for port in bridge.ports:
            yield from below(port, f"/sys/devices/{bridge.name}", bridge.node, group)
            group += 1


def below(slot: Slot, folder: str, node: int, group: int) -> Iterator[Placed]:
    """A slot and what is below it."""
    path = f"{folder}/{slot.address}"
    yield Placed(slot, path, node, group)
    for child in slot.below:
        yield from below(child, path, node, group)


def everything() -> tuple[Placed, ...]:
    """Every PCI function of the machine."""
    return tuple(placed(host_bridges()))


def path_of(address: str) -> str:
    """The canonical sysfs path of a function."""
    return next(p.path for p in everything() if p.slot.address == address)


def pci_files() -> Files:
    """Everything below /sys/devices/pci*, /sys/bus/pci and /sys/kernel/iommu_groups."""
    found: Files = {}
    numbers = irqs.numbering()
    for one in everything():
        found |= function_files(one)
        found |= irqs.irq_files(one.path, one.slot, one.node, numbers)
        found |= links_to(one)
        found[f"/sys/kernel/iommu_groups/{one.group}/type"] = "identity\n"
        found[f"/sys/kernel/iommu_groups/{one.group}/reserved_regions"] = (
            "0x00000000fee00000 0x00000000feefffff msi\n"
        )
    return found


def function_files(one: Placed) -> Files:
    """The attributes of one function."""
    model = one.slot.model
    texts = {
        "vendor": f"0x{model.vendor:04x}",
        "device": f"0x{model.device:04x}",
        "class": f"0x{model.class_code:06x}",
        "subsystem_vendor": f"0x{model.vendor:04x}",
        "subsystem_device": "0x16c1",
        "revision": "0xa1",
        "uevent": uevent(one.slot),
        "numa_node": str(one.node),
        "local_cpulist": node_list(one.node),
        "local_cpus": node_mask(one.node),
        "enable": "1",
        "power/control": "on",
        "power/runtime_status": "active",
        **link_texts(one.slot),
    }
    found: Files = {f"{one.path}/{name}": f"{text}\n" for name, text in texts.items()}
    found[f"{one.path}/config"] = config_space(header(one.slot))
    return found


def link_texts(slot: Slot) -> dict[str, str]:
    """This end's view of its link: a root or downstream port looks down, the others look up."""
    now = looking(slot)
    return {
        "current_link_speed": f"{SPEEDS[now.link.gen]} GT/s PCIe",
        "current_link_width": str(now.link.width),
        "max_link_speed": f"{SPEEDS[slot.model.most.gen]} GT/s PCIe",
        "max_link_width": str(slot.model.most.width),
    }


def looking(slot: Slot) -> Slot:
    """The slot whose upward link a function's link registers describe."""
    return slot.below[0] if slot.model.port in {"root", "downstream"} else slot


def header(slot: Slot) -> Header:
    """Its config space in short."""
    model, bus = slot.model, int(slot.address[5:7], 16)
    buses = None
    if slot.below:
        buses = (bus, *span(slot.below))
    return Header(
        vendor=model.vendor,
        device=model.device,
        class_code=model.class_code,
        port=model.port,
        current=looking(slot).link,
        most=model.most,
        buses=buses,
    )


def span(slots: tuple[Slot, ...]) -> tuple[int, int]:
    """Lowest and highest bus number of these functions and all below them."""
    todo, buses = list(slots), []
    while todo:
        slot = todo.pop()
        buses.append(int(slot.address[5:7], 16))
        todo += slot.below
    return min(buses), max(buses)


def uevent(slot: Slot) -> str:
    """DRIVER, PCI_CLASS and so on, one a line."""
    model = slot.model
    lines = [f"DRIVER={model.driver}"] if model.driver else []
    lines += [
        f"PCI_CLASS={model.class_code:X}",
        f"PCI_ID={model.vendor:04X}:{model.device:04X}",
        f"PCI_SUBSYS_ID={model.vendor:04X}:16C1",
        f"PCI_SLOT_NAME={slot.address}",
    ]
    return "\n".join(lines)


def links_to(one: Placed) -> Files:
    """The links that lead from a function and to it."""
    address, driver = one.slot.address, one.slot.model.driver
    group = f"/sys/kernel/iommu_groups/{one.group}"
    found: Files = {}
    found |= link(f"/sys/bus/pci/devices/{address}", one.path)
    found |= link(f"{one.path}/subsystem", "/sys/bus/pci")
    found |= link(f"{one.path}/iommu_group", group)
    found |= link(f"{group}/devices/{address}", one.path)
    if driver:
        found |= link(f"{one.path}/driver", f"/sys/bus/pci/drivers/{driver}")
        found |= link(f"/sys/bus/pci/drivers/{driver}/{address}", one.path)
    return found


def link(path: str, target: str) -> Files:
    """A relative link, as sysfs has them."""
    return {path: To(posixpath.relpath(target, posixpath.dirname(path)))}
