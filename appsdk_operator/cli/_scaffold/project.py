"""A project on disk: made, extended, and brought to the current templates."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import attrs
import click

from appsdk_operator.cli._output import report
from appsdk_operator.cli._progress import Progress
from appsdk_operator.cli._scaffold.answers import Answers
from appsdk_operator.cli._scaffold.kit import INDEX, Kit, chosen_kit
from appsdk_operator.cli._scaffold.render import GENERATOR, texts_of
from appsdk_operator.project import GeneratedFiles, write_below


def answers_of(folder: Path) -> Answers:
    """What the project in a folder was made with.

    Raises:
        click.ClickException: there is none.
    """
    found = checked(Answers.load, folder)
    if found is None:
        raise click.ClickException(
            f"{folder.absolute()} is not a project of appsdk-operator: run this command in a "
            "folder that appsdk-operator init has made"
        )
    return found


def checked(
    function: Callable[..., Answers | None], *args: object, **options: object
) -> Answers | None:
    """The result of a function; a name that cannot be used is an error of the command."""
    try:
        return function(*args, **options)
    except (TypeError, ValueError) as error:
        raise click.ClickException(str(error)) from error


def change(folder: Path, function: Callable[[Answers], Answers]) -> int:
    """Change what a project was made with, and its files with it; the exit status."""
    present = answers_of(folder)
    wanted = checked(function, present)
    assert wanted is not None
    status = write(folder, wanted)
    if (folder / "deploy").is_dir():
        click.echo(f"\nbring deploy up to date: appsdk-operator manifests {wanted.package}:app")
    return status


def make_manifests(folder: Path, answers: Answers) -> int:
    """Make ``deploy`` of a new project; the exit status.

    In a process of its own, since the project's package is imported for it.
    """
    words = ["manifests", f"{answers.package}:app"]
    with Progress(f"making deploy, with {' '.join(words)}"):
        done = subprocess.run(  # noqa: S603 - this very program
            [sys.executable, "-m", "appsdk_operator", *words],
            cwd=folder,
            check=False,
            capture_output=True,
            text=True,
        )
    if done.returncode:
        click.echo(f"{done.stderr.rstrip()}\ndeploy was not made: run {' '.join(words)}", err=True)
    else:
        click.echo(f"created   {folder / 'deploy'}, with {' '.join(words)}")
    return done.returncode


def with_kit(answers: Answers, given: str | None) -> tuple[Answers, Kit]:
    """The answers of a project that gets the kit from elsewhere, and what it takes along.

    Args:
        answers: those of the project.
        given: the source; None: that of the kit that runs.

    Raises:
        click.ClickException: the source cannot be used.
    """
    try:
        kit = chosen_kit(given)
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    return attrs.evolve(answers, kit=kit.source), kit


def write(folder: Path, answers: Answers, kit: Kit | None = None) -> int:
    """Write a project, and say what became of its files; the exit status.

    Args:
        folder: where it is.
        answers: what it is made with.
        kit: the kit of a new project, or another one than before; None: it stays.
    """
    files = GeneratedFiles(folder, GENERATOR)
    try:
        texts = texts_of(answers)
        files.plan(texts)  # what cannot be written is refused before anything is
        # First, so that files which are written afterwards are never taken for ones too many.
        if kit is not None:
            _take_along(folder, kit)
        answers.save(folder)
        changes = files.write(texts)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"the project in {folder}: {error}") from error
    return report(changes, str(folder))


def _take_along(folder: Path, kit: Kit) -> None:
    """Write the wheel of the kit into the project, if it has one, in place of those before."""
    if kit.wheel is not None:
        write_below(folder, folder / kit.source, kit.wheel)
        click.echo(f"created   {folder / kit.source}")
    present = Answers.load(folder)
    if present is not None and present.kit not in (kit.source, INDEX) and "://" not in present.kit:
        (folder / present.kit).unlink(missing_ok=True)
        click.echo(f"removed   {folder / present.kit}")
