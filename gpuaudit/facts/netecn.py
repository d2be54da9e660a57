# SPDX-License-Identifier: Apache-2.0
"""Congestion control of RDMA over Ethernet, as NVIDIA's own driver shows it."""

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.limits import absence
from gpuaudit.facts.netdev import FOLDER, NetDevices
from gpuaudit.facts.netdriver import NetDriver, NetDrivers
from gpuaudit.host import Host, NotApplicable, Unavailable

PRIORITIES = range(8)
NO_FILES = "the driver shows no congestion control (only MLNX_OFED and DOCA do)"
Sides = dict[tuple[str, int], bool]


class RoceEcn(Fact, frozen=True, kw_only=True):
    """/sys/class/net/X/ecn/roce_{np,rp}/enable/N of data interfaces with RDMA.

    Keys inside are ("np" or "rp", priority). `controlled`: whether these are the priorities with
    flow control, and not all of them.
    """

    by_name: dict[str, Sides | Absent]
    controlled: dict[str, bool]


@probe
def roce_ecn(host: Host, interfaces: NetDevices, drivers: NetDrivers) -> RoceEcn:
    """Read them where they are. Raises NotApplicable."""
    names = [one.name for one in interfaces.data if one.rdma]
    if not names:
        raise NotApplicable("no data interface has RDMA over Ethernet")
    shown = [name for name in names if "ecn" in host.names(f"{FOLDER}/{name}")]
    if not shown:
        raise NotApplicable(NO_FILES)
    chosen = {name: with_flow_control(drivers.by_name[name]) for name in shown}
    return RoceEcn(
        by_name={name: sides(host, name, chosen[name] or [*PRIORITIES]) for name in shown},
        controlled={name: bool(chosen[name]) for name in shown},
    )


def with_flow_control(said: NetDriver | Absent) -> list[int]:
    """The priorities that are protected, as far as the driver says."""
    found = None if isinstance(said, Absent) else (said.bridging or {}).get("pfc")
    return found if isinstance(found, list) else []


def sides(host: Host, name: str, priorities: list[int]) -> Sides | Absent:
    """Both sides for each priority."""
    found: Sides = {}
    for side in ("np", "rp"):
        for number in priorities:
            try:
                path = f"{FOLDER}/{name}/ecn/roce_{side}/enable/{number}"
                found[side, number] = host.read_int(path) == 1
            except Unavailable as absent:
                return absence(absent)
    return found
