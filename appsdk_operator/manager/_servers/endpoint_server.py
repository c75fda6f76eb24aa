"""What the manager's servers share: one HTTP server, its address, its start and its end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import attrs

from appsdk_operator.client import ClientLike
from appsdk_operator.runtime import Clock, Metrics, StopSignal
from appsdk_operator.runtime.validation import checked_seconds
from appsdk_operator.serving import HTTPHandler, HTTPLimits, HTTPServer, is_off

if TYPE_CHECKING:
    from appsdk_operator.serving import Certificates, TLSOptions

HTTPFilter: TypeAlias = Callable[[HTTPHandler], HTTPHandler]
"""Wraps a handler, for example with authentication."""


@attrs.frozen(kw_only=True)
class EndpointOptions:
    """The options that the manager's servers share; each has its own defaults."""

    address: str
    """``host:port``; ``""`` or ``"0"``: no server."""
    shutdown_timeout: float
    """Seconds at a stop for requests under way."""

    def __attrs_post_init__(self) -> None:
        checked_seconds("shutdown_timeout", self.shutdown_timeout)

    @property
    def is_enabled(self) -> bool:
        """Whether there is to be a server: False for the addresses ``""`` and ``"0"``."""
        return not is_off(self.address)


class EndpointServer(ABC):
    """Holds the HTTP server of one endpoint; a subclass adds its routes.

    The port is bound at the construction, so that a taken one is an error at once. A runnable:
    :meth:`run` serves until its stop signal is set. Thread-safe.
    """

    name: ClassVar[str]
    """The server's name in logs, threads and errors."""

    def __init__(
        self,
        options: EndpointOptions,
        *,
        tls: TLSOptions | None = None,
        limits: HTTPLimits | None,
        only_serve_when_leader: bool = False,
        hosts: Collection[str] | None = None,
        clock: Clock,
        metrics: Metrics | None = None,
        filter_provider: Callable[[ClientLike], HTTPFilter] | None = None,
        client: ClientLike | None = None,
    ) -> None:
        """Bind the port and add the routes; see :class:`HTTPServer` for the options.

        Raises:
            OSError: the address cannot be bound.
            ValueError: the options switch the server off, or need a client and there is none.
        """
        if not options.is_enabled:
            raise ValueError(f"address={options.address!r} means no server: do not make one")
        if filter_provider is not None and client is None:
            raise ValueError("filter_provider needs a client of the cluster: give client=")
        self._filter: HTTPFilter = lambda handler: handler
        self._server = HTTPServer(
            options.address,
            name=self.name,
            tls=tls,
            limits=limits,
            only_serve_when_leader=only_serve_when_leader,
            shutdown_timeout=options.shutdown_timeout,
            hosts=hosts,
            clock=clock,
            metrics=metrics,
        )
        try:
            if filter_provider is not None and client is not None:
                self._filter = filter_provider(client)
            self._add_routes(self._server)
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _add_routes(self, server: HTTPServer) -> None:
        """Add the handlers to ``server``, behind the filter if there is one."""

    @property
    def address(self) -> str:
        """Where it listens, for example ``127.0.0.1:8081``."""
        return self._server.address

    @property
    def url(self) -> str:
        """The address as a URL."""
        return self._server.url

    @property
    def certificates(self) -> Certificates | None:
        """The source of its certificate; None without TLS."""
        return self._server.certificates

    @property
    def only_serve_when_leader(self) -> bool:
        """Whether a manager runs it only on the leader."""
        return self._server.only_serve_when_leader

    @property
    def needs_leader_election(self) -> bool:
        """The same as ``only_serve_when_leader``, by the name that managers look for."""
        return self._server.needs_leader_election

    def __repr__(self) -> str:
        return f"<{self.name} server on {self.address}>"

    def run(self, stop: StopSignal, /) -> None:
        """Serve until ``stop`` is set; errors as :meth:`HTTPServer.run`."""
        try:
            self._server.run(stop)
        finally:
            self._close_filter()

    def close(self) -> None:
        """Close the port of a server that will not run. Harmless after a run, and twice."""
        self._server.close()
        self._close_filter()

    def _close_filter(self) -> None:
        close = getattr(self._filter, "close", None)
        if close is not None:
            close()
