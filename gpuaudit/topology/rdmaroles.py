# SPDX-License-Identifier: Apache-2.0
"""What each RDMA port is for: compute, storage, management. The one place that decides it.

In this order:

1. Software devices (rxe, siw) and virtual functions on their host carry no job.
2. NCCL_IB_HCA, where the node sets it for everyone and it selects some ports and not others: those
   are compute ports, as NCCL reads it (src/transport/net_ib/init.cc, parseStringList and
   matchIfList in src/misc/utils.cc): `^` excludes, `=` compares whole names instead of prefixes,
   `:N` is a port. A value that selects all (`mlx5`) decides only where 4 and 5 do not.
3. The port whose interface has the default route is for management.
4. Bare metal: of the ports that share a PCIe switch with a GPU (PIX, PXB) those of the commonest
   model and board are compute ports; other boards of that model too while there are fewer ports
   than GPUs (NVLink switches of B200 boards show management ports of a board of their own). Ports
   that share none and are of another model are for storage.
5. Where the PCI tree cannot be believed or no port is near: at least four ports of one model and
   one board, and no fewer than GPUs, are compute ports, with less certainty.

A port of 4 or 5 that is down while another of its card is up is unused, unless some card uses that
one: two-port cards are often wired with one cable.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Literal, NamedTuple

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.environment import NCCL_CONF, Environment
from gpuaudit.facts.gpuscan import pci_functions
from gpuaudit.facts.netroute import Routes
from gpuaudit.facts.node import Machine
from gpuaudit.facts.pciplace import place_of_path
from gpuaudit.facts.rdma import FOLDER
from gpuaudit.facts.rdmaports import RdmaPort, RdmaPorts, class_path
from gpuaudit.host import Host

Setting = tuple[str, str]
"""A value and the place that sets it."""

Kind = Literal["compute", "storage", "management", "unused", "unknown", "none"]
VARIABLE = "NCCL_IB_HCA"
LIKENESS = 4


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
    managing = [port for port in ports if port.netdev in routes.default]
    ports = [port for port in ports if port not in managing]
    found = {port.name: Role("management", "it has the default route") for port in managing}
    gpus = [d for d in pci_functions(host) or () if d.role == "gpu"]
    switches = frozenset(bridge for gpu in gpus for bridge in gpu.parents)
    near = [] if is_vm else [port for port in ports if below(host, port) & switches]
    if near:
        return found | by_nearness(near, ports, len(gpus))
    compute = alike(ports, len(gpus))
    why = f"one of {len(compute)} alike"
    found |= {port.name: Role("unknown") for port in ports}
    found |= {port.name: Role("compute", why, sure=False) for port in compute}
    return found | unused(compute)


def by_nearness(near: list[RdmaPort], ports: list[RdmaPort], gpus: int) -> dict[str, Role]:
    """Rule 4."""
    make = Counter(make_of(port) for port in near).most_common(1)[0][0]
    compute = [port for port in near if make_of(port) == make]
    if len(compute) < gpus:
        compute = [port for port in near if port.model == make[0]]
    apart = [port for port in ports if port not in near and port.model != make[0]]
    found = {port.name: Role("unknown") for port in ports}
    found |= {port.name: Role("storage", "no GPU shares its PCIe switch") for port in apart}
    found |= {port.name: Role("compute", "it shares a PCIe switch with a GPU") for port in compute}
    return found | unused(compute)


def below(host: Host, port: RdmaPort) -> frozenset[str]:
    """The bridges above a port's device; none where the recording holds no path."""
    path = class_path(host, f"{FOLDER}/{port.device}")
    place = place_of_path(path.partition("/infiniband/")[0])
    return frozenset(place.parents)


def alike(ports: list[RdmaPort], gpus: int) -> list[RdmaPort]:
    """Rule 5: the largest group of one make and link layer, if it is large enough."""
    groups = Counter((make_of(port), port.link_layer) for port in ports)
    if not groups:
        return []
    largest, count = groups.most_common(1)[0]
    if count < max(LIKENESS, gpus):
        return []
    return [port for port in ports if (make_of(port), port.link_layer) == largest]


def make_of(port: RdmaPort) -> tuple[str | None, str | None]:
    """Model and board."""
    return port.model, None if isinstance(port.board, Absent) else port.board


def unused(ports: list[RdmaPort]) -> dict[str, Role]:
    """Ports that are down and stand where no card has one that is up, beside one that is."""
    up = [port for port in ports if port.active]
    used, busy = {port.socket for port in up}, {port.slot for port in up}
    down = (port for port in ports if port.active is False)
    idle = (port for port in down if port.socket not in used and port.slot in busy)
    return {port.name: Role("unused", "its card is wired by another port") for port in idle}
