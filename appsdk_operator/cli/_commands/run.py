"""Run an operator; with --dev on a Kubernetes API in memory, again after each edit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from appsdk_operator.app import ENVIRONMENT, RunOptions
from appsdk_operator.cli import _frame
from appsdk_operator.cli._class_options import class_options
from appsdk_operator.cli._cluster import cluster_options

if TYPE_CHECKING:
    from appsdk_operator.app import App


_SERVERS: Final = ("metrics", "probe", "debug", "webhook")


class NotStartedError(click.ClickException):
    """The operator could not be loaded."""

    exit_code = 2


@_frame.command(
    "run",
    examples=(
        "appsdk-operator run bucket_operator:app --dev",
        "appsdk-operator run bucket_operator.py --dev -n default --log-level debug",
        "appsdk-operator run bucket_operator.py --dev -n 'team-*,!team-x'",
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
    envvar=ENVIRONMENT["namespaces"],
    help="Namespace to work in, or a pattern such as 'team-*' or '!team-x'. Repeat the option, or "
    "separate values by commas. If several patterns match a namespace, the last one decides. "
    "Default: as the App says.",
)
@click.option(
    "-A",
    "--all-namespaces",
    is_flag=True,
    help="Work in all namespaces; APPSDK_NAMESPACES='*' is the same.",
)
@class_options(
    RunOptions,
    by_hand=("kubeconfig", "context", "namespaces"),
    metavars={f"{server}_address": "HOST:PORT" for server in _SERVERS},
    environment=ENVIRONMENT,
)
@click.option(
    "--dev",
    is_flag=True,
    help="Run on a Kubernetes API in memory, or on the local cluster of --context or --kubeconfig. "
    "The command installs the App's CRDs and webhooks, and restarts the operator when you save a "
    "Python file.",
)
@click.option("--in-dev", metavar="FD", hidden=True)
def command(
    target: str, dev: bool, in_dev: str | None, all_namespaces: bool, **options: Any
) -> int:
    """Run the operator TARGET until SIGINT or SIGTERM: module:app, or file.py:app.

    If TARGET is a module or file without :app, it must have one App.

    With --dev the command serves a Kubernetes API from memory, which keeps its objects when the
    operator restarts, and ends with Ctrl-C. With --dev and --context it uses that cluster, which
    has to be local: kind, k3d, minikube, Docker Desktop or Rancher Desktop. --dev needs the extra
    'testing'.

    Exit status: 0 after a stop, 1 if a part of the operator failed, 2 if the operator could not
    start, 3 if it lost the lead; after a second signal 128 and its number.
    """
    if all_namespaces and options["namespaces"]:
        raise click.UsageError("-n and -A: give only one of them")
    given_names = options.pop("namespaces")
    names = ",".join(given_names)
    if given_names and not names:
        raise click.UsageError("-n: give the name of a namespace, or use -A for all")
    given = {name: value for name, value in options.items() if value is not None}
    try:
        run_options = RunOptions(namespaces="*" if all_namespaces else names or None, **given)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    from appsdk_operator.cli import _load

    if dev:
        from appsdk_operator.cli import _dev

        # Later it may be away while an editor saves it; no edit corrects a misspelt name.
        with _not_started():
            _load.check_exists(target)
        return _dev.develop(target, run_options)
    from appsdk_operator.app import run_program, start_logging

    def load() -> App:
        with _not_started():
            app = _load.load_app(target)
        start_logging(app.name, run_options)
        return app

    if in_dev is not None:
        from appsdk_operator.cli import _dev

        return _dev.run_in_dev(load, run_options, in_dev)
    return run_program(load(), run_options)


@contextlib.contextmanager
def _not_started() -> Iterator[None]:
    """Let an error in the block end the command with the status of what could not be loaded."""
    try:
        yield
    except click.ClickException as error:
        raise NotStartedError(error.format_message()) from error
