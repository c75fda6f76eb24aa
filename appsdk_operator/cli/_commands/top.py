"""Follow an operator in the terminal: what it watches, what runs, what failed."""

from __future__ import annotations

import contextlib

import click

from appsdk_operator.cli import _frame
from appsdk_operator.cli._cluster import cluster_options


@_frame.command(
    "top",
    examples=(
        "appsdk-operator top",
        "appsdk-operator top http://127.0.0.1:6060 --once",
        "appsdk-operator top bucket-operator-5d9c7b-x2x4z -n operators",
    ),
)
@click.argument("where", metavar="[URL|POD]", default="http://127.0.0.1:6060")
@cluster_options
@click.option("-n", "--namespace", metavar="NAME", help="Namespace of the pod; default: kubectl's.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=6060,
    help="Port of the live page in the pod.",
)
@click.option(
    "--interval",
    type=click.FloatRange(0.2, 3600.0),
    default=1.0,
    metavar="SECONDS",
    help="Seconds between two looks.",
)
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False),
    help="File with a bearer token, for a live page behind an AuthFilter.",
)
@click.option("--once", is_flag=True, help="Print the tables once, as plain text.")
def command(
    where: str,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    port: int,
    interval: float,
    token_file: str | None,
    once: bool,
) -> None:
    """Follow the operator at URL, or in POD through kubectl port-forward.

    It shows the operator's live page in the terminal. run --dev serves that page; otherwise run the
    operator with --debug-address 127.0.0.1:6060. POD may also be deployment/name. In the tables,
    Enter opens the timeline of an object: its last calls, each with its reason, outcome and writes.
    """
    from appsdk_operator.cli import _top

    token = _top.token_of(token_file or "")
    if "://" in where:
        forwarding: contextlib.AbstractContextManager[str] = contextlib.nullcontext(where)
    else:
        given = {"--namespace": namespace, "--kubeconfig": kubeconfig, "--context": context}
        arguments = [f"{name}={value}" for name, value in given.items() if value]
        forwarding = _top.forwarded(where, port, arguments)
    with forwarding as url:
        fetch = _top.Fetcher(url, token)
        state = fetch("/debug/state.json")
        if once:
            click.echo(_top.as_text(state))
            return
        _top.Top(fetch, interval=interval, stop=fetch.stop).run()
