# SPDX-License-Identifier: Apache-2.0
"""RDMA ports and their roles made by hand, for tests of checks."""

from typing import Any

from trees import Link

from gpuaudit.facts.counters import Earlier, Reading
from gpuaudit.facts.rdmacounters import RdmaCounters
from gpuaudit.facts.rdmaports import RdmaPort, RdmaPorts, RdmaRate, rate_of
from gpuaudit.topology.rdmaroles import Kind, RdmaRoles, Role

CLASS = "/sys/class/infiniband"
PCI = "/sys/devices/pci0000:15/0000:15:01.0/0000:19:00.0"
NDR = "400 Gb/sec (4X NDR)"


def port(device: str = "mlx5_0", number: int = 1, **more: Any) -> RdmaPort:
    """A healthy InfiniBand port; `rate` as sysfs writes it."""
    values: dict[str, Any] = {
        "place": "0000:19:00.0",
        "virtual_function": False,
        "model": "MT4129",
        "board": "MT_0000000838",
        "firmware": "28.43.2026",
        "link_layer": "InfiniBand",
        "state": "ACTIVE",
        "phys_state": "LinkUp",
        "rate": NDR,
        "netdev": None,
        "peers": 1,
    } | more
    if isinstance(values["rate"], str):
        values["rate"] = rate_of(values["rate"])
    return RdmaPort(device=device, number=number, **values)


def roce(device: str = "mlx5_0", **more: Any) -> RdmaPort:
    """A healthy Ethernet port."""
    return port(device, **({"link_layer": "Ethernet", "netdev": "eth0"} | more))


def several(*found: RdmaPort, unread: dict[str, str] | None = None) -> RdmaPorts:
    return RdmaPorts(ports=found, unread=unread or {})


def all_of(ports: RdmaPorts, kind: Kind = "compute", *, sure: bool = True) -> RdmaRoles:
    """Every port has this role."""
    return roles({p.name: Role(kind, "said so", sure) for p in ports.ports})


def roles(found: dict[str, Role], **more: Any) -> RdmaRoles:
    return RdmaRoles(roles=found, **more)


def rate(text: str) -> RdmaRate:
    found = rate_of(text)
    assert isinstance(found, RdmaRate)
    return found


def counted(totals: dict[str, int], name: str = "mlx5_0 port 1", **more: Any) -> RdmaCounters:
    return RdmaCounters(totals={name: totals}, **({"gaps": {}} | more))


def earlier(
    before: dict[str, int] | None, hours: float = 24, name: str = "mlx5_0 port 1"
) -> Earlier:
    """The reading of some hours ago, or none."""
    if before is None:
        return Earlier(reading=None, why="there is no earlier reading", uptime_s=1e6)
    reading = Reading(
        schema="gpuaudit.counters/1",
        boot_id="x",
        uptime_s=1e6,
        written_at="2026-01-01T00:00:00Z",
        counters={name: before},
    )
    return Earlier(reading=reading, why="", uptime_s=1e6 + hours * 3600)


def adapter(name: str = "mlx5_0", where: str = PCI, **port: str) -> dict[str, Any]:
    """A device with one port."""
    here = f"{where}/infiniband/{name}"
    texts = {
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "link_layer": "InfiniBand",
        "rate": "400 Gb/sec (4X NDR)",
        **port,
    }
    tree: dict[str, Any] = {f"{CLASS}/{name}": Link(f"../../{here.removeprefix('/sys/')}")}
    tree |= {f"{here}/hca_type": "MT4129\n", f"{here}/board_id": "X\n", f"{here}/fw_ver": "1.2\n"}
    return tree | {f"{here}/ports/1/{key}": f"{text}\n" for key, text in texts.items()}
