# SPDX-License-Identifier: Apache-2.0
"""Where the readings of running totals come from, and where they are kept."""

import os
import time

import click

from gpuaudit import audit, packs, readings
from gpuaudit.cli.errors import Refused, refuse
from gpuaudit.cli.output import write_atomically
from gpuaudit.facts.counters import STATE_FILE
from gpuaudit.host import Host
from gpuaudit.policy.profiles import chosen, load_profile

MAX_BYTES = 4 << 20


def read_first(request: audit.Request, interval_s: float) -> bytes | None:
    """Read the totals that the checks of this request compare, then wait."""
    checks = packs.load_checks()
    profile = load_profile(request.profile)
    ids = chosen(checks, profile, request.select, request.ignore)
    found = readings.first_reading([checks[one] for one in ids])
    time.sleep(interval_s)
    return found


def give(host: Host, folder: str | None, first: bytes | None) -> None:
    """Let the audit compare with this run's first reading, or with the one kept in `folder`."""
    content = kept(folder) if folder and first is None else first
    if content is not None:
        readings.compare_with(host, content)


def kept(folder: str) -> bytes:
    """The reading in a folder; nothing at all, which compares with nothing, where there is none."""
    try:
        with open(file_in(folder), "rb") as file:
            return file.read(MAX_BYTES)
    except FileNotFoundError:
        return b""
    except OSError as error:
        refuse(f"{file_in(folder)}: cannot be read: {error.strerror}")


def keep(folder: str | None, reading: bytes | None) -> None:
    """Write the reading for the next audit. That it cannot be kept fails no audit."""
    if reading is None:
        return
    path = file_in(folder or os.path.dirname(STATE_FILE))
    if os.path.islink(path):
        click.echo(f"gpuaudit: {path}: is a link, and the readings were not kept there", err=True)
        return
    try:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        write_atomically(path, reading)
    except Refused:
        return  # it has said why
    except OSError as error:
        click.echo(f"gpuaudit: {path}: cannot be written: {error.strerror}", err=True)


def file_in(folder: str) -> str:
    """The state file of a folder."""
    return os.path.join(folder, os.path.basename(STATE_FILE))
