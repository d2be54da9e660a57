# SPDX-License-Identifier: Apache-2.0
"""gpuaudit schema."""

import json

import click

from gpuaudit.report import json_schema


@click.command("schema")
def command() -> None:
    """Print the JSON Schema (draft 2020-12) of the report.

    \b
    gpuaudit schema > gpuaudit.report.schema.json
    """
    click.echo(json.dumps(json_schema(), indent=2))
