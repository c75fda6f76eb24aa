"""A small HTTP/1.1 server for probes, metrics and webhooks, with limits and a graceful stop."""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import threading
from collections.abc import Collection
from typing import TYPE_CHECKING, Final, Literal, final

import msgspec

from appsdk_operator.runtime import (
    Clock,
    Metrics,
    StopSignal,
    ThreadGroup,
    get_logger,
    present_clock,
    present_metrics,
)
from appsdk_operator.runtime.validation import checked_seconds, no_awaitable
from appsdk_operator.serving._addresses import (
    format_address,
    is_allowed_host,
    listen,
    parse_address,
    peer_host,
)
from appsdk_operator.serving._connection import ConnectionPhase, ServerConnection
from appsdk_operator.serving._connection_pool import ConnectionPool, RequestLimit
from appsdk_operator.serving._limits import HTTPLimits
from appsdk_operator.serving._messages import (
    HTTPHandler,
    HTTPRequest,
    HTTPResponse,
    RequestLimits,
    text_response,
)

if TYPE_CHECKING:
    import ssl

    from appsdk_operator.serving._certificates import Certificates
    from appsdk_operator.serving._tls import ServerContexts, TLSOptions


_log: Final = get_logger("appsdk_operator.serving")
_NO_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_NO_RESOURCES_PAUSE: Final = 0.5
_LAST_JOIN: Final = 1.0
_READ_ONLY: Final = ("GET", "HEAD")


class _Route(msgspec.Struct, frozen=True):
    path: str
    handler: HTTPHandler
    methods: frozenset[str] | None
    is_prefix: bool
    limits: RequestLimits | None

    @property
    def prefix(self) -> str:
        return self.path.rstrip("/") + "/"


@final
class HTTPServer:
    """Serves handlers by path; binds its port at the construction.

    Each connection has a thread; there are at most ``limits.max_connections``, and none is a
    daemon. A client that sends or reads slowly, or does nothing, cannot keep others out: at that
    limit its connection is closed for a new one; see :class:`HTTPLimits`.

    Is a runnable: :meth:`run` serves until its stop signal is set. Thread-safe.

    >>> server = HTTPServer("127.0.0.1:0", name="pages")
    >>> server.add_handler("/hello", lambda request: HTTPResponse(body=b"hello"))
    >>> server.close()

    Args:
        address: ``host:port``, ``[IPv6]:port``, or ``:port`` for all addresses of this machine;
            port 0 is any free one.
        name: its name in logs, threads and errors; default ``"http"``.
        tls: serve HTTPS; default: plain HTTP. Without files in it the server makes a self-signed
            certificate, unless ``certificates`` is given.
        certificates: serve HTTPS with certificates from this source, for example
            :class:`SelfSigned`; the server runs and closes it. The client authorities and the
            minimum version of ``tls`` hold for it. Default: those of ``tls``.
        limits: limits for clients.
        only_serve_when_leader: whether a manager runs it only on the leader; default: on all
            replicas.
        shutdown_timeout: seconds at a stop for requests under way; default 60.
        shutdown_delay: seconds after the stop for which it still accepts connections and answers
            requests, while each answer closes its connection. For clients that use it all the time
            and hear of its end a moment later, or send a request just when an idle connection is
            closed. Default 0.
        hosts: the host names that a ``Host`` header may have, besides ``localhost``, IP addresses
            and the host of ``address``; requests with another one get 403. It keeps out web pages
            in a browser on this machine (DNS rebinding). Default: any.
        clock: the clock of its time-outs.
        metrics: where the reads of certificates are counted; default: the kit's own.

    Raises:
        OSError: the address cannot be bound; the text says why and what to do.
        ValueError: an option is out of range, or the certificates cannot be used.
    """

    def __init__(
        self,
        address: str,
        *,
        name: str = "http",
        tls: TLSOptions | None = None,
        certificates: Certificates | None = None,
        limits: HTTPLimits | None = None,
        only_serve_when_leader: bool = False,
        shutdown_timeout: float = 60.0,
        shutdown_delay: float = 0.0,
        hosts: Collection[str] | None = None,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """See the class."""
        if not shutdown_delay >= 0:
            raise ValueError(f"shutdown_delay={shutdown_delay}: use at least 0 seconds")
        tls = _checked_tls(tls, certificates)
        self.name: Final = name
        self.purpose: str = ""
        """What it serves, for the log line of its start; its owner may set it."""
        self.only_serve_when_leader: Final = only_serve_when_leader
        self._limits = limits or HTTPLimits()
        self._clock = clock = present_clock(clock)
        self._shutdown_timeout = checked_seconds("shutdown_timeout", shutdown_timeout)
        self._shutdown_delay = shutdown_delay
        self._is_closing = False
        self._listener = listen(address, f"{name} server")
        self._address = format_address(self._listener.getsockname())
        self._certificates: Certificates | None = None
        self._contexts: ServerContexts | None = None
        if tls is not None:
            from appsdk_operator.serving._certificates import load_certificates
            from appsdk_operator.serving._tls import ServerContexts

            host = str(self._listener.getsockname()[0])
            try:
                self._certificates = certificates or load_certificates(
                    tls, host, clock=clock, metrics=present_metrics(metrics)
                )
                self._contexts = ServerContexts(tls, self._certificates.pair, name)
            except BaseException:
                self._listener.close()
                raise
        own, _ = parse_address(address)
        self._hosts: frozenset[str] | None = (
            None if hosts is None else frozenset({*hosts, *([own] if own else [])})
        )
        self._lock = threading.Lock()
        self._state: Literal["new", "running", "ended"] = "new"
        self._ending: StopSignal | None = None
        """While it runs."""
        # Replaced at each change, so that requests read them without the lock.
        self._routes: dict[str, _Route] = {}
        self._prefixes: tuple[tuple[str, _Route], ...] = ()
        self._pool = ConnectionPool(self._limits, clock, self._answer_late)
        self._accept_threads = ThreadGroup(f"{name}-server")
        self._threads = ThreadGroup(f"{name}-server")
        self._accepted = 0
        # Its attribute "connection" is the one that this thread serves.
        self._thread_local = threading.local()

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
        """The same as ``only_serve_when_leader``, by the name that managers look for."""
        return self.only_serve_when_leader

    @property
    def limits(self) -> HTTPLimits:
        """The limits for clients."""
        return self._limits

    @property
    def clock(self) -> Clock:
        """The clock of its time-outs."""
        return self._clock

    @property
    def certificates(self) -> Certificates | None:
        """The source of its certificate; None without TLS."""
        return self._certificates

    def __repr__(self) -> str:
        return f"<{self.name} server on {self._address}>"

    def add_handler(
        self,
        path: str,
        handler: HTTPHandler,
        *,
        methods: Collection[str] | None = _READ_ONLY,
        is_prefix: bool = False,
        limits: RequestLimits | None = None,
    ) -> None:
        """Add a handler for the requests of ``path``; also while the server runs.

        An exact path goes before a prefix, a longer prefix before a shorter one. An exception of a
        handler is logged, and the client gets a 500 without details.

        Args:
            path: begins with a slash; ``/`` as a prefix is every path without another handler.
            handler: called in the connection's thread; several threads may call it at once.
            methods: the methods it answers; others get 405. None: all. Default: GET and HEAD.
            is_prefix: whether it also answers the paths below.
            limits: the sizes of its requests, and its time to answer. Default: the server's
                ``max_body_bytes``, and no time limit. After the time limit another thread sends
                the answer of ``limits.timed_out``, and the handler's is dropped; the connection
                stays occupied until the handler has returned.

        Raises:
            ValueError: the path is taken, or does not begin with a slash.
        """
        if not path.startswith("/"):
            raise ValueError(f"path {path!r} does not begin with a slash")
        if not callable(handler):
            raise TypeError(f"handler={handler!r} of {path} cannot be called: give a function")
        if methods is not None and (isinstance(methods, str) or not methods):
            raise ValueError(f"methods={methods!r}: name at least one, in a list")
        allowed = None if methods is None else frozenset(methods)
        route = _Route(path, handler, allowed, is_prefix, limits)
        with self._lock:
            if path in self._routes:
                raise ValueError(
                    f"{path} of the {self.name} server has a handler already: choose another path"
                )
            self._routes = {**self._routes, path: route}
            prefixes = [(r.prefix, r) for r in self._routes.values() if r.is_prefix]
            self._prefixes = tuple(sorted(prefixes, key=lambda each: -len(each[0])))

    def limited(self, handler: HTTPHandler, limit: int) -> HTTPHandler:
        """``handler`` for at most ``limit`` requests at once; for large answers.

        A request counts until its answer is sent. Others wait for up to ten seconds and then get
        503. Meanwhile the slowest client that has been reading its answer for more than a second
        is cut off. The next request is one of the address that has the fewest under way.
        """
        if limit < 1:
            raise ValueError(f"limit={limit}: use at least 1")
        request_limit = RequestLimit(limit)

        def answer(request: HTTPRequest) -> HTTPResponse:
            connection: ServerConnection | None = getattr(self._thread_local, "connection", None)
            if connection is None or self._pool.acquire(connection, request_limit, request.stop):
                return handler(request)
            text = f"503 {limit} such requests are being answered: try again later"
            return text_response(503, text, **{"Retry-After": "1"})

        return answer

    # -- start and stop ------------------------------------------------------------------------

    def close(self) -> None:
        """Close the port. Harmless after a run, and twice.

        A server that runs is stopped as by its stop signal, without waiting for it: the port closes
        when ``run`` returns.
        """
        with self._lock:
            ending = self._ending
            if ending is None:
                self._state = "ended"
        if ending is not None:
            ending.set()
            return
        self._release()

    def run(self, stop: StopSignal, /) -> None:
        """Serve until ``stop`` is set and ``shutdown_delay`` has passed, then finish.

        Requests under way have ``shutdown_timeout`` seconds.

        Raises:
            RuntimeError: it ran before or was closed.
            TimeoutError: handlers still run after that; the text names their paths.
            OSError: it cannot accept connections.
        """
        with self._lock:
            if self._state != "new":
                raise RuntimeError(
                    f"the {self.name} server ran before or was closed: make a new one"
                )
            self._state = "running"
            ending = self._ending = stop.child()
        own = StopSignal(clock=self._clock) if self._shutdown_delay else ending
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
            # However this block ends: first, no connection is accepted any more.
            exits.callback(self._accept_threads.join)
            exits.callback(ending.set)
            exits.callback(own.set)
            if own is not ending:
                self._accept_threads.start("end", lambda: self._end_later(ending, own))
            if self._certificates is not None:
                watch = self._certificates.run
                self._accept_threads.start("certificates", lambda: watch(own))
            purpose = f": {self.purpose}" if self.purpose else ""
            _log.info("the %s server listens on %s%s", self.name, self._address, purpose)
            self._accept(own, woken)

    def _end_later(self, ending: StopSignal, own: StopSignal) -> None:
        ending.wait()
        self._is_closing = True
        own.wait(self._shutdown_delay)
        own.set()

    def _release(self) -> None:
        self._listener.close()
        if self._certificates is not None:
            self._certificates.close()

    def _end(self) -> None:
        with self._lock:
            self._state = "ended"
            self._ending = None

    def _drain(self) -> None:
        self._pool.close_idle()
        self._pool.drain(self._shutdown_timeout)
        # Connections that were cut have to notice it; the others have ended.
        if self._threads.join(_LAST_JOIN):
            paths = ", ".join(self._pool.handled_paths()) or "connections"
            raise TimeoutError(
                f"the {self.name} server still handles {paths} {self._shutdown_timeout:g} s after "
                "its stop: a handler that takes long has to look at request.stop"
            )

    def _accept(self, stop: StopSignal, woken: socket.socket) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(woken, selectors.EVENT_READ)
            selector.register(self._listener, selectors.EVENT_READ)
            self._listener.setblocking(False)
            while not stop.is_set():
                selector.select()
                if stop.is_set() or not self._pool.wait_for_capacity(stop):
                    return
                self._accept_one(stop)

    def _accept_one(self, stop: StopSignal) -> None:
        try:
            sock, name = self._listener.accept()
        except OSError as error:
            # Any other error is of a connection that closed before it was accepted.
            if error.errno in _NO_RESOURCES:
                _log.error("the %s server takes no connection for now: %s", self.name, error)
                stop.wait(_NO_RESOURCES_PAUSE)
            return
        try:
            _configure(sock)
        except OSError:
            sock.close()
            return
        connection = ServerConnection(sock, peer_host(name), self)
        is_watched = self._pool.add(connection)
        self._accepted += 1
        try:
            if not is_watched:
                self._accept_threads.start("deadlines", lambda: self._pool.watch(stop))
                is_watched = True
            self._threads.start(str(self._accepted), lambda: self._serve(connection, stop))
        except BaseException as error:
            if not is_watched:
                self._pool.is_watched = False
            self._pool.remove(connection)
            if not isinstance(error, Exception):  # of a signal handler
                raise
            _log.exception("the %s server cannot start a thread for a connection", self.name)

    def _serve(self, connection: ServerConnection, stop: StopSignal) -> None:
        self._thread_local.connection = connection
        try:
            connection.serve(stop)
        finally:
            self._pool.remove(connection)

    # -- for connections -------------------------------------------------------------------

    @property
    def is_closing(self) -> bool:
        """For connections: whether each is to be closed after its next answer."""
        return self._is_closing

    def enter(
        self, connection: ServerConnection, phase: ConnectionPhase, seconds: float | None
    ) -> None:
        """For connections: record a phase and its time limit."""
        self._pool.enter(connection, phase, seconds)

    def hold(self, connection: ServerConnection, size: int) -> None:
        """For connections: count the bytes of a body."""
        self._pool.hold(connection, size)

    def server_context(self) -> ssl.SSLContext | None:
        """For connections: the TLS context; None for plain HTTP.

        Raises:
            OSError: there is no certificate yet.
        """
        if self._contexts is None:
            return None
        try:
            return self._contexts.get()
        except OSError:
            raise
        except Exception as error:
            _log.exception("the source of the %s server's certificate failed", self.name)
            raise OSError(f"the {self.name} server has no certificate") from error

    def answer(self, request: HTTPRequest) -> HTTPResponse:
        """For connections and tests: the response to a request."""
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
        if route.methods is not None and request.method not in route.methods:
            allowed = ", ".join(sorted(route.methods))
            return text_response(405, f"405 use {allowed}", Allow=allowed)
        try:
            response: object = route.handler(request)
            if not isinstance(response, HTTPResponse):
                no_awaitable(f"the handler of {route.path}", response)
                raise TypeError(f"the handler of {route.path} returned no HTTPResponse")
        except BaseException:  # SystemExit and the like would end the thread silently
            _log.exception("the %s server's handler of %s failed", self.name, route.path)
            return text_response(500, "500 internal server error")
        return response

    def body_limit(self, path: str) -> int:
        """For connections: the most bytes of a body for ``path``."""
        route = self._route(path)
        if route is None or route.limits is None:
            return self._limits.max_body_bytes
        return route.limits.body_limit(path)

    def time_limit(self, request: HTTPRequest) -> float | None:
        """For connections: seconds for the handler of a request; None for no limit."""
        route = self._route(request.path)
        return None if route is None or route.limits is None else route.limits.time_limit(request)

    def late_answer(self, request: HTTPRequest) -> HTTPResponse:
        """For connections: the response in place of a late handler's."""
        route = self._route(request.path)
        try:
            if route is not None and route.limits is not None:
                return route.limits.timed_out(request)
        except Exception:
            _log.exception("the %s server's handler of %s failed", self.name, request.path)
        return text_response(500, "500 the handler took too long")

    def _answer_late(self, connection: ServerConnection) -> None:
        """Answer in place of a late handler; under the pool's lock, which is why in a thread."""
        try:
            connection.late_thread = self._threads.start("late answer", connection.answer_late)
        except Exception:
            _log.exception("the %s server cannot start a thread for an answer", self.name)
            connection.cut()

    def _route(self, path: str) -> _Route | None:
        found = self._routes.get(path)
        if found is None:
            for prefix, route in self._prefixes:
                if path.startswith(prefix):
                    return route
        return found


def _checked_tls(tls: TLSOptions | None, certificates: Certificates | None) -> TLSOptions | None:
    """The TLS options of a server; None for plain HTTP."""
    if certificates is None:
        return tls
    missing = [name for name in ("pair", "run", "close") if not hasattr(certificates, name)]
    if missing or isinstance(certificates, type):
        raise TypeError(
            f"certificates={certificates!r} is not a source of certificates: give an object with "
            "the methods of Certificates, for example SelfSigned(), or files in tls=TLSOptions(…)"
        )
    own: TLSOptions | None = getattr(certificates, "tls", None)
    if tls is None:
        from appsdk_operator.serving._tls import TLSOptions

        return own or TLSOptions()
    if tls.cert_file is not None:
        raise ValueError("certificates and tls with cert_file: give the one or the other")
    if own is not None and own.client_ca_file not in (None, tls.client_ca_file):
        raise ValueError(
            f"client_ca_file={own.client_ca_file} of the certificates and tls without it: give it "
            "in tls"
        )
    return tls


def _configure(sock: socket.socket) -> None:
    """Make it blocking, and send without delay: a response is one write."""
    sock.setblocking(True)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
