"""The embedded API server without a socket: in memory only, or a way past the socket of one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self, final

import attrs

from appsdk_operator.apiserver import APIServer, Frontend
from appsdk_operator.client import Client, ClientConfig
from appsdk_operator.resource import Kind
from appsdk_operator.runtime import Clock, Metrics, system_clock
from appsdk_operator.testing._memory.connection import Host, MemoryConnection, MemoryExchange
from appsdk_operator.testing._memory.event_loop import ManualEventLoop

__all__ = ["MemoryServer", "MemoryView"]


class _MemoryServerBase:
    """What both have: clients, and the requests that are under way."""

    def __init__(self, clock: Clock, *, token: str | None, ends_idle_watches: bool) -> None:
        self.clock = clock
        self.ends_idle_watches = ends_idle_watches
        self.changed: threading.Condition = threading.Condition(threading.RLock())
        self.config: ClientConfig = ClientConfig(
            server="http://memory", connector=lambda: MemoryConnection(self), token=token
        )
        """For whatever takes a :class:`~appsdk_operator.client.ClientConfig`: a client, a manager,
        a cluster."""
        self._open: dict[MemoryExchange, None] = {}

    def client(self, *, metrics: Metrics | None = None, **changes: Any) -> Client:
        """A new client of this server.

        Args:
            metrics: where its requests are counted; default: the kit's own registry.
            changes: other values for fields of :attr:`config`, for example ``impersonate``.
        """
        config = attrs.evolve(self.config, **changes) if changes else self.config
        return Client(config, clock=self.clock, metrics=metrics)

    def cut_connections(self) -> None:
        """Cut what is under way, watches too, as a dying network does."""
        with self.changed:
            for exchange in list(self._open):
                exchange.abort()

    # What connections ask of it.

    def begin(self, exchange: MemoryExchange) -> None:
        """Have a request handled."""
        raise NotImplementedError

    def leave(self, exchange: MemoryExchange) -> None:
        """Nobody waits for it any more."""
        raise NotImplementedError

    def turn(self) -> float | None:
        """Do what is due."""
        return None

    def _start(
        self, exchange: MemoryExchange, frontend: Frontend, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._open[exchange] = None

        async def handle() -> Any:
            return await frontend.handle(exchange.make_request(loop, asyncio.current_task()))

        task = exchange.task = loop.create_task(handle())
        task.add_done_callback(exchange.finish)
        task.add_done_callback(lambda _: self._open.pop(exchange, None))


@final
class MemoryServer(_MemoryServerBase):
    """The embedded API server in memory: no socket, no thread, for small and for quick tests.

    Its clients are the kit's own :class:`~appsdk_operator.client.Client`, and what answers them is
    the code of :class:`APIServer`, from its HTTP frontend on: errors, patches, options, watches,
    versions, CRDs, admission and fault rules are the same because there is only one of each. What
    is missing is what a socket brings: TLS, HTTP itself, and other people's clients.

    Requests are carried out in the thread that makes them. The server's own times (bookmarks, the
    ends of watches) are those of ``clock``, so that on a
    :class:`~appsdk_operator.runtime.ManualClock` nothing happens by itself. Thread-safe.

    >>> from appsdk_operator.resource import MutableObject, kinds
    >>> server = MemoryServer()
    >>> client = server.client()
    >>> made = client.create(MutableObject.new(kinds.core.v1.ConfigMap, "a", namespace="default"))
    >>> [obj.name for obj in client.list(kinds.core.v1.ConfigMap, namespace="default")]
    ['a']

    Args:
        clock: gives time stamps, and measures all waits; default: the machine's.
        crds: CustomResourceDefinitions to serve from the start.
        ends_idle_watches: whether a watch ends where it would have to wait for the next event,
            for tests with a single thread; default: it waits.
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
        """The server itself, which is not to be started: its fault rules (:meth:`APIServer.fail`),
        its log of requests and what it holds."""
        super().__init__(clock, token=self.api.token, ends_idle_watches=ends_idle_watches)
        self._loop = ManualEventLoop(clock)
        self._frontend = self.api.attach(self._loop.as_loop)

    def objects(self, kind: Kind) -> list[dict[str, Any]]:
        """Every stored object of a kind, in the order of namespace and name."""
        with self.changed:
            return self.api.objects(kind)

    def turn(self) -> float | None:
        """Do what is due on the clock; when more will be, None when nothing waits for a time.

        Requests do this by themselves; a test needs it after it moved a clock on which nobody
        waits.
        """
        with self.changed:
            self._loop.turn()
            return self._loop.next_deadline

    def close(self) -> None:
        """End what is under way. Harmless when done twice."""
        self.cut_connections()
        with self.changed:
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def begin(self, exchange: MemoryExchange) -> None:
        """Have a request handled."""
        self._start(exchange, self._frontend, self._loop.as_loop)

    def leave(self, exchange: MemoryExchange) -> None:
        """Nobody waits for it any more."""
        if exchange.task is not None:
            exchange.task.cancel()


@final
class MemoryView(_MemoryServerBase):
    """A way past the socket of an :class:`APIServer` that runs: what both see is one state.

    Args:
        server: a server that is started before the first request.
        clock: measures the client's waits; default: the machine's. The server has its own.
    """

    def __init__(self, server: APIServer, *, clock: Clock = system_clock) -> None:
        """See the class."""
        super().__init__(clock, token=server.token, ends_idle_watches=False)
        self._server = server

    def begin(self, exchange: MemoryExchange) -> None:
        """Have a request handled by the server's own thread."""
        self._server.call_frontend(lambda frontend, loop: self._start(exchange, frontend, loop))

    def leave(self, exchange: MemoryExchange) -> None:
        """Nobody waits for it any more."""
        task = exchange.task
        if task is not None and not task.done():
            self._server.call_frontend(lambda _frontend, _loop: task.cancel())


def _are_hosts(server: MemoryServer, view: MemoryView) -> list[Host]:
    return [server, view]
