"""Credentials from an exec plugin, run when needed and not more often."""

from __future__ import annotations

import datetime as dt
import inspect
import threading
from collections.abc import Mapping
from typing import Any

from appsdk_operator.client._credentials import Credentials, bearer
from appsdk_operator.client._package import package
from appsdk_operator.client._transport_errors import ConfigError
from appsdk_operator.resource import parse_time
from appsdk_operator.runtime import Clock, fork_safe, system_clock

__all__ = ["ExecCredentials"]

_EARLY = 60.0  # seconds before the end of its life that a credential is replaced
_KEEP_FAILURE = 1.0  # seconds; a burst is over by then, and who logs in again hardly notices


class ExecCredentials(Credentials):
    """What a plugin prints: a token, or a client certificate, and how long it lives.

    The plugin is run by the ``kubernetes`` package: at the first request, a minute before what it
    gave expires (a tenth of its life, if that is shorter), and after a 401. When it fails, it is
    left alone for a second: requests in that time get the same error, and do not each run it.
    """

    def __init__(
        self,
        section: Mapping[str, Any],
        *,
        folder: str,
        cluster: Mapping[str, Any],
        clock: Clock = system_clock,
    ) -> None:
        """A plugin.

        Args:
            section: the ``exec`` section of a kubeconfig's user.
            folder: where the kubeconfig lies, which relative commands are meant from.
            cluster: the cluster's section, for plugins that want it.
            clock: tells when to run it again.
        """
        self._section = section
        self._folder = folder
        self._cluster = cluster
        self._clock = clock
        self._lock = fork_safe(threading.Lock())
        self._status: Mapping[str, Any] | None = None
        self._renew_at = float("inf")
        self._failure = ""
        self._failed_until = float("-inf")

    def authorization(self) -> str | None:
        """The plugin's token; None where it gives a certificate.

        Raises:
            ConfigError: the plugin failed; the text has what it printed as its error.
        """
        token = self._current().get("token")
        return bearer(token, f"what {self._name} printed") if isinstance(token, str) else None

    def client_certificate(self) -> tuple[bytes, bytes] | None:
        """The plugin's certificate and key; None where it gives a token."""
        status = self._current()
        certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
        if not certificate:
            return None
        if not key:
            raise ConfigError(f"{self._name} printed clientCertificateData without clientKeyData")
        return str(certificate).encode(), str(key).encode()

    def reload(self) -> None:
        """Run the plugin for the next request; but not where it has failed just now."""
        with self._lock:
            self._renew_at = float("-inf")

    @property
    def _name(self) -> str:
        return f"the exec plugin {self._section.get('command')!r}"

    def _current(self) -> Mapping[str, Any]:
        with self._lock:
            if self._status is None or self._clock.monotonic() >= self._renew_at:
                self._status = self._renew()
            return self._status

    def _renew(self) -> Mapping[str, Any]:
        if self._clock.monotonic() < self._failed_until:
            # Its text and not the error itself, which would grow with each time it is raised.
            raise ConfigError(self._failure)
        try:
            status = self._run()
            life = self._life(status)
        except ConfigError as error:
            self._failure = str(error)
            self._failed_until = self._clock.monotonic() + _KEEP_FAILURE
            raise
        self._renew_at = self._clock.monotonic() + life
        return status

    def _life(self, status: Mapping[str, Any]) -> float:
        stamp = status.get("expirationTimestamp")
        if not stamp:
            return float("inf")
        try:
            expires = parse_time(str(stamp))
        except ValueError as error:
            raise ConfigError(f"{self._name} printed a bad expirationTimestamp: {error}") from error
        if expires.tzinfo is None:
            expires = expires.replace(tzinfo=dt.UTC)
        life = max(0.0, expires.timestamp() - self._clock.time())
        return life - min(_EARLY, life / 10.0)

    def _run(self) -> Mapping[str, Any]:
        provider = package("config.exec_provider").ExecProvider
        node = package("config.kube_config").ConfigNode
        arguments: list[Any] = [node("exec", dict(self._section)), self._folder]
        # Releases before 32 did not tell the plugin of the cluster.
        if "cluster" in inspect.signature(provider.__init__).parameters:
            arguments.append(node("cluster", dict(self._cluster)))
        try:
            status = provider(*arguments).run()
        # What a plugin may do wrong has no bounds: not found, not executable, no JSON, …
        except Exception as error:
            hint = self._section.get("installHint")
            remedy = f"; {hint}" if hint else "; run it by hand to see what it wants"
            raise ConfigError(f"{self._name} failed: {error}{remedy}") from error
        if not isinstance(status, dict) or not (
            status.get("token") or status.get("clientCertificateData")
        ):
            raise ConfigError(f"{self._name} printed neither a token nor a client certificate")
        return status
