"""The options by which a command finds its cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def cluster_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --kubeconfig and --context; the function gets ``kubeconfig`` and ``context``."""
    with_context = click.option(
        "--context",
        metavar="NAME",
        envvar="APPSDK_CONTEXT",
        help="Context of the kubeconfig; default: its current one.",
    )(function)
    return click.option(
        "--kubeconfig",
        metavar="FILE",
        envvar="APPSDK_KUBECONFIG",
        help="Kubeconfig; default: KUBECONFIG, the service account of the pod, ~/.kube/config.",
    )(with_context)
