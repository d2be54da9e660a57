# SPDX-License-Identifier: Apache-2.0
"""gpuaudit docs: keep what is generated in step with the registry."""

import json
import os
import re

import click

from gpuaudit import packs
from gpuaudit.catalogue import documentation
from gpuaudit.check import Check
from gpuaudit.cli import checklists
from gpuaudit.cli.errors import refuse
from gpuaudit.cli.output import write_atomically
from gpuaudit.policy.profiles import profiles_with
from gpuaudit.report import json_schema

BEGIN, END = "<!-- checks: begin -->", "<!-- checks: end -->"
STALE = 1


@click.command("docs", hidden=True)
@click.option("--write/--check", default=False, help="Write the files, or fail when they differ.")
@click.option("--folder", default=".", metavar="DIR", help="The source tree.")
@click.pass_context
def command(ctx: click.Context, folder: str, *, write: bool) -> None:
    """Regenerate README's table, the pages of docs/ and the report's schema, or check them.

    \b
    gpuaudit docs --check
    gpuaudit docs --write
    """
    checks = packs.load_checks(plugins=False)
    stale = []
    for name, text in generated(folder, checks).items():
        path = os.path.join(folder, name)
        if write:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            write_atomically(path, text.encode())
        elif read(path) != text:
            stale.append(name)
    if stale:
        click.echo(f"out of date: {', '.join(stale)}; run gpuaudit docs --write", err=True)
        ctx.exit(STALE)


def generated(folder: str, checks: dict[str, Check]) -> dict[str, str]:
    """File name -> what it should hold."""
    readme = read(os.path.join(folder, "README.md"))
    if BEGIN not in readme or END not in readme:
        refuse(f"no README.md with {BEGIN} in {folder}: run this in the source tree")
    before, _, rest = readme.partition(BEGIN)
    after = rest.partition(END)[2]
    return {
        "README.md": f"{before}{BEGIN}\n{table(checks)}{END}{after}",
        "docs/checks.md": reference(checks),
        checklists.TARGET: checklists.page(folder, checks),
        "docs/gpuaudit.report.schema.json": json.dumps(json_schema(), indent=2) + "\n",
    }


def read(path: str) -> str:
    """The text of a file; nothing when it is not there."""
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8") as file:
        return file.read()


def table(checks: dict[str, Check]) -> str:
    """The README's table: ID, severity, title."""
    rows = [
        f"| [`{one.id}`](docs/checks.md#{one.id}) | {one.severity.value} | {one.title} |"
        for _, one in sorted(checks.items())
    ]
    head = [
        f"{len(rows)} checks.",
        "",
        "| check | severity | true when it passes |",
        "|---|---|---|",
    ]
    return "\n".join([*head, *rows]) + "\n"


def reference(checks: dict[str, Check]) -> str:
    """docs/checks.md: every check's documentation, generated from its docstring."""
    parts = [
        "# Checks",
        "",
        "Generated from the checks by `gpuaudit docs --write`; do not edit.",
        "",
    ]
    for name, one in sorted(checks.items()):
        where = ", ".join(profiles_with(name))
        facts = f"Severity: {one.severity.value}. Profiles: {where}."
        parts += [f"## {name}", "", f"**{one.title}.** {facts}", ""]
        for heading, text in documentation(one).items():
            parts += [f"### {heading}", "", re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE), ""]
    return "\n".join(parts)
