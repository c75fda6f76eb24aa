"""Pause an operator: it begins no new calls for a while."""

from __future__ import annotations

import re
from typing import Final

import click

from appsdk_operator.cli import _frame
from appsdk_operator.cli._cluster import cluster_options

_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])")


def _seconds(_: click.Context, __: click.Parameter, text: str) -> float:
    if not re.fullmatch(f"(?:{_PART.pattern})+", text):
        raise click.BadParameter(f"{text!r} is not a time such as 30m, 2h or 1h30m")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


@_frame.command(
    "pause",
    examples=(
        "appsdk-operator pause bucket-operator --for 30m --reason 'storage is moved'",
        "appsdk-operator pause bucket-operator -n buckets --for 2h --reason incident --replace",
    ),
)
@click.argument("name")
@click.option(
    "-n", "--namespace", metavar="NAME", help="Namespace of the operator. Default: its name."
)
@click.option(
    "--for",
    "seconds",
    metavar="TIME",
    default="1h",
    callback=_seconds,
    help="Length of the pause, such as 90s, 30m, 2h or 1d. Default: 1h.",
)
@click.option(
    "--reason",
    metavar="TEXT",
    required=True,
    help="The reason, for the operator's log and its live page.",
)
@click.option("--by", metavar="NAME", help="Who asks. Default: this user and host.")
@click.option("--replace", is_flag=True, help="Replace the pause of somebody else.")
@cluster_options
def command(
    name: str,
    namespace: str | None,
    seconds: float,
    reason: str,
    by: str | None,
    replace: bool,
    kubeconfig: str | None,
    context: str | None,
) -> int:
    """Pause the operator NAME: it begins no new calls of functions, reconcilers and timers.

    The pause begins within seconds, in all replicas. Running calls finish. Watches, webhooks, tasks
    and servers continue. When the time is over, by the clock of its machine, or after
    appsdk-operator resume, the operator handles the changes that it has missed.

    The command writes annotations to the Lease NAME of the leader election: kubectl describe lease
    shows them. An operator without leader election cannot be paused. The operator's log, its live
    page, the metric operator_paused and Events of the Lease show the pause.
    """
    from appsdk_operator.client import Client, ClientConfig, ClientError
    from appsdk_operator.manager import NotPausedError, pause_operator, why_nobody_sees

    try:
        with Client(ClientConfig.load(kubeconfig, context=context)) as client:
            pause = pause_operator(
                client,
                name,
                namespace=namespace or name,
                seconds=seconds,
                reason=reason,
                by=by,
                replace=replace,
            )
            problem = why_nobody_sees(client, name, namespace=namespace or name)
    except NotPausedError as error:
        hint = "" if error.present is None else " (--replace)"
        raise click.ClickException(f"{error}{hint}") from error
    except (ClientError, TypeError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{name} is asked to be {pause}")
    if problem:
        click.echo(f"Warning: {problem}", err=True)
    return 0
