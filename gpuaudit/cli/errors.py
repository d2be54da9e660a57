# SPDX-License-Identifier: Apache-2.0
"""What a user sees when something is wrong: one line that says what and where, and exit code 2."""

import os
import sys
from typing import NoReturn

import click

from gpuaudit.cli import INTERRUPTED, streams
from gpuaudit.host.errors import SnapshotError

WRONG_USE = 2
# Nagios reads 2 as a critical finding; wrong use is 3 there (Monitoring Plugins Guidelines).
WRONG_USE_FOR_NAGIOS = 3
BROKEN_PIPE = 141
BUG = 70


class Refused(SystemExit):
    """Wrong input, told about already: which exit code it ends in is for `guarded` to say."""


def guarded(cli: click.Group, args: list[str] | None) -> NoReturn:
    """Run the command line; every exception ends in one line on standard error."""
    streams.secure()
    try:
        sys.exit(called(cli, args))
    except Refused:
        words = " ".join(sys.argv[1:] if args is None else args).replace("=", " ")
        nagios = "--exit-codes nagios" in words
        sys.exit(WRONG_USE_FOR_NAGIOS if nagios else WRONG_USE)


def called(cli: click.Group, args: list[str] | None) -> int:
    """Call the command; the exit code, if it did not leave by itself."""
    try:
        code = cli.main(args=args, prog_name="gpuaudit", standalone_mode=False)
    except click.ClickException as error:
        refuse_use(error)
    except click.Abort:
        click.echo("gpuaudit: interrupted", err=True)
        return INTERRUPTED
    except SystemExit:
        if type(sys.stdout).__name__.endswith("PacifyFlushWrapper"):
            # click answers a closed pipe with 1, which here would mean that a check failed.
            return BROKEN_PIPE
        raise
    except Exception as error:  # noqa: BLE001 - nobody is to see a traceback; explain() tells bugs apart
        explain(error)
    return code if isinstance(code, int) else 0


def refuse_use(error: click.ClickException) -> NoReturn:
    """What click complains of, on one line, with the command whose help has the answer."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        raise Refused(WRONG_USE)
    text = " ".join(error.format_message().split()).rstrip(".")
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    if ctx is None:
        refuse(text)
    if "extra argument" in text and any(one.name == "snapshot" for one in ctx.command.params):
        text += "; a recording is named with --snapshot"
    stop = "" if text.endswith(("?", "?)")) else "."
    refuse(f"{text}{stop} See: {ctx.command_path} --help")


def explain(error: Exception) -> NoReturn:
    """The line for an exception that is somebody's wrong input, or else our bug."""
    if os.environ.get("GPUAUDIT_DEBUG"):
        raise error
    known = {"PolicyError", "PackError", "ReportError"}
    if isinstance(error, SnapshotError) or type(error).__name__ in known:
        refuse(str(error))
    if isinstance(error, OSError) and error.filename is not None:
        refuse(f"{os.fsdecode(error.filename)}: {error.strerror}")
    if isinstance(error, OSError) and error.errno in streams.NOWHERE_TO_WRITE:
        streams.give_up_output()
        refuse(f"the output cannot be written: {error.strerror}")
    click.echo(
        f"gpuaudit: internal error: {type(error).__name__}: {error} "
        "(please report it; GPUAUDIT_DEBUG=1 shows where)",
        err=True,
    )
    sys.exit(BUG)


def refuse(message: str) -> NoReturn:
    """Say what is wrong in one line, and end."""
    click.echo(f"gpuaudit: {streams.printable(message)}", err=True)
    raise Refused(WRONG_USE)
