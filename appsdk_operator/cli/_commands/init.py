"""Make the project of a new operator."""

from __future__ import annotations

from pathlib import Path

import click

from appsdk_operator.cli import _frame


@_frame.command(
    "init",
    examples=(
        "appsdk-operator init bucket-operator --group storage.example.com --kind Bucket",
        "appsdk-operator init bucket-operator --group storage.example.com",
        "appsdk-operator init bucket-operator --group storage.example.com --kit index",
    ),
)
@click.argument("name")
@click.option("--group", required=True, help="API group of its kinds, such as storage.example.com.")
@click.option("--kind", help="A first kind, such as Bucket; 'add kind' adds others.")
@click.option("--version", default="v1alpha1", help="Version of that kind.")
@click.option("--cluster-scoped", is_flag=True, help="Objects of that kind are in no namespace.")
@click.option("-o", "--output", metavar="FOLDER", help="Folder of the project; default: its name.")
@click.option(
    "--kit",
    metavar="SOURCE",
    help="Where the project gets the kit from: index; a wheel, which is taken along; a folder with "
    "its source, of which a wheel is; git+URL@REVISION; the https:// address of a wheel. Default: "
    "as this kit was installed, and of a path a wheel.",
)
@click.option(
    "--deploy/--no-deploy", default=True, help="Whether to make deploy, with 'manifests'."
)
def command(
    name: str,
    group: str,
    kind: str | None,
    version: str,
    cluster_scoped: bool,
    output: str | None,
    kit: str | None,
    deploy: bool,
) -> int:
    """Make the project of an operator in the folder NAME.

    The project has a package with an App, a typed kind and its reconciler. It also has tests with a
    property test, a Dockerfile and manifests, a Makefile, a workflow of GitHub Actions and a page
    of documentation. All its checks pass. Its Makefile, image and workflow install the kit from the
    source of this installation, or from --kit.

    If the folder has files already, the command overwrites none of them.
    """
    from appsdk_operator.cli._scaffold.answers import Answers
    from appsdk_operator.cli._scaffold.project import (
        checked,
        make_manifests,
        with_kit,
        write,
    )

    if cluster_scoped and kind is None:
        raise click.UsageError("--cluster-scoped needs a kind: give --kind")
    folder = Path(output or name)
    if checked(Answers.load, folder) is not None:
        raise click.ClickException(
            f"{folder} already has a project: use 'appsdk-operator add' and 'update' there"
        )
    answers = checked(Answers.new, name, group)
    if kind is not None and answers is not None:
        answers = checked(answers.added, kind, "kind", version, is_cluster_scoped=cluster_scoped)
    assert answers is not None
    answers, taken = with_kit(answers, kit)
    status = write(folder, answers, taken)
    if deploy:
        status = make_manifests(folder, answers) or status
    click.echo(
        f"\ncd {folder}, and test it with: make test\n"
        "README.md says how to run it and what to do next"
    )
    return status
