"""A project on disk: made, extended, and brought to the current templates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from appsdk_operator.cli._output import report
from appsdk_operator.cli._scaffold.answers import Answers
from appsdk_operator.cli._scaffold.render import GENERATOR, texts_of
from appsdk_operator.project import GeneratedFiles

__all__ = ["answers_of", "change", "checked", "write"]


def answers_of(folder: Path) -> Answers:
    """What the project in a folder was made with.

    Raises:
        click.ClickException: there is none.
    """
    found = checked(Answers.load, folder)
    if found is None:
        raise click.ClickException(
            f"{folder.absolute()} is no project of appsdk-operator: run this in the folder that "
            "appsdk-operator init has made"
        )
    return found


def checked(function: Callable[..., Answers | None], *args: object) -> Answers | None:
    """The result of a function; a name that cannot be used is an error of the command."""
    try:
        return function(*args)
    except (TypeError, ValueError) as error:
        raise click.ClickException(str(error)) from error


def change(folder: Path, function: Callable[[Answers], Answers]) -> int:
    """Change what a project was made with, and its files with it; the exit status."""
    present = answers_of(folder)
    wanted = checked(function, present)
    assert wanted is not None
    return write(folder, wanted)


def write(folder: Path, answers: Answers) -> int:
    """Write a project, and say what became of its files; the exit status."""
    try:
        # First, so that files which are written afterwards are never taken for ones too many.
        answers.save(folder)
        changes = GeneratedFiles(folder, GENERATOR).write(texts_of(answers))
    except OSError as error:
        raise click.ClickException(f"the project in {folder}: {error}") from error
    return report(changes, str(folder))
