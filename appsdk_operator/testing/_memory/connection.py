"""Connections in memory, from the client's transport to the server's HTTP frontend.

The client's side has the interface of the transport's connections and responses, the server's side
that of aiohttp's streams and transports. Between them is a buffer per request.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from http.client import HTTPMessage
from typing import Any, Protocol, final

from aiohttp import abc, web
from aiohttp.http import HttpVersion10
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from appsdk_operator.apiserver import HttpRequest
from appsdk_operator.client import ConnectionLost, ReadTimeout, ResponseTooLarge
from appsdk_operator.runtime import Clock

_Headers = Sequence[tuple[str, str]]


class Observer(Protocol):
    """Observes the requests of a connection; may raise instead of one."""

    def before(self, method: str, target: str, body: bytes) -> None:
        """Called before a request is sent."""
        ...

    def after(self, status: int) -> None:
        """Called with the status of the answer, 0 where the answer was lost."""
        ...


class Host(Protocol):
    """The server of a connection: runs the frontend, and the waits for its answers."""

    @property
    def lock(self) -> threading.RLock:
        """The lock of all exchanges."""
        ...

    @property
    def changed(self) -> threading.Condition:
        """The condition of that lock, notified when there is more to read."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock of all waits."""
        ...

    @property
    def ends_idle_watches(self) -> bool:
        """Whether a watch ends instead of waiting for the next event."""
        ...

    def begin(self, exchange: MemoryExchange) -> None:
        """Begin to handle a request; the lock is held."""
        ...

    def cancel(self, exchange: MemoryExchange) -> None:
        """Cancel a request whose client has gone; the lock is held."""
        ...

    def turn(self) -> float | None:
        """Run what is due, and return the time of the next timer. The lock is held."""
        ...

    def send_bookmarks(self) -> None:
        """Send a bookmark to each watch. The lock is held."""
        ...


@final
class MemoryExchange:
    """One request and its answer, with the buffer between server and client."""

    def __init__(self, host: Host, method: str, target: str, headers: _Headers, body: bytes):
        """A request that was not begun yet."""
        self.host = host
        self.method = method
        self.target = target
        self.request_headers = headers
        self.request_body = body
        self.task: asyncio.Task[web.StreamResponse] | None = None
        self.status: int = 0
        self.headers: _Headers = ()
        self.buffer: bytearray = bytearray()
        self.has_head: bool = False
        """Whether status and headers have arrived."""
        self.is_done: bool = False
        """Whether the whole answer has arrived."""
        self.is_broken: bool = False
        """Whether the connection was cut, by either side."""
        self.failure: BaseException | None = None
        """The server's error that cut it, None where there was none."""

    def make_request(self, loop: asyncio.AbstractEventLoop, task: Any) -> HttpRequest:
        """The request as aiohttp's parser would make it."""
        headers: CIMultiDict[str] = CIMultiDict(self.request_headers)
        message = RawRequestMessage(
            method=self.method,
            path=self.target,
            # The last version without chunks: the bytes written are the bytes read.
            version=HttpVersion10,
            headers=CIMultiDictProxy(headers),
            raw_headers=(),  # nobody asks for them
            should_close=True,
            compression=None,
            upgrade=False,
            chunked=False,
            url=URL(self.target, encoded=True),
        )
        protocol: Any = _Protocol(_Transport(self))
        payload = EMPTY_PAYLOAD
        if self.request_body:
            payload = StreamReader(protocol, 1 << 26, loop=loop)
            payload.feed_data(self.request_body)
            payload.feed_eof()
        return HttpRequest(message, payload, protocol, _Stream(self), task, loop)

    def finish(self, task: asyncio.Task[web.StreamResponse]) -> None:
        """Complete the answer; called when the task has ended."""
        with self.host.lock:
            self.is_done = True
            # With the task goes what it has made, the frames of a cancelled one included: in a
            # reference cycle they would be left to the garbage collector.
            self.task = None
            try:
                error = task.exception()
            except asyncio.CancelledError:
                self.is_broken = True
            else:
                if error is not None:
                    self.is_broken, self.failure = True, error
                elif not self.has_head:
                    response: Any = task.result()
                    self.begin_answer(response.status, response.headers)
                    self.buffer += response.body or b""
            self.host.changed.notify_all()

    def begin_answer(self, status: int, headers: CIMultiDict[str]) -> None:
        """Receive status and headers of the answer."""
        with self.host.lock:
            self.status = status
            self.headers = list(headers.items())
            self.has_head = True
            self.host.changed.notify_all()

    def push(self, data: bytes) -> None:
        """Receive a part of the body."""
        if data:
            with self.host.lock:
                self.buffer += data
                self.host.changed.notify_all()

    def abort(self) -> None:
        """Cut the connection, from either side."""
        with self.host.lock:
            self.is_broken = True
            self.host.cancel(self)
            self.host.changed.notify_all()


@final
class _Protocol:
    """The part of aiohttp's request protocol that requests use."""

    ssl_context = None
    _reading_paused = False  # read by older releases of aiohttp
    sockname = ("memory", 0)
    peername = ("memory", 0)

    def __init__(self, transport: _Transport) -> None:
        self.transport = transport

    def pause_reading(self) -> None:
        """Does nothing: the whole body has arrived already."""

    def resume_reading(self, **_options: Any) -> None:
        """Does nothing: the whole body has arrived already."""


@final
class _Transport:
    """The part of an asyncio transport that the frontend uses."""

    def __init__(self, exchange: MemoryExchange) -> None:
        self._exchange = exchange

    def get_extra_info(self, _name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return self._exchange.is_done or self._exchange.is_broken

    def get_write_buffer_size(self) -> int:
        return len(self._exchange.buffer)

    def write(self, data: bytes) -> None:
        self._exchange.push(data)

    def abort(self) -> None:
        self._exchange.abort()

    close = abort


@final
class _Stream(abc.AbstractStreamWriter):
    """The writer of a streamed answer, as of a watch."""

    def __init__(self, exchange: MemoryExchange) -> None:
        self._exchange = exchange

    async def write_headers(self, status_line: str, headers: CIMultiDict[str]) -> None:
        self._exchange.begin_answer(int(status_line.split(" ", 2)[1]), headers)

    async def write(self, chunk: bytes | bytearray | memoryview) -> None:
        if self._exchange.is_broken:
            raise ConnectionResetError("the client has gone")
        self._exchange.push(bytes(chunk))

    async def write_eof(self, chunk: bytes = b"") -> None:
        self._exchange.push(bytes(chunk))

    async def drain(self) -> None:
        """Does nothing: the buffer has no limit."""

    def enable_compression(self, encoding: str = "deflate", strategy: int | None = None) -> None:
        """Does nothing: there is no network to save bytes on."""

    def enable_chunking(self) -> None:
        """Does nothing: there is no network to save bytes on."""


@final
class MemoryConnection:
    """A connection of the client's transport, to a server in memory."""

    generation = 0
    inherited = False

    def __init__(self, host: Host, *, observer: Observer | None = None) -> None:
        """A connection to ``host``."""
        self._observer = observer
        self.requests = 0
        self.idle_since = 0.0
        self.aborted = False
        self._host = host
        self._timeout: float | None = None
        self._exchange: MemoryExchange | None = None
        self._has_bookmark = False

    def exchange(self, head: bytes, body: bytes | None, *, method: str) -> _Response:
        """Send a request, and wait for the status and headers of its answer.

        Raises:
            ConnectionLost: the server cut the connection.
            ReadTimeout: no answer in time.
        """
        self.requests += 1
        first, *lines = head.decode("utf-8", "surrogateescape").split("\r\n")[:-2]
        headers = [(name, value) for name, _, value in (line.partition(": ") for line in lines)]
        target, host = first.split(" ")[1], self._host
        exchange = MemoryExchange(host, method, target, headers, body or b"")
        if self._observer is not None:
            self._observer.before(method, target, body or b"")
        with host.lock:
            if self.aborted:
                raise ConnectionLost("the connection was cut")
            self._exchange = exchange
            host.begin(exchange)
            if not self._wait_for(lambda: exchange.has_head or exchange.is_broken):
                self.abort()
                raise ReadTimeout("no answer in time")
        if self._observer is not None:
            self._observer.after(exchange.status)
        if not exchange.has_head:
            why = "the server closed the connection without an answer"
            raise ConnectionLost(why) from exchange.failure
        return _Response(self, exchange)

    def read(self, limit: int) -> bytes:
        """The part of the body that has arrived; empty at its end.

        Raises:
            OSError: the connection was cut, or nothing came in time.
        """
        exchange, host = self._exchange, self._host
        assert exchange is not None
        with host.lock:
            if not (exchange.is_done or self._has_more(exchange)):
                return b""
            data = bytes(exchange.buffer[:limit])
            del exchange.buffer[:limit]
            if not data and exchange.is_broken and not self.aborted:
                raise ConnectionResetError("the connection was cut")
            return data

    def _has_more(self, exchange: MemoryExchange) -> bool:
        """Wait for more of the body, or its end; False where an idle watch ends.

        Raises:
            TimeoutError: nothing came in time.
        """

        def has_news() -> bool:
            return bool(exchange.buffer) or exchange.is_done or exchange.is_broken

        host = self._host
        if not host.ends_idle_watches:
            if not self._wait_for(has_news):
                raise TimeoutError("no data came in time")
            return True
        host.turn()
        if not (exchange.buffer or self._has_bookmark):
            # As Kubernetes does, shortly before the end.
            self._has_bookmark = True
            host.send_bookmarks()
            host.turn()
        if not has_news():
            host.cancel(exchange)
            return False
        return True

    def _wait_for(self, is_here: Callable[[], bool]) -> bool:
        """Run the server until the condition is true; False after the time-out."""
        host, clock = self._host, self._host.clock
        deadline = None if self._timeout is None else clock.monotonic() + self._timeout
        while True:
            due = host.turn()
            if is_here():
                return True
            now = clock.monotonic()
            if deadline is not None and now >= deadline:
                return False
            until = min((at for at in (due, deadline) if at is not None), default=None)
            clock.wait(host.changed, None if until is None else max(0.0, until - now))

    def set_timeout(self, seconds: float | None) -> None:
        """Set the time-out of each wait, in seconds of the clock."""
        self._timeout = seconds

    def is_stale(self) -> bool:
        """Always false: each connection is used once."""
        return False

    def abort(self) -> None:
        """Cut the connection, from any thread."""
        with self._host.lock:
            self.aborted = True
            if self._exchange is not None and not self._exchange.is_done:
                self._exchange.abort()

    close = abort


@final
class _Response:
    """A response of the client's transport."""

    chunked = False
    will_close = True

    def __init__(self, connection: MemoryConnection, exchange: MemoryExchange) -> None:
        self.status = exchange.status
        self.headers = HTTPMessage()
        for name, value in exchange.headers:
            self.headers.set_raw(name, value)
        self.length = len(exchange.buffer) if exchange.is_done else None
        self.read1 = connection.read

    def read(self, limit: int) -> bytes:
        """The whole body."""
        parts = []
        try:
            while data := self.read1(1 << 20):
                parts.append(data)
                limit -= len(data)
                if limit < 0:
                    raise ResponseTooLarge("the answer has more bytes than allowed")
        except TimeoutError as error:
            raise ReadTimeout("the rest of the answer did not come in time") from error
        except OSError as error:
            raise ConnectionLost(f"the answer broke off: {error}") from error
        return b"".join(parts)
