"""HTTP/1.1 connections: one thread sends and reads, any other thread may cut them."""

from __future__ import annotations

import contextlib
import io
import math
import os
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final
from urllib.parse import urlsplit

import msgspec

from appsdk_operator.client._auth.config import ClientConfig
from appsdk_operator.client._auth.credentials import Credential
from appsdk_operator.client._errors import (
    BadResponse,
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    ProxyFailed,
    ReadTimeout,
    ResponseTooLarge,
    TLSFailed,
    is_late,
)
from appsdk_operator.client._redaction import redacted
from appsdk_operator.client._transport.proxy import Proxy, proxy_for
from appsdk_operator.client._transport.response_head import (
    Framing,
    Head,
    Headers,
    end_of_head,
    framing_of,
    parse_head,
)
from appsdk_operator.client._transport.tls import TLSContexts, tls_failure, verifying_context
from appsdk_operator.client._transport.tls_stream import TLSStream, ascii_name
from appsdk_operator.runtime import after_fork, counted, system_clock
from appsdk_operator.runtime.chunked import ChunkedBody, StreamFormatError

_HEAD_READ = 32768
_READ = 1 << 18
_MAX_SINGLE_SEND = 65536
# Less than the room of a socket that polls as writable.
_SEND_SIZE = 16384
# Seconds, for the last addresses of a process that was paused meanwhile.
_LEAST_CONNECT = 0.1
# Servers send few interim answers (100, 102, 103).
_MAX_INTERIM = 16
# Socket time-outs run on the machine's clock.
_now = system_clock.monotonic


class _TimedSocket:
    """A socket with a time-out for each read and write, and a deadline for all of them."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.recv: Callable[[int], bytes] = sock.recv
        """The socket's own method without a deadline, so that streams pay no extra call."""
        self._limit: float | None = None
        self._deadline = math.inf

    def set_limits(self, each: float | None, deadline: float | None = None) -> None:
        """Set the seconds for each read and write, and the deadline for all of them."""
        self._limit = each
        self._deadline = math.inf if deadline is None else deadline
        self.recv = self.socket.recv if deadline is None else self._recv_in_time
        with contextlib.suppress(OSError):
            self.socket.settimeout(each)

    def sendall(self, data: bytes, /) -> None:
        self._apply_deadline()
        self.socket.sendall(data)

    def wait(self, events: int) -> int:
        """Wait for one of these poll events, or for the end of the connection.

        Raises:
            TimeoutError: none came in time.
        """
        poll = select.poll()
        poll.register(self.socket, events)
        found = poll.poll(1000.0 * self._apply_deadline())
        if not found:
            raise TimeoutError("the server accepts no data")
        return found[0][1]

    def _recv_in_time(self, limit: int) -> bytes:
        self._apply_deadline()
        return self.socket.recv(limit)

    def _apply_deadline(self) -> float:
        """Set and return the seconds that the next read or write may take."""
        left = self._deadline - _now()
        if left <= 0:
            raise TimeoutError("it is too late")
        left = min(left, math.inf if self._limit is None else self._limit)
        self.socket.settimeout(None if left == math.inf else left)
        return left


class Connection:
    """A connection to the API server.

    One thread at a time sends and reads; :meth:`abort`, from any thread, ends its present or next
    call. The child of a fork drops the connection without closing it on the server, because it is
    the parent's.
    """

    def __init__(
        self,
        sock: socket.socket,
        generation: int,
        *,
        read_timeout: float = 30.0,
        request_timeout: float = 300.0,
    ) -> None:
        self._socket = _TimedSocket(sock)
        self._stream: _TimedSocket | TLSStream = self._socket
        # Re-entrant: a signal handler may cut or close the connection in the thread that is doing
        # so. The second call finds the socket shut down or closed, which does no harm.
        self._lock = threading.RLock()
        self._closed = False
        self._read_timeout = read_timeout
        self._request_timeout = request_timeout
        self._unread = b""
        """Bytes that were received but not consumed yet."""
        self.aborted: bool = False
        """Whether :meth:`abort` was called."""
        self.inherited: bool = False
        """Whether it belongs to the parent of this process."""
        self.generation = generation
        """The generation of the TLS certificates that it was made with."""
        self.requests: int = 0
        """The number of requests sent on it."""
        self.idle_since: float = 0.0
        after_fork(self._on_fork)

    def connect(self, address: Any) -> None:
        """Connect to a resolved address."""
        self._socket.socket.connect(address)
        _keep_alive(self._socket.socket)

    def start_tls(self, context: ssl.SSLContext, server_name: str) -> None:
        """Start TLS, on top of a proxy's TLS if there is one."""
        self._stream = TLSStream(self._stream, context, server_name)

    def exchange(self, head: bytes, body: bytes | None, *, method: str) -> Response:
        """Send a request and read the head of its answer.

        Raises:
            ConnectionLost: the connection broke.
            ReadTimeout: no answer in time.
            BadResponse: the answer is not HTTP.
        """
        self.requests += 1
        deadline = _now() + self._request_timeout
        self._socket.set_limits(self._read_timeout, deadline)
        broken: OSError | None = None
        try:
            self._send_request(head, body)
        except OSError as error:
            # A server that refuses a body closes the connection early; its answer may have come.
            broken = error
        if broken is not None and not (self._unread or self._is_readable()):
            if is_late(broken):
                raise ReadTimeout("the request could not be sent in time") from broken
            raise ConnectionLost(_reason(broken)) from broken
        # Each read has its time-out; this deadline is for a head that comes byte by byte.
        head_deadline = min(deadline, _now() + self._read_timeout)
        self._socket.set_limits(self._read_timeout, head_deadline)
        try:
            answer = self._read_head()
            framing = framing_of(answer, method)
        except ssl.SSLError as error:
            # In TLS 1.3 a server may refuse the client's certificate after the handshake.
            raise TLSFailed(str(tls_failure("the server", error)), sent=True) from error
        except OSError as error:
            if is_late(error):
                raise ReadTimeout("no answer in time") from error
            raise ConnectionLost(_reason(broken or error)) from (broken or error)
        except StreamFormatError as error:
            # No cause: neither text nor traceback may show credentials that the server echoed.
            raise BadResponse(f"not an HTTP answer: {redacted(str(error))}") from None
        self._socket.set_limits(self._read_timeout, deadline)
        if broken is not None:
            framing = msgspec.structs.replace(framing, closes=True)
        return Response(self, answer, framing)

    def tunnel(self, head: bytes) -> Head:
        """Ask a proxy for a tunnel, through which everything later is sent.

        Raises:
            OSError: the connection broke, or there was no answer in time.
            StreamFormatError: the answer is not HTTP.
        """
        self._stream.sendall(head)
        answer = self._read_head()
        if self._unread:
            raise StreamFormatError("the server sent more than one answer")
        return answer

    def receive(self, limit: int) -> bytes:
        """The next bytes of the answer; none at the end of the connection."""
        if self._unread:
            data, self._unread = self._unread[:limit], self._unread[limit:]
            return data
        return self._stream.recv(limit)

    def push_back(self, data: bytes) -> None:
        """Put back bytes that are not part of this answer."""
        self._unread = data + self._unread

    def reader(self) -> Callable[[int], bytes]:
        """The cheapest function that reads a stream, to which the connection then belongs."""
        stream = self._stream
        if isinstance(stream, TLSStream):
            rest: Callable[[int], bytes] = io.BufferedReader(stream.makefile(), 16384).read1
        else:
            rest = stream.recv
        if not self._unread:
            return rest
        return lambda limit: self.receive(limit) if self._unread else rest(limit)

    def set_timeout(self, seconds: float | None) -> None:
        """Set the seconds for each send and each read, and remove the deadline."""
        self._socket.set_limits(seconds)

    def set_deadline(self, seconds: float) -> None:
        """Set a deadline of ``seconds`` from now for all sends and reads."""
        self._socket.set_limits(seconds, _now() + seconds)

    def is_stale(self) -> bool:
        """Whether the server has closed the idle connection, or sent bytes without a request."""
        try:
            if self._unread or (isinstance(self._stream, TLSStream) and self._stream.pending()):
                return True
            return self._is_readable()
        except (OSError, ValueError):
            return True

    def abort(self) -> None:
        """Cut the connection and wake the thread that waits on it. Safe from any thread and from a
        signal handler."""
        self.aborted = True
        with self._lock:
            if not self._closed:
                with contextlib.suppress(OSError):
                    self._socket.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket; calling it twice is harmless."""
        with self._lock:
            self._closed = True
            self._socket.socket.close()

    def _on_fork(self) -> None:
        # Close this process' descriptor alone: neither TLS nor TCP sends anything.
        self._lock = threading.RLock()
        self.inherited = self.aborted = True
        if not self._closed:
            self._closed = True
            with contextlib.suppress(OSError):
                os.close(self._socket.socket.detach())

    def _is_readable(self) -> bool:
        poll = select.poll()
        poll.register(self._socket.socket, select.POLLIN | select.POLLHUP | select.POLLERR)
        return bool(poll.poll(0))

    def _send_request(self, head: bytes, body: bytes | None) -> None:
        """Send a small body together with its head, and a large one until an answer comes."""
        if body is None or len(body) <= _MAX_SINGLE_SEND:
            self._stream.sendall(head + (body or b""))
            return
        self._stream.sendall(head)
        view = memoryview(body)
        while view:
            events = self._socket.wait(select.POLLOUT | select.POLLIN)
            if events & ~select.POLLOUT and self._has_early_answer():
                raise ConnectionResetError("the server answered before it had read the request")
            if events & select.POLLOUT:
                self._stream.sendall(bytes(view[:_SEND_SIZE]))
                view = view[_SEND_SIZE:]

    def _has_early_answer(self) -> bool:
        """Whether the final answer begins before the request is sent."""
        data = (
            self._stream.recv_now(_HEAD_READ)
            if isinstance(self._stream, TLSStream)
            else (self._stream.recv(_HEAD_READ))
        )
        if data is None:
            return False  # TLS' own records only
        self._unread += data
        if not data:
            return True
        try:
            while end := end_of_head(self._unread, 0):
                if parse_head(self._unread[:end]).status >= 200:
                    return True
                self._unread = self._unread[end:]
        except StreamFormatError:
            return True  # reading the head raises it
        return False

    def _read_head(self) -> Head:
        """Read the head of the final answer; interim ones (1xx) are skipped."""
        for _ in range(_MAX_INTERIM + 1):
            data, searched = self._unread, 0
            self._unread = b""
            while not (data and (end := end_of_head(data, searched))):
                searched = len(data)
                more = self._stream.recv(_HEAD_READ)
                if not more:
                    raise ConnectionResetError(
                        "the answer broke off"
                        if data
                        else "the server closed the connection without an answer"
                    )
                data += more
            head, self._unread = parse_head(data[:end]), data[end:]
            if head.status == 101:
                raise StreamFormatError("it changes the protocol, which was not asked for")
            if head.status >= 200:
                return head
        raise StreamFormatError(f"more than {_MAX_INTERIM} interim answers came before it")


@final
class Response:
    """An answer with its head read and its body unread."""

    def __init__(self, connection: Connection, head: Head, framing: Framing) -> None:
        """The answer that comes next on ``connection``."""
        self.status: int = head.status
        self.headers: Headers = head.headers
        self.length: int | None = framing.length
        """The bytes of the body; None: it is chunked, or ends with the connection."""
        self.chunked: bool = framing.chunked
        self.will_close: bool = framing.closes
        """Whether the connection cannot be used again."""
        self._connection = connection

    @property
    def read1(self) -> Callable[[int], bytes]:
        """The function that reads the raw body, transfer coding included, as it arrives."""
        return self._connection.reader()

    def read(self, limit: int) -> bytes:
        """The whole body.

        Raises:
            ResponseTooLarge: it has more than ``limit`` bytes.
            ConnectionLost: the connection ended before it.
            ReadTimeout: it did not come in time.
            BadResponse: it breaks the rules of its transfer coding.
        """
        try:
            return b"".join(self._chunked_body(limit) if self.chunked else self._plain_body(limit))
        except StreamFormatError as error:
            raise BadResponse(f"the answer breaks HTTP's rules: {redacted(str(error))}") from None
        except OSError as error:
            if is_late(error):
                raise ReadTimeout("the rest of the answer did not come in time") from error
            raise ConnectionLost(f"the answer broke off: {error}") from error

    def _plain_body(self, limit: int) -> Iterator[bytes]:
        left = self.length
        if left is not None and left > limit:
            raise ResponseTooLarge(f"the answer has {left} bytes, more than the {limit} allowed")
        while left is None or left:
            data = self._connection.receive(_READ if left is None else min(left, _READ))
            if left is not None:
                left -= len(data)
            limit -= len(data)
            if limit < 0:
                raise ResponseTooLarge("the answer has more bytes than allowed")
            if not data:
                if left:
                    raise ConnectionResetError(f"{counted(left, 'byte')} missing")
                return
            yield data

    def _chunked_body(self, limit: int) -> Iterator[bytes]:
        body = ChunkedBody(limit=limit)
        while not body.ended:
            data = self._connection.receive(_READ)
            if not data:
                raise ConnectionResetError("its last chunk is missing")
            yield from body.feed(data)
            if body.too_large:
                raise ResponseTooLarge(f"the answer has more than the {limit} bytes allowed")
        self._connection.push_back(body.rest)


def _reason(error: Exception) -> str:
    return str(error).strip("'") or "the server closed the connection without an answer"


class Endpoint(msgspec.Struct, frozen=True):
    """The address of an API server, and how to connect to it."""

    scheme: str
    host: str
    port: int
    prefix: str
    """The path in front of the API's paths, without a trailing slash."""
    server_name: str
    """The name in the server's certificate."""
    proxy: Proxy | None
    connect_timeout: float
    read_timeout: float
    request_timeout: float
    contexts: TLSContexts | None
    connector: Callable[[], Any] | None = None
    """Makes connections that use no sockets, for tests."""

    @classmethod
    def of(cls, config: ClientConfig) -> Endpoint:
        """The endpoint of a configuration."""
        parts = urlsplit(config.server)
        host = parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return cls(
            scheme=parts.scheme,
            host=host,
            port=port,
            prefix=parts.path.rstrip("/"),
            server_name=config.tls_server_name or host,
            proxy=proxy_for(host, config.proxy_url, config.no_proxy, port=port),
            connect_timeout=config.connect_timeout,
            read_timeout=config.read_timeout,
            request_timeout=config.request_timeout,
            contexts=TLSContexts(config) if parts.scheme == "https" else None,
            connector=config.connector,
        )

    @property
    def authority(self) -> str:
        """Host and port as in a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        through = f" through the proxy {self.proxy}" if self.proxy else ""
        return f"{self.scheme}://{self.authority}{through}"

    def generation(self, credential: Credential) -> int:
        """The number of the present TLS certificates; connections of former ones are not reused.

        Raises:
            ConfigError: the certificates cannot be used, and there are no former ones.
        """
        return 0 if self.contexts is None else self.contexts.numbered(credential.certificate)[0]

    def head(self, method: str, target: str, headers: Sequence[tuple[str, str]]) -> bytes:
        """The head of a request to this server, or to its proxy."""
        target = self.prefix + target
        lines = [("Host", self.authority), *headers]
        if self.proxy and self.scheme == "http":
            target = f"http://{self.authority}{target}"
            if self.proxy.authorization:
                lines.append(("Proxy-Authorization", self.proxy.authorization))
        return http_head(f"{method} {target} HTTP/1.1", lines)

    def connect(
        self, credential: Credential, started: Callable[[Connection], object]
    ) -> Connection:
        """Open a connection, through the proxy and with TLS if configured.

        Args:
            credential: has the certificate that is shown.
            started: called with each connection before it can block, so that it can be cut. (The
                system's name resolver cannot be interrupted.)

        Raises:
            ConnectFailed: no connection; :class:`TLSFailed` and :class:`ProxyFailed` are
                subclasses with their own remedies.
            ConfigError: a certificate cannot be used.
        """
        if self.connector is not None:
            made: Connection = self.connector()
            started(made)
            made.set_timeout(self.read_timeout)
            return made
        # Both at once: the files may change while the connection is made.
        generation, context = (
            self.contexts.numbered(credential.certificate) if self.contexts else (0, None)
        )
        connection = self._open(started, generation)
        try:
            if self.proxy is not None:
                self._connect_through_proxy(connection, self.proxy)
            if context is not None:
                connection.set_deadline(self.connect_timeout)
                _handshake(connection, context, self.server_name, str(self))
            connection.set_timeout(self.read_timeout)
        except BaseException:
            connection.close()
            raise
        return connection

    def _open(self, started: Callable[[Connection], object], generation: int) -> Connection:
        host, port = (self.proxy.host, self.proxy.port) if self.proxy else (self.host, self.port)
        what = f"the proxy {self.proxy}" if self.proxy else str(self)
        failed = ProxyFailed if self.proxy else ConnectFailed
        try:
            addresses = socket.getaddrinfo(ascii_name(host), port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise failed(
                f"the name of {what} cannot be resolved: {_reason(error)}; check its spelling and "
                "the resolver of this machine"
            ) from error
        last: OSError = OSError("the name has no address")
        deadline = _now() + self.connect_timeout
        for untried, (family, kind, protocol, _, address) in zip(
            range(len(addresses), 0, -1), addresses, strict=True
        ):
            try:
                sock = socket.socket(family, kind, protocol)
            except OSError as error:  # such as IPv6 where the machine has none
                last = error
                continue
            connection = Connection(
                sock,
                generation,
                read_timeout=self.read_timeout,
                request_timeout=self.request_timeout,
            )
            try:
                # As in Go, each has its share of the time that is left.
                connection.set_timeout(max(_LEAST_CONNECT, deadline - _now()) / untried)
                started(connection)
                connection.connect(address)
            except OSError as error:
                connection.close()
                last = error
                if connection.aborted:
                    break
            else:
                return connection
        if is_late(last):
            raise failed(
                f"no connection to {what} in {self.connect_timeout:g} s: check the address, and "
                "that no firewall drops the packets"
            ) from last
        raise failed(
            f"no connection to {what}: {last.strerror or last}; check the address, and that it is "
            "running"
        ) from last

    def _connect_through_proxy(self, connection: Connection, proxy: Proxy) -> None:
        connection.set_deadline(self.connect_timeout)
        if proxy.scheme == "https":
            _handshake(connection, verifying_context(), proxy.host, f"the proxy {proxy}")
        if self.scheme == "http":
            return
        headers = [("Host", self.authority)]
        if proxy.authorization:
            headers.append(("Proxy-Authorization", proxy.authorization))
        connection.set_deadline(self.connect_timeout)
        try:
            status = connection.tunnel(
                http_head(f"CONNECT {self.authority} HTTP/1.1", headers)
            ).status
        except StreamFormatError as error:
            raise ProxyFailed(
                f"the proxy {proxy} gave no proper answer to CONNECT: {redacted(str(error))}"
            ) from None
        except OSError as error:
            if is_late(error):
                raise ProxyFailed(
                    f"the proxy {proxy} gave no answer to CONNECT in {self.connect_timeout:g} s"
                ) from error
            raise ProxyFailed(f"the proxy {proxy} failed: {_reason(error)}") from error
        if not 200 <= status < 300:
            remedy = (
                "give user and password in proxy_url"
                if status == 407
                else "check that it allows this server, or put the server into no_proxy"
            )
            raise ProxyFailed(
                f"the proxy {proxy} refused the way to {self.authority} with {status}; {remedy}"
            )


def _handshake(
    connection: Connection, context: ssl.SSLContext, server_name: str, peer: str
) -> None:
    try:
        connection.start_tls(context, server_name)
    except OSError as error:
        if is_late(error):
            raise ConnectFailed(f"{peer} did not finish the TLS handshake in time") from error
        has_ended = isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError))
        if isinstance(error, ssl.SSLError) and not has_ended:
            raise tls_failure(peer, error) from error
        raise ConnectFailed(
            f"{peer} broke off the TLS handshake: {_reason(error)}; check that it speaks TLS"
        ) from error


def http_head(request_line: str, headers: Sequence[tuple[str, str]]) -> bytes:
    """The head of a request.

    Raises:
        ConfigError: a value contains a line break, or is not text. The error does not show it.
    """
    lines = [request_line]
    for name, value in headers:
        if "\r" in value or "\n" in value or "\r" in name or "\n" in name:
            raise ConfigError(f"the header {name!r} must be one line")
        lines.append(f"{name}: {value}")
    try:
        # As Go does. An API server reads the name of a user as UTF-8.
        return "\r\n".join([*lines, "", ""]).encode()
    except UnicodeEncodeError:
        pass  # not the cause of the error, since it has the whole text
    raise ConfigError("a header, or the path of a request, has lone surrogates, which are not text")


def _keep_alive(sock: socket.socket) -> None:
    """Turn on TCP keep-alive, and send small packets without delay."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Go's numbers, as in client-go: 30 s idle, then every 30 s. macOS lacks the first.
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 30), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
