"""One HTTP/1.1 connection: how it is made, used by one thread, and cut by any other."""

from __future__ import annotations

import contextlib
import io
import select
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

import attrs

from appsdk_operator.client._config import ClientConfig
from appsdk_operator.client._credentials import Credentials
from appsdk_operator.client._proxy import Proxy, proxy_for
from appsdk_operator.client._tls import TLSContexts, trusting
from appsdk_operator.client._tls_stream import ByteStream, TLSStream
from appsdk_operator.client._transport_errors import (
    BadResponse,
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    ProxyFailed,
    ReadTimeout,
    TLSFailed,
    tls_failure,
)

__all__ = ["Connection", "Endpoint"]

_MAX_PROXY_ANSWER = 65536


class Connection:
    """A connection to the API server.

    One thread at a time sends and reads; :meth:`abort` may be called by any other and makes that
    thread's next, or present, call end.
    """

    def __init__(self, sock: socket.socket, generation: int) -> None:
        self._socket = sock
        self._stream: ByteStream = sock
        # Re-entrant, because a signal handler may cut or close the connection in the very thread
        # that is doing it. Whoever comes second finds the socket shut down, closed, or marked as
        # closed; none of these does harm.
        self._lock = threading.RLock()
        self._closed = False
        self.aborted = False
        """Whether somebody cut the connection."""
        self.generation = generation
        """Which TLS certificates it was made with."""
        self.requests = 0
        """How many requests were sent on it."""
        self.idle_since = 0.0

    def connect(self, address: Any) -> None:
        """Connect to a resolved address."""
        self._socket.connect(address)
        _keep_alive(self._socket)

    def speak_tls(self, context: ssl.SSLContext, server_name: str) -> None:
        """Put TLS on top of what is there."""
        self._stream = TLSStream(self._stream, context, server_name)

    def exchange(self, head: bytes, body: bytes | None, *, method: str) -> HTTPResponse:
        """Send a request and read the head of its answer.

        Raises:
            ConnectionLost: the connection broke.
            ReadTimeout: no answer in time.
            BadResponse: the answer is not HTTP.
        """
        self.requests += 1
        broken: OSError | None = None
        try:
            self.send(head, body)
        except TimeoutError as error:
            raise ReadTimeout("the request could not be sent in time") from error
        except OSError as error:
            # A server that refuses a body closes before it was read; its answer may be here.
            broken = error
        response = HTTPResponse(_Source(self._stream), method=method)  # type: ignore[arg-type]
        try:
            response.begin()
        except TimeoutError as error:
            response.close()
            raise ReadTimeout("no answer in time") from error
        except (OSError, HTTPException, ValueError) as error:
            response.close()
            if isinstance(error, ssl.SSLError):
                # In TLS 1.3 a server refuses our certificate when we think the handshake is over.
                raise TLSFailed(str(tls_failure("the server", error)), sent=True) from error
            if isinstance(error, OSError):
                raise ConnectionLost(_reason(broken or error)) from (broken or error)
            raise BadResponse(f"not an HTTP answer: {error!r}") from error
        return response

    def send(self, head: bytes, body: bytes | None) -> None:
        """Send bytes; small bodies travel in the packet of their head."""
        if body is not None and len(body) > 65536:
            self._stream.sendall(head)
            self._stream.sendall(body)
        else:
            self._stream.sendall(head + (body or b""))

    def receive(self, limit: int) -> bytes:
        """Raw bytes, before any answer was read on this connection."""
        return self._stream.recv(limit)

    def set_timeout(self, seconds: float | None) -> None:
        """How long each send and each read may take."""
        with contextlib.suppress(OSError):
            self._socket.settimeout(seconds)

    def is_stale(self) -> bool:
        """Whether the server has closed the idle connection, or sent what nobody asked for."""
        try:
            poll = select.poll()
            poll.register(self._socket, select.POLLIN | select.POLLHUP | select.POLLERR)
            return bool(poll.poll(0))
        except (OSError, ValueError):
            return True

    def abort(self) -> None:
        """Cut the connection, so that a thread that waits on it wakes. From any thread, and from a
        signal handler."""
        self.aborted = True
        with self._lock:
            if not self._closed:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket; harmless when it is closed."""
        with self._lock:
            self._closed = True
            self._socket.close()


class _Source:
    """What http.client takes for a socket."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    def makefile(self, mode: str) -> io.BufferedReader[Any]:  # noqa: ARG002 - always "rb"
        return _Reader(self._stream.makefile("rb", buffering=0), 16384)


class _Reader(io.BufferedReader):
    """A reader for which a line that the end of the connection cuts off is an error.

    http.client takes the end for the end of the head, and would give us half an answer as a whole.
    """

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(size)
        if not line.endswith(b"\n") and (size is None or size < 0 or len(line) < size):
            raise ConnectionResetError(
                "the answer broke off"
                if line
                else "the server closed the connection without an answer"
            )
        return line


def _reason(error: Exception) -> str:
    return str(error).strip("'") or "the server closed the connection without an answer"


@attrs.frozen
class Endpoint:
    """An API server, as connections to it are made."""

    scheme: str
    host: str
    port: int
    prefix: str
    """The path before the API, without a slash at its end."""
    server_name: str
    """The name in the server's certificate."""
    proxy: Proxy | None
    connect_timeout: float
    read_timeout: float
    contexts: TLSContexts | None
    connector: Callable[[], Any] | None = None
    """Makes what is used instead of connections on sockets."""

    @classmethod
    def of(cls, config: ClientConfig, credentials: Credentials) -> Endpoint:
        """The endpoint that a configuration names."""
        parts = urlsplit(config.server)
        host = parts.hostname or ""
        return cls(
            scheme=parts.scheme,
            host=host,
            port=parts.port or (443 if parts.scheme == "https" else 80),
            prefix=parts.path.rstrip("/"),
            server_name=config.tls_server_name or host,
            proxy=proxy_for(host, config.proxy_url, config.no_proxy),
            connect_timeout=config.connect_timeout,
            read_timeout=config.read_timeout,
            contexts=TLSContexts(config, credentials) if parts.scheme == "https" else None,
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

    @property
    def generation(self) -> int:
        """Counts the certificates used; connections made with former ones are not used again.

        Raises:
            ConfigError: there are none yet, and those that are given cannot be used.
        """
        if self.contexts is None:
            return 0
        self.contexts.get()
        return self.contexts.generation

    def head(self, method: str, target: str, headers: Sequence[tuple[str, str]]) -> bytes:
        """The head of a request, as this server or its proxy wants it."""
        target = self.prefix + target
        lines = [("Host", self.authority), *headers]
        if self.proxy and self.scheme == "http":
            target = f"http://{self.authority}{target}"
            if self.proxy.authorization:
                lines.append(("Proxy-Authorization", self.proxy.authorization))
        return http_head(f"{method} {target} HTTP/1.1", lines)

    def connect(self, started: Callable[[Connection], object]) -> Connection:
        """A new connection, through the proxy and with TLS where these are asked for.

        Args:
            started: called with each connection that is tried before it can block, so that it can
                be cut. (The resolver of the system cannot be.)

        Raises:
            ConnectFailed: no connection; :class:`TLSFailed` and :class:`ProxyFailed` are two
                reasons that have a remedy of their own.
            ConfigError: a certificate cannot be used.
        """
        if self.connector is not None:
            made: Connection = self.connector()
            started(made)
            made.set_timeout(self.read_timeout)
            return made
        context = self.contexts.get() if self.contexts else None
        connection = self._open(started)
        try:
            if self.proxy is not None:
                self._through_proxy(connection, self.proxy)
            if context is not None:
                _handshake(connection, context, self.server_name, str(self))
            connection.set_timeout(self.read_timeout)
        except BaseException:
            connection.close()
            raise
        return connection

    def _open(self, started: Callable[[Connection], object]) -> Connection:
        host, port = (self.proxy.host, self.proxy.port) if self.proxy else (self.host, self.port)
        what = f"the proxy {self.proxy}" if self.proxy else str(self)
        failed = ProxyFailed if self.proxy else ConnectFailed
        try:
            addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise failed(
                f"the name of {what} cannot be resolved: {_reason(error)}; check its spelling and "
                "the resolver of this machine"
            ) from error
        last: OSError = OSError("the name has no address")
        for family, kind, protocol, _, address in addresses:
            connection = Connection(socket.socket(family, kind, protocol), self.generation)
            try:
                connection.set_timeout(self.connect_timeout)
                started(connection)
                connection.connect(address)
            except OSError as error:
                connection.close()
                last = error
                if connection.aborted:
                    break
            else:
                return connection
        if isinstance(last, TimeoutError):
            raise failed(
                f"no connection to {what} in {self.connect_timeout:g} s: check the address, and "
                "that no firewall drops the packets"
            ) from last
        raise failed(
            f"no connection to {what}: {last.strerror or last}; check the address, and that it is "
            "running"
        ) from last

    def _through_proxy(self, connection: Connection, proxy: Proxy) -> None:
        if proxy.scheme == "https":
            _handshake(connection, trusting(), proxy.host, f"the proxy {proxy}")
        if self.scheme == "http":
            return
        headers = [("Host", self.authority)]
        if proxy.authorization:
            headers.append(("Proxy-Authorization", proxy.authorization))
        head = http_head(f"CONNECT {self.authority} HTTP/1.1", headers)
        try:
            connection.send(head, None)
            answer = b""
            while b"\r\n\r\n" not in answer:
                data = connection.receive(4096)
                answer += data
                if not data or len(answer) > _MAX_PROXY_ANSWER:
                    raise ProxyFailed(f"the proxy {proxy} gave no proper answer to CONNECT")
        except OSError as error:
            raise ProxyFailed(f"the proxy {proxy} failed: {_reason(error)}") from error
        status = answer.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        if len(status) < 2 or status[1] != "200":
            remedy = (
                "give user and password in proxy_url"
                if status[1:2] == ["407"]
                else "check that it allows this server, or put the server into no_proxy"
            )
            raise ProxyFailed(
                f"the proxy {proxy} refused the way to {self.authority}: "
                f"{' '.join(status[1:])!r}; {remedy}"
            )


def _handshake(
    connection: Connection, context: ssl.SSLContext, server_name: str, peer: str
) -> None:
    try:
        connection.speak_tls(context, server_name)
    except ssl.SSLError as error:
        raise tls_failure(peer, error) from error
    except TimeoutError as error:
        raise ConnectFailed(f"{peer} did not finish the TLS handshake in time") from error
    except OSError as error:
        raise ConnectFailed(
            f"{peer} broke off the TLS handshake: {_reason(error)}; check that it speaks TLS"
        ) from error


def http_head(request_line: str, headers: Sequence[tuple[str, str]]) -> bytes:
    """The head of a request.

    Raises:
        ConfigError: a value would break out of its line. The text does not show it.
    """
    lines = [request_line]
    for name, value in headers:
        if "\r" in value or "\n" in value or "\r" in name or "\n" in name:
            raise ConfigError(f"the header {name!r} must be one line")
        lines.append(f"{name}: {value}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")


def _keep_alive(sock: socket.socket) -> None:
    """Have the kernel find out that the other side is gone, and send small requests at once."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Go's numbers, which client-go lives with: 30 s idle, then each 30 s. macOS lacks the first.
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 30), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
