"""Translate the source of a kopf operator into that of an App."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from appsdk_operator.cli._frame import command as make_command
from appsdk_operator.cli._output import Output
from appsdk_operator.runtime import counted

if TYPE_CHECKING:
    from appsdk_operator.cli._kopf.program import Migration


@make_command(
    "migrate",
    examples=(
        "appsdk-operator migrate kopf handlers.py --crd crds.yaml",
        "appsdk-operator migrate kopf handlers.py --crd crds.yaml -o -",
    ),
)
@click.argument("framework", type=click.Choice(["kopf"]))
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--crd",
    "crds",
    metavar="FILE",
    multiple=True,
    help="A file or folder with the CRDs of its kinds; may be given several times.",
)
@click.option("--name", default="", help="The name of the App; default: as the file or its folder.")
@click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    default="migrated",
    help="Folder of the translated files; - prints them.",
)
def command(
    framework: str, files: tuple[str, ...], crds: tuple[str, ...], name: str, output: str
) -> int:
    """Translate the Python files of a kopf operator into those of an App, as a first version.

    The command translates handlers with their options and arguments, filters, errors, changes of
    the object, events and webhooks. Where the kit has no equivalent, or one with another meaning,
    it adds a line "TODO:" with the reason. Other code and comments stay as they are.

    Give all files of the operator in one call. Several files share one App, in operator_app.py. The
    command looks up kinds in the CRDs, or guesses them. At the end it lists the handlers and the
    TODOs. The exit status is 0 even if there are TODOs.
    """
    from appsdk_operator.cli._kopf.program import migrate
    from appsdk_operator.project import ModelError, read_crds

    del framework  # the only one
    paths = [Path(each).resolve() for each in dict.fromkeys(files)]
    folder = Path(os.path.commonpath([path.parent for path in paths]))
    try:
        definitions = [crd for source in dict.fromkeys(crds) for crd in read_crds(source)]
        sources = {
            path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in paths
        }
        migration = migrate(sources, definitions, name=name, folder=folder.name)
    except ModelError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"cannot read {error.filename}: {error.strerror}") from error
    except (SyntaxError, UnicodeDecodeError) as error:
        raise click.ClickException(f"a file is not valid Python: {error}") from error
    status = Output(output).deliver(migration.texts, "migrate-kopf")
    click.echo("\n".join(_summary(migration)), err=output == "-")
    return status


def _summary(migration: Migration) -> Sequence[str]:
    """The handlers, and the places that a person has to look at."""
    handlers = migration.handlers
    lines = []
    for path, each in handlers:
        number = len(each.todos)
        verdict = counted(number, "TODO") if number else "translated"
        lines.append(f"{path}:{each.line}: {each.name} ({', '.join(each.causes)}): {verdict}")
    whole = sum(not each.todos for _, each in handlers)
    lines.append(
        f"{counted(len(handlers), 'handler')}, {whole} translated without a TODO; "
        f"{counted(len(migration.todos), 'TODO')} in {counted(len(migration.texts), 'file')}"
    )
    lines += [f"{todo.path}:{todo.line}: {todo.reason}" for todo in migration.todos]
    if handlers:
        lines.append(
            "to take over what it has handled in a cluster: App(…, adopt=Kopf()), with Kopf from "
            "appsdk_operator.app"
        )
    return lines
