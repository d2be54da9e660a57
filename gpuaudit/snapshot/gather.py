# SPDX-License-Identifier: Apache-2.0
"""Ask a machine everything: what the probes of this release want, and what later ones may want."""

import fnmatch
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from itertools import islice

from gpuaudit import facts as fact_modules
from gpuaudit import packs
from gpuaudit.deadline import OutOfTimeError, time_limit
from gpuaudit.engine import Facts, needs_nvml
from gpuaudit.facts.base import PROBES
from gpuaudit.facts.pci import PciDevices
from gpuaudit.host import Host, NotApplicable, Unavailable
from gpuaudit.host.tree import resolve
from gpuaudit.snapshot.wanted import DEVICE_FILES, EXTRA, LEFT_OUT

SUBSYSTEMS = ("pci", "net", "infiniband", "nvme")
EXTRA_LIMIT_BYTES = 48 << 20
EXTRA_LIMIT_FILES = 40_000
DEPTH = 6
FACT_LIMIT_S = 60.0
"""NVML has a deadline of its own, a third of this."""


def ask_everything(host: Host, say: Callable[[str], None]) -> dict[str, str]:
    """Ask in the engine's order: PCI before NVML, because opening a GPU changes its link.

    Returns the probes that crashed, with their error: a fault in one is no reason to lose the rest.
    """
    load_every_fact()
    facts, crashed = Facts(host), dict[str, str]()
    late = [kind for kind in PROBES if needs_nvml(kind)]
    say("reading files")
    for kind in PROBES:
        if kind not in late:
            ask(facts, kind, crashed)
    ask_devices(facts)
    ask_extra(host)
    say("asking the driver")
    host.nvml_start()
    look(host.processes)
    look(host.interfaces)
    for subsystem in SUBSYSTEMS:
        look(host.udev, subsystem)
    for kind in late:
        ask(facts, kind, crashed)
    look(host.nvml)
    return crashed


def load_every_fact() -> None:
    """Import the checks, with the plug-ins' facts, and facts that no check asks for."""
    packs.load_checks()
    for module in pkgutil.iter_modules(fact_modules.__path__):
        importlib.import_module(f"{fact_modules.__name__}.{module.name}")


def ask(facts: Facts, kind: type, crashed: dict[str, str]) -> None:
    """One fact. What it could not read is in the Host's evidence."""
    try:
        with time_limit(FACT_LIMIT_S):
            facts.get(kind)
    except (Unavailable, NotApplicable):
        return
    except OutOfTimeError:
        crashed[kind.__name__] = f"not finished within {FACT_LIMIT_S:.0f} s"
    except Exception as error:  # noqa: BLE001 - the recording is how such a fault gets reported
        crashed[kind.__name__] = f"{type(error).__name__}: {error}"


def look(read: Callable[..., object], *what: str) -> None:
    """Ask for the evidence alone."""
    try:
        read(*what)
    except (Unavailable, NotApplicable):
        return


def ask_devices(facts: Facts) -> None:
    """Every file that speaks of a link, a place or an error of a function that an audit judges."""
    try:
        devices: PciDevices = facts.get(PciDevices)
    except Exception:  # noqa: BLE001 - told by ask() already
        return
    for device in devices.by_address.values():
        if device.role != "other":
            facts.host.names(device.path)
            facts.host.names(f"{device.path}/msi_irqs")
            for name in DEVICE_FILES:
                look(facts.host.read_bytes, f"{device.path}/{name}")


def ask_extra(host: Host) -> None:
    """Everything EXTRA names that is there, until the recording would grow beyond reason."""
    size = sum(len(one) for one in host.evidence.files.values() if isinstance(one, bytes))
    for path in islice(extra_paths(host), EXTRA_LIMIT_FILES):
        try:
            size += len(host.read_bytes(path))
        except Unavailable:
            continue
        if size > EXTRA_LIMIT_BYTES:
            return


def extra_paths(host: Host) -> Iterator[str]:
    """Paths of EXTRA. One without wildcards is asked even when it is not there."""
    for pattern in EXTRA:
        for path in matching(host, pattern):
            if not any(fnmatch.fnmatchcase(path, left) for left in LEFT_OUT) and (
                path == pattern or kind_of(host, path) == "file"
            ):
                yield path


def matching(host: Host, pattern: str) -> Iterator[str]:
    """Paths that fit a pattern of shell words, component by component; a last ** goes deep."""
    head, star, tail = pattern.partition("/**")
    if star and not tail:
        yield from below(host, head, DEPTH)
        return
    yield from fitting(host, "", pattern.strip("/").split("/"))


def fitting(host: Host, folder: str, parts: list[str]) -> Iterator[str]:
    """The paths below `folder` that fit the parts."""
    first, rest = parts[0], parts[1:]
    names = [first]
    if any(mark in first for mark in "*?["):
        names = fnmatch.filter(host.names(folder or "/"), first)
    for name in names:
        if rest:
            yield from fitting(host, f"{folder}/{name}", rest)
        else:
            yield f"{folder}/{name}"


def below(host: Host, folder: str, depth: int) -> Iterator[str]:
    """Every path below a folder that is no folder."""
    for name in host.names(folder) if depth else ():
        path = f"{folder}/{name}"
        if kind_of(host, path) == "dir":
            yield from below(host, path, depth - 1)
        else:
            yield path


def kind_of(host: Host, path: str) -> str | None:
    """What a path leads to, without asking for it; None when nothing can be told."""
    try:
        return host.tree.kind(resolve(host.tree, path))
    except Unavailable:
        return None
