"""Where a command puts the files that it makes: a folder, or the terminal."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import attrs
import click

from appsdk_operator.project import FileChange, FileOutcome, GeneratedFiles
from appsdk_operator.runtime import counted

YAML_START = "---\n"
"""How a file of YAML begins, so that several can be put after one another."""

_F = TypeVar("_F", bound=Callable[..., Any])


@attrs.frozen
class Output:
    """What the user wants done with generated files."""

    folder: str
    """Where they go; ``-`` means: printed."""
    check: bool = False
    """Write nothing, and fail if a file is not current."""
    dry_run: bool = False
    """Write nothing, and say what would be written."""

    def deliver(self, texts: Mapping[str, str], generator: str) -> int:
        """Print or write the files of a generator, and say what became of each.

        Args:
            texts: the text of each file by its path in the folder; all files of the generator.
            generator: its name, as :class:`~appsdk_operator.project.GeneratedFiles` takes it.

        Returns:
            The exit status: 1 if there is a conflict, or with ``--check`` a file is not current.

        Raises:
            click.ClickException: a file cannot be read or written.
        """
        if self.folder == "-":
            if self.check or self.dry_run:
                raise click.UsageError("-o - writes no files: leave out --check and --dry-run")
            click.echo(printed(texts), nl=False)
            return 0
        files = GeneratedFiles(self.folder, generator)
        try:
            changes = files.plan(texts) if self.check or self.dry_run else files.write(texts)
        except (OSError, ValueError) as error:
            raise click.ClickException(f"the files in {self.folder}: {error}") from error
        return report(changes, self.folder, check=self.check)


def output_options(folder: str) -> Callable[[_F], _F]:
    """Add ``-o``, ``--check`` and ``--dry-run``; the function gets them as ``output``, an Output.

    Args:
        folder: the default of ``-o``.
    """

    def add(function: _F) -> _F:
        @click.option(
            "-o",
            "--output",
            metavar="FOLDER",
            default=folder,
            help="Folder of the files; - prints them.",
        )
        @click.option(
            "--check", is_flag=True, help="Write nothing; exit with 1 if a file is not current."
        )
        @click.option("--dry-run", is_flag=True, help="Write nothing; say what would be written.")
        @functools.wraps(function)
        def call(*args: Any, output: str, check: bool, dry_run: bool, **options: Any) -> Any:
            return function(*args, output=Output(output, check, dry_run), **options)

        return call  # type: ignore[return-value]  # the same function, but for its keywords

    return add


def printed(texts: Mapping[str, str]) -> str:
    """Files as one text; those of YAML are documents of one stream."""
    if len(texts) == 1:
        return next(iter(texts.values()))
    return "".join(
        f"---\n# {path}\n{text.removeprefix(YAML_START)}" for path, text in sorted(texts.items())
    )


def report(changes: Iterable[FileChange], folder: str, *, check: bool = False) -> int:
    """Say what became of files; the exit status."""
    changes = list(changes)
    for change in changes:
        if change.outcome is not FileOutcome.UNCHANGED:
            # From here, so that it can be opened as it is shown.
            click.echo(f"{change.outcome:9} {Path(folder) / change.path}")
        if change.hint and change.outcome is not FileOutcome.DELETED:
            click.echo(f"{'':9} {change.hint}", err=True)
    stale = [change for change in changes if not change.is_current]
    if check and stale:
        click.echo(
            f"{len(stale)} of {counted(len(changes), 'file')} in {folder} not current", err=True
        )
        return 1
    if not stale:
        click.echo(f"{counted(len(changes), 'file')} in {folder}, all current")
    return int(any(change.outcome is FileOutcome.CONFLICT for change in changes))
