# SPDX-License-Identifier: Apache-2.0
"""The command line. One file a command; a command's module is imported when it is called."""

import importlib
import sys
from typing import NoReturn

import click

from gpuaudit import __version__

COMMANDS = {
    "run": "audit this machine, a snapshot or an image",
    "list": "list the checks",
    "explain": "what a check means, how it is judged, what to do",
    "record": "write a snapshot of this machine",
    "topology": "how GPUs, NICs and drives are connected, what each path can carry",
    "xid": "explain the Xids in a kernel log",
    "policy": "show, check or draft a policy",
    "schema": "print the JSON Schema of the report",
    "completion": "print a shell completion script",
    "docs": "regenerate the tables in the documentation",
}
INTERRUPTED = 130
HIDDEN = {"docs"}  # for those who work on gpuaudit itself


class Lazy(click.Group):
    """A group whose commands are imported when called, so that start-up stays flat."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Names in the order a new user needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import gpuaudit.cli.<name> and take its `command`."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"gpuaudit.cli.{cmd_name}_command")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """The command list, without importing every command for its first line."""
        with formatter.section("Commands"):
            formatter.write_dl([row for row in COMMANDS.items() if row[0] not in HIDDEN])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, with the nearest command named in the error."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from gpuaudit.cli.parameters import instead_of

            shown = [name for name in COMMANDS if name not in HIDDEN]
            other = f"; there are {', '.join(shown)}"
            ctx.fail(f"no command is named {args[0]}{instead_of(args[0], shown, other)}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=Lazy,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 no failure, 1 a failure, 2 wrong use, 3 could not be told.",
)
@click.version_option(__version__, prog_name="gpuaudit", message="%(prog)s %(version)s")
def cli() -> None:
    """Audit NVIDIA GPU nodes: is this node configured and healthy enough to train on?

    \b
    gpuaudit run                          audit this machine
    gpuaudit run --snapshot node.tar.gz   audit a recording
    gpuaudit explain acs-redirect-off     what a check means
    """


def main(args: list[str] | None = None) -> NoReturn:
    """Entry point: wrong input ends in one clear line and exit code 2, never in a traceback."""
    try:
        from gpuaudit.cli.errors import guarded

        guarded(cli, args)
    except KeyboardInterrupt:  # before click is at work, which sees to it afterwards
        click.echo("gpuaudit: interrupted", err=True)
        sys.exit(INTERRUPTED)
