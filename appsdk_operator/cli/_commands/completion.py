"""Print a script that completes commands and options in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from appsdk_operator.cli import _frame


@_frame.command(
    "completion",
    examples=(
        "appsdk-operator completion bash > ~/.appsdk-operator.bash",
        "appsdk-operator completion zsh",
        "appsdk-operator completion fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print a script that completes commands and options in SHELL.

    Have the shell read it when it starts: for bash (4.4 or newer) a line `source FILE` in
    ~/.bashrc, for zsh in ~/.zshrc; for fish put the file into ~/.config/fish/completions.
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.ClickException(
            f"this version of click does not support completion for {shell}: upgrade click"
        )
    script = kind(_frame.program, {}, _frame.PROGRAM, _frame.COMPLETION_VARIABLE)
    # Not source(), which runs bash to see its version: the script may be for another machine.
    click.echo(script.source_template % script.source_vars())
