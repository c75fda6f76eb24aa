"""Make what an operator is deployed with."""

from __future__ import annotations

from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any

import click

from appsdk_operator.cli import _frame
from appsdk_operator.cli._output import Output, output_options

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
@click.option("--image", metavar="NAME:TAG", help="Image. Default: the App's name, latest.")
@click.option("-n", "--namespace", metavar="NAME", help="Namespace. Default: the App's name.")
@click.option(
    "--replicas",
    type=int,
    metavar="N",
    help="Pods. Default: 2 with leader election, otherwise 1.",
)
@click.option(
    "--leader-election/--no-leader-election",
    default=None,
    help="Whether one replica works at a time. Default: as the App says; with several replicas, "
    "one.",
)
@click.option(
    "--objects", type=int, metavar="N", help="Objects in informers, for memory. Default: 10000."
)
@click.option(
    "--object-size", type=int, metavar="BYTES", help="Size of an object as JSON. Default: 2000."
)
@click.option(
    "--extra-memory",
    type=int,
    metavar="MIB",
    help="Memory for what the operator's functions import and keep. Default: 64.",
)
@click.option("--cpu", metavar="QUANTITY", help="CPU that is requested. Default: 100m.")
@click.option("--priority-class", metavar="NAME", help="PriorityClass. Default: none.")
@click.option(
    "--certificates",
    type=click.Choice(["cert-manager", "managed", "secret"]),
    help="Where the webhooks' certificate is from: cert-manager; managed: the operator "
    "makes it; secret: a Secret that you fill. Default: managed if the App's options have "
    "ManagedCertificates, else cert-manager.",
)
@click.option(
    "--monitoring/--no-monitoring",
    default=None,
    help="Whether the overlay for production has the ServiceMonitor and the alerts, which need the "
    "CRDs of Prometheus' operator. Default: no.",
)
@click.option(
    "--monitoring-namespace",
    metavar="NAME",
    help="Namespace of Prometheus. Default: monitoring.",
)
@click.option(
    "--runbooks",
    metavar="URL",
    help="Page with a section for each alert, for runbook_url. Default: docs/runbooks.md.",
)
@click.option("--python", metavar="VERSION", help="Python of the image. Default: 3.13.")
@click.option(
    "--kit",
    metavar="SOURCE",
    help="Where the image gets the kit from: index, a URL as pip takes it, or a wheel below this "
    "folder. Default: index; 'init' writes it into pyproject.toml.",
)
@click.option(
    "--rbac-record",
    metavar="FILE",
    help="Permissions that tests needed besides. Default: rbac-record.yaml, if it is there.",
)
@click.option("--chart-version", metavar="VERSION", help="Version of the chart. Default: 0.1.0.")
@output_options("deploy")
def command(target: str, output: Output, **options: Any) -> int:
    """Make what deploys the operator TARGET: Dockerfile, kustomize base and overlays, or a chart.

    TARGET is module:app, or file.py:app relative to the current folder.

    Options may be kept in pyproject.toml, in [tool.appsdk-operator.manifests] by their long names;
    those given here override them. What a person edited in the files is merged with what is new.
    """
    from appsdk_operator.cli._load import load_app
    from appsdk_operator.cli._settings import settings
    from appsdk_operator.project import ManifestOptions, helm_chart, manifests
    from appsdk_operator.runtime import validation

    given = {name: value for name, value in options.items() if value is not None}
    merged = {**settings("manifests", options), **given}
    helm, version = merged.pop("helm", False), merged.pop("chart_version", "0.1.0")
    try:
        validation.check_flag("helm", helm)
        recorded = _recorded(merged.pop("rbac_record", None))
        chosen = ManifestOptions(target=_in_container(target), recorded=recorded, **merged)
        app = load_app(target)
        if helm:
            return output.deliver(helm_chart(app, chosen, version=version), "chart")
        return output.deliver(manifests(app, chosen), "manifests")
    except (TypeError, ValueError) as error:
        raise click.ClickException(str(error)) from error


def _recorded(path: str | None) -> tuple[Permission, ...]:
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
            f"{place} is not below the current folder, which the image is built from: run this in "
            "the folder that holds it"
        )
    return f"{PurePosixPath(path)}{colon}{name}"
