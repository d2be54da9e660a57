# SPDX-License-Identifier: Apache-2.0
"""gpuaudit topology."""

import importlib
import sys
from typing import TYPE_CHECKING

import click

from gpuaudit.cli import parameters
from gpuaudit.cli.errors import refuse
from gpuaudit.cli.output import format_for, write_atomically
from gpuaudit.cli.streams import encoded, lines_of, say
from gpuaudit.host import Host

if TYPE_CHECKING:
    from gpuaudit.engine import Facts
    from gpuaudit.facts.base import Absent
    from gpuaudit.facts.numa import NumaNodes
    from gpuaudit.topology.view import View

CANNOT_TELL = 3
SUFFIXES = {".txt": "text", ".json": "json", ".svg": "svg"}


@click.command("topology")
@parameters.option(
    "--snapshot",
    metavar="PATH",
    complete=parameters.files,
    help="Look at a recording: a folder or an archive.",
)
@parameters.option(
    "--root",
    metavar="DIR",
    complete=parameters.folders,
    help="Look at another root folder that holds sys/.",
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(list(SUFFIXES.values())),
    help="Default: text, or by the suffix of -o.",
)
@parameters.option(
    "-o",
    "--output",
    metavar="FILE",
    complete=parameters.files,
    help="Write to a file, atomically. [- is standard output]",
)
@click.option(
    "--findings/--no-findings",
    default=True,
    show_default=True,
    help="Audit the machine too and mark what is wrong where it is.",
)
def command(
    *,
    snapshot: str | None,
    root: str | None,
    format_name: str | None,
    output: str | None,
    findings: bool,
) -> None:
    """Show how GPUs, NICs and drives are connected, and what each path can carry.

    \b
    gpuaudit topology
    gpuaudit topology --snapshot node.tar.gz
    gpuaudit topology --format json
    gpuaudit topology -o topology.svg

    The matrix gives the path class of each pair (as nvidia-smi topo -m) and, in gigabytes a second
    in each direction, what the narrowest link on the way carries now.

    Exit codes: 0 shown, 2 wrong use, 3 the PCI devices cannot be told.
    """
    output = parameters.standard_output(output)
    if snapshot and root:
        refuse("--snapshot and --root exclude each other")
    chosen = format_for(format_name, output, SUFFIXES)
    host = open_host(snapshot, root)
    view = with_links(seen(host), host)
    view = with_findings(view, host) if findings else view
    host.close()
    text = drawn(view, chosen)
    if output:
        write_atomically(output, encoded(text))
    else:
        say(text, exact=chosen != "text")
    if any(note.startswith("PCI: ") for note in view.notes):
        click.echo(f"gpuaudit: the PCI devices cannot be told: {view.notes[0][5:]}", err=True)
        sys.exit(CANNOT_TELL)


def open_host(snapshot: str | None, root: str | None) -> Host:
    """The machine the options name. A folder with sys/ is opened as a plain recording."""
    chosen = snapshot or root
    return Host.snapshot(chosen) if chosen else Host.live()


def seen(host: Host) -> "View":
    """Read the facts. Without PCI devices the NUMA nodes and CPUs are left."""
    from gpuaudit.engine import Facts
    from gpuaudit.facts.cpu import CpuSets
    from gpuaudit.facts.node import Machine
    from gpuaudit.host import NotApplicable, Unavailable
    from gpuaudit.topology import Topology
    from gpuaudit.topology.names import DeviceNames
    from gpuaudit.topology.view import view_of, view_without_pci

    facts = Facts(host)
    name = facts.get(Machine).hostname
    try:
        cpus = facts.get(CpuSets)
        return view_of(facts.get(Topology), facts.get(DeviceNames), name, cpus)
    except NotApplicable as absent:
        refuse(absent.reason)
    except Unavailable as absent:
        return view_without_pci(absent.reason, name, numa_of(facts), cpus)


def with_links(view: "View", host: Host) -> "View":
    """NVLink and shared uplinks, where they can be told. The PCI links have been read by now."""
    from msgspec.structs import replace

    from gpuaudit.engine import Facts
    from gpuaudit.facts.nvlink import NvLinks
    from gpuaudit.topology import Topology
    from gpuaudit.topology.beyond import beyond

    facts = Facts(host)
    tree = facts.find(Topology)
    return replace(view, beyond=beyond(tree, facts.find(NvLinks))) if tree else view


def with_findings(view: "View", host: Host) -> "View":
    """What an audit of the same machine finds, at its place. Nothing is read twice."""
    from gpuaudit import audit
    from gpuaudit.topology.marks import Mark, marked

    report = audit.run(host, audit.Request(profile="bringup")).report
    silent = {"pass", "notapplicable"}
    return marked(
        view,
        (
            Mark(check=r.check, verdict=f.verdict.value, subject=f.subject, message=f.message)
            for r in report.results
            for f in r.findings
            if f.verdict.value not in silent
        ),
    )


def numa_of(facts: "Facts") -> "NumaNodes | Absent":
    """The NUMA tables, or why there are none."""
    from gpuaudit.facts.base import Absent
    from gpuaudit.facts.numa import NumaNodes
    from gpuaudit.host import Unavailable

    try:
        found: NumaNodes = facts.get(NumaNodes)
    except Unavailable as absent:
        return Absent("missing", absent.reason)
    return found


def drawn(view: "View", chosen: str) -> str:
    """The view in the chosen format."""
    if chosen == "json":
        from gpuaudit.report import json_of

        return json_of(view).decode()
    module = {"text": "gpuaudit.topology.text", "svg": "gpuaudit.topology.picture"}[chosen]
    text: str = importlib.import_module(module).render(view)
    return text if chosen == "svg" else lines_of(text)
