"""The configuration of a pod: its service account, and the proxy that its environment names.

Nothing of YAML is loaded for it, nor of other HTTP clients.
"""

from __future__ import annotations

import ipaddress
import os
import stat
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from appsdk_operator.client._errors import ConfigError

ConfigT = TypeVar("ConfigT")
"""The class of the configuration to make; its module imports this one."""

_SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def in_cluster(make: Callable[..., ConfigT]) -> ConfigT:
    """See :meth:`ClientConfig.in_cluster`."""
    if not is_in_pod():
        raise ConfigError(
            "this process does not run in a pod ($KUBERNETES_SERVICE_HOST and "
            "$KUBERNETES_SERVICE_PORT are not set): use a kubeconfig"
        )
    token, authority = (f"{_SERVICE_ACCOUNT}/{name}" for name in ("token", "ca.crt"))
    for path in (token, authority):
        if not _is_file(path):
            raise ConfigError(
                f"the pod has no {path}: mount its service account "
                "(automountServiceAccountToken), or use a kubeconfig"
            )
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    host = f"[{host}]" if ":" in host else host
    server = f"https://{host}:{os.environ['KUBERNETES_SERVICE_PORT']}"
    return make(
        server=server, ca_file=authority, token_file=token, **proxy_from_environment(server)
    )


def proxy_from_environment(server: str) -> dict[str, Any]:
    """The options for the proxy of the environment; none for loopback, as for Go programs.

    Like these it takes no ``ALL_PROXY``, which often names a SOCKS proxy for other programs.
    """
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return {}
    import urllib.request  # 20 modules

    proxies = urllib.request.getproxies_environment()
    proxy = proxies.get(urlsplit(server).scheme)
    if not proxy or _is_loopback(urlsplit(server).hostname or ""):
        return {}
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    return {"proxy_url": proxy, "no_proxy": proxies.get("no", "").split(",")}


def is_in_pod() -> bool:
    """Whether this process runs in a pod of a cluster."""
    return bool(
        os.environ.get("KUBERNETES_SERVICE_HOST") and os.environ.get("KUBERNETES_SERVICE_PORT")
    )


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116 - pathlib is slow to load
    except OSError:
        return False


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.rstrip(".") == "localhost"  # urlsplit gives it in lower case
