"""Serve a Kubernetes API from memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from appsdk_operator.cli import _frame


@_frame.command(
    "apiserver",
    examples=(
        "appsdk-operator apiserver --kubeconfig kubeconfig",
        "appsdk-operator apiserver --tls --rbac --crd crds.yaml",
    ),
)
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option("--port", default=0, help="TCP port; 0 means any free one.")
@click.option("--tls", is_flag=True, help="Serve HTTPS with an own authority.")
@click.option(
    "--token-file",
    metavar="FILE",
    help="File with the bearer token to ask for; default: the environment's "
    "APPSDK_OPERATOR_APISERVER_TOKEN. kubectl sends it with --tls only.",
)
@click.option("--token", hidden=True)
@click.option("--rbac", is_flag=True, help="Let roles and bindings decide who may do what.")
@click.option("--kubeconfig", metavar="PATH", help="Write a kubeconfig to this file.")
@click.option(
    "--crd",
    metavar="FILE",
    multiple=True,
    help="YAML file with CustomResourceDefinitions to serve; may be given often.",
)
def command(**options: Any) -> int:
    """Serve a Kubernetes API from memory until Ctrl-C, for tests and for trying things out.

    It needs the extra 'testing'. The exit status is 0 after SIGINT or SIGTERM, 1 when the server
    was not started.
    """
    try:
        from appsdk_operator.apiserver.command import serve
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"the API server needs {error.name}: install the extra 'testing', for example with "
            "pip install 'appsdk-operator[testing]', or '.[testing]' in a checkout"
        ) from error
    return serve(**{**options, "crd": [Path(path) for path in options["crd"]]})
