# SPDX-License-Identifier: Apache-2.0
"""gpuaudit completion."""

import click
from click.shell_completion import get_completion_class

from gpuaudit.cli.errors import refuse


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a completion script.

    \b
    eval "$(gpuaudit completion bash)"
    gpuaudit completion fish > ~/.config/fish/completions/gpuaudit.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        refuse(f"click knows no completion for {shell}")
    script = kind(ctx.find_root().command, {}, "gpuaudit", "_GPUAUDIT_COMPLETE").source()
    # click's fish script cuts a title, and a list of IDs, at its first comma.
    click.echo(script.replace('string split ","', 'string split -m 1 ","'))
