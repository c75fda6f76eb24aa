"""End the pause of an operator."""

from __future__ import annotations

import click

from appsdk_operator.cli import _frame
from appsdk_operator.cli._cluster import cluster_options


@_frame.command("resume", examples=("appsdk-operator resume bucket-operator -n buckets",))
@click.argument("name")
@click.option(
    "-n", "--namespace", metavar="NAME", help="Namespace of the operator. Default: its name."
)
@cluster_options
def command(name: str, namespace: str | None, kubeconfig: str | None, context: str | None) -> int:
    """End the pause of the operator NAME before its time is over.

    The command removes the annotations of appsdk-operator pause from the Lease, whoever has set
    them.
    """
    from appsdk_operator.client import Client, ClientConfig, ClientError
    from appsdk_operator.manager import NotPausedError, resume_operator

    try:
        with Client(ClientConfig.load(kubeconfig, context=context)) as client:
            ended = resume_operator(client, name, namespace=namespace or name)
    except (ClientError, NotPausedError, TypeError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{name} was not paused" if ended is None else f"{name} goes on: it was {ended}")
    return 0
