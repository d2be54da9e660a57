# SPDX-License-Identifier: Apache-2.0
"""What gpuaudit explain tells of the generation of the GPUs."""

import json
import sys
from typing import Any

import click

from gpuaudit import audit, packs
from gpuaudit.cli.errors import refuse
from gpuaudit.cli.streams import lines_of
from gpuaudit.cli.topology_command import CANNOT_TELL, open_host
from gpuaudit.engine import Facts
from gpuaudit.facts.generation import NAMES, SOURCES, Generation, GpuKind, lever
from gpuaudit.host import Host, NotApplicable, Unavailable

WORDS = {True: "yes", False: "no", None: "depends"}


def explained(snapshot: str | None, root: str | None, format_name: str) -> str:
    """The levers of each kind of GPU, and the checks that do not apply for want of one."""
    if snapshot and root:
        refuse("--snapshot and --root exclude each other")
    host = open_host(snapshot, root)
    try:
        generation = Facts(host).get(Generation)
        silent = checks(host, generation)
        told = {"gpus": list(map(described, generation.gpus)), "not_applicable": silent}
    except (NotApplicable, Unavailable) as absent:
        click.echo(f"gpuaudit: the generation cannot be told: {absent.reason}", err=True)
        sys.exit(CANNOT_TELL)
    finally:
        host.close()
    return json.dumps(told, indent=2) if format_name == "json" else as_text(generation, told)


def described(gpu: GpuKind) -> dict[str, Any]:
    """One GPU with its levers."""
    family = gpu.family
    return {
        "address": gpu.address,
        "id": gpu.id,
        "model": gpu.model,
        "generation": family.name if family else None,
        "capability": family.capability if family else None,
        "levers": {name: {**lever(gpu, name)._asdict(), "source": SOURCES[name]} for name in NAMES},
    }


def checks(host: Host, generation: Generation) -> dict[str, str]:
    """The checks that do not apply because no GPU has a lever, with the reason they give."""
    reasons = {generation.lacks(name) for name in NAMES} - {None}
    asking = [one.id for one in packs.load_checks().values() if Generation in one.needs]
    report = audit.run(host, audit.Request(profile="bringup", select=tuple(asking))).report
    return {one.check: one.reason for one in report.results if one.reason in reasons}  # type: ignore[misc]  # None is not among them


def as_text(generation: Generation, told: dict[str, Any]) -> str:
    """For a terminal: GPUs of one kind together."""
    lines: list[str] = []
    for title in dict.fromkeys(gpu.title for gpu in generation.gpus):
        alike = [gpu for gpu in generation.gpus if gpu.title == title]
        lines += [f"{len(alike)} x {title}", *map(line_of(alike[0]), NAMES), ""]
    silent = [f"  {name}: {why}" for name, why in told["not_applicable"].items()]
    if silent:
        lines += ["Checks about a lever that do not apply here", *silent, ""]
    return lines_of("\n".join(lines).rstrip())


def line_of(gpu: GpuKind) -> Any:
    """How one lever of a GPU is written."""

    def line(name: str) -> str:
        found = lever(gpu, name)
        why = "" if found.there else f"  {found.why}"
        return f"  {NAMES[name]:<24}{WORDS[found.there]:<8}{why}".rstrip()

    return line
