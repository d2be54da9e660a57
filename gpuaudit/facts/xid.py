# SPDX-License-Identifier: Apache-2.0
"""XIDs of the GPUs and SXIDs of the NVSwitches in the kernel's log, one row a device and code.

Source of the lines: NVIDIA's documents on Xid errors and on Fabric Manager. The driver leaves the
function out of an address (PCI:0000:9b:00), old releases the domain or "PCI:" too.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from gpuaudit.facts.base import Fact, probe
from gpuaudit.facts.gpuscan import GpuScan
from gpuaudit.facts.kernellog import KernelLog, Line
from gpuaudit.facts.xidcatalogue import ACTIONS, GPU, SWITCH, Meaning, meaning_of

NEEDLES = ("NVRM: Xid", "SXid (", "NVRM: loading NVIDIA", "fallen off the bus", "The NVIDIA GPU ")
# Compiled when the first line turns up, by re itself: most nodes have none.
XID = (
    r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)(?: GPU-I:(\w+))?\): ([0-9]{1,5})(?:, *|$)"
    r"(?:pid='?([^',]*)'?(?:, *|$))?(?:name=([^,]*)(?:, *|$))?(.*)"
)
SXID = (
    r"nvidia-nvswitch[0-9]+: SXid \((?:PCI:)?([0-9a-fA-F:.]+)\): ([0-9]{1,6}), "
    r"((?i:(?:non-)?fatal))\b,? *(.*)"
)
GONE = r"NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F:.]+)"
FATAL = r"(?i:(non-?)?fatal)"
RECOVERY = r"changed from .{0,80} to 0x([0-9a-fA-F]{1,8}) \("
ADDRESS = r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2,4}):([0-9a-f]{2})(?:\.[0-9a-f])?"
OFF_THE_BUS, RECOVERY_CHANGED, DOUBLE_BIT, CONTAINED, UNCONTAINED = 79, 154, 48, 94, 95
MOST_NAMES = 5
BURST_S = 10.0
MOST_ROWS = 4096  # a file may be made up; no node has as many devices and codes
RELOADED = "the driver was loaded again since"
CLEARED = "the driver says since that no recovery is needed (Xid 154)"


class Xid(NamedTuple):
    """One code of one device. `kind` as in the catalogue, after what the messages say.

    `bursts` are moments that lie apart: one failing program may write a line for each SM. `settled`
    says why it is past, or is empty. `order` counts the lines up to the last one of it.
    """

    device: str
    meaning: Meaning
    kind: str
    times: int
    bursts: int
    first: Line
    last: Line
    processes: tuple[str, ...]
    detail: str
    settled: str
    order: int

    @property
    def label(self) -> str:
        """As people write it."""
        return f"{'S' if self.is_switch else ''}Xid {self.meaning.code}"

    @property
    def advice(self) -> str:
        """What to do. What would ask for a reset is watched while its messages say otherwise."""
        harmless = self.kind != "fail" and self.meaning.kind in {"fail", "by-text"}
        return ACTIONS["watch" if harmless else self.meaning.action]

    @property
    def is_switch(self) -> bool:
        """It is of an NVSwitch."""
        return self.first.text.startswith("nvidia-nvswitch")


class Xids(Fact, frozen=True, kw_only=True):
    """What the lines `NVRM: Xid` and `SXid` of the kernel's log say, see KernelLog."""

    gpus: tuple[Xid, ...]
    switches: tuple[Xid, ...]


@probe
def xids(log: KernelLog) -> Xids:
    """Count them."""
    tally = Tally()
    tally.add(log.matching(*NEEDLES))
    return Xids(gpus=tally.of(GPU), switches=tally.of(SWITCH))


class Seen(msgspec.Struct):
    """One row while lines still come in."""

    first: Line
    last: Line
    count: int = 0
    bursts: int = 0
    fatal: int = 0
    at: int = 0
    detail: str = ""
    processes: list[str] = []


class Tally:
    """Rows by device and code, in as much memory as there are different ones."""

    def __init__(self) -> None:
        """Nothing seen yet."""
        self.seen: dict[tuple[str, str, int], Seen] = {}
        self._at = 0
        self._loaded = 0
        self._cleared: dict[str, int] = {}
        self._named = ""

    def add(self, lines: Iterable[Line]) -> None:
        """Take lines in the order of the log; those that say nothing of this are passed over."""
        for line in lines:
            self._at += 1
            if found := re.match(XID, line.text):
                self._xid(line, found)
            elif found := re.match(SXID, line.text):
                row = self._row((SWITCH, address(found[1]), int(found[2])), line, found[4])
                row.fatal += found[3].lower() == "fatal"
            elif line.text.startswith("NVRM: loading NVIDIA"):
                self._loaded = self._at
            else:
                self._gone(line)

    def of(self, family: str) -> tuple[Xid, ...]:
        """The rows of GPUs or of switches, by device, the gravest code first."""
        rows = (self._judged(key, row) for key, row in self.seen.items() if key[0] == family)
        return tuple(sorted(rows, key=lambda one: (one.device, rank(one), one.meaning.code)))

    def _xid(self, line: Line, found: re.Match[str]) -> None:
        where, instance, code, pid, name, text = found.groups()
        device = address(where) + (f" instance {instance}" if instance else "")
        row = self._row((GPU, device, int(code)), line, text)
        said = re.search(FATAL, text)
        row.fatal += said is not None and not said[1]
        known = [word for word in (name, pid) if word and not word.startswith("<")]
        process = f"{name} ({pid})" if len(known) == 2 else "".join(known)
        if process and process not in row.processes and len(row.processes) < MOST_NAMES:
            row.processes.append(process)
        change = re.search(RECOVERY, text) if int(code) == RECOVERY_CHANGED else None
        if change and int(change[1], 16) == 0:
            self._cleared[device.partition(" ")[0]] = self._at

    def _row(self, key: tuple[str, str, int], line: Line, detail: str) -> Seen:
        if key not in self.seen and len(self.seen) >= MOST_ROWS:
            key = (key[0], "other devices", key[2])
        row = self.seen.setdefault(key, Seen(first=line, last=line))
        row.bursts += not row.count or is_apart(row.last, line)
        row.last, row.at, row.detail = line, self._at, detail
        row.count += 1
        return row

    def _gone(self, line: Line) -> None:
        """The driver also tells of a lost GPU without a code, over several lines when it loads."""
        if found := re.match(GONE, line.text):
            self._named = address(found[1])
        if "fallen off the bus" in line.text and self._named:
            key = (GPU, self._named, OFF_THE_BUS)
            self.seen.setdefault(key, Seen(first=line, last=line, at=self._at, detail=line.text))

    def _judged(self, key: tuple[str, str, int], row: Seen) -> Xid:
        family, device, code = key
        meaning = meaning_of(code, family)
        cleared = CLEARED if row.at <= self._cleared.get(device.partition(" ")[0], 0) else ""
        settled = RELOADED if row.at < self._loaded else cleared
        return Xid(
            device=device,
            meaning=meaning,
            kind=self._kind(key, row, meaning),
            times=max(row.count, 1),
            bursts=max(row.bursts, 1),
            first=row.first,
            last=row.last,
            processes=tuple(row.processes),
            detail=row.detail,
            settled=settled,
            order=row.at,
        )

    def _kind(self, key: tuple[str, str, int], row: Seen, meaning: Meaning) -> str:
        """The catalogue's, unless the messages know better."""
        family, device, code = key
        if family == SWITCH:
            return "fail" if row.fatal else nonfatal(meaning)
        if code == RECOVERY_CHANGED:
            return recovery_kind(row.detail)
        if code == DOUBLE_BIT and self._is_contained(device, row):
            return "warn"
        if meaning.kind == "by-text":
            return "fail" if row.fatal else "warn"
        return meaning.kind

    def _is_contained(self, device: str, row: Seen) -> bool:
        """Every double-bit error came with a report that one program alone was hit."""
        contained = self.seen.get((GPU, device, CONTAINED))
        escaped = (GPU, device, UNCONTAINED) in self.seen
        return contained is not None and not escaped and contained.count >= row.count


def is_apart(one: Line, other: Line) -> bool:
    """Two lines that do not tell of the same moment."""
    if one.seconds is not None and other.seconds is not None:
        return other.seconds - one.seconds > BURST_S
    return one.clock != other.clock or not one.clock


def nonfatal(meaning: Meaning) -> str:
    """The message said so: what the catalogue holds for fatal is worth a look then."""
    if meaning.kind == "unknown":
        return "information"
    return "warn" if meaning.kind == "fail" else meaning.kind


def recovery_kind(text: str) -> str:
    """Whether the driver asks for a recovery: 0x0 is none (nvmlDeviceGpuRecoveryAction_t)."""
    change = re.search(RECOVERY, text)
    if change is None:
        return "warn"
    return "fail" if int(change[1], 16) else "information"


def address(text: str) -> str:
    """'9b:00', '0009b:00', '0000:9b:00' and '0000:9b:00.0' as sysfs writes it; else as it is."""
    found = re.fullmatch(ADDRESS, text.lower().rstrip(":."))
    if not found:
        return text
    return f"{int(found[1] or '0', 16):04x}:{int(found[2], 16) & 0xFF:02x}:{found[3]}.0"


RANKS = ("fail", "unknown", "warn", "application", "information")


def rank(one: Xid) -> int:
    """For sorting: what counts now before the past, the gravest first."""
    return RANKS.index(one.kind) + len(RANKS) * bool(one.settled)


def of_kind(rows: Iterable[Xid], *kinds: str) -> Iterator[Xid]:
    """The rows of these kinds."""
    return (one for one in rows if one.kind in kinds)


def on_bus(scan: GpuScan) -> list[str]:
    """The addresses of the GPUs that the PCI bus shows."""
    return [one.address for one in scan.functions or ()]
