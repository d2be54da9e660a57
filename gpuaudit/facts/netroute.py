# SPDX-License-Identifier: Apache-2.0
"""Which interface leads where: the IPv4 routing table."""

from gpuaudit.facts.base import Fact, probe
from gpuaudit.host import Host, NotApplicable, Unavailable

ROUTES = "/proc/net/route"
NOWHERE = "00000000"


class Routes(Fact, frozen=True, kw_only=True):
    """/proc/net/route: the main table of IPv4, addresses in hex as the kernel stores them.

    `default`: interfaces with a default route. `subnets`: destination and mask of each connected
    network -> its interfaces. `why` says what is missing when the table could not be read.
    """

    default: frozenset[str]
    subnets: dict[str, tuple[str, ...]]
    why: str = ""

    def shared(self, names: frozenset[str]) -> tuple[str, ...]:
        """Those of `names` that have a network in common with another one of them."""
        groups = ([n for n in inside if n in names] for inside in self.subnets.values())
        return tuple(sorted({name for group in groups if len(group) > 1 for name in group}))


@probe
def routes(host: Host) -> Routes:
    """Read the table; never raises, since roles can be told without it too."""
    try:
        return parse(host.read(ROUTES))
    except (Unavailable, NotApplicable) as absent:
        return Routes(default=frozenset(), subnets={}, why=absent.reason)


def parse(text: str) -> Routes:
    """Columns: Iface Destination Gateway Flags RefCnt Use Metric Mask ..."""
    rows = [line.split() for line in text.splitlines()[1:]]
    rows = [row for row in rows if len(row) > 7]
    subnets: dict[str, dict[str, None]] = {}
    for row in rows:
        if row[2] == NOWHERE and row[1] != NOWHERE:
            subnets.setdefault(f"{row[1]}/{row[7]}", {})[row[0]] = None
    return Routes(
        default=frozenset(row[0] for row in rows if row[1] == row[7] == NOWHERE),
        subnets={net: tuple(inside) for net, inside in subnets.items()},
    )
