# SPDX-License-Identifier: Apache-2.0
"""gpuaudit list."""

import fnmatch
import json

import click

from gpuaudit import packs
from gpuaudit.check import Check
from gpuaudit.cli import parameters
from gpuaudit.policy.profiles import chosen, load_profile


@click.command("list")
@click.option(
    "--profile",
    metavar="NAME",
    type=parameters.given,
    shell_complete=parameters.profiles,
    help="Only the checks of this profile.",
)
@click.option("--format", "format_name", type=click.Choice(["text", "json"]), default="text")
@click.argument("patterns", nargs=-1, metavar="[ID]...", shell_complete=parameters.checks)
def command(profile: str | None, format_name: str, patterns: tuple[str, ...]) -> None:
    """List the checks with severity and title.

    \b
    gpuaudit list
    gpuaudit list 'pcie-*' --format json
    """
    checks = packs.load_checks()
    names = wanted(checks, profile, patterns)
    if format_name == "json":
        click.echo(json.dumps([row(checks[name]) for name in names], indent=2))
        return
    width = max((len(name) for name in names), default=0)
    for name in names:
        one = checks[name]
        click.echo(f"{name:<{width}}  {one.severity.value:<8}  {one.title}")
    click.echo(f"{len(names)} check{'' if len(names) == 1 else 's'}")


def wanted(checks: dict[str, Check], profile: str | None, patterns: tuple[str, ...]) -> list[str]:
    """IDs in name order, narrowed by profile and patterns."""
    names = sorted(checks)
    if profile is not None:
        names = chosen(names, load_profile(profile))
    parameters.require_checks(patterns, checks)
    if patterns:
        names = [n for n in names if any(fnmatch.fnmatchcase(n, p) for p in patterns)]
    return names


def row(one: Check) -> dict[str, str]:
    """One check as JSON."""
    return {
        "id": one.id,
        "severity": one.severity.value,
        "title": one.title,
        "origin": one.origin,
    }
