"""Make the Dockerfile and the manifests, or a Helm chart, of an operator."""

from __future__ import annotations

from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any

import click

from appsdk_operator.cli import _frame
from appsdk_operator.cli._class_options import class_options
from appsdk_operator.cli._output import Output, output_options
from appsdk_operator.project import ManifestOptions

if TYPE_CHECKING:
    from appsdk_operator.app import Permission


@_frame.command(
    "manifests",
    examples=(
        "appsdk-operator manifests bucket_operator:app --image team/buckets:1.2",
        "appsdk-operator manifests bucket_operator:app --helm -o deploy",
        "appsdk-operator manifests bucket_operator:app -o - | grep kind:",
    ),
)
@click.argument("target")
@click.option("--helm", is_flag=True, default=None, help="Make a Helm chart, not kustomize.")
@click.option("-n", "--namespace", metavar="NAME", help="Namespace. Default: the App's name.")
@class_options(
    ManifestOptions,
    by_hand=("target", "namespace", "recorded"),
    metavars={
        "image": "NAME:TAG",
        "replicas": "N",
        "objects": "N",
        "object_size": "BYTES",
        "extra_memory": "MIB",
        "cpu": "QUANTITY",
        "runbooks": "URL",
        "python": "VERSION",
        "kit": "SOURCE",
    },
)
@click.option(
    "--rbac-record",
    metavar="FILE",
    help="Permissions that tests needed besides. Default: rbac-record.yaml, if it is there.",
)
@click.option("--chart-version", metavar="VERSION", help="Version of the chart. Default: 0.1.0.")
@output_options("deploy")
def command(target: str, output: Output, **options: Any) -> int:
    """Make the Dockerfile of the operator TARGET, and a kustomize base with overlays, or a chart.

    TARGET is module:app, or file.py:app relative to the current folder.

    You can keep options in [tool.appsdk-operator.manifests] of pyproject.toml, by their long names.
    Options on the command line override them. If you have edited the files, the command merges the
    new lines into them.
    """
    from appsdk_operator.cli._load import load_app
    from appsdk_operator.cli._scaffold.kit import index_advice
    from appsdk_operator.cli._settings import settings
    from appsdk_operator.project import helm_chart, manifests
    from appsdk_operator.runtime import validation

    given = {name: value for name, value in options.items() if value is not None}
    merged = {**settings("manifests", options), **given}
    helm, version = merged.pop("helm", False), merged.pop("chart_version", "0.1.0")
    is_kit_named = "kit" in merged
    try:
        validation.check_flag("helm", helm)
        recorded = recorded_permissions(merged.pop("rbac_record", None))
        chosen = ManifestOptions(target=_in_container(target), recorded=recorded, **merged)
        app = load_app(target)
        if helm:
            return output.deliver(helm_chart(app, chosen, version=version), "chart")
        status = output.deliver(manifests(app, chosen), "manifests")
    except (TypeError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    if not (is_kit_named or output.check) and (advice := index_advice()):
        click.echo(advice, err=True)
    return status


def recorded_permissions(path: str | None) -> tuple[Permission, ...]:
    """What tests needed besides; None: what the usual file has, if it is there.

    Raises:
        click.ClickException: the file cannot be read.
        ValueError: it is no such record.
    """
    from appsdk_operator.project import RECORD_FILE, load_permissions

    if path is None and not Path(RECORD_FILE).exists():
        return ()
    try:
        return load_permissions(path or RECORD_FILE)
    except OSError as error:
        raise click.ClickException(f"the record of permissions: {error}") from error


def _in_container(target: str) -> str:
    """The target as the image has it: files are relative to its folder."""
    place, colon, name = target.partition(":")
    if not place.endswith(".py"):
        return target
    path = PurePath(place)
    if path.is_absolute() or ".." in path.parts:
        raise click.ClickException(
            f"{place} is not below the current folder, from which the image is built: run this "
            "command in the folder of the file"
        )
    return f"{PurePosixPath(path)}{colon}{name}"
