# SPDX-License-Identifier: Apache-2.0
"""gpuaudit topology."""

import importlib

import click

from gpuaudit.cli.errors import refuse
from gpuaudit.cli.output import write_atomically
from gpuaudit.host import Host

SUFFIXES = {".txt": "text", ".json": "json", ".svg": "svg"}


@click.command("topology")
@click.option("--snapshot", metavar="PATH", help="Look at a recording: a folder or an archive.")
@click.option(
    "--root", metavar="DIR", help="Look at another root folder that holds sys/ and proc/."
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(list(SUFFIXES.values())),
    help="Default: text, or by the suffix of -o.",
)
@click.option("-o", "--output", metavar="FILE", help="Write to a file, atomically.")
def command(
    *, snapshot: str | None, root: str | None, format_name: str | None, output: str | None
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
    if snapshot and root:
        refuse("--snapshot and --root exclude each other")
    chosen = format_name or by_suffix(output)
    text = rendered(open_host(snapshot, root), chosen)
    if output:
        write_atomically(output, text.encode())
    else:
        click.echo(text, nl=False)


def by_suffix(output: str | None) -> str:
    """The format the suffix of the output file names."""
    if not output:
        return "text"
    found = next((name for suffix, name in SUFFIXES.items() if output.lower().endswith(suffix)), "")
    if not found:
        refuse(
            f"{output}: the suffix names no format; use --format or one of {', '.join(SUFFIXES)}"
        )
    return found


def open_host(snapshot: str | None, root: str | None) -> Host:
    """The machine the options name. A folder with sys/ is opened as a plain recording."""
    chosen = snapshot or root
    return Host.snapshot(chosen) if chosen else Host.live()


def rendered(host: Host, chosen: str) -> str:
    """Read the facts and draw them."""
    import sys

    from gpuaudit.engine import Facts
    from gpuaudit.facts.node import Machine
    from gpuaudit.host import NotApplicable, Unavailable
    from gpuaudit.topology import Topology
    from gpuaudit.topology.names import DeviceNames
    from gpuaudit.topology.view import view_of

    facts = Facts(host)
    try:
        view = view_of(facts.get(Topology), facts.get(DeviceNames), facts.get(Machine).hostname)
    except (Unavailable, NotApplicable) as absent:
        click.echo(f"gpuaudit: the topology cannot be told: {absent.reason}", err=True)
        sys.exit(3)
    if chosen == "json":
        import msgspec

        return msgspec.json.format(msgspec.json.encode(view), indent=2).decode() + "\n"
    module = importlib.import_module(
        "gpuaudit.topology." + {"text": "text", "svg": "picture"}[chosen]
    )
    drawn: str = module.render(view)
    return drawn
