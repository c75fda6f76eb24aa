"""Remove an operator from a cluster, with its finalizers, CRDs and their objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from appsdk_operator.cli import _frame
from appsdk_operator.cli._cluster import cluster_options
from appsdk_operator.cli._load import target_argument
from appsdk_operator.runtime import counted

if TYPE_CHECKING:
    from appsdk_operator.project import ManifestOptions


@_frame.command(
    "uninstall",
    examples=(
        "appsdk-operator uninstall bucket_operator:app --dry-run",
        "appsdk-operator uninstall bucket_operator:app -n buckets --keep-crds --yes",
    ),
)
@target_argument
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    help="Namespace of the operator. Default: that of [tool.appsdk-operator.manifests] in "
    "pyproject.toml, or the App's name.",
)
@cluster_options
@click.option("--dry-run", is_flag=True, help="Change nothing; print the steps.")
@click.option(
    "--keep-crds",
    is_flag=True,
    help="Keep the CRDs and their objects, and remove only the finalizers.",
)
@click.option(
    "--finalizer",
    "finalizers",
    metavar="NAME",
    multiple=True,
    help="Also remove this finalizer, which a reconciler or watcher of yours sets. Repeat it for "
    "several.",
)
@click.option(
    "--timeout", type=float, default=60.0, metavar="SECONDS", help="Longest wait for one object."
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def command(
    app: Any,
    namespace: str | None,
    kubeconfig: str | None,
    context: str | None,
    dry_run: bool,
    yes: bool,
    **options: Any,
) -> int:
    """Remove the operator TARGET, module:app or file.py:app, from a cluster.

    The command ends the operator's Deployment. Then it deletes the webhook configurations, removes
    the operator's finalizers from all objects, and deletes the CRDs with all their objects. At last
    it deletes the Services and roles. The namespace stays. Nobody calls the operator's clean-up
    functions: if they have to run, first delete the objects while the operator runs. You can repeat
    the command: it skips the steps that are done.
    """
    from appsdk_operator.client import Client, ClientConfig, ClientError
    from appsdk_operator.controllers import FinalizerError
    from appsdk_operator.project import UninstallError, uninstall

    try:
        chosen = _options(namespace)
        config = ClientConfig.load(kubeconfig, context=context)
    except (ClientError, TypeError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    try:
        with Client(config) as client:
            if not dry_run and not yes:
                planned = [*uninstall(client, app, chosen, dry_run=True, **options)]
                for step in planned:
                    click.echo(str(step))
                click.confirm(f"Do this on {config.server}?", abort=True, err=True)
            count = 0
            for step in uninstall(client, app, chosen, dry_run=dry_run, **options):
                click.echo(str(step))
                count += 1
    except (ClientError, FinalizerError, TypeError, UninstallError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    if not count:
        click.echo(f"nothing of {app.name} is on {config.server}")
    elif dry_run:
        click.echo(f"{counted(count, 'step')}; nothing was changed")
    return 0


def _options(namespace: str | None) -> ManifestOptions:
    """What the project's settings and its record say of the manifests that were made."""
    from appsdk_operator.cli._commands.manifests import command as manifests
    from appsdk_operator.cli._commands.manifests import recorded_permissions
    from appsdk_operator.cli._settings import settings
    from appsdk_operator.project import ManifestOptions

    found = settings("manifests", [parameter.name or "" for parameter in manifests.params])
    return ManifestOptions(
        namespace=namespace or found.get("namespace", ""),
        recorded=recorded_permissions(found.get("rbac_record")),
    )
