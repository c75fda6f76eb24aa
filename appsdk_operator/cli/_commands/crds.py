"""Write the CustomResourceDefinitions of an App, or compare them with released ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from appsdk_operator.cli._frame import command as make_command
from appsdk_operator.cli._load import target_argument
from appsdk_operator.cli._output import YAML_START, Output

if TYPE_CHECKING:
    from appsdk_operator.app import App
    from appsdk_operator.project import Finding
    from appsdk_operator.resource import MutableObject

_CURRENT: Final = "\0current"


@make_command(
    "crds",
    examples=(
        "appsdk-operator crds operator_app:app -o crds",
        "appsdk-operator crds operator_app:app -o -",
        "appsdk-operator crds operator_app:app --check released.yaml",
    ),
)
@target_argument
@click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    default="deploy/crds",
    help="Folder of the files, one a CRD; - prints them.",
)
@click.option(
    "--check",
    metavar="[OLD]",
    is_flag=False,
    flag_value=_CURRENT,
    help="Write nothing. With a YAML file or a folder: exit with 1 if the CRDs would break stored "
    "objects or clients of those in it. Without: exit with 1 if a file is not current.",
)
@click.option("--dry-run", is_flag=True, help="Write nothing; say what would be written.")
def command(app: App, output: str, check: str | None, dry_run: bool) -> int:
    """Write the CustomResourceDefinitions of the kinds that an App owns.

    TARGET is module:app, or file.py:app.

    With --check OLD each change that breaks stored objects or clients is printed with what to do
    instead, and the exit status is 1 if there is one.
    """
    try:
        crds = app.crds()
    except (TypeError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    if check is not None and check != _CURRENT:
        return _compare(_read(Path(check)), crds)
    texts = {f"{crd.name}.yaml": f"{YAML_START}{crd.to_yaml()}" for crd in crds}
    return Output(output, check is not None, dry_run).deliver(texts, "crds")


def _read(path: Path) -> list[dict[str, Any]]:
    from appsdk_operator.resource import load_yaml

    if path.is_dir():
        files = sorted(one for one in path.rglob("*") if one.suffix in (".yaml", ".yml"))
    else:
        files = [path]
    found: list[dict[str, Any]] = []
    for file in files:
        try:
            documents = list(load_yaml(file.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise click.ClickException(f"{file}: {error}") from error
        found += _crds_of(documents)
    if not found:
        raise click.ClickException(
            f"{path} has no CustomResourceDefinition: give the file or folder with the CRDs of a "
            "release"
        )
    return found


def _crds_of(documents: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """The definitions among documents, also those in a List, as kubectl prints them."""
    for one in documents:
        if isinstance(one, dict) and one.get("kind") == "CustomResourceDefinition":
            yield one
        elif isinstance(one, dict) and str(one.get("kind")).endswith("List"):
            yield from _crds_of(one.get("items") or ())


def _compare(old: Iterable[dict[str, Any]], new: list[MutableObject]) -> int:
    from appsdk_operator.project import breaking_changes

    made = {crd.name: crd for crd in new}
    findings: list[Finding] = []
    count = 0
    for crd in old:
        name = str((crd.get("metadata") or {}).get("name"))
        present = made.get(name)
        if present is None:
            count += 1
            click.echo(
                f"{name}: the App does not have this kind, which breaks stored objects and "
                "clients: keep the CRD until no object is left; if the CRD is not of this App, do "
                "not compare with it"
            )
            continue
        try:
            findings += breaking_changes(crd, present)
        except ValueError as error:
            raise click.ClickException(f"{name}: {error}") from error
    for finding in findings:
        click.echo(str(finding))
    count += len(findings)
    if not count:
        click.echo("nothing breaks")
    return int(count > 0)
