# SPDX-License-Identifier: Apache-2.0
"""What a user sees when something is wrong: one line that says what and where, and exit code 2."""

import os
import sys
from typing import Any, NoReturn

import click

from gpuaudit.host.errors import SnapshotError

WRONG_USE = 2
BROKEN_PIPE = 141
BUG = 70


def guarded(cli: click.Group, args: list[str] | None) -> Any:
    """Run the command line; every exception ends in one line on standard error."""
    try:
        return cli.main(args=args, prog_name="gpuaudit", standalone_mode=True)
    except SnapshotError as error:
        refuse(str(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(BROKEN_PIPE)
    except Exception as error:
        if os.environ.get("GPUAUDIT_DEBUG"):
            raise
        if type(error).__name__ in {"PolicyError", "PackError", "ReportError"}:
            refuse(str(error))
        if isinstance(error, OSError) and error.filename is not None:
            refuse(f"{os.fsdecode(error.filename)}: {error.strerror}")
        click.echo(
            f"gpuaudit: internal error: {type(error).__name__}: {error} "
            "(please report it; GPUAUDIT_DEBUG=1 shows where)",
            err=True,
        )
        sys.exit(BUG)


def refuse(message: str) -> NoReturn:
    """End with exit code 2 and one line."""
    click.echo(f"gpuaudit: {message}", err=True)
    sys.exit(WRONG_USE)
