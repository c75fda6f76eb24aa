"""Finds the configuration of this process: a kubeconfig, or the service account of its pod."""

from __future__ import annotations

import os
from collections.abc import Callable

from appsdk_operator.client._auth.service_account import ConfigT, in_cluster, is_in_pod
from appsdk_operator.client._errors import ConfigError


def load(
    make: Callable[..., ConfigT], path: str | None, context: str | None, exec_timeout: float | None
) -> ConfigT:
    """See :meth:`ClientConfig.load`."""
    in_file = path is not None or bool(os.environ.get("KUBECONFIG"))
    if not in_file and context is None and is_in_pod():
        return in_cluster(make)
    from appsdk_operator.client._auth.kubeconfig import from_kubeconfig, home_file

    if in_file:
        return from_kubeconfig(make, path, context, exec_timeout)
    if home_file().is_file():
        return from_kubeconfig(make, None, context, exec_timeout)
    raise ConfigError(
        "there is no configuration of an API server: give the path of a kubeconfig, set "
        "$KUBECONFIG, run in a pod with a service account, or put a kubeconfig at "
        f"{home_file()}. Without a cluster: appsdk-operator run --dev serves an API from memory, "
        "and prints the $KUBECONFIG for it"
    )
