"""One connection of an HTTP server: reads requests, writes responses, each within a time limit."""

from __future__ import annotations

import datetime as dt
import functools
import select
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, final

from appsdk_operator.runtime import Clock, StopSignal, get_logger
from appsdk_operator.serving._limits import HTTPLimits
from appsdk_operator.serving._messages import HTTPRequest, HTTPResponse, text_response
from appsdk_operator.serving._request_parser import RequestHead, RequestParser, RequestRefused

if TYPE_CHECKING:
    import ssl


_log: Final = get_logger("appsdk_operator.serving")
_READ: Final = 65536
_LINGER_SECONDS: Final = 1.0
_PIECE_SECONDS: Final = 10.0
"""Seconds that a client has to read a piece of a body that comes piece by piece."""
_LINGER_BYTES: Final = 1 << 20
_HANDSHAKE_RECORD: Final = b"\x16"
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)

ConnectionPhase = Literal["waiting", "reading", "queued", "handling", "writing"]
"""``waiting``: the headers of the next request are not complete; ``reading``: its body is not;
``queued``: the request is complete and waits for a concurrency limit; ``handling``: its handler
runs; ``writing``: the client reads the response."""


class ConnectionServer(Protocol):
    """What a connection needs from its server."""

    @property
    def limits(self) -> HTTPLimits:
        """The limits for clients."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock for the ``Date`` header."""
        ...

    @property
    def is_closing(self) -> bool:
        """Whether connections are to be closed after their next answer."""
        ...

    def enter(
        self, connection: ServerConnection, phase: ConnectionPhase, seconds: float | None
    ) -> None:
        """Record the connection's phase and its time limit."""
        ...

    def hold(self, connection: ServerConnection, size: int) -> None:
        """Count the bytes of the connection's body, from now on ``size``."""
        ...

    def server_context(self) -> ssl.SSLContext | None:
        """The TLS context for new connections; None for plain HTTP."""
        ...

    def answer(self, request: HTTPRequest) -> HTTPResponse:
        """The response to a request; never raises."""
        ...

    def body_limit(self, path: str) -> int:
        """The most bytes of a body for a path."""
        ...

    def time_limit(self, request: HTTPRequest) -> float | None:
        """Seconds for the handler of a request; None for no limit."""
        ...

    def late_answer(self, request: HTTPRequest) -> HTTPResponse:
        """The response to a request whose handler takes longer; never raises."""
        ...


@functools.lru_cache(maxsize=16)
def _http_date(seconds: int) -> str:
    # As email.utils.formatdate, which is as slow to import as all else here together.
    moment = dt.datetime.fromtimestamp(seconds, dt.UTC)
    day, month = _DAYS[moment.weekday()], _MONTHS[moment.month - 1]
    return f"{day}, {moment:%d} {month} {moment.year:04} {moment:%H:%M:%S} GMT"


class _PeerClosed(Exception):  # noqa: N818 - not an error of ours
    """The client closed the connection, or it was expired."""


@final
class ServerConnection:
    """Serves one connection in the thread that calls :meth:`serve`.

    Other threads may end it with :meth:`expire` or :meth:`cut`, but not after :meth:`close`.
    """

    def __init__(self, sock: socket.socket, peer: str, server: ConnectionServer) -> None:
        """A connection that was accepted from the address ``peer``."""
        self.phase: ConnectionPhase = "waiting"
        self.phase_since: float = 0.0
        """When the phase began; of the pool."""
        self.deadline: float | None = None
        """When the phase times out; of the pool."""
        self.is_expired: bool = False
        self.path: str = ""
        """The path of the request that a handler answers, for error texts."""
        self.held: int = 0
        """Bytes of its body, until the response is sent; of the pool."""
        self.answers: int = 0
        """The number of requests answered."""
        self.is_refused: bool = False
        """Whether it was expired because too many large bodies arrive."""
        self.request_limit: object = None
        """The concurrency limit that its request counts against, until the response is sent."""
        self.late_thread: threading.Thread | None = None
        """The thread that answers in place of a late handler."""
        self._request: HTTPRequest | None = None
        self._raw = sock
        self._sock = sock
        self.peer = peer
        self._server = server
        self._parser = RequestParser(server.limits, server.body_limit)
        self._certificate: Mapping[str, Any] | None = None
        # With TLS: waits until there is something to read, unless there is something decrypted.
        self._readable: select.poll | None = None
        self._tls_pending: Callable[[], int] = int

    @property
    def pending(self) -> int:
        """Bytes received of a request whose headers are not complete."""
        return self._parser.pending

    def expire(self) -> None:
        """End it because its time is up or another connection needs its slot.

        Wakes the thread that blocks in it. A request that has arrived completely is still answered,
        the next one is not read."""
        self.is_expired = True
        self._shutdown(socket.SHUT_RDWR if self.phase == "writing" else socket.SHUT_RD)

    def cut(self) -> None:
        """End it at once, in any phase."""
        self.is_expired = True
        self._shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket; call nothing after it."""
        self._sock.close()

    def serve(self, stop: StopSignal) -> None:
        """Serve requests until one side ends the connection; no client can make it raise."""
        limits = self._server.limits
        try:
            self._server.enter(self, "waiting", limits.header_timeout)
            if not self._start_tls():
                return
            while self._serve_one(stop) and not stop.is_set():
                if self._parser.pending:
                    self._server.enter(self, "waiting", limits.header_timeout)
                else:
                    self._server.enter(self, "waiting", limits.idle_timeout)
                    self._receive()
        except (_PeerClosed, OSError) as error:
            # Also ssl.SSLError: a client that does not trust the server, or no common TLS version.
            _log.debug("connection from %s ended: %r", self.peer, error)

    def _start_tls(self) -> bool:
        """Do the TLS handshake if the server has a certificate; False for a client without TLS."""
        context = self._server.server_context()
        if context is None:
            return True
        first = self._raw.recv(1, socket.MSG_PEEK)
        if not first:
            return False
        if first != _HANDSHAKE_RECORD:
            text = "this server speaks HTTPS: use https://"
            self._refuse(RequestRefused(400, text))
            return False
        secure = context.wrap_socket(self._raw, server_side=True, do_handshake_on_connect=False)
        self._sock = secure
        # wrap_socket took the descriptor over; its plain half still shuts down and drains.
        self._raw = secure
        if self.is_expired:  # in between, when neither could be shut down
            raise _PeerClosed
        secure.do_handshake()
        self._tls_pending = secure.pending
        self._readable = select.poll()
        self._readable.register(secure, select.POLLIN)
        self._certificate = secure.getpeercert() or None
        return True

    # -- a request ---------------------------------------------------------------------------

    def _serve_one(self, stop: StopSignal) -> bool:
        """Serve one request; whether the connection stays open."""
        try:
            head = self._read_head()
            if head is None:
                return False
            body = self._read_body(head) if head.has_body else b""
        except RequestRefused as refused:
            self._refuse(refused)
            return False
        request = HTTPRequest(
            method=head.method,
            path=head.path,
            query_string=head.query_string,
            headers=head.headers,
            body=body,
            peer=self.peer,
            client_certificate=self._certificate,
            stop=stop,
        )
        self.path, self._request = head.path, request
        self._server.enter(self, "handling", self._server.time_limit(request))
        response = self._server.answer(request)
        is_ending = stop.is_set() or self._server.is_closing or self.is_expired
        keep = head.is_kept_alive and not is_ending and response.stream is None
        self._server.enter(self, "writing", self._server.limits.write_timeout)
        has_body = head.method != "HEAD"
        try:
            if not request.claim_answer("handler"):
                if self.late_thread is not None:
                    self.late_thread.join()
                return False
            self._send(response, has_body=has_body, keep=keep, version=head.version)
            if response.stream is not None and has_body:
                self._send_pieces(response.stream)
        finally:
            if (close := getattr(response.stream, "close", None)) is not None:
                close()
        self.path, self._request = "", None
        if self.held:
            self._server.hold(self, 0)
        self.answers += 1
        return keep

    def claim_late_answer(self) -> bool:
        """Whether another thread answers, because the time limit came before the handler's end."""
        return self._request is not None and self._request.claim_answer("time limit")

    def answer_late(self) -> None:
        """Answer in place of a handler that takes too long; in a thread of its own."""
        request = self._request
        assert request is not None
        response = self._server.late_answer(request)
        limits = self._server.limits
        try:
            self._server.enter(self, "writing", limits.write_timeout)
            self._send(response, has_body=request.method != "HEAD", keep=False, version="HTTP/1.1")
            self._shutdown(socket.SHUT_WR)
        except OSError as error:
            _log.debug("connection from %s ended: %r", self.peer, error)
        self._server.enter(self, "handling", None)

    def _read_head(self) -> RequestHead | None:
        """The next request's head; None when the client closes or expires before its first byte."""
        is_waited_for = not self.answers
        while (head := self._parser.read_head()) is None:
            if not is_waited_for:
                # Most heads come in one piece, and need no time limit of their own.
                self._server.enter(self, "waiting", self._server.limits.header_timeout)
                is_waited_for = True
            try:
                self._receive()
            except _PeerClosed:
                if not self._parser.pending:
                    return None
                text = f"no complete request in time ({self._server.limits.header_timeout:g} s)"
                raise RequestRefused(408 if self.is_expired else 400, text) from None
        return head

    def _read_body(self, head: RequestHead) -> bytes:
        limits = self._server.limits
        if head.expects_continue:
            self._server.enter(self, "writing", limits.write_timeout)
            self._sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        if (body := self._parser.read_body()) is not None:
            return body  # it came with the head
        self._server.enter(self, "reading", limits.body_timeout)
        while (body := self._parser.read_body()) is None:
            try:
                self._server.hold(self, self._parser.body_size)
                if self.is_expired:  # what has arrived could be read on, also after a shutdown
                    raise _PeerClosed
                self._receive()
            except _PeerClosed:
                text = f"no complete body in time ({limits.body_timeout:g} s)"
                if self.is_refused:
                    text = "too many large bodies at once: try again"
                raise RequestRefused(408 if self.is_expired else 400, text) from None
        return body

    def _receive(self) -> None:
        if self._readable is not None and not self._tls_pending():
            # An end within TLS is an error to OpenSSL, after which no answer can be sent.
            self._readable.poll()
            if self.is_expired:
                raise _PeerClosed
        data = self._sock.recv(_READ)
        if not data:
            raise _PeerClosed
        self._parser.receive_data(data)

    # -- a response --------------------------------------------------------------------------

    def _send(self, response: HTTPResponse, *, has_body: bool, keep: bool, version: str) -> None:
        date = _http_date(int(self._server.clock.time()))
        head = response.encode_head(date=date, keep=keep, version=version)
        body = response.body if has_body and response.may_have_body else b""
        if len(body) <= _READ:
            self._sock.sendall(head + body)
            return
        # Two writes: joined, each slow reader of one large body would hold a copy of it.
        self._sock.sendall(head)
        self._sock.sendall(body)

    def _send_pieces(self, pieces: Iterator[bytes]) -> None:
        """Send the pieces of a body as they come; its end is that of the connection."""
        server, limit = self._server, min(_PIECE_SECONDS, self._server.limits.write_timeout)
        while True:
            server.enter(self, "handling", None)
            try:
                piece = next(pieces, None)
            except Exception:
                _log.exception("the answer for %s broke off", self.path)
                piece = None
            server.enter(self, "writing", limit)
            if piece is None:
                return
            self._sock.sendall(piece)

    def _refuse(self, refused: RequestRefused) -> None:
        response = text_response(refused.status, f"{refused.status} {refused}")
        self._server.enter(self, "writing", self._server.limits.write_timeout)
        self._send(response, has_body=True, keep=False, version="HTTP/1.1")
        self._linger()

    def _linger(self) -> None:
        """Read on for a moment: a close with unread bytes resets the connection and its answer."""
        self._shutdown(socket.SHUT_WR)
        self._server.enter(self, "writing", _LINGER_SECONDS)
        left = _LINGER_BYTES
        while left > 0 and (data := socket.socket.recv(self._raw, _READ)):
            left -= len(data)

    def _shutdown(self, how: int) -> None:
        # Not SSLSocket's own, which drops the session that another thread reads from.
        try:
            socket.socket.shutdown(self._raw, how)
        except OSError:  # the client was faster
            return
