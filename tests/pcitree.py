# SPDX-License-Identifier: Apache-2.0
"""Made-up PCI trees for tests: a function at a time, as sysfs shows it."""

import struct
from typing import NamedTuple

from trees import Link

Files = dict[str, str | bytes | Link | None]
FOLDER = "/sys/bus/pci/devices"
GPU, NIC, NVME, BRIDGE, AUDIO = 0x030200, 0x020700, 0x010802, 0x060400, 0x040300
ENDPOINT, ROOT_PORT, UPSTREAM, DOWNSTREAM = 0, 4, 5, 6
EXPRESS_AT, EXTRA_AT, ACS_AT = 0x60, 0x100, 0x140


class End(NamedTuple):
    """The four link files."""

    speed: str = "32.0 GT/s PCIe"
    width: str = "16"
    max_speed: str = "32.0 GT/s PCIe"
    max_width: str = "16"


def function(
    place: str,
    class_code: int,
    *,
    vendor: int = 0x10DE,
    device: int = 0x2330,
    driver: str | None = "nvidia",
    link: End | None = End(),  # noqa: B008 - a NamedTuple cannot change
    node: str | None = "0",
    cpus: str | None = "0-3",
    config: bytes | None = None,
    more: Files | None = None,
) -> Files:
    """One function; `place` is its path below /sys/devices, host bridge first."""
    path, address = f"/sys/devices/{place}", place.rpartition("/")[2]
    lines = [f"DRIVER={driver}"] if driver else []
    lines += [f"PCI_CLASS={class_code:X}", f"PCI_ID={vendor:04X}:{device:04X}"]
    up = "../" * 3
    files: Files = {
        f"{FOLDER}/{address}": Link(f"{up}devices/{place}"),
        f"{path}/uevent": "\n".join(lines) + "\n",
    }
    if link:
        names = ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width")
        files |= {f"{path}/{n}": f"{v}\n" for n, v in zip(names, link, strict=True)}
    texts = {"numa_node": node, "local_cpulist": cpus}
    files |= {f"{path}/{n}": f"{v}\n" for n, v in texts.items() if v is not None}
    if config is not None:
        files[f"{path}/config"] = config
    return files | {f"{path}/{name}": value for name, value in (more or {}).items()}


def port(place: str, *, link: End | None = End(), acs: int | None = 0, size: int = 4096) -> Files:  # noqa: B008 - a NamedTuple cannot change
    """A bridge; its kind follows from its depth."""
    depth = place.count("/") - 1
    kind = ROOT_PORT if depth == 0 else (UPSTREAM if depth % 2 else DOWNSTREAM)
    registers = config_space(kind, acs=acs)[:size]
    return function(
        place, BRIDGE, vendor=0x1000, device=0xC030, driver="pcieport", link=link, config=registers
    )


def config_space(
    kind: int = ENDPOINT,
    *,
    acs: int | None = None,
    ats: int | None = None,
    class_code: int = BRIDGE,
) -> bytes:
    """4096 bytes with a PCI Express capability behind another, and extended ones behind AER."""
    space = bytearray(4096)
    struct.pack_into("<HHHH", space, 0, 0x1000, 0xC030, 0x0546, 0x0010)
    struct.pack_into("<I", space, 8, class_code << 8)
    space[0x34] = 0x40
    struct.pack_into("<BB", space, 0x40, 0x01, EXPRESS_AT)
    struct.pack_into("<BBH", space, EXPRESS_AT, 0x10, 0, kind << 4 | 2)
    struct.pack_into("<IH", space, EXPRESS_AT + 4, 0x2, 0x2950)
    struct.pack_into("<I", space, EXPRESS_AT + 0x0C, 16 << 4 | 5)
    struct.pack_into("<H", space, EXPRESS_AT + 0x12, 8 << 4 | 3)
    struct.pack_into("<H", space, EXPRESS_AT + 0x30, 4)
    wanted = [(0x000D, 0x005F, acs), (0x000F, 0x0020, ats)]
    present = [(kind_, cap, control) for kind_, cap, control in wanted if control is not None]
    struct.pack_into("<I", space, EXTRA_AT, (ACS_AT if present else 0) << 20 | 0x20001)
    for i, (kind_, cap, control) in enumerate(present):
        at = ACS_AT + 0x20 * i
        following = at + 0x20 if i + 1 < len(present) else 0
        struct.pack_into("<IHH", space, at, following << 20 | 0x10000 | kind_, cap, control or 0)
    return bytes(space)


def switch(root: str, bus: int, *, uplink: End = End(), acs: int | None = 0) -> Files:  # noqa: B008 - a NamedTuple cannot change
    """Root port, switch and behind it a GPU (bus + 3) and an RDMA NIC (bus + 4)."""
    root_port = f"{root}/0000:{bus:02x}:01.0"
    up = f"{root_port}/0000:{bus + 1:02x}:00.0"
    left, right = (f"{up}/0000:{bus + 2:02x}:0{n}.0" for n in (0, 1))
    return {
        **port(root_port, link=uplink, acs=acs),
        **port(up, link=uplink, acs=None),
        **port(left, acs=acs),
        **port(right, acs=acs),
        **function(f"{left}/0000:{bus + 3:02x}:00.0", GPU),
        **function(
            f"{right}/0000:{bus + 4:02x}:00.0",
            NIC,
            vendor=0x15B3,
            device=0x1021,
            driver="mlx5_core",
            more={"infiniband/mlx5_0/node_type": "1: CA\n"},
        ),
    }


BARE_METAL: Files = {
    "/proc/cpuinfo": "vendor_id\t: GenuineIntel\nflags\t\t: fpu ecc\n",
    "/sys/class/dmi/id/sys_vendor": "Example\n",
    "/sys/class/dmi/id/product_name": "EX-8000\n",
}
GUEST: Files = {
    "/proc/cpuinfo": "vendor_id\t: GenuineIntel\nflags\t\t: fpu hypervisor\n",
    "/sys/class/dmi/id/sys_vendor": "QEMU\n",
    "/sys/class/dmi/id/product_name": "Standard PC\n",
}
TWO_NODES: Files = {
    "/sys/devices/system/cpu/online": "0-7\n",
    "/sys/devices/system/node/node0/cpulist": "0-3\n",
    "/sys/devices/system/node/node0/distance": "10 21\n",
    "/sys/devices/system/node/node1/cpulist": "4-7\n",
    "/sys/devices/system/node/node1/distance": "21 10\n",
}
