# SPDX-License-Identifier: Apache-2.0
"""Interrupts: msi_irqs of each function and /proc/irq, every vector on its device's node."""

from fakenode.cpus import node_cpus
from fakenode.layout import Slot, host_bridges
from fakenode.values import Files

FIRST_IRQ = 64


def numbering() -> dict[str, range]:
    """Interrupt numbers by address, in PCI order."""
    found: dict[str, range] = {}
    todo = [port for bridge in host_bridges() for port in bridge.ports]
    following = FIRST_IRQ
    while todo:
        slot = todo.pop(0)
        found[slot.address] = range(following, following + slot.model.irqs)
        following += slot.model.irqs
        todo += slot.below
    return found


def irq_files(path: str, slot: Slot, node: int, numbers: dict[str, range]) -> Files:
    """The vectors of one function."""
    found: Files = {}
    cpus = node_cpus(node)
    for place, number in enumerate(numbers[slot.address]):
        found[f"{path}/msi_irqs/{number}"] = "msix\n"
        found |= vector_files(number, cpus[place % len(cpus)], node, name_of(slot, place))
    if slot.model.irqs:
        found[f"{path}/irq"] = f"{numbers[slot.address][0]}\n"
    return found


def vector_files(number: int, cpu: int, node: int, name: str) -> Files:
    """/proc/irq/N."""
    folder = f"/proc/irq/{number}"
    return {
        f"{folder}/smp_affinity_list": f"{cpu}\n",
        f"{folder}/effective_affinity_list": f"{cpu}\n",
        f"{folder}/node": f"{node}\n",
        f"{folder}/{name}": None,
    }


def name_of(slot: Slot, place: int) -> str:
    """As the drivers call their vectors."""
    driver = slot.model.driver or "none"
    if driver == "mlx5_core":
        what = "mlx5_async0" if place == 0 else f"mlx5_comp{place - 1}"
        return f"{what}@pci:{slot.address}"
    if driver == "nvme":
        return f"nvme{slot.address[5:7]}q{place}"
    return driver
