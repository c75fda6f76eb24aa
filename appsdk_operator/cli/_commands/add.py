"""Add a kind, a webhook or a controller to a project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from appsdk_operator.cli import _frame


@_frame.command(
    "add",
    examples=(
        "appsdk-operator add kind Volume --version v1",
        "appsdk-operator add kind Region --cluster-scoped",
        "appsdk-operator add webhook Bucket",
        "appsdk-operator add controller Deployment",
    ),
)
@click.argument("part", type=click.Choice(["kind", "webhook", "controller"]))
@click.argument("kind")
@click.option("--version", default="v1alpha1", help="Version of a new kind.")
@click.option("--cluster-scoped", is_flag=True, help="Objects of a new kind are in no namespace.")
def command(part: Any, kind: str, version: str, cluster_scoped: bool) -> int:
    """Add a kind, a webhook or a controller for KIND to the project in the current folder.

    \b
    kind        typed classes, a reconciler, and their tests
    webhook     defaults and validation for a kind of the project
    controller  a reconciler for a kind of the project or of Kubernetes

    Your edits stay: the command merges its new lines into your files. If that is not possible for a
    file, it writes the new text next to it, as NAME.new, and the exit status is 1.
    """
    from appsdk_operator.cli._scaffold.project import change

    return change(
        Path(),
        lambda answers: answers.added(kind, part, version, is_cluster_scoped=cluster_scoped),
    )
