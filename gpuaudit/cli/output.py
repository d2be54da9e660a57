# SPDX-License-Identifier: Apache-2.0
"""Deliver a report: pick the format, render it, write it atomically."""

import importlib
import os
from collections.abc import Mapping

import click

from gpuaudit.cli.errors import refuse
from gpuaudit.report import Report

FORMATS = ("text", "json", "html")
SUFFIXES = {".txt": "text", ".json": "json", ".html": "html", ".htm": "html"}
RENDERERS = {name: f"gpuaudit.reports.{name}_report" for name in FORMATS}


def format_for(name: str | None, output: str | None) -> str:
    """The format asked for, or the one the suffix of the output file names."""
    if name:
        return name
    if not output:
        return "text"
    suffix = os.path.splitext(output)[1].lower()
    if suffix not in SUFFIXES:
        refuse(
            f"{output}: the suffix names no format; use --format or one of {', '.join(SUFFIXES)}"
        )
    return SUFFIXES[suffix]


def deliver(
    report: Report, name: str, output: str | None, *, verbose: bool, traces: Mapping[str, str]
) -> None:
    """Render to the file, or to standard output in the terminal's colours and width."""
    renderer = importlib.import_module(RENDERERS[name])
    if output:
        write_atomically(output, renderer.render(report, verbose=verbose).encode())
        return
    click.echo(renderer.render(report, verbose=verbose, terminal=name == "text"), nl=False)
    if verbose:
        for check, trace in traces.items():
            click.echo(f"\n{check} crashed:\n{trace}", err=True)


def write_atomically(path: str, data: bytes) -> None:
    """Write beside the target, then rename. A reader sees the old file or the new one."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        refuse(f"{path}: the folder {folder} does not exist")
    import tempfile

    descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=".gpuaudit-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(descriptor, 0o644)
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
