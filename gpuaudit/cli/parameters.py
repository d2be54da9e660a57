# SPDX-License-Identifier: Apache-2.0
"""What options and arguments accept, and what the Tab key offers for them."""

import fnmatch
import math
import os
from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem

from gpuaudit.cli.errors import refuse

LONGEST_S = 86400.0
SHORTEST_PART = 2
Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def given(text: str) -> str:
    """A value that is not empty: `--snapshot "$UNSET"` must not audit this machine instead."""
    if not text.strip():
        raise click.BadParameter("it is empty; give a value or leave the option out")
    return text


def option(
    *names: str, complete: Complete, **settings: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option that takes a text, never an empty one, and what the Tab key offers for it."""
    return click.option(*names, type=given, shell_complete=complete, **settings)


def seconds(text: str) -> float:
    """A number of seconds that an audit can keep."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0.1 <= number <= LONGEST_S:
        raise click.BadParameter(f"{text} is not a number of seconds from 0.1 to 86400, such as 10")
    return number


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's signature
    """Ask the shell for files."""
    return [CompletionItem(incomplete, type="file")]


def folders(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's signature
    """Ask the shell for folders."""
    return [CompletionItem(incomplete, type="dir")]


def profiles(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's signature
    """Names of profiles with what they are for."""
    from gpuaudit.policy.profiles import load_profiles

    return [
        CompletionItem(name, help=one.about)
        for name, one in load_profiles().items()
        if name.startswith(incomplete)
    ]


def checks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's signature
    """IDs of checks with their titles; after a comma the next one."""
    from gpuaudit import packs

    before, comma, typed = incomplete.rpartition(",")
    return [
        CompletionItem(f"{before}{comma}{name}", help=one.title)
        for name, one in sorted(packs.load_checks().items())
        if name.startswith(typed)
    ]


def standard_output(path: str | None) -> str | None:
    """`-o -` is standard output, as nearly everywhere."""
    return None if path == "-" else path


def instead_of(word: str, known: list[str], other: str = "; gpuaudit list shows them all") -> str:
    """'; did you mean X?', or those that hold the word, or `other`: where all are listed."""
    import difflib

    close = difflib.get_close_matches(word.lower(), known, n=1)
    part = word.strip("*").lower()
    alike = close or [name for name in known if len(part) >= SHORTEST_PART and part in name]
    if not alike:
        return other
    return f"; did you mean {' or '.join(alike[:3])}?"


def require_checks(words: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a word that is neither an ID nor a glob that names one."""
    names = sorted(known)
    for word in words:
        if not fnmatch.filter(names, word):
            refuse(f"no check is named {word}{instead_of(word, names)}")


def image_root(path: str) -> str:
    """A folder that can be an image; an empty one would look healthy, since nothing is in it.

    Raises click.UsageError.
    """
    if os.path.isdir(path) and not any(
        os.path.isdir(os.path.join(path, name)) for name in ("etc", "usr")
    ):
        raise click.UsageError(f"{path}: holds neither etc/ nor usr/: not the root of an image")
    return path
