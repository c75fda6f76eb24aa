"""The servers of the pytest plugin, and their request logs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import pytest

from appsdk_operator.client import Client, ClientConfig, ConfigError

if TYPE_CHECKING:
    from appsdk_operator.resource import Kind
    from appsdk_operator.testing import APIServer, ControlPlane, LoggedRequest
    from appsdk_operator.webhooks import DevelopmentServer


USER_AGENT: Final = "appsdk-operator-pytest"
"""The user agent of the plugin's own requests; reports leave them out."""


class KubeServer(Protocol):
    """A server for tests: embedded, a control plane, or an existing cluster."""

    @property
    def url(self) -> str:
        """The URL of the server."""
        ...

    def client_config(self, **options: Any) -> ClientConfig:
        """The configuration of a client for it."""
        ...

    def write_kubeconfig(self, path: str | os.PathLike[str]) -> None:
        """Write a kubeconfig for it."""
        ...


class RequestLog(Protocol):
    """The requests that a server received."""

    def mark(self) -> Any:
        """The current end of the log."""
        ...

    def since(self, mark: Any) -> list[LoggedRequest]:
        """The requests after a mark, oldest first."""
        ...


@final
class ExistingCluster:
    """The cluster of a kubeconfig context; nothing is started or stopped."""

    def __init__(self, context: str, config: ClientConfig) -> None:
        self.context = context
        self._config = config

    @property
    def url(self) -> str:
        """The URL of the server."""
        return self._config.server

    def client_config(self, **options: Any) -> ClientConfig:
        """The configuration of a client for it."""
        import attrs

        return attrs.evolve(self._config, **options)

    def write_kubeconfig(self, path: str | os.PathLike[str]) -> None:
        """Write the kubeconfig with the chosen context as its current one."""
        from appsdk_operator.apiserver import write_kubeconfig

        write_kubeconfig(path, {**_merged_kubeconfig(), "current-context": self.context})


@final
class SharedControlPlane:
    """A control plane that the main process of pytest-xdist started."""

    def __init__(self, facts: Mapping[str, str]) -> None:
        self._facts = facts

    @property
    def url(self) -> str:
        """The URL of the server."""
        return self._facts["url"]

    @property
    def audit_log(self) -> Path:
        """The path of its audit log."""
        return Path(self._facts["audit_log"])

    def client_config(self, **options: Any) -> ClientConfig:
        """The configuration of a client for it."""
        own = {"server": self.url, "token": self._facts["token"], "ca_data": self._facts["ca"]}
        return ClientConfig(**{**own, **options})

    def write_kubeconfig(self, path: str | os.PathLike[str]) -> None:
        """Write a kubeconfig for it."""
        from appsdk_operator.apiserver import kubeconfig, write_kubeconfig

        ca, token = self._facts["ca"].encode(), self._facts["token"]
        write_kubeconfig(path, kubeconfig(self.url, ca, name="control-plane", token=token))


def server_name(option: str | None, ini: str) -> str:
    """The server to use: of the option, ``USE_EXISTING_CLUSTER``, the ini file, or the default."""
    if option:
        return option
    if os.environ.get("USE_EXISTING_CLUSTER", "").lower() == "true":
        return "existing"
    if ini not in ("", "embedded", "control-plane"):
        raise pytest.UsageError(
            f"kube = {ini!r} in the ini file: use embedded or control-plane; a cluster that "
            "exists is asked for on the command line, by --appsdk-kube=existing"
        )
    return ini or "embedded"


@contextlib.contextmanager
def serving(
    name: str, config: pytest.Config, plane: Mapping[str, str] | None
) -> Iterator[KubeServer]:
    """Start the server of that name for the length of the block."""
    if name == "existing":
        yield _existing(config.getoption("appsdk_kube_context"), config.getini("kube_contexts"))
    elif name == "control-plane" and plane is not None:
        yield SharedControlPlane(plane)
    elif name == "control-plane":
        own = start_control_plane()
        try:
            yield own
        finally:
            own.stop()
    else:
        from appsdk_operator.testing import APIServer

        rbac = config.getoption("appsdk_kube_rbac") or config.getini("kube_rbac")
        rbac = bool(rbac or roles_of(config))
        with APIServer(rbac=rbac) as server:
            yield server


def roles_of(config: pytest.Config) -> list[str]:
    """The files and folders with the operator's shipped roles; none: it may do everything."""
    given = config.getoption("appsdk_kube_rbac_roles") or config.getini("kube_rbac_roles")
    return [str(each) for each in given]


def start_control_plane() -> ControlPlane:
    """Start a control plane with an audit log."""
    from appsdk_operator.testing import ControlPlane

    try:
        return ControlPlane(audit=True).start()
    except FileNotFoundError as error:
        raise pytest.UsageError(f"--appsdk-kube=control-plane: {error}") from None


def connection_facts(plane: ControlPlane) -> dict[str, str]:
    """The URL, credentials and audit log of a control plane, for another process."""
    return {
        "url": plane.url,
        "token": plane.token,
        "ca": plane.ca_data.decode(),
        "audit_log": str(plane.audit_log),
    }


def install(server: KubeServer, sources: Iterable[Any]) -> list[Kind]:
    """Install CRDs on a server."""
    from appsdk_operator.testing import install_crds

    found = list(sources)
    if not found:
        return []
    with Client(server.client_config(user_agent=USER_AGENT)) as client:
        return install_crds(client, found)


def webhook_server(server: KubeServer, name: str, host: str) -> DevelopmentServer:
    """A webhook server that a server of these reaches.

    Args:
        server: the server.
        name: a name that no other test has.
        host: the name by which an existing cluster reaches this machine; empty: find out.

    Raises:
        pytest.UsageError: how the existing cluster does is not known.
    """
    from appsdk_operator.webhooks import DevelopmentServer, reach_of

    address = "127.0.0.1:0"
    if not isinstance(server, ExistingCluster):
        host = "127.0.0.1"
    elif host:
        address = "" if host == "127.0.0.1" else ":0"
    else:
        try:
            reach = reach_of(server.context)
        except LookupError as error:
            text = str(error).replace("give host=", "set kube_webhook_host in the ini file")
            raise pytest.UsageError(f"--appsdk-kube=existing: {text}") from None
        host, address = reach.host, reach.address
    return DevelopmentServer(
        server.client_config(user_agent=USER_AGENT),
        name,
        host=host,
        address=address,
        # It was asked for on the command line, or is made for tests.
        unsafe_any_cluster=True,
    )


# -- an existing cluster ---------------------------------------------------------------------------


def _existing(wanted: str | None, allowed: list[str]) -> ExistingCluster:
    """The cluster of the current context, if tests may use it.

    Raises:
        pytest.UsageError: the context was not allowed, or there is no current context.
    """
    current = wanted or str(_merged_kubeconfig().get("current-context") or "")
    if not current:
        raise pytest.UsageError(
            "--appsdk-kube=existing: the kubeconfig has no current context: choose one by "
            "--appsdk-kube-context"
        )
    if wanted is None and not any(fnmatchcase(current, pattern) for pattern in allowed):
        raise pytest.UsageError(
            f"--appsdk-kube=existing: the current context is {current!r}, which is none of "
            f"{', '.join(allowed) or 'kube_contexts (empty)'}. If tests may make and delete "
            f"namespaces there, say so by --appsdk-kube-context={current}"
        )
    try:
        return ExistingCluster(current, ClientConfig.from_kubeconfig(context=current))
    except ConfigError as error:
        raise pytest.UsageError(f"--appsdk-kube=existing: {error}") from None


def _merged_kubeconfig() -> dict[str, Any]:
    """The files of ``KUBECONFIG`` merged as kubectl does it: the first value counts."""
    import yaml

    named = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    merged: dict[str, Any] = {"apiVersion": "v1", "kind": "Config"}
    for path in filter(None, named.split(os.pathsep)):
        if not Path(path).is_file():
            continue
        loaded = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
        for key, value in loaded.items():
            if isinstance(value, list) and isinstance(merged.get(key), list):
                merged[key] = [*merged[key], *value]
            else:
                merged.setdefault(key, value)
    return merged


# -- request logs ----------------------------------------------------------------------------------


def request_log(server: KubeServer) -> RequestLog | None:
    """The log of a server's requests, None where it keeps none."""
    path = getattr(server, "audit_log", None)
    if path is not None:
        from appsdk_operator.testing._control_plane.audit import AuditLog

        return AuditLog(path)
    if hasattr(server, "requests"):
        embedded: Any = server
        return _EmbeddedLog(embedded)
    return None


@final
class _EmbeddedLog:
    """The log of the embedded server, which drops the oldest requests."""

    def __init__(self, server: APIServer) -> None:
        self._server = server

    def mark(self) -> LoggedRequest | None:
        found = self._server.requests
        return found[-1] if found else None

    def since(self, mark: LoggedRequest | None) -> list[LoggedRequest]:
        found = self._server.requests
        for number in range(len(found) - 1, -1, -1):
            if found[number] is mark:
                return found[number + 1 :]
        return found
