"""A small HTTP/1.1 server for probes, metrics and webhooks: bounded, and gone once stopped."""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import threading
from collections.abc import Collection
from typing import TYPE_CHECKING, Final, Literal, final

import attrs

from appsdk_operator.runtime import (
    Clock,
    Metrics,
    StopSignal,
    ThreadGroup,
    default_metrics,
    get_logger,
    system_clock,
)
from appsdk_operator.serving._addresses import (
    format_address,
    is_allowed_host,
    listen,
    parse_address,
)
from appsdk_operator.serving._certificates import Certificates, TLSOptions, load_certificates
from appsdk_operator.serving._connection import ConnectionPhase, HTTPLimits, ServerConnection
from appsdk_operator.serving._messages import (
    HTTPHandler,
    HTTPRequest,
    HTTPResponse,
    text_response,
)
from appsdk_operator.serving._pool import ConnectionPool, configure, peer_of

if TYPE_CHECKING:
    import ssl

__all__ = ["HTTPServer"]

_log: Final = get_logger("appsdk_operator.manager")
_FULL: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_FULL_PAUSE: Final = 0.5
_LAST_JOIN: Final = 1.0
_READ_ONLY: Final = ("GET", "HEAD")


@attrs.frozen
class _Route:
    path: str
    handler: HTTPHandler
    methods: frozenset[str]
    is_prefix: bool

    def matches(self, path: str) -> bool:
        return path == self.path or (
            self.is_prefix and path.startswith(self.path.rstrip("/") + "/")
        )


@final
class HTTPServer:
    """Serves handlers by path, on a port that it holds from its construction on.

    A thread for each connection, of which there are no more than ``limits.max_connections``; none
    is a daemon. A client that sends or reads slowly, or does nothing, cannot keep others out: when
    all places are taken, such a one makes room; see :class:`HTTPLimits`.

    Is a runnable: :meth:`run` serves until its stop signal is set. Thread-safe.

    >>> server = HTTPServer("127.0.0.1:0", name="pages")
    >>> server.add_handler("/hello", lambda request: HTTPResponse(body=b"hello"))
    >>> server.close()

    Args:
        address: ``host:port``, ``[IPv6]:port``, or ``:port`` for all addresses of this machine;
            port 0 is any free one.
        name: what it is called in logs, threads and errors; default ``"http"``.
        tls: serve HTTPS; default: plain HTTP.
        limits: what clients may ask of it.
        only_serve_when_leader: whether a manager runs it on the leader alone; default: on all.
        shutdown_timeout: seconds of grace at a stop for requests under way; default 60.
        hosts: names by which clients may call it, beside ``localhost``, IP addresses and the host
            of ``address``; requests with another ``Host`` get 403. Keeps out pages that a browser
            shows on this machine (DNS rebinding). Default: whatever they call it.
        clock: what its time-outs are measured with.
        metrics: where the reads of certificates are counted; default: the kit's own.

    Raises:
        OSError: the address cannot be bound; the text says why and what to do.
        ValueError: an option out of its range, or certificates that cannot be used.
    """

    def __init__(
        self,
        address: str,
        *,
        name: str = "http",
        tls: TLSOptions | None = None,
        limits: HTTPLimits | None = None,
        only_serve_when_leader: bool = False,
        shutdown_timeout: float = 60.0,
        hosts: Collection[str] | None = None,
        clock: Clock = system_clock,
        metrics: Metrics | None = None,
    ) -> None:
        """See the class."""
        if not shutdown_timeout >= 0:
            raise ValueError(f"shutdown_timeout={shutdown_timeout}: use at least 0 seconds")
        self.name: Final = name
        self.only_serve_when_leader: Final = only_serve_when_leader
        self._limits = limits or HTTPLimits()
        self._clock = clock
        self._shutdown_timeout = shutdown_timeout
        self._listener = listen(address, f"{name} server")
        self._address = format_address(self._listener.getsockname())
        self._certificates: Certificates | None = None
        if tls is not None:
            host = str(self._listener.getsockname()[0])
            try:
                self._certificates = load_certificates(
                    tls, host, clock=clock, metrics=metrics or default_metrics()
                )
            except BaseException:
                self._listener.close()
                raise
        own, _ = parse_address(address)
        self._hosts: frozenset[str] | None = (
            None if hosts is None else frozenset({*hosts, *([own] if own else [])})
        )
        self._lock = threading.Lock()
        self._state: Literal["new", "running", "ended"] = "new"
        self._routes: dict[str, _Route] = {}
        self._pool = ConnectionPool(self._limits, clock)
        self._accepting = ThreadGroup(f"{name}-server")
        self._serving = ThreadGroup(f"{name}-server")
        self._number = 0
        # The connection whose thread it is.
        self._current = threading.local()

    @property
    def address(self) -> str:
        """Where it listens, for example ``127.0.0.1:40123``: the real port, also for port 0."""
        return self._address

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._address.rpartition(":")[2])

    @property
    def url(self) -> str:
        """The address as a URL, for example ``http://127.0.0.1:40123``."""
        return f"{'http' if self._certificates is None else 'https'}://{self._address}"

    @property
    def needs_leader_election(self) -> bool:
        """The same as ``only_serve_when_leader``, under the name that managers look for."""
        return self.only_serve_when_leader

    @property
    def limits(self) -> HTTPLimits:
        """What clients may ask of it."""
        return self._limits

    @property
    def clock(self) -> Clock:
        """What its time-outs are measured with."""
        return self._clock

    @property
    def certificates(self) -> Certificates | None:
        """What it proves its name with; None without TLS."""
        return self._certificates

    def __repr__(self) -> str:
        return f"<{self.name} server on {self._address}>"

    def add_handler(
        self,
        path: str,
        handler: HTTPHandler,
        *,
        methods: Collection[str] = _READ_ONLY,
        is_prefix: bool = False,
    ) -> None:
        """Answer requests for ``path`` with ``handler`` from now on; also while it serves.

        An exact path goes before a prefix, a longer prefix before a shorter one. When a handler
        raises, that is logged, and the client learns no more than that there was an error.

        Args:
            path: begins with a slash; ``/`` as a prefix is everything that nothing else answers.
            handler: called in the thread of the connection, in several at once.
            methods: what it answers; others get 405. Default: GET and HEAD.
            is_prefix: whether it answers what is below the path, too.

        Raises:
            ValueError: the path is taken, or does not begin with a slash.
        """
        if not path.startswith("/"):
            raise ValueError(f"path {path!r} does not begin with a slash")
        if not callable(handler):
            raise TypeError(f"handler={handler!r} of {path} cannot be called: give a function")
        if isinstance(methods, str) or not methods:
            raise ValueError(f"methods={methods!r}: name at least one, in a list")
        route = _Route(path, handler, frozenset(methods), is_prefix)
        with self._lock:
            if path in self._routes:
                raise ValueError(
                    f"{path} of the {self.name} server has a handler already: choose another path"
                )
            self._routes[path] = route

    def limited(self, handler: HTTPHandler, limit: int) -> HTTPHandler:
        """``handler`` for no more than ``limit`` requests at once, whose answers are large.

        A request counts until its answer is sent. Others wait for at most ten seconds, and are
        then answered with 503; meanwhile the slowest client that has been reading an answer for
        more than a second makes room. Of those that wait, the next is of the address that has the
        fewest answers under way.
        """
        if limit < 1:
            raise ValueError(f"limit={limit}: use at least 1")
        turn = object()

        def answer(request: HTTPRequest) -> HTTPResponse:
            connection: ServerConnection | None = getattr(self._current, "connection", None)
            if connection is None or self._pool.take_turn(connection, turn, limit, request.stop):
                return handler(request)
            text = f"503 {limit} such requests are being answered: try again later"
            return text_response(503, text, **{"Retry-After": "1"})

        return answer

    # -- life ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of the port of a server that is not to run. Harmless after a run, and twice."""
        with self._lock:
            if self._state == "running":
                raise RuntimeError(f"the {self.name} server runs: set its stop signal")
            self._state = "ended"
        self._release()

    def run(self, stop: StopSignal, /) -> None:
        """Serve until ``stop`` is set; then give requests under way their grace, and end.

        Raises:
            RuntimeError: it ran before or was closed.
            TimeoutError: handlers still run after the grace; the text names their paths.
            OSError: it cannot accept connections.
        """
        with self._lock:
            if self._state != "new":
                raise RuntimeError(
                    f"the {self.name} server ran before or was closed: make a new one"
                )
            self._state = "running"
        own = stop.child()
        failures: list[Exception] = []
        with contextlib.ExitStack() as exits:
            exits.callback(self._drain)
            exits.callback(self._end)
            exits.callback(self._release)
            waker, woken = socket.socketpair()
            exits.enter_context(waker)
            exits.enter_context(woken)

            def wake() -> None:
                with contextlib.suppress(OSError):
                    waker.send(b"\0")
                self._pool.wake()

            exits.callback(own.on_set(wake))
            # Whatever ends this block: first nobody is let in any more.
            exits.callback(self._accepting.join)
            exits.callback(own.set)
            if self._certificates is not None:
                watch = self._certificates.run
                self._accepting.start("certificates", lambda: watch(own))
            self._accepting.start("accept", lambda: self._accept(own, woken, failures))
            _log.info("the %s server listens on %s", self.name, self._address)
            self._pool.watch(own)
        if failures:
            raise failures[0]

    def _release(self) -> None:
        self._listener.close()
        if self._certificates is not None:
            self._certificates.close()

    def _end(self) -> None:
        with self._lock:
            self._state = "ended"

    def _drain(self) -> None:
        self._pool.close_idle()
        self._pool.drain(self._shutdown_timeout)
        # Those that were cut off have to notice; the others are gone.
        if self._serving.join(_LAST_JOIN):
            paths = ", ".join(self._pool.handled()) or "connections"
            raise TimeoutError(
                f"the {self.name} server still handles {paths} {self._shutdown_timeout:g} s after "
                "its stop: a handler that takes long has to look at request.stop"
            )

    def _accept(self, stop: StopSignal, woken: socket.socket, failures: list[Exception]) -> None:
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(woken, selectors.EVENT_READ)
                selector.register(self._listener, selectors.EVENT_READ)
                self._listener.setblocking(False)
                while not stop.is_set():
                    selector.select()
                    if stop.is_set() or not self._pool.wait_for_capacity(stop):
                        return
                    self._accept_one(stop)
        except Exception as error:
            failures.append(error)
            stop.set()

    def _accept_one(self, stop: StopSignal) -> None:
        try:
            sock, name = self._listener.accept()
        except OSError as error:
            # Anything else is a connection that went before it was accepted.
            if error.errno in _FULL:
                _log.error("the %s server takes no connection for now: %s", self.name, error)
                stop.wait(_FULL_PAUSE)
            return
        try:
            configure(sock)
        except OSError:
            sock.close()
            return
        connection = ServerConnection(sock, peer_of(name), self)
        self._pool.add(connection)
        self._number += 1
        try:
            self._serving.start(str(self._number), lambda: self._serve(connection, stop))
        except BaseException:
            self._pool.remove(connection)
            _log.exception("the %s server cannot start a thread for a connection", self.name)

    def _serve(self, connection: ServerConnection, stop: StopSignal) -> None:
        self._current.connection = connection
        try:
            connection.serve(stop)
        finally:
            self._pool.remove(connection)

    # -- what a connection asks ------------------------------------------------------------------

    def enter(
        self, connection: ServerConnection, phase: ConnectionPhase, seconds: float | None
    ) -> None:
        """For connections: note what one does."""
        self._pool.enter(connection, phase, seconds)

    def server_context(self) -> ssl.SSLContext | None:
        """For connections: what to speak TLS with."""
        return None if self._certificates is None else self._certificates.context()

    def answer(self, request: HTTPRequest) -> HTTPResponse:
        """The response to a request, as a client gets it; for connections and tests."""
        host = request.headers.get("host")
        if self._hosts is not None and host and not is_allowed_host(host, self._hosts):
            return text_response(
                403,
                f"403 the {self.name} server does not answer to this Host: use localhost or an IP "
                "address, or name the host in allowed_hosts",
            )
        route = self._route(request.path)
        if route is None:
            return text_response(404, "404 page not found")
        if request.method not in route.methods:
            allowed = ", ".join(sorted(route.methods))
            return text_response(405, f"405 use {allowed}", Allow=allowed)
        try:
            response = route.handler(request)
            if not isinstance(response, HTTPResponse):
                raise TypeError(f"the handler of {route.path} returned no HTTPResponse")
        except BaseException:  # SystemExit and its like would end the thread without a word
            _log.exception("the %s server's handler of %s failed", self.name, route.path)
            return text_response(500, "500 internal server error")
        return response

    def _route(self, path: str) -> _Route | None:
        with self._lock:
            exact = self._routes.get(path)
            if exact is not None:
                return exact
            found = [route for route in self._routes.values() if route.matches(path)]
        return max(found, key=lambda route: len(route.path), default=None)
