# SPDX-License-Identifier: Apache-2.0
"""gpuaudit explain."""

import inspect
import json
import textwrap

import click

from gpuaudit import packs
from gpuaudit.catalogue import documentation
from gpuaudit.check import Check, Expectations
from gpuaudit.cli import parameters
from gpuaudit.cli.errors import refuse
from gpuaudit.policy import Policy, load_policies

EXPIRED = "waiver-expired"  # gpuaudit.waivers puts it into reports
OWN_HEADINGS = {"facts": "Facts it reads", "policy": "Policy values it compares with"}


@click.command("explain")
@click.argument("check_id", metavar="ID", shell_complete=parameters.checks)
@click.option("--format", "format_name", type=click.Choice(["text", "json"]), default="text")
def command(check_id: str, format_name: str) -> None:
    """What a check means, what it reads, how it is judged, what to do.

    \b
    gpuaudit explain acs-redirect-off
    """
    checks = packs.load_checks()
    if check_id == EXPIRED:
        refuse(f"{EXPIRED} is no check: a waiver in the --waivers file is past its `until` date")
    if check_id not in checks:
        refuse(f"no check is named {check_id}{parameters.instead_of(check_id, sorted(checks))}")
    one = checks[check_id]
    policy = load_policies(packs.sections(checks)).for_node(())
    told: dict[str, object] = {
        "id": one.id,
        "title": one.title,
        "severity": one.severity.value,
        "origin": one.origin,
        **documentation(one),
        "facts": facts(one),
        "policy": policy_values(one, policy),
    }
    click.echo(json.dumps(told, indent=2) if format_name == "json" else as_text(told))


def facts(one: Check) -> dict[str, str]:
    """Name and origin of each fact the check reads, from the fact's docstring."""
    kinds = [k for k in one.needs if not issubclass(k, Expectations)]
    return {k.__name__: " ".join((inspect.getdoc(k) or "").split()) for k in kinds}


def policy_values(one: Check, policy: Policy) -> dict[str, str]:
    """The base policy's values of the section the check compares with, with their source."""
    names = {k.section() for k in one.needs if issubclass(k, Expectations)}
    return {
        f"{v.section}.{v.field}": f"{v.value} ({v.source})"
        for v in policy.values()
        if v.section in names
    }


def filled(text: str) -> str:
    """One entry of a list, wrapped as wide as the docstrings are."""
    return textwrap.fill(
        text, 100, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False
    )


def as_text(told: dict[str, object]) -> str:
    """Headings and paragraphs for a terminal."""
    lines = [f"{told['id']}  [{told['severity']}]", f"{told['title']}.", ""]
    for heading, text in told.items():
        if heading in {"id", "title", "severity", "origin"} or not text:
            continue
        lines.append(OWN_HEADINGS.get(heading, heading))
        if isinstance(text, dict):
            lines += [filled(f"{name}: {value}") for name, value in text.items()]
        else:
            lines += [f"  {line}".rstrip() for line in str(text).splitlines()]
        lines.append("")
    return "\n".join([*lines, f"Defined in {told['origin']}"])
