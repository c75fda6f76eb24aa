"""Bring a project to the current templates."""

from __future__ import annotations

import click

from appsdk_operator.cli import _frame


@_frame.command(
    "update",
    examples=("appsdk-operator update", "appsdk-operator update --check"),
)
@click.option(
    "--kit",
    metavar="SOURCE",
    help="Get the kit from another source, as for 'init'. Default: from where it is now.",
)
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if a file is not current.")
@click.option("--dry-run", is_flag=True, help="Write nothing; say what would be written.")
def command(kit: str | None, check: bool, dry_run: bool) -> int:
    """Bring the project in the current folder to the templates of this version of the kit.

    Your edits stay: the command merges the changes of the templates into your files. If that is not
    possible for a file, it writes the new text next to it, as NAME.new, and the exit status is 1.
    Take over the lines that you want, and delete NAME.new.
    """
    from pathlib import Path

    from appsdk_operator.cli._output import Output
    from appsdk_operator.cli._scaffold.project import answers_of, with_kit, write
    from appsdk_operator.cli._scaffold.render import GENERATOR, texts_of

    answers = answers_of(Path())
    if kit is not None:
        if check or dry_run:
            raise click.UsageError("--kit changes the project: leave out --check and --dry-run")
        return write(Path(), *with_kit(answers, kit))
    try:
        texts = texts_of(answers)
    except ValueError as error:  # of a version that let two parts have one file
        raise click.ClickException(str(error)) from error
    return Output(".", check=check, dry_run=dry_run).deliver(texts, GENERATOR)
