# SPDX-License-Identifier: Apache-2.0
"""Standard input, output and error: closed, full, or of an encoding that lacks a letter."""

import errno
import io
import os
import sys

import click

NOWHERE_TO_WRITE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


def secure() -> None:
    """Make the three streams usable: closed ones lead to /dev/null, no letter stops the output.

    Without that the next file to be opened gets the number of a closed stream, and whatever is
    printed ends up in it.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - open until the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def give_up_output() -> None:
    """Lead standard output to /dev/null, so that Python's last flush has nothing to complain of."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def encoded(text: str) -> bytes:
    """UTF-8, whatever stands in file names."""
    return text.encode("utf-8", "backslashreplace")


def say(text: str, *, exact: bool) -> None:
    """Print a finished document. JSON, HTML and SVG are UTF-8 whatever the terminal speaks."""
    click.echo(encoded(text) if exact else text, nl=False)


def printable(message: str) -> str:
    """A message on one line, without what a terminal would obey."""
    return "".join(c if c.isprintable() else "?" for c in message)


def lines_of(text: str) -> str:
    """The same of a text of several lines: names of devices and files are anybody's to choose."""
    return "\n".join(map(printable, text.split("\n")))
