# SPDX-License-Identifier: Apache-2.0
"""What a snapshot holds, made from everything a Host was asked."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

import msgspec

from gpuaudit.host import Host, Interface, Output, Process, Unavailable
from gpuaudit.host.answers import NvmlAnswers
from gpuaudit.host.memory import Entry, Nodes
from gpuaudit.host.recording import Gap, RecordedCommand, place
from gpuaudit.host.rules import Refused, add
from gpuaudit.host.status import Status
from gpuaudit.snapshot.secrets import harmless

TOTAL_LIMIT_BYTES = 128 << 20
PRESENCE_LIMIT_BYTES = 64 << 10
WORTH_READING = ("/proc/", "/sys/", "/etc/", "/run/")
NOT_READ = ("/sys/kernel/debug/", "/sys/kernel/tracing/")
VANISHED = Gap("not-recorded", "vanished while it was recorded")
FULL = Gap("not-recorded", "left out: the recording would be too large")
ODD_NAME = Gap("not-recorded", "left out: a name that no archive can hold")
ONLY_PRESENCE = Gap("not-recorded", "only its presence was recorded")
NO_FILE = Gap("garbled", "not a regular file but a device, socket or pipe")
T = TypeVar("T")


class Contents(msgspec.Struct, kw_only=True):
    """Entries by canonical path: bytes are a file, a str is a link's target, None a folder."""

    entries: dict[str, Entry] = {}
    gaps: dict[str, Gap] = {}
    listings: dict[str, tuple[str, ...]] = {}
    statuses: dict[str, Status] = {}
    commands: tuple[RecordedCommand, ...] = ()
    processes: tuple[Process, ...] | None = None
    interfaces: dict[str, Interface] | None = None
    udev: dict[str, tuple[dict[str, str], ...]] = {}
    nvml: NvmlAnswers | None = None

    def text(self, path: str) -> str | None:
        """A recorded file as text, or None."""
        entry = self.entries.get(path)
        return entry.decode("utf-8", "replace").strip() if isinstance(entry, bytes) else None

    def named(self, manifest: bytes) -> Iterator[tuple[str, Entry]]:
        """Every entry of the archive, by its name there."""
        yield "manifest.json", manifest
        yield "root", None
        sides = {
            "commands": self.commands,
            "processes": self.processes,
            "interfaces": self.interfaces,
            "udev": self.udev,
            "nvml": self.nvml,
        }
        for name, side in sides.items():
            if side is not None:
                yield f"{name}.json", pretty(side)
        for path, entry in self.entries.items():
            if path != "/":
                yield f"root{path}", entry


def pretty(value: object) -> bytes:
    """JSON that people can read too."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1)


class Collector:
    """Contents while they grow: what would clash with an earlier entry becomes a gap."""

    def __init__(self, host: Host) -> None:
        """Nothing is read here."""
        self.host = host
        self.contents = Contents()
        self._links: dict[str, str] = {}
        self._targets: dict[str, str | Unavailable | None] = {}
        self._nodes: Nodes = {"": []}
        self._bytes = 0

    def paths(self) -> None:
        """Links on the way of every path, and what stands at the end of it."""
        for asked, found in list(self.host.evidence.paths.items()):
            at = place(self._target, asked, self._links)
            if isinstance(found, Unavailable):
                self.gap(at, found)
            elif at != found:
                self.contents.gaps.setdefault(at, VANISHED)
        for path, goal in self._links.items():
            self.put(path, within(path, goal))

    def files(self) -> None:
        """What was read."""
        for path, data in self.host.evidence.files.items():
            if isinstance(data, bytes):
                sets = path in self.host.evidence.environments
                self.put(path, harmless(path, data, sets_variables=sets))
            elif isinstance(self.host.evidence.listings.get(path), tuple):
                continue  # a folder: the tree says by itself that it is no file
            else:
                self.gap(path, data)

    def folders(self) -> None:
        """What was listed."""
        for path, names in self.host.evidence.listings.items():
            if isinstance(names, tuple):
                self.contents.listings[path] = tuple(printable(name) for name in names)
                self.put(path, None)
            elif not isinstance(self.host.evidence.files.get(path), bytes):
                self.gap(path, names)

    def presences(self) -> None:
        """What is there, whether or not its content was asked or could be had."""
        for found in list(self.host.evidence.paths.values()):
            if isinstance(found, str) and found not in self._nodes and found != "/":
                self.put(found, self._presence(found))

    def put(self, path: str, entry: Entry) -> None:
        """Add an entry, or say why it is left out."""
        size = len(entry) if isinstance(entry, bytes) else 0
        if self._bytes + size > TOTAL_LIMIT_BYTES:
            self.contents.gaps[path], entry, size = FULL, b"", 0
        try:
            path.encode()
            add(self._nodes, path.lstrip("/"), entry)
        except UnicodeEncodeError:
            self.contents.gaps[printable(path)] = ODD_NAME
        except Refused as refused:
            self.contents.gaps.setdefault(path, Gap("not-recorded", f"left out: {refused}"))
        else:
            self._bytes += size
            self.contents.entries[path] = entry

    def gap(self, path: str, why: Unavailable) -> None:
        """Note what was asked and could not be had."""
        self.contents.gaps.setdefault(printable(path), Gap(why.kind, printable(why.reason)))

    def _presence(self, path: str) -> Entry:
        try:
            kind = self.host.tree.kind(path)
        except Unavailable:
            kind = None
        if kind == "dir":
            return None
        if kind != "file":
            self.contents.gaps.setdefault(path, NO_FILE if kind == "other" else VANISHED)
            return b""
        return b"" if path in self.contents.gaps else self._small(path)

    def _small(self, path: str) -> bytes:
        """The content of a file that was only asked to be there, when it is small and harmless."""
        gap = ONLY_PRESENCE
        if path.startswith(WORTH_READING) and not path.startswith(NOT_READ):
            try:
                data = self.host.read_bytes(path)
                if len(data) <= PRESENCE_LIMIT_BYTES:
                    return harmless(path, data, sets_variables=False)
            except Unavailable as absent:
                gap = Gap(absent.kind, absent.reason)
        self.contents.gaps[path] = gap
        return b""

    def _target(self, node: str) -> str | None:
        if node not in self._targets:
            try:
                self._targets[node] = self.host.tree.target(node)
            except Unavailable as absent:
                self._targets[node] = absent
        found = self._targets[node]
        if isinstance(found, Unavailable):
            raise found
        return found


def contents_of(host: Host, subsystems: Iterable[str]) -> Contents:
    """Everything `host` was asked until now."""
    collector = Collector(host)
    collector.paths()
    collector.files()
    collector.folders()
    collector.presences()
    contents = collector.contents
    asked = host.evidence.statuses.items()
    contents.statuses = {printable(p): one for p, one in asked if isinstance(one, Status)}
    contents.commands = tuple(commands(host))
    table = answer(host, "processes", host.processes, contents)
    contents.processes = table and tuple(msgspec.convert(plain(one), Process) for one in table)
    contents.interfaces = answer(host, "interfaces", host.interfaces, contents)
    contents.nvml = answer(host, "nvml", host.nvml, contents)
    for name in subsystems:
        devices = answer(host, f"udev {name}", partial(host.udev, name), contents)
        if devices is not None:
            contents.udev[name] = tuple(plain(device) for device in devices)
    return contents


def commands(host: Host) -> Iterator[RecordedCommand]:
    """Every command that was run, with its output or why there is none."""
    for argv, output in host.evidence.commands.items():
        if isinstance(output, Output):
            yield RecordedCommand(argv=argv, output=msgspec.convert(plain(output), Output))
        else:
            yield RecordedCommand(argv=argv, gap=Gap(output.kind, output.reason))


def answer(host: Host, what: str, ask: Callable[[], T], contents: Contents) -> T | None:
    """An answer already given, or None with a gap."""
    if host.answered(what) is None:
        return None
    try:
        return ask()
    except Unavailable as absent:
        contents.gaps[what] = Gap(absent.kind, absent.reason)
        return None


def within(path: str, goal: str) -> str:
    """A link's target as an archive may hold it: relative, never above the root.

    The kernel stays at the root too when `..` leads above it (path_resolution(7)).
    """
    depth, kept = path.count("/") - 1, list[str]()
    if goal.startswith("/"):
        kept, depth = [".."] * depth, 0
    for part in goal.split("/"):
        if part in {"", "."} or (part == ".." and depth == 0):
            continue
        depth += -1 if part == ".." else 1
        kept.append(part)
    return "/".join(kept) or "."


def printable(text: str) -> str:
    """A name as JSON can hold it: bytes that are not UTF-8 become question marks."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def plain(value: Any) -> Any:
    """Every text inside as JSON can hold it."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, dict):
        return {printable(key): plain(inside) for key, inside in value.items()}
    return value
