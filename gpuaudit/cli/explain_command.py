# SPDX-License-Identifier: Apache-2.0
"""gpuaudit explain."""

import inspect
import json
import textwrap

import click
from click.shell_completion import CompletionItem

from gpuaudit import packs
from gpuaudit.catalogue import documentation
from gpuaudit.check import Check, Expectations
from gpuaudit.cli import parameters
from gpuaudit.cli.errors import refuse
from gpuaudit.cli.streams import say
from gpuaudit.policy import Policy, load_policies
from gpuaudit.policy.profiles import profiles_with

EXPIRED = "waiver-expired"  # gpuaudit.waivers puts it into reports
CATALOGUES = {"xid": "a code of the GPU driver", "sxid": "a code of an NVSwitch"}
GENERATION = "generation"
OWN_HEADINGS = {
    "profiles": "Profiles that run it",
    "facts": "Facts it reads",
    "policy": "Policy values it compares with",
}


def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What may follow: a check, or a catalogue and one of its codes."""
    if ctx.params.get("words"):
        return []
    known = {**CATALOGUES, GENERATION: "what the GPUs of this machine can do"}
    found = [CompletionItem(n, help=t) for n, t in known.items() if n.startswith(incomplete)]
    return found + parameters.checks(ctx, param, incomplete)


@click.command("explain")
@click.argument("words", metavar="ID", nargs=-1, required=True, shell_complete=complete)
@click.option("--format", "format_name", type=click.Choice(["text", "json"]), default="text")
@parameters.option(
    "--snapshot",
    metavar="PATH",
    complete=parameters.files,
    help="With generation: of a recording, a folder or an archive.",
)
@parameters.option(
    "--root",
    metavar="DIR",
    complete=parameters.folders,
    help="With generation: of another root folder that holds sys/.",
)
def command(
    words: tuple[str, ...], format_name: str, snapshot: str | None, root: str | None
) -> None:
    """What a check means, what it reads, how it is judged, what to do.

    \b
    gpuaudit explain acs-redirect-off
    gpuaudit explain xid 79               what an Xid means
    gpuaudit explain sxid                 all codes of an NVSwitch
    gpuaudit explain generation           number formats and links of these GPUs
    """
    if words != (GENERATION,) and (snapshot or root):
        refuse("--snapshot and --root belong to explain generation")
    if words[0] in CATALOGUES:
        from gpuaudit.cli.xid_command import explained

        say(explained(words[0], words[1:], format_name) + "\n", exact=format_name == "json")
        return
    if words == (GENERATION,):
        from gpuaudit.cli.generation_command import explained as generation

        say(generation(snapshot, root, format_name) + "\n", exact=format_name == "json")
        return
    if len(words) > 1:
        refuse(f"explain takes one check, not {len(words)}")
    explain_check(words[0], format_name)


def explain_check(check_id: str, format_name: str) -> None:
    """Print a check's page."""
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
        "profiles": ", ".join(profiles_with(one.id)),
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
