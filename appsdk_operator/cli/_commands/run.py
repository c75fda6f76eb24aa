"""Run an operator, in a pod or, with --dev, while one writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from appsdk_operator.cli import _frame
from appsdk_operator.cli._cluster import cluster_options

if TYPE_CHECKING:
    from appsdk_operator.app import App


class NotStartedError(click.ClickException):
    """The operator could not be loaded."""

    exit_code = 2


@_frame.command(
    "run",
    examples=(
        "appsdk-operator run bucket_operator:app --dev",
        "appsdk-operator run bucket_operator.py --dev -n default --log-level debug",
    ),
)
@click.argument("target")
@cluster_options
@click.option(
    "-n",
    "--namespace",
    "namespaces",
    metavar="NAME",
    multiple=True,
    envvar="APPSDK_NAMESPACES",
    help="Namespace to work in; may be given often, or several with commas. Default: as the App "
    "says.",
)
@click.option(
    "-A",
    "--all-namespaces",
    is_flag=True,
    help="Work in all namespaces; APPSDK_NAMESPACES='*' is the same.",
)
@click.option(
    "--leader-election/--no-leader-election",
    default=None,
    envvar="APPSDK_LEADER_ELECTION",
    help="Whether one replica works at a time. Default: as the App says.",
)
@click.option(
    "--leader-election-namespace",
    metavar="NAME",
    envvar="APPSDK_LEADER_ELECTION_NAMESPACE",
    help="Namespace of the Lease; default: that of the pod.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    default="info",
    envvar="APPSDK_LOG_LEVEL",
    help="The least level of what is logged.",
)
@click.option(
    "--log-format",
    type=click.Choice(["auto", "text", "json"], case_sensitive=False),
    default="auto",
    envvar="APPSDK_LOG_FORMAT",
    help="Lines of text, or an object of JSON a line; auto: JSON in a pod, text elsewhere.",
)
@click.option(
    "--narrate",
    is_flag=True,
    envvar="APPSDK_NARRATE",
    help="Print each call of a watcher or reconciler, its outcome and its writes as it happens.",
)
@click.option(
    "--metrics-address",
    metavar="HOST:PORT",
    envvar="APPSDK_METRICS_ADDRESS",
    help="Where to serve metrics, such as :8080; 0: nowhere. Default: as the App says.",
)
@click.option(
    "--probe-address",
    metavar="HOST:PORT",
    envvar="APPSDK_PROBE_ADDRESS",
    help="Where to serve /healthz and /readyz, such as :8081; 0: nowhere. Default: as the App "
    "says.",
)
@click.option(
    "--debug-address",
    metavar="HOST:PORT",
    envvar="APPSDK_DEBUG_ADDRESS",
    help="Where to serve /debug/, the page that shows what the operator does, such as "
    "127.0.0.1:6060; 0: nowhere. Default: as the App says; with --dev on.",
)
@click.option(
    "--webhook-address",
    metavar="HOST:PORT",
    envvar="APPSDK_WEBHOOK_ADDRESS",
    help="Where to serve webhooks, if the App has any. Default: as the App says.",
)
@click.option(
    "--webhook-service",
    metavar="NAME",
    envvar="APPSDK_WEBHOOK_SERVICE",
    help="Service that leads to the webhooks: the operator makes their certificates itself.",
)
@click.option(
    "--tracing",
    is_flag=True,
    envvar="APPSDK_TRACING",
    help="Send spans to the collector that OTEL_EXPORTER_OTLP_ENDPOINT names. It needs the extra "
    "'tracing'.",
)
@click.option(
    "--dev",
    is_flag=True,
    help="Run on a Kubernetes API in memory, or on the cluster of --context or --kubeconfig, with "
    "the App's CRDs and webhooks installed, and again after each change of a Python file.",
)
@click.option("--in-dev", metavar="FD", hidden=True)
def command(
    target: str, dev: bool, in_dev: str | None, all_namespaces: bool, **options: Any
) -> int:
    """Run the operator TARGET until SIGINT or SIGTERM: module:app, or file.py:app.

    Without a name the only App of the module is taken.

    With --dev the Kubernetes API keeps its objects while the operator is restarted. A cluster has
    to be one of kind, k3d, minikube, Docker Desktop or Rancher Desktop. It needs the extra
    'testing'.

    Exit status: 0 after a stop, 1 when a part of the operator failed, 2 when it was not started
    because something cannot be used, 3 when it has lost the lead; after a second signal 128 and its
    number.
    """
    from appsdk_operator.app import RunOptions

    if all_namespaces and options["namespaces"]:
        raise click.UsageError("-n and -A: give the one or the other")
    names = ",".join(options.pop("namespaces"))
    given = {name: value for name, value in options.items() if value is not None}
    try:
        run_options = RunOptions(namespaces="*" if all_namespaces else names or None, **given)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if dev:
        from appsdk_operator.cli import _dev

        return _dev.develop(target, run_options)
    from appsdk_operator.app import run_program, start_logging
    from appsdk_operator.cli import _load

    def load() -> App:
        try:
            app = _load.load_app(target)
        except click.ClickException as error:
            raise NotStartedError(error.format_message()) from error
        start_logging(app.name, run_options)
        return app

    if in_dev is not None:
        from appsdk_operator.cli import _dev

        return _dev.run_in_dev(load, run_options, in_dev)
    return run_program(load(), run_options)
