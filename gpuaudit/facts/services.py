# SPDX-License-Identifier: Apache-2.0
"""Daemons: which run, and what their KEY=value configuration files say."""

import shlex

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.present import text_if_there
from gpuaudit.host import Host, NotApplicable, Process

COMM_BYTES = 15
"""The kernel keeps 15 bytes of a process name (TASK_COMM_LEN, include/linux/sched.h)."""

HIDDEN = Absent("missing", "a container does not see the processes of its host")
IRQBALANCE_FILES = ("/etc/default/irqbalance", "/etc/sysconfig/irqbalance")


class Processes(Fact, frozen=True, kw_only=True):
    """The process table (/proc/PID/stat on a live node, recorded in a snapshot)."""

    processes: tuple[Process, ...]

    @property
    def complete(self) -> bool:
        """False inside a PID namespace: a container sees no kernel threads (kthreadd is PID 2)."""
        return any(p.name == "kthreadd" for p in self.processes)

    def named(self, *names: str) -> tuple[Process, ...]:
        """Processes with one of these names; names longer than the kernel keeps are cut."""
        short = {name[:COMM_BYTES] for name in names}
        return tuple(p for p in self.processes if p.name in names or p.name in short)

    def running(self, *names: str) -> bool:
        """True when one of them runs; a zombie does not."""
        return any(p.state not in {"zombie", "dead"} for p in self.named(*names))


class Irqbalance(Fact, frozen=True, kw_only=True):
    """irqbalance: the process, and its file in /etc/default or /etc/sysconfig."""

    running: bool | Absent
    config: str | None
    """Path of its configuration file."""

    one_shot: bool
    """It spreads interrupts once at boot and ends: not running is then its normal state."""

    bans: tuple[str, ...]
    """Words and variables that take CPUs or interrupts away from it."""


@probe
def processes(host: Host) -> Processes:
    """Read the table. Raises Unavailable when a snapshot has none."""
    return Processes(processes=host.processes())


@probe
def irqbalance(host: Host, table: Processes) -> Irqbalance:
    """Read process and configuration (irqbalance(1); misc/irqbalance.service of irqbalance)."""
    path, settings = first_settings(host, IRQBALANCE_FILES)
    options = " ".join(settings.get(n, "") for n in ("IRQBALANCE_ARGS", "OPTIONS")).split()
    once = settings.get("IRQBALANCE_ONESHOT") or settings.get("ONESHOT")
    banned = [f"{k}={v}" for k, v in settings.items() if "BANNED" in k and v]
    return Irqbalance(
        running=table.running("irqbalance") or (False if table.complete else HIDDEN),
        config=path,
        one_shot=bool(once and once != "0") or "--oneshot" in options or "-o" in options,
        bans=(*banned, *(word for word in options if word.startswith(("--ban", "-i")))),
    )


def first_settings(host: Host, paths: tuple[str, ...]) -> tuple[str | None, dict[str, str]]:
    """The first of these files that is there, with its variables."""
    for path in paths:
        try:
            text = text_if_there(host, path)
        except NotApplicable:
            continue
        if text is not None:
            return path, shell_settings(text)
    return None, {}


def shell_settings(text: str) -> dict[str, str]:
    """KEY=value lines as systemd's EnvironmentFile= and shells read them; the last one wins."""
    settings = {}
    for line in text.splitlines():
        key, found, value = line.strip().removeprefix("export ").partition("=")
        if found and not key.startswith("#"):
            settings[key.strip()] = unquoted(value)
    return settings


def unquoted(value: str) -> str:
    """A value without quotes and without a comment behind it."""
    try:
        return " ".join(shlex.split(value, comments=True))
    except ValueError:
        return value.strip().strip("\"'")
