"""A server that answers as told, certificates, and a proxy: all on loopback, all real sockets."""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import json
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from appsdk_operator.client import Client, ClientConfig
from appsdk_operator.resource import Kind, Scope
from appsdk_operator.runtime import Metrics

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
GADGET = Kind(group="example.com", version="v1", kind="Gadget", scope=Scope.CLUSTER)


@attrs.frozen
class Received:
    """A request as the server got it."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    connection: int

    def header(self, name: str) -> str | None:
        for key, value in self.headers:
            if key.lower() == name.lower():
                return value
        return None

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def answer(
    body: Any = b"",
    status: int = 200,
    *,
    headers: dict[str, str] | None = None,
    close: bool = False,
) -> bytes:
    """A complete HTTP answer."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(raw)}"]
    lines += [f"{key}: {value}" for key, value in (headers or {}).items()]
    if close:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode() + raw


def failure(status: int, reason: str = "", message: str = "", **more: Any) -> bytes:
    """An answer with a Status."""
    headers = more.pop("headers", None)
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status}
    return answer({**body, "reason": reason, "message": message, **more}, status, headers=headers)


def widget(name: str = "a", namespace: str = "x", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name, "namespace": namespace, "resourceVersion": "1", **metadata},
    }


def page(*names: str, token: str = "", version: str = "7") -> bytes:
    meta = {"resourceVersion": version, "continue": token}
    return answer({"kind": "WidgetList", "metadata": meta, "items": [widget(n) for n in names]})


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(name: str = "a", kind: str = "ADDED") -> bytes:
    return (
        json.dumps({"type": kind, "object": widget(name)}, separators=(",", ":")).encode() + b"\n"
    )


Reply = bytes | Callable[[Any, Received], Any]


class Server:
    """Answers requests with prepared replies, in order; the last one is repeated.

    A reply is the bytes of an answer, or a function that gets the socket and the request; the
    connection stays open unless it returns False.
    """

    def __init__(self, *replies: Reply, context: ssl.SSLContext | None = None) -> None:
        self.replies = list(replies)
        self.requests: list[Received] = []
        self.arrived = threading.Condition()
        self.closing = threading.Event()
        self.released = threading.Event()
        self._context = context
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._count = 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        scheme = "https" if context else "http"
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self._start(self._accept)

    @property
    def connections(self) -> int:
        return self._count

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, name="test-server")
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                raw, _ = self.socket.accept()
            except OSError:
                return
            with self._lock:
                self._count += 1
                if self.closing.is_set():
                    raw.close()
                    return
                self._connections.append(raw)
            self._start(self._serve, raw, self._count)

    def _serve(self, raw: socket.socket, number: int) -> None:
        sock = raw
        try:
            if self._context is not None:
                sock = self._context.wrap_socket(
                    raw, server_side=True, do_handshake_on_connect=False
                )
                with self._lock:
                    self._connections.append(sock)
                try:
                    sock.do_handshake()
                except ssl.SSLError:
                    # Take what still comes: closing on it would reset the connection and drop
                    # the alert that was sent.
                    socket.socket.shutdown(sock, socket.SHUT_WR)
                    while socket.socket.recv(sock, 65536):
                        pass
                    return
            while (request := read_request(sock, number)) is not None:
                with self.arrived:
                    self.requests.append(request)
                    self.arrived.notify_all()
                with self._lock:
                    reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
                if callable(reply):
                    if reply(sock, request) is False:
                        break
                else:
                    sock.sendall(reply)
                    if b"Connection: close" in reply:
                        break
        except (OSError, ValueError):
            pass
        finally:
            sock.close()
            raw.close()

    def wait_for_requests(self, count: int) -> None:
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.requests) >= count, 10)

    def hang(self, sock: Any, request: Received) -> bool:
        """A reply that never comes."""
        self.released.wait(20)
        return False

    def close(self) -> None:
        self.closing.set()
        self.released.set()
        # Wakes accept(), which close() alone does not.
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        with self._lock:
            for sock in self._connections:
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for sock in self._connections:
            sock.close()


def read_request(sock: Any, number: int) -> Received | None:
    data = b""
    while b"\r\n\r\n" not in data:
        more = sock.recv(65536)
        if not more:
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    headers = [(k, v.strip()) for k, _, v in (line.partition(":") for line in lines)]
    length = next((int(v) for k, v in headers if k.lower() == "content-length"), 0)
    while len(body) < length:
        more = sock.recv(65536)
        if not more:
            return None
        body += more
    return Received(method, target, headers, body, number)


class ProxyServer(Server):
    """A proxy that tunnels CONNECT to where it is asked to, and remembers what it was asked."""

    def __init__(self, *, context: ssl.SSLContext | None = None) -> None:
        super().__init__(self._tunnel, context=context)

    def _tunnel(self, sock: Any, request: Received) -> bool:
        host, _, port = request.target.rpartition(":")
        with socket.create_connection((host, int(port))) as out:
            sock.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            both = {sock: out, out: sock}
            while not self.closing.is_set():
                ready = (
                    [sock]
                    if getattr(sock, "pending", int)()
                    else select.select([*both], [], [], 0.05)[0]
                )
                for source in ready:
                    data = source.recv(65536)
                    if not data:
                        return False
                    both[source].sendall(data)
        return False


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Make servers that are closed after the test."""
    servers: list[Server] = []

    def make(*replies: Reply, context: ssl.SSLContext | None = None) -> Server:
        servers.append(Server(*replies, context=context))
        return servers[-1]

    yield make
    for server in servers:
        server.close()


@pytest.fixture
def proxies() -> Iterator[Callable[..., ProxyServer]]:
    """Make proxies that are closed after the test."""
    made: list[ProxyServer] = []

    def make(*, context: ssl.SSLContext | None = None) -> ProxyServer:
        made.append(ProxyServer(context=context))
        return made[-1]

    yield make
    for proxy in made:
        proxy.close()


@pytest.fixture
def connect() -> Iterator[Callable[..., Client]]:
    """Make clients that are closed after the test; quick retries unless told otherwise."""
    clients: list[Client] = []

    def make(
        server: Server | str, *, clock: Any = None, metrics: Any = None, **options: Any
    ) -> Client:
        url = server if isinstance(server, str) else server.url
        options = {"retry_backoff": 0.0, "read_timeout": 5.0, **options}
        more = {"clock": clock} if clock is not None else {}
        client = Client(ClientConfig(server=url, **options), metrics=metrics or Metrics(), **more)
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()


@attrs.frozen
class Pair:
    """A certificate and its key, as PEM and as objects."""

    cert: bytes
    key: bytes
    certificate: Any = attrs.field(repr=False)
    private: Any = attrs.field(repr=False)

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        cert, key = folder / f"{name}.crt", folder / f"{name}.key"
        cert.write_bytes(self.cert)
        key.write_bytes(self.key)
        return cert, key


def make_pair(
    common_name: str,
    *,
    issuer: Pair | None = None,
    names: tuple[str, ...] = (),
    days: tuple[int, int] = (-1, 1),
) -> Pair:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + dt.timedelta(days=days[0]))
        .not_valid_after(now + dt.timedelta(days=days[1]))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if names:
        general = [
            x509.IPAddress(ipaddress.ip_address(n)) if n[0].isdigit() else x509.DNSName(n)
            for n in names
        ]
        builder = builder.add_extension(x509.SubjectAlternativeName(general), critical=False)
    certificate = builder.sign(issuer.private if issuer else private, hashes.SHA256())
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM),
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        certificate,
        private,
    )


@attrs.frozen
class Authority:
    """A CA, a server's pair and a client's pair that it signed."""

    ca: Pair
    server: Pair
    client: Pair
    folder: Path

    def server_context(
        self, *, ask_client: bool = False, pair: Pair | None = None
    ) -> ssl.SSLContext:
        cert, key = (pair or self.server).write(self.folder, "server")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        if ask_client:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=self.ca.cert.decode())
        return context


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    ca = make_pair("Test CA")
    return Authority(
        ca,
        make_pair("server", issuer=ca, names=("127.0.0.1", "api.test")),
        make_pair("jane", issuer=ca),
        tmp_path_factory.mktemp("certificates"),
    )
