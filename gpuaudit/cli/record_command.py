# SPDX-License-Identifier: Apache-2.0
"""gpuaudit record."""

import re
import sys
from collections.abc import Iterator

import click

from gpuaudit.cli import parameters
from gpuaudit.host import Host
from gpuaudit.snapshot import Recorded, record, recorded_at_text

KIB = 1024


@click.command("record")
@parameters.option(
    "-o",
    "--output",
    metavar="PATH",
    complete=parameters.files,
    help="A .tar.gz, a .tar.zst, or a folder that does not exist yet. "
    "[default: gpuaudit-HOST-TIME.tar.gz]",
)
@click.option(
    "--scrub",
    is_flag=True,
    help="Replace serial numbers, UUIDs, host names, MAC and IP addresses and user names.",
)
def command(output: str | None, scrub: bool) -> None:
    """Write a snapshot of this machine: raw evidence that can be audited anywhere, later too.

    \b
    gpuaudit record
    gpuaudit record --scrub -o node.tar.zst
    gpuaudit run --snapshot node.tar.zst

    Works without root; what needs root is then named and left out. Nothing on the machine changes.
    """
    host = Host.live()
    path = output or default_name(host, scrub=scrub)
    done = record(host, path, scrub=scrub, progress=progress if sys.stderr.isatty() else None)
    host.close()
    if sys.stderr.isatty():
        click.echo("\r\033[K", err=True, nl=False)
    for line in told(done):
        click.echo(line)


def progress(doing: str) -> None:
    """One line of the terminal, written over."""
    click.echo(f"\r\033[K{doing} ...", err=True, nl=False)


def default_name(host: Host, *, scrub: bool) -> str:
    """In the current folder, named after the machine unless that is not to be known."""
    name = "scrubbed" if scrub else host.optional("/proc/sys/kernel/hostname") or "node"
    safe = re.sub(r"[^A-Za-z0-9._-]", "-", name)[:64]
    return f"gpuaudit-{safe}-{re.sub('[-:]', '', recorded_at_text())}.tar.gz"


def told(done: Recorded) -> Iterator[str]:
    """What was recorded, what could not be read and why, and what to do before sharing it."""
    counts = [count(done.files, "file"), count(done.commands, "command"), count(done.gpus, "GPU")]
    yield f"{done.path}: {', '.join(counts)}, {size(done.size_bytes)}"
    gaps = done.missing_by_reason()
    if gaps:
        yield "Could not be read:"
        for reason, (number, example) in gaps.items():
            yield f"  {reason}: {count(number, 'file')} (for example {example})"
    for probe, error in done.crashed.items():
        yield f"  a fault in gpuaudit, please report it: {probe}: {error}"
    if done.manifest.scrubbed:
        yield "Identifiers were replaced. Look through it before you share it."
    else:
        yield "It names this machine. To share it, record it with --scrub."


def count(number: int, what: str) -> str:
    """'1 file', '24 files'."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def size(number: int) -> str:
    """Bytes as people read them."""
    return f"{number / KIB:.0f} KiB" if number < KIB * KIB else f"{number / KIB / KIB:.1f} MiB"
