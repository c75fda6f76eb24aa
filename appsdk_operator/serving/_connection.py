"""One connection of an HTTP server: requests in, responses out, each step within its time."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, final

import attrs

from appsdk_operator.runtime import Clock, StopSignal, get_logger
from appsdk_operator.serving._messages import (
    HTTPRequest,
    HTTPResponse,
    RequestHead,
    RequestRefused,
    parse_field,
    parse_head,
    text_response,
)

if TYPE_CHECKING:
    import ssl

__all__ = ["ConnectionPhase", "HTTPLimits", "ServerConnection"]

_log: Final = get_logger("appsdk_operator.manager")
_READ: Final = 65536
_LINGER_SECONDS: Final = 1.0
_LINGER_BYTES: Final = 1 << 20
_CHUNK_LINE: Final = 1024
_HANDSHAKE_RECORD: Final = b"\x16"

ConnectionPhase = Literal["waiting", "reading", "queued", "handling", "writing"]
"""``waiting``: nothing of a request has come, or not all of its headers; ``queued``: the request is
there, and too many of its sort are being answered."""


def _positive(_: object, attribute: attrs.Attribute[Any], value: float) -> None:
    if not value > 0:
        raise ValueError(f"{attribute.name}={value}: use more than 0")


@attrs.frozen(kw_only=True)
class HTTPLimits:
    """How much a client may ask of an :class:`HTTPServer`, and for how long.

    Sizes of headers and times are those of controller-runtime's servers; the others are ours.
    """

    max_connections: int = attrs.field(default=64, validator=_positive)
    """Connections at once, and threads. Beyond it the connection that has waited longest for a
    request is closed for a new one, or the next one that has its answer, or else one whose client
    has been sending a body or reading an answer for more than a second; when handlers are busy with
    all, new ones wait. Default 64."""
    max_header_bytes: int = attrs.field(default=1 << 20, validator=_positive)
    """Bytes of a request's line and headers together; more is answered with 431. Default 1 MiB."""
    max_body_bytes: int = attrs.field(default=1 << 20, validator=_positive)
    """Bytes of a request's body; more is answered with 413. Default 1 MiB."""
    header_timeout: float = attrs.field(default=32.0, validator=_positive)
    """Seconds for a TLS handshake and the headers, together; default 32."""
    body_timeout: float = attrs.field(default=32.0, validator=_positive)
    """Seconds for the body; default 32."""
    write_timeout: float = attrs.field(default=60.0, validator=_positive)
    """Seconds for the client to take a response; default 60."""
    idle_timeout: float = attrs.field(default=90.0, validator=_positive)
    """Seconds that a connection is kept between two requests; default 90."""


class ConnectionServer(Protocol):
    """What a connection asks of its server."""

    @property
    def limits(self) -> HTTPLimits:
        """What a client may ask."""
        ...

    @property
    def clock(self) -> Clock:
        """What tells the date."""
        ...

    def enter(
        self, connection: ServerConnection, phase: ConnectionPhase, seconds: float | None
    ) -> None:
        """Note what the connection does now, and within what time."""
        ...

    def server_context(self) -> ssl.SSLContext | None:
        """What to speak TLS with, None for plain HTTP."""
        ...

    def answer(self, request: HTTPRequest) -> HTTPResponse:
        """The response to a request; never raises."""
        ...


class _PeerClosed(Exception):  # noqa: N818 - not an error of ours
    """The other side closed, or was cut off."""


@final
class ServerConnection:
    """Serves one connection in the thread that calls :meth:`serve`.

    Other threads may cut it off with :meth:`expire`, which must not be called once it is closed.
    """

    def __init__(self, sock: socket.socket, peer: str, owner: ConnectionServer) -> None:
        self.phase: ConnectionPhase = "waiting"
        self.deadline: float | None = None
        self.since: float = 0.0
        self.is_expired: bool = False
        self.path: str = ""
        """What is being handled, for reports."""
        self.answers: int = 0
        """How many requests it has had answered."""
        self.turn: object = None
        """What its request has a turn of, until the answer is sent; see the pool."""
        self._raw = sock
        self._sock = sock
        self.peer = peer
        self._owner = owner
        self._buffer = bytearray()
        self._certificate: Mapping[str, Any] | None = None

    def expire(self) -> None:
        """Its time is up, or its place is wanted: whoever blocks in it wakes.

        What has arrived of a request is still answered, and nothing after it."""
        self.is_expired = True
        self._shutdown(socket.SHUT_RDWR if self.phase == "writing" else socket.SHUT_RD)

    def cut(self) -> None:
        """End it at once."""
        self.is_expired = True
        self._shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the socket back; nothing may be called after it."""
        self._sock.close()

    def serve(self, stop: StopSignal) -> None:
        """Serve requests until either side has enough; raises nothing that a client can cause."""
        limits = self._owner.limits
        try:
            self._owner.enter(self, "waiting", limits.header_timeout)
            if not self._begin():
                return
            while self._serve_one(stop) and not stop.is_set():
                if not self._buffer:
                    self._owner.enter(self, "waiting", limits.idle_timeout)
                    self._receive()
                self._owner.enter(self, "waiting", limits.header_timeout)
        except (_PeerClosed, OSError) as error:
            # Also ssl.SSLError: a client that does not trust us, or speaks no TLS we do.
            _log.debug("connection from %s ended: %r", self.peer, error)

    def _begin(self) -> bool:
        """Speak TLS if we do; False when the client does not."""
        context = self._owner.server_context()
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
        # wrap_socket took the descriptor over; its plain half still cuts off and drains.
        self._raw = secure
        if self.is_expired:  # in between, when neither could be shut down
            raise _PeerClosed
        secure.do_handshake()
        self._certificate = secure.getpeercert() or None
        return True

    # -- a request ---------------------------------------------------------------------------

    def _serve_one(self, stop: StopSignal) -> bool:
        """Serve a request; whether the connection stays."""
        try:
            head = self._head()
            if head is None:
                return False
            body = self._body(head)
        except RequestRefused as problem:
            self._refuse(problem)
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
        self.path = head.path
        self._owner.enter(self, "handling", None)
        response = self._owner.answer(request)
        stays = head.is_kept_alive and not stop.is_set() and not self.is_expired
        self._send(response, has_body=head.method != "HEAD", keep=stays, version=head.version)
        self.path = ""
        self.answers += 1
        return stays

    def _head(self) -> RequestHead | None:
        """The next request's head; None when there is to be none."""
        limit = self._owner.limits.max_header_bytes
        start = 0
        while (end := self._buffer.find(b"\r\n\r\n", start)) < 0:
            if len(self._buffer) > limit:
                raise RequestRefused(431, f"the headers are longer than {limit} bytes")
            if self._buffer[:2] == b"\r\n":  # some clients send one more after a body
                del self._buffer[:2]
                continue
            _check_line_ends(self._buffer, start)
            start = max(0, len(self._buffer) - 3)
            try:
                self._receive()
            except _PeerClosed:
                if not self._buffer:
                    return None
                text = f"no complete request in time ({self._owner.limits.header_timeout:g} s)"
                raise RequestRefused(408 if self.is_expired else 400, text) from None
        if end > limit:
            raise RequestRefused(431, f"the headers are longer than {limit} bytes")
        head = parse_head(bytes(self._buffer[:end]).removeprefix(b"\r\n"))
        del self._buffer[: end + 4]
        return head

    def _body(self, head: RequestHead) -> bytes:
        limit = self._owner.limits.max_body_bytes
        if not head.is_chunked and head.content_length == 0:
            return b""
        if not head.is_chunked and head.content_length > limit:
            raise _too_long(limit)
        limits = self._owner.limits
        if head.expects_continue:
            self._owner.enter(self, "writing", limits.write_timeout)
            self._sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._owner.enter(self, "reading", limits.body_timeout)
        try:
            if head.is_chunked:
                return self._chunks(limit)
            return self._take(head.content_length)
        except _PeerClosed:
            text = f"no complete body in time ({self._owner.limits.body_timeout:g} s)"
            raise RequestRefused(408 if self.is_expired else 400, text) from None

    def _chunks(self, limit: int) -> bytes:
        body = bytearray()
        while True:
            text, _, extension = self._line().partition(b";")
            text = text.rstrip(b" \t")
            # To lenient readers a bare line feed in an extension ends it, and begins another chunk.
            if b"\r" in extension or b"\n" in extension:
                raise RequestRefused(400, "malformed chunk")
            if not text or len(text) > 15 or not set(text) <= set(b"0123456789abcdefABCDEF"):
                raise RequestRefused(400, "malformed chunk")
            size = int(text, 16)
            if len(body) + size > limit:
                raise _too_long(limit)
            if not size:
                break
            body += self._take(size)
            if self._take(2) != b"\r\n":
                raise RequestRefused(400, "malformed chunk")
        trailer = 0
        while line := self._line():
            parse_field(line)
            trailer += len(line)
            if trailer > _CHUNK_LINE:
                raise RequestRefused(431, "the trailer is too long")
        return bytes(body)

    def _line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n")) < 0:
            if len(self._buffer) > _CHUNK_LINE:
                raise RequestRefused(400, "malformed chunk")
            self._receive()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._receive()
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def _receive(self) -> None:
        data = self._sock.recv(_READ)
        if not data:
            raise _PeerClosed
        self._buffer += data

    # -- a response --------------------------------------------------------------------------

    def _send(self, response: HTTPResponse, *, has_body: bool, keep: bool, version: str) -> None:
        self._owner.enter(self, "writing", self._owner.limits.write_timeout)
        import email.utils  # as slow to import as all else here together

        date = email.utils.formatdate(self._owner.clock.time(), usegmt=True)
        head = response.encode_head(date=date, keep=keep, version=version)
        body = response.body if has_body and response.may_have_body else b""
        if len(body) <= _READ:
            self._sock.sendall(head + body)
            return
        # Apart: many slow readers of one large body hold it once, and not a copy each.
        self._sock.sendall(head)
        self._sock.sendall(body)

    def _refuse(self, problem: RequestRefused) -> None:
        response = text_response(problem.status, f"{problem.status} {problem}")
        self._send(response, has_body=True, keep=False, version="HTTP/1.1")
        self._linger()

    def _linger(self) -> None:
        """Read on for a moment: to close with unread bytes would take the answer back."""
        self._shutdown(socket.SHUT_WR)
        self._owner.enter(self, "writing", _LINGER_SECONDS)
        left = _LINGER_BYTES
        while left > 0 and (data := socket.socket.recv(self._raw, _READ)):
            left -= len(data)

    def _shutdown(self, how: int) -> None:
        # Not SSLSocket's own, which forgets the session that another thread is reading from.
        try:
            socket.socket.shutdown(self._raw, how)
        except OSError:  # the other side was faster
            return


def _check_line_ends(data: bytearray, start: int) -> None:
    """Refuse bare line feeds at once, lest their sender wait for the time-out."""
    at = data.find(b"\n", start)
    while at >= 0:
        if at == 0 or data[at - 1] != 0x0D:
            raise RequestRefused(400, "lines end with CR LF")
        at = data.find(b"\n", at + 1)


def _too_long(limit: int) -> RequestRefused:
    return RequestRefused(413, f"the body is longer than {limit} bytes")
