"""Ask an operator to repeat the failed calls for an object now."""

from __future__ import annotations

import datetime as dt

import click

from appsdk_operator.cli import _frame
from appsdk_operator.cli._cluster import cluster_options


@_frame.command(
    "retry",
    examples=(
        "appsdk-operator retry bucket photos -n storage",
        "appsdk-operator retry buckets.storage.example.com photos",
    ),
)
@click.argument("kind")
@click.argument("name")
@cluster_options
@click.option(
    "-n", "--namespace", metavar="NAME", default="default", help="Namespace of the object."
)
def command(
    kind: str, name: str, kubeconfig: str | None, context: str | None, namespace: str
) -> None:
    """Ask the operator to repeat its failed calls for the object NAME of KIND now.

    Write KIND as for kubectl: plural, singular or short name, alone or with its group. The operator
    repeats calls that it has given up, and calls that wait for their next try. It does not repeat
    calls that have succeeded.

    The command writes the time to the annotation appsdk-operator.io/retry-at of the object. You
    need the permission to patch the object. Every operator of this kit that has a failed call for
    the object obeys the annotation.
    """
    from appsdk_operator.client import Client, ClientConfig, ClientError, NoSuchKind
    from appsdk_operator.resource import MergePatch, Scope
    from appsdk_operator.runtime import system_clock
    from appsdk_operator.watchers import RETRY_ANNOTATION

    moment = dt.datetime.fromtimestamp(system_clock.time(), tz=dt.UTC)
    patch = MergePatch({"metadata": {"annotations": {RETRY_ANNOTATION: moment.isoformat()}}})
    try:
        with Client(ClientConfig.load(kubeconfig, context=context)) as client:
            found = client.discovery.kind_for(kind)
            inside = namespace if found.scope is Scope.NAMESPACED else ""
            obj = client.patch(found, name, patch, namespace=inside)
    except (ClientError, NoSuchKind, TypeError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"the operator retries failed calls for {found.kind} {obj.key}")
