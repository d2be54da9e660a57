# SPDX-License-Identifier: Apache-2.0
"""A PCI Express link as one object with two ends, and what it can carry.

Gigabytes a second in each direction = GT/s x lanes x encoding / 8:

- 2.5 and 5 GT/s: 8b/10b, 80 % (PCI Express Base Specification 5.0, section 4.2.1)
- 8, 16 and 32 GT/s: 128b/130b, 98.46 % (section 4.2.2)
- 64 GT/s: flits of 256 bytes with 8 bytes of CRC and 6 of FEC, 242/256 = 94.53 %
  (PCI Express Base Specification 6.0, section 4.2.3.4)

Packet headers come off that: a GPU copy reaches 83 to 88 % of it.
"""

from typing import TypeVar

import msgspec

from gpuaudit.facts.base import Absent
from gpuaudit.facts.pcilink import GENERATION_OF_GT_PER_S, LinkEnd

ENCODING = {2.5: 8 / 10, 5.0: 8 / 10, 8.0: 128 / 130, 16.0: 128 / 130, 32.0: 128 / 130}
FLIT_ENCODING = 242 / 256

Number = TypeVar("Number", int, float)


class Rate(msgspec.Struct, frozen=True):
    """A speed in GT/s a lane, and lanes."""

    speed_gt_per_s: float
    width: int

    @property
    def gb_per_s(self) -> float:
        """What it carries in each direction."""
        encoding = ENCODING.get(self.speed_gt_per_s, FLIT_ENCODING)
        return self.speed_gt_per_s * self.width * encoding / 8

    @property
    def generation(self) -> int:
        """5 for 32 GT/s."""
        return GENERATION_OF_GT_PER_S[self.speed_gt_per_s]

    def __str__(self) -> str:
        """Gen5 x16."""
        return f"Gen{self.generation} x{self.width}"


class Quantity(msgspec.Struct, frozen=True):
    """Speed or width of a link: as trained now, and as both ends could.

    `best` is the smaller of the known maxima; `both` says that both are known.
    """

    now: float | Absent
    best: float | Absent
    both: bool


class Hop(msgspec.Struct, frozen=True, kw_only=True):
    """One link: the port above it and function 0 below it."""

    upper: str
    """"" where the port above is not visible (a guest that got only the device)."""

    lower: str
    upper_end: LinkEnd | Absent
    lower_end: LinkEnd | Absent

    @property
    def name(self) -> str:
        """The two ports."""
        return f"{self.upper or 'host'} -> {self.lower}"

    @property
    def exists(self) -> bool:
        """False when both ends are known to have no PCI Express link (conventional PCI)."""
        ends = (self.upper_end, self.lower_end)
        return not all(isinstance(e, Absent) and e.kind == "unsupported" for e in ends)

    @property
    def width(self) -> Quantity:
        """Lanes."""
        upper, lower = self.upper_end, self.lower_end
        now = (field(upper, "width"), field(lower, "width"))
        most = (field(upper, "max_width"), field(lower, "max_width"))
        return quantity(now, most, self._whole, "x{:g}")

    @property
    def speed(self) -> Quantity:
        """GT/s a lane."""
        upper, lower = self.upper_end, self.lower_end
        now = (field(upper, "speed_gt_per_s"), field(lower, "speed_gt_per_s"))
        most = (field(upper, "max_speed_gt_per_s"), field(lower, "max_speed_gt_per_s"))
        return quantity(now, most, self._whole, "{:g} GT/s")

    @property
    def told(self) -> bool:
        """True when both ends tell their maxima."""
        return self.speed.both and self.width.both

    @property
    def now(self) -> Rate | Absent:
        """As trained now."""
        return rate(self.speed.now, self.width.now)

    @property
    def could(self) -> Rate | Absent:
        """The most both ends can do."""
        return rate(self.speed.best, self.width.best)

    def loss(
        self,
        *,
        speed_gt_per_s: float | None = None,
        width: int | None = None,
        wired: int | None = None,
    ) -> str | None:
        """'31.5 instead of 63.0 GB/s each way': with one value as given, and at its best."""
        best = self.could
        if isinstance(best, Absent):
            return None
        best = Rate(best.speed_gt_per_s, wired or best.width)
        now = Rate(speed_gt_per_s or best.speed_gt_per_s, width or best.width)
        return loss(now, best)

    @property
    def _whole(self) -> tuple[bool, bool]:
        return not isinstance(self.upper_end, Absent), not isinstance(self.lower_end, Absent)


def field(end: LinkEnd | Absent, name: str) -> float | Absent:
    """One number of one end."""
    if isinstance(end, Absent):
        return end
    value: float | Absent = getattr(end, name)
    return value


Pair = tuple[float | Absent, float | Absent]


def quantity(now: Pair, most: Pair, seen: tuple[bool, bool], unit: str) -> Quantity:
    """Both ends put together."""
    known = [v for v in most if not isinstance(v, Absent)]
    absent = next((v for v in most if isinstance(v, Absent)), None)
    best = min(known) if known else absent
    return Quantity(
        now=agreed(now, seen, unit),
        best=best if best is not None else Absent("missing", "no end says its maximum"),
        both=len(known) == 2,
    )


def agreed(now: Pair, seen: tuple[bool, bool], unit: str) -> float | Absent:
    """What both ends say, or the one that is visible. Two ends that differ prove nothing."""
    upper, lower = now
    if not isinstance(upper, Absent) and not isinstance(lower, Absent):
        if upper == lower:
            return upper
        ends = f"the port above says {unit.format(upper)}, the device {unit.format(lower)}"
        return Absent("failed", f"the two ends of the link disagree: {ends}")
    if isinstance(lower, Absent) and seen[1]:
        return lower
    if isinstance(upper, Absent) and seen[0]:
        return upper
    return upper if isinstance(lower, Absent) else lower


def rate(speed: float | Absent, width: float | Absent) -> Rate | Absent:
    """Both together, or what is missing."""
    if isinstance(speed, Absent):
        return speed
    if isinstance(width, Absent):
        return width
    return Rate(speed, int(width))


def loss(now: Rate, best: Rate) -> str:
    """What is carried now, and what could be."""
    return f"{now.gb_per_s:.1f} instead of {best.gb_per_s:.1f} GB/s each way"


def narrowest(hops: tuple[Hop, ...], *, at_best: bool = False) -> tuple[Hop, Rate] | None:
    """The hop that carries least among those whose rate is known, nearest to the root first."""
    rates = ((hop, hop.could if at_best else hop.now) for hop in hops)
    known = [(hop, found) for hop, found in rates if isinstance(found, Rate)]
    return min(known, key=lambda pair: pair[1].gb_per_s, default=None)
