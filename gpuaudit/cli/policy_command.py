# SPDX-License-Identifier: Apache-2.0
"""gpuaudit policy show | check | from."""

import json
import os
from collections.abc import Iterator

import click

from gpuaudit import __version__, packs
from gpuaudit.check import Check, Finding
from gpuaudit.cli import parameters
from gpuaudit.cli.errors import refuse
from gpuaudit.cli.output import write_atomically
from gpuaudit.engine import Facts, gpu_ids, judge_one
from gpuaudit.facts.node import Machine
from gpuaudit.host import Host
from gpuaudit.policy import Policy, load_policies
from gpuaudit.policy.draft import draft, shown, written

CHECK_TIMEOUT_S = 20.0
site_policies = parameters.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="FILE",
    complete=parameters.files,
    help="Add a site policy file.",
)


@click.group("policy")
def command() -> None:
    """Show, check or draft what a node should look like.

    \b
    gpuaudit policy show
    gpuaudit policy check site.yaml
    gpuaudit policy from good-node.tar.gz -o site.yaml
    """


@command.command("show", short_help="print every value in effect and where it comes from")
@parameters.option(
    "--snapshot",
    metavar="PATH",
    complete=parameters.files,
    help="For the node of this recording. [default: this machine]",
)
@site_policies
@click.option("--format", "format_name", type=click.Choice(["text", "json"]), default="text")
def show(snapshot: str | None, policies: tuple[str, ...], format_name: str) -> None:
    """Print every value that is in effect, with the file and line it came from.

    \b
    gpuaudit policy show
    gpuaudit policy show --snapshot node.tar.gz --policy site.yaml --format json
    """
    host = Host.snapshot(snapshot) if snapshot else Host.live()
    checks = packs.load_checks()
    known = load_policies(packs.sections(checks), policies)
    policy = known.for_node(gpu_ids(Facts(host)))
    host.close()
    lines = [as_json(policy)] if format_name == "json" else as_text(policy)
    for line in lines:
        click.echo(line)


def as_json(policy: Policy) -> str:
    """For programs."""
    document = {
        "sku": policy.sku,
        "files": [{"path": x.name, "sha256": x.sha256} for x in policy.layers],
        "values": [
            {"section": v.section, "field": v.field, "value": v.value, "source": v.source}
            for v in policy.values()
        ],
        "skip": policy.skip,
    }
    return json.dumps(document, indent=2)


def as_text(policy: Policy) -> Iterator[str]:
    """For people: the values in columns, their files at the end of each line."""
    yield f"Files, the last one wins: {', '.join(x.name for x in policy.layers)}"
    rows = [(f"{v.section}.{v.field}", shown(v.value), v.source) for v in policy.values()]
    wide = max(len(name) for name, _, _ in rows)
    values = min(max(len(value) for _, value, _ in rows), 40)
    for name, value, source in rows:
        yield f"{name:<{wide}}  {value:<{values}}  {source}"
    for check_id, reason in policy.skip.items():
        yield f"skip {check_id}: {reason}"


@command.command("check", short_help="say whether policy files can be used")
@click.argument(
    "files",
    nargs=-1,
    required=True,
    metavar="FILE...",
    type=parameters.given,
    shell_complete=parameters.files,
)
def check(files: tuple[str, ...]) -> None:
    """Say whether policy files can be used; if not, the line, what is wrong and what is allowed.

    \b
    gpuaudit policy check site.yaml

    Exit codes: 0 good, 2 wrong.
    """
    sections = packs.sections(packs.load_checks())
    for file in files:
        load_policies(sections, (file,), site=False)
        click.echo(f"{file}: good")


@command.command("from", short_help="draft a policy from the recording of a good node")
@click.argument(
    "snapshot", metavar="SNAPSHOT", type=parameters.given, shell_complete=parameters.files
)
@parameters.option(
    "-o",
    "--output",
    metavar="FILE",
    complete=parameters.files,
    help="Write to a new file. [default: print it]",
)
@site_policies
def from_snapshot(snapshot: str, output: str | None, policies: tuple[str, ...]) -> None:
    """Draft a site policy from the recording of a known-good node.

    A value is taken over when the checks prove that it is what they compare. Read the draft: where
    the node fails what the policy wants now, it says LOOSER.

    \b
    gpuaudit policy from good-node.tar.gz -o site.yaml
    gpuaudit run --policy site.yaml
    """
    output = parameters.standard_output(output)
    if output and os.path.lexists(output):
        refuse(f"{output}: exists already; a draft replaces no file")
    text = drafted(Host.snapshot(snapshot), snapshot, policies)
    if output is None:
        click.echo(text, nl=False)
        return
    write_atomically(output, text.encode())
    click.echo(f"{output}: read it, change it, then: gpuaudit run --policy {output}")


def drafted(host: Host, name: str, policies: tuple[str, ...]) -> str:
    """The text of the draft. Checks that need NVML need no care here: a recording has no GPU."""
    checks = packs.load_checks()
    facts = Facts(host)
    ids = gpu_ids(facts)
    policy = load_policies(packs.sections(checks), policies).for_node(ids)

    def judge(one: Check, tried: Policy) -> tuple[Finding, ...]:
        return judge_one(one, facts, tried, CHECK_TIMEOUT_S).findings

    values = list(draft(policy, [checks[name] for name in sorted(checks)], judge))
    machine: Machine = facts.get(Machine)
    about = [
        f"Drafted by gpuaudit {__version__} from {os.path.basename(name.rstrip('/'))}",
        f"(host {machine.hostname}, {machine.vendor} {machine.product}). Only what differs from",
        f"{', '.join(x.name for x in policy.layers)}. Read it before you use it.",
    ]
    return written(values, about=about, pci_ids=ids)
