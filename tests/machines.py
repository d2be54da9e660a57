# SPDX-License-Identifier: Apache-2.0
"""Devices, nodes and machines made by hand, for tests of checks."""

from typing import Any

from gpuaudit.facts.base import Absent
from gpuaudit.facts.cpusets import parse_list
from gpuaudit.facts.node import Machine
from gpuaudit.facts.numa import NumaNode, NumaNodes
from gpuaudit.facts.pci import PciDevice, PciDevices

NO_LINK = Absent("unsupported", "no link")


def device(
    address: str, role: str, node: int | Absent = 0, cpus: str | Absent = "0-3", **more: Any
) -> PciDevice:
    values: dict[str, Any] = {
        "path": f"/sys/devices/pci0000:00/{address}",
        "vendor": 0x15B3,
        "device": 0x1021,
        "class_code": 0x020000,
        "driver": "driver",
        "virtual_function": False,
        "parents": (),
        "root": "pci0000:00",
        "link": NO_LINK,
    }
    local = cpus if isinstance(cpus, Absent) else parse_list(cpus)
    places: dict[str, Any] = {"address": address, "numa_node": node, "local_cpus": local}
    return PciDevice(role=role, **places, **(values | more))  # type: ignore[arg-type]  # tests name roles


def nic(address: str, node: int | Absent = 0, cpus: str | Absent = "0-3", **more: Any) -> PciDevice:
    return device(address, "nic", node, cpus, **more)


def gpu(address: str, node: int | Absent = 0, cpus: str | Absent = "0-3", **more: Any) -> PciDevice:
    return device(address, "gpu", node, cpus, **more)


def pci(*devices: PciDevice) -> PciDevices:
    return PciDevices(by_address={d.address: d for d in devices})


def numa(*cpu_lists: str, problems: tuple[str, ...] = ()) -> NumaNodes:
    nodes = enumerate(map(parse_list, cpu_lists))
    return NumaNodes(
        nodes=tuple(NumaNode(id=n, cpus=cpus, memory_kib=1 << 20) for n, cpus in nodes),
        distances={},
        problems=problems,
    )


def machine(hypervisor: str | None = "") -> Machine:
    unknown: dict[str, Any] = dict.fromkeys(
        ("hostname", "vendor", "product", "kernel", "os", "architecture", "boot_id")
    )
    return Machine(hypervisor=hypervisor, container=False, **unknown)
