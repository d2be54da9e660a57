# SPDX-License-Identifier: Apache-2.0
"""Network interfaces, readings and mounts made by hand."""

from typing import Any

from gpuaudit.facts.counters import Earlier, Reading
from gpuaudit.facts.mounts import Mount
from gpuaudit.facts.netdev import NetDevice, NetDevices

RAIL = NetDevice(
    name="rail0",
    address="0000:5a:00.0",
    model="15b3:101d",
    driver="mlx5_core",
    rdma=True,
    up=True,
    default_route=False,
    uppers=(),
    speed_mbps=100_000,
    mtu=9000,
    carrier_changes=2,
)
"""A healthy data interface."""


def rails(*changes: dict[str, Any]) -> NetDevices:
    """One interface for each set of changes: rail0, rail1 and so on."""
    made = (RAIL._replace(**({"name": f"rail{n}"} | one)) for n, one in enumerate(changes))
    return NetDevices(devices=tuple(made))


def since(seconds: float, counters: dict[str, dict[str, int]], uptime_s: float = 1e6) -> Earlier:
    """A reading of so many seconds ago."""
    reading = Reading(
        schema="gpuaudit.counters/1",
        boot_id="this",
        uptime_s=uptime_s - seconds,
        written_at="2026-01-01T00:00:00Z",
        counters=counters,
    )
    return Earlier(reading=reading, why="", uptime_s=uptime_s)


def first_reading(uptime_s: float | None = 1e6) -> Earlier:
    """Nothing earlier is known."""
    return Earlier(reading=None, why="there is no earlier reading", uptime_s=uptime_s)


def mount(folder: str, kind: str, options: str = "rw,relatime", inside: str = "rw") -> Mount:
    """One mount."""
    return Mount(folder, kind, f"/dev/{kind}", tuple(options.split(",")), tuple(inside.split(",")))
