"""The embedded API server without a socket, and clients without a socket for one that runs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self, final

import attrs

from appsdk_operator.apiserver import APIServer
from appsdk_operator.client import Client, ClientConfig
from appsdk_operator.resource import Kind
from appsdk_operator.runtime import Clock, Metrics, system_clock
from appsdk_operator.testing._memory.event_loop import ManualEventLoop

if TYPE_CHECKING:
    from appsdk_operator.apiserver import Frontend
    from appsdk_operator.testing._memory.connection import Host, MemoryExchange


class _MemoryServerBase:
    """Clients, and the requests in progress; the common part of both classes."""

    def __init__(self, clock: Clock, *, token: str | None, ends_idle_watches: bool) -> None:
        from appsdk_operator.testing._memory.connection import MemoryConnection

        self.clock = clock
        self.ends_idle_watches = ends_idle_watches
        self.lock: threading.RLock = threading.RLock()
        self.changed: threading.Condition = threading.Condition(self.lock)
        self.config: ClientConfig = ClientConfig(
            server="http://memory", connector=lambda: MemoryConnection(self), token=token
        )
        """The configuration of its clients, for a :class:`~appsdk_operator.client.Client`, a
        manager or a cluster."""
        self._open: dict[MemoryExchange, None] = {}

    def client(self, *, metrics: Metrics | None = None, **changes: Any) -> Client:
        """A new client of this server.

        Args:
            metrics: the registry for its request metrics; default: the kit's own.
            changes: fields of :attr:`config` to replace, for example ``impersonate``.
        """
        config = attrs.evolve(self.config, **changes) if changes else self.config
        return Client(config, clock=self.clock, metrics=metrics)

    def cut_connections(self) -> None:
        """Cut the requests in progress, watches included, as a network failure does."""
        with self.lock:
            for exchange in list(self._open):
                exchange.abort()

    # The interface for connections, see Host.

    def begin(self, exchange: MemoryExchange) -> None:
        """Begin to handle a request."""
        raise NotImplementedError

    def cancel(self, exchange: MemoryExchange) -> None:
        """Cancel a request: its client has gone."""
        raise NotImplementedError

    def turn(self) -> float | None:
        """Run what is due."""
        return None

    def send_bookmarks(self) -> None:
        """Send a bookmark to each watch."""

    def _start(
        self, exchange: MemoryExchange, frontend: Frontend, loop: asyncio.AbstractEventLoop
    ) -> None:
        with self.lock:
            if exchange.is_broken:  # its client has gone already
                exchange.is_done = True
                return
            self._open[exchange] = None
            task = exchange.task = loop.create_task(self._handle(exchange, frontend, loop))

        def finish(task: asyncio.Task[Any]) -> None:
            exchange.finish(task)
            self._open.pop(exchange, None)

        task.add_done_callback(finish)

    @staticmethod
    async def _handle(
        exchange: MemoryExchange, frontend: Frontend, loop: asyncio.AbstractEventLoop
    ) -> Any:
        return await frontend.handle(exchange.make_request(loop, asyncio.current_task()))


@final
class MemoryServer(_MemoryServerBase):
    """The embedded API server in memory: no socket, no thread, for small and for quick tests.

    Its clients are the kit's own :class:`~appsdk_operator.client.Client`, and the code that answers
    them is that of :class:`APIServer`, from the HTTP frontend on: errors, patches, options,
    watches, versions, CRDs, admission and fault rules are the same. It has no TLS, no HTTP parsing,
    and cannot be reached by other clients.

    A request runs in the thread that makes it. Bookmarks and the time-outs of watches follow
    ``clock``, so that on a :class:`~appsdk_operator.runtime.ManualClock` nothing happens on its
    own. Thread-safe.

    >>> from appsdk_operator.resource import MutableObject, kinds
    >>> server = MemoryServer()
    >>> client = server.client()
    >>> made = client.create(MutableObject.new(kinds.core.v1.ConfigMap, "a", namespace="default"))
    >>> [obj.name for obj in client.list(kinds.core.v1.ConfigMap, namespace="default")]
    ['a']

    Args:
        clock: the clock of time stamps and waits; default: the system's.
        crds: CustomResourceDefinitions to serve from the start.
        ends_idle_watches: whether a watch ends, after a bookmark, instead of waiting for the next
            event, for tests with a single thread; default: it waits.
        options: further options of the :class:`APIServer`: ``history``, ``token``, …

    Raises:
        ValueError, StatusError: as :class:`APIServer`.
    """

    def __init__(
        self,
        *,
        clock: Clock = system_clock,
        crds: Iterable[Mapping[str, Any]] = (),
        ends_idle_watches: bool = False,
        **options: Any,
    ) -> None:
        """See the class."""
        self.api: APIServer = APIServer(clock=clock, crds=crds, **options)
        """The server, for its fault rules (:meth:`APIServer.fail`), its request log and its
        objects. Do not start it."""
        super().__init__(clock, token=self.api.token, ends_idle_watches=ends_idle_watches)
        self._loop = ManualEventLoop(clock)
        self._frontend = self.api.attach(self._loop.as_loop)

    def objects(self, kind: Kind) -> list[dict[str, Any]]:
        """The stored objects of a kind, ordered by namespace and name."""
        with self.lock:
            return self.api.objects(kind)

    def turn(self) -> float | None:
        """Run what is due on the clock.

        Requests do this too. Call it after you advanced a clock on which no request waits.

        Returns:
            The clock's time of the next timer, None if there is no timer.
        """
        with self.lock:
            self._loop.run_due()
            return self._loop.next_deadline

    def close(self) -> None:
        """End all requests in progress. A second call does nothing."""
        self.cut_connections()
        with self.lock:
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self, exchange: MemoryExchange) -> None:
        """Begin to handle a request."""
        self._start(exchange, self._frontend, self._loop.as_loop)

    def cancel(self, exchange: MemoryExchange) -> None:
        """Cancel a request: its client has gone."""
        if exchange.task is not None:
            exchange.task.cancel()

    def send_bookmarks(self) -> None:
        """Send a bookmark to each watch."""
        self.api.send_bookmarks()


@final
class MemoryView(_MemoryServerBase):
    """Clients without a socket for a running :class:`APIServer`; they see the same objects.

    Args:
        server: the server; it must be started before the first request.
        clock: the clock of the clients' waits; default: the system's. The server has its own.
    """

    def __init__(self, server: APIServer, *, clock: Clock = system_clock) -> None:
        """See the class."""
        super().__init__(clock, token=server.token, ends_idle_watches=False)
        self._server = server

    def begin(self, exchange: MemoryExchange) -> None:
        """Begin to handle a request in the server's thread."""
        self._server.call_frontend(lambda frontend, loop: self._start(exchange, frontend, loop))

    def cancel(self, exchange: MemoryExchange) -> None:
        """Cancel a request: its client has gone."""
        task = exchange.task
        if task is not None and not task.done():
            # A server that stops has cancelled it.
            with contextlib.suppress(ConnectionRefusedError):
                self._server.call_frontend(lambda _frontend, _loop: task.cancel())


def _are_hosts(server: MemoryServer, view: MemoryView) -> list[Host]:
    return [server, view]
