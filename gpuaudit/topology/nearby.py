# SPDX-License-Identifier: Apache-2.0
"""Which of several devices is nearest to another."""

from collections.abc import Sequence

from gpuaudit.facts.base import Absent
from gpuaudit.facts.numa import NumaNodes, locate
from gpuaudit.facts.pci import PciDevice
from gpuaudit.topology.paths import Class, Locality, classify

NEAREST_FIRST: tuple[Class, ...] = ("LOC", "PIX", "PXB", "PHB", "NODE", "SYS", "?")


def nearest(
    device: PciDevice, others: Sequence[PciDevice], numa: NumaNodes, *, is_vm: bool | None
) -> tuple[PciDevice, Locality]:
    """The nearest of `others`, which must not be empty, and how near it is."""
    found = ((other, believable(device, other, numa, is_vm=is_vm)) for other in others)
    return min(found, key=lambda pair: NEAREST_FIRST.index(pair[1].kind))


def believable(
    one: PciDevice, other: PciDevice, numa: NumaNodes, *, is_vm: bool | None
) -> Locality:
    """The class of a pair; by their NUMA nodes alone where the PCI tree may not be believed."""
    found = classify(one, other, numa, is_vm=is_vm)
    if not found.doubt and found.kind != "?":
        return found
    nodes = locate(one, numa), locate(other, numa)
    lost = next((node for node in nodes if isinstance(node, Absent)), None)
    if lost is not None:
        return Locality(kind="?", doubt=lost.reason)
    return Locality(kind="NODE" if nodes[0] == nodes[1] else "SYS", doubt=found.doubt)


def near_enough(found: Locality, farthest: str) -> bool | None:
    """Whether a pair is no farther apart than `farthest`; None when that cannot be told.

    Where only the NUMA nodes are believed, one node may mean anything from PIX to NODE.
    """
    if found.kind == "?":
        return None
    if NEAREST_FIRST.index(found.kind) <= NEAREST_FIRST.index(farthest):
        return True
    return None if found.doubt and found.kind == "NODE" else False
