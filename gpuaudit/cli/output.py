# SPDX-License-Identifier: Apache-2.0
"""Deliver a report: pick the format, render it, write it atomically."""

import importlib
import os
from collections.abc import Mapping

import click

from gpuaudit.cli.errors import refuse
from gpuaudit.cli.streams import encoded, say
from gpuaudit.report import Report

FORMATS = ("text", "json", "html")
SUFFIXES = {".txt": "text", ".json": "json", ".html": "html", ".htm": "html"}
STREAMS = ("/dev/std", "/dev/fd/", "/proc/")
RENDERERS = {name: f"gpuaudit.reports.{name}_report" for name in FORMATS}


def format_for(name: str | None, output: str | None, suffixes: Mapping[str, str] = SUFFIXES) -> str:
    """The format asked for, or the one the suffix of the output file names; text without either."""
    if name:
        return name
    if not output:
        return "text"
    suffix = os.path.splitext(output)[1].lower()
    if suffix not in suffixes:
        refuse(
            f"{output}: the suffix names no format; use --format or one of {', '.join(suffixes)}"
        )
    return suffixes[suffix]


def deliver(
    report: Report, name: str, output: str | None, *, verbose: bool, traces: Mapping[str, str]
) -> None:
    """Render to the file, or to standard output in the terminal's colours and width."""
    renderer = importlib.import_module(RENDERERS[name])
    if output:
        write_atomically(output, encoded(renderer.render(report, verbose=verbose)))
        return
    page = renderer.render(report, verbose=verbose, terminal=name == "text")
    say(page, exact=name != "text")
    if verbose:
        for check, trace in traces.items():
            click.echo(f"\n{check} crashed:\n{trace}", err=True)


def write_atomically(path: str, data: bytes) -> None:
    """Write beside the target, then rename. A reader sees the old file or the new one.

    What is no plain file (/dev/null, /dev/stdout, a pipe) is written to, never replaced.
    """
    if os.path.isdir(path):
        refuse(f"{path}: is a folder; name a file in it")
    if path.startswith(STREAMS) or (os.path.exists(path) and not os.path.isfile(path)):
        with open(path, "wb") as file:
            file.write(data)
        return
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        refuse(f"{path}: the folder {folder} does not exist")
    import tempfile

    try:
        descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=".gpuaudit-")
    except OSError as error:
        refuse(f"{path}: cannot be written: {error.strerror}")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(descriptor, 0o644)
            os.fsync(descriptor)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
