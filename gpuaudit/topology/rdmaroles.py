# SPDX-License-Identifier: Apache-2.0
"""What each RDMA port is for: compute, storage, management. The one place that decides it.

In this order:

1. Software devices (rxe, siw) and virtual functions on their host carry no job.
2. NCCL_IB_HCA, where the node sets it for everyone and it selects some ports and not others: those
   are compute ports, as NCCL reads it (src/transport/net_ib/init.cc, parseStringList and
   matchIfList in src/misc/utils.cc): `^` excludes, `=` compares whole names instead of prefixes,
   `:N` is a port. A value that selects all (`mlx5`) decides only where 4 and 5 do not.
3. The port whose interface, or a VLAN, bond or bridge on top of it, has the default route is for
   management.
4. Bare metal: of the ports that share a PCIe switch with a GPU (PIX, PXB) those of the commonest
   model, board and link layer are compute ports; where they are fewer than the GPUs, other boards
   of that model too, if that makes as many ports as GPUs or an even share of them (NVLink switches
   of B200 boards show management ports of a board of their own). Ports that share none and are of
   another model are for storage.
5. Where the PCI tree cannot be believed or no port is near: at least four ports of one model, one
   board and one link layer, and no fewer than GPUs, are compute ports. That is certain where each
   of four or more GPUs has the same number of them, in a guest (somebody passed them through) or
   as InfiniBand or EFA, and of eight of these where nothing tells the GPUs; else it is a guess.

A port of 4 or 5 that is down is unused where no card has the port of its place up, or where all
cards have as many ports up: two-port cards are often wired with one cable.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Literal, NamedTuple

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.environment import NCCL_CONF, Environment
from gpuaudit.facts.gpuscan import pci_functions
from gpuaudit.facts.netdev import uppers
from gpuaudit.facts.netroute import Routes
from gpuaudit.facts.node import Machine
from gpuaudit.facts.pciplace import place_of_path
from gpuaudit.facts.rdma import FOLDER
from gpuaudit.facts.rdmaports import ETHERNET, RdmaPort, RdmaPorts, class_path
from gpuaudit.host import Host, Unavailable

Setting = tuple[str, str]
"""A value and the place that sets it."""

Make = tuple[str | None, str | None]
"""Model and board."""

Kind = Literal["compute", "storage", "management", "unused", "unknown", "none"]
VARIABLE = "NCCL_IB_HCA"
LIKENESS, RAILS = 4, 8


class Role(NamedTuple):
    """What a port is for, and what says so. `sure` is False for a guess by likeness."""

    kind: Kind
    why: str = ""
    sure: bool = True


class RdmaRoles(Fact, frozen=True, kw_only=True):
    """Port name -> role. Evidence: see the module; /proc/net/route; the PCI paths of the GPUs.

    `selections`: the different values of NCCL_IB_HCA, each with a place that sets it. With more
    than one, none of them decides.
    """

    roles: dict[str, Role]
    selections: tuple[Setting, ...] = ()
    unread: str = ""
    """Why it is not known whether /etc/nccl.conf sets it."""

    def of(self, port: RdmaPort) -> Role:
        """The role of a port."""
        return self.roles.get(port.name, Role("unknown"))

    def compute(self, ports: RdmaPorts) -> tuple[RdmaPort, ...]:
        """The ports that jobs use between nodes."""
        return tuple(port for port in ports.ports if self.of(port).kind == "compute")


@probe
def rdma_roles(
    host: Host, ports: RdmaPorts, environment: Environment, machine: Machine, routes: Routes
) -> RdmaRoles:
    """Decide for each port."""
    selections = chosen(environment, VARIABLE)
    carriers = [port for port in ports.ports if port.place != "" and not is_lent(port)]
    roles = {port.name: Role("none", "software or virtual") for port in ports.ports}
    roles |= by_topology(host, carriers, routes, is_vm=machine.is_vm)
    picked = selected(selections[0][0], carriers) if len(selections) == 1 else ()
    clear = any(role.kind == "compute" for role in roles.values())
    if picked and not (clear and len(picked) == len(carriers)):
        why = f"{VARIABLE}={selections[0][0]}"
        roles |= {p.name: Role("compute" if p in picked else "storage", why) for p in carriers}
    unread = unread_conf(environment)
    return RdmaRoles(roles=roles, selections=selections, unread=unread)


def is_lent(port: RdmaPort) -> bool:
    """A virtual function seen next to its physical one, or the port of one (a representor)."""
    return port.virtual_function or (port.peers > 2 and port.number > 1)


def chosen(environment: Environment, name: str) -> tuple[Setting, ...]:
    """The values NCCL may find: the caller's, else the different ones that the node sets.

    NCCL reads /etc/nccl.conf without overriding what is set (src/misc/param.cc).
    """
    if value := environment.value(name):
        return ((value, "the environment of this process"),)
    found = [one for one in environment.named(name) if one.value and not one.conditional]
    return tuple({one.value: (one.value, one.where) for one in reversed(found)}.values())[::-1]


def unread_conf(environment: Environment) -> str:
    """Why the file that NCCL reads for every program was not read, or nothing."""
    gap = environment.gaps.get(NCCL_CONF)
    return gap.reason if gap else ""


def selected(text: str, ports: Iterable[RdmaPort]) -> tuple[RdmaPort, ...]:
    """The ports that NCCL takes for a value of NCCL_IB_HCA."""
    excludes = text.startswith("^")
    text = text.removeprefix("^")
    exact = text.startswith("=")
    wanted = [word.partition(":") for word in text.removeprefix("=").split(",")]
    wanted = [word for word in wanted if word[0]]

    def listed(port: RdmaPort) -> bool:
        names = (w for w in wanted if not w[1] or w[2].strip() == str(port.number))
        same = (port.device == w[0] if exact else port.device.startswith(w[0]) for w in names)
        return not wanted or any(same)

    return tuple(port for port in ports if listed(port) != excludes)


def by_topology(
    host: Host, ports: list[RdmaPort], routes: Routes, *, is_vm: bool | None
) -> dict[str, Role]:
    """Rules 3 to 5."""
    managing = [port for port in ports if leads_out(host, port, routes)]
    ports = [port for port in ports if port not in managing]
    found = {port.name: Role("management", "it has the default route") for port in managing}
    functions = pci_functions(host)
    gpus = [d for d in functions or () if d.role == "gpu"]
    switches = frozenset(bridge for gpu in gpus for bridge in gpu.parents)
    near = [] if is_vm else [port for port in ports if below(host, port) & switches]
    if near:
        return found | by_nearness(near, ports, len(gpus))
    compute = alike(ports, len(gpus))
    number = None if functions is None else len(gpus)
    why, sure = f"one of {len(compute)} alike", is_sure(compute, number, is_vm=is_vm)
    found |= {port.name: Role("unknown") for port in ports}
    found |= {port.name: Role("compute", why, sure) for port in compute}
    return found | unused(compute)


def leads_out(host: Host, port: RdmaPort, routes: Routes) -> bool:
    """Whether its interface or one on top of it has the default route."""
    if not port.netdev or not routes.default or not is_its_own(host, port.netdev):
        return False
    above = uppers(host, f"/sys/class/net/{port.netdev}", 2)
    return not routes.default.isdisjoint({port.netdev, *above})


def is_its_own(host: Host, netdev: str) -> bool:
    """False for a container's eth0, which only has the name of an interface of the node."""
    try:
        path = host.resolve(f"/sys/class/net/{netdev}")
    except Unavailable:
        return True
    return "/virtual/" not in path or "bonding" in host.names(path)


def is_sure(compute: list[RdmaPort], gpus: int | None, *, is_vm: bool | None) -> bool:
    """Whether ports that are alike can be nothing else. `gpus` is None where nothing tells them."""
    if gpus is None:
        return len(compute) >= RAILS and compute[0].link_layer != ETHERNET
    shared = gpus >= LIKENESS and bool(compute) and not len(compute) % gpus
    return shared and (bool(is_vm) or compute[0].link_layer != ETHERNET)


def by_nearness(near: list[RdmaPort], ports: list[RdmaPort], gpus: int) -> dict[str, Role]:
    """Rule 4."""
    make, layer = Counter(map(kin_of, near)).most_common(1)[0][0]
    compute = [port for port in near if kin_of(port) == (make, layer)]
    if len(compute) < gpus:
        compute = with_odd_ones(compute, [p for p in near if p.model == make[0]], gpus)
    apart = [port for port in ports if port not in near and port.model != make[0]]
    found = {port.name: Role("unknown") for port in ports}
    found |= {port.name: Role("storage", "no GPU shares its PCIe switch") for port in apart}
    found |= {port.name: Role("compute", "it shares a PCIe switch with a GPU") for port in compute}
    return found | unused(compute)


def with_odd_ones(alike: list[RdmaPort], model: list[RdmaPort], gpus: int) -> list[RdmaPort]:
    """Also the ports of another board or protocol, where they make the number of rails even.

    Few of another protocol were set wrong; many are the storage network's.
    """
    layer = alike[0].link_layer
    same = [port for port in model if port.link_layer == layer]
    wider = model if 4 * (len(model) - len(same)) <= len(model) else same
    return wider if not len(wider) % gpus or not gpus % len(wider) else alike


def below(host: Host, port: RdmaPort) -> frozenset[str]:
    """The bridges above a port's device; none where the recording holds no path."""
    path = class_path(host, f"{FOLDER}/{port.device}")
    place = place_of_path(path.partition("/infiniband/")[0])
    return frozenset(place.parents)


def alike(ports: list[RdmaPort], gpus: int) -> list[RdmaPort]:
    """Rule 5: the largest group of one make and link layer, if it is large enough."""
    groups = Counter(map(kin_of, ports))
    if not groups:
        return []
    largest, count = groups.most_common(1)[0]
    if count < max(LIKENESS, gpus):
        return []
    return [port for port in ports if kin_of(port) == largest]


def kin_of(port: RdmaPort) -> tuple[Make, str | Absent]:
    """Model and board, and the link layer."""
    return (port.model, None if isinstance(port.board, Absent) else port.board), port.link_layer


def unused(ports: list[RdmaPort]) -> dict[str, Role]:
    """Ports that are down where no card has one that is up, or all have the same number of them."""
    up = [port for port in ports if port.active]
    used, wired = {port.socket for port in up}, Counter(port.slot for port in up)
    even = {wired[port.slot] for port in ports} == {*wired.values()} and len({*wired.values()}) == 1
    down = (port for port in ports if port.active is False)
    idle = (port for port in down if even or (used and port.socket not in used))
    return {port.name: Role("unused", "such cards are wired by another port") for port in idle}
