"""Servers that stop leave no connection over TLS open, whatever its client does."""

from __future__ import annotations

import contextlib
import gc
import json
import socket
import ssl
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest

from appsdk_operator.apiserver import APIServer
from tests.apiserver.webhook_tools import WebhookServer

CLIENTS = 12
CLOSED = {
    "asks for it": (
        "POST /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    ),
    "is no HTTP": "hello\r\n\r\n",
}
"""Requests whose answer ends the connection."""


def address_of(server: APIServer | WebhookServer) -> tuple[str, int]:
    if isinstance(server, WebhookServer):
        return "127.0.0.1", server.port
    url = urlsplit(server.url)
    assert url.hostname is not None
    assert url.port is not None
    return url.hostname, url.port


def trusting() -> ssl.SSLContext:
    """The settings of a client that takes any certificate."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    return tls


def stop_when_connected(make: Callable[[], APIServer | WebhookServer], count: int) -> None:
    """Stop a server when so many clients are about to begin their handshakes."""
    tls = trusting()
    connected = threading.Semaphore(0)
    sockets: list[socket.socket] = []

    def connect(address: tuple[str, int]) -> None:
        with contextlib.suppress(OSError):
            # Wrapped first: Python leaves a connection open that is reset before it is wrapped.
            client = tls.wrap_socket(socket.socket(), do_handshake_on_connect=False)
            sockets.append(client)
            client.settimeout(60)
            client.connect(address)
            connected.release()
            client.do_handshake()

    with make() as server:
        arguments = (address_of(server),)
        threads = [threading.Thread(target=connect, args=arguments) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for _ in range(count):
            assert connected.acquire(timeout=60)
    for thread in threads:
        thread.join()
    for connection in sockets:
        connection.close()


@pytest.mark.parametrize("make", [WebhookServer, lambda: APIServer(tls=True)])
@pytest.mark.parametrize("request_of", CLOSED)
def test_a_connection_whose_client_does_not_close_ends_with_the_server(
    make: Callable[[], APIServer | WebhookServer], request_of: str
) -> None:
    """The server has said goodbye, and waits for that of the client."""
    body = json.dumps({"request": {"uid": "1"}, "apiVersion": "v1", "kind": "AdmissionReview"})
    with contextlib.ExitStack() as stack:
        with make() as server:
            address = address_of(server)
            plain = stack.enter_context(socket.create_connection(address, 60))
            client = stack.enter_context(trusting().wrap_socket(plain))
            client.sendall(CLOSED[request_of].format(body=body, length=len(body)).encode())
            while b"\r\n\r\n" not in (answer := client.recv(65536)):
                assert answer
        gc.collect()


@pytest.mark.stress
@pytest.mark.parametrize("make", [WebhookServer, lambda: APIServer(tls=True)])
def test_a_handshake_may_end_while_the_server_stops(
    make: Callable[[], APIServer | WebhookServer],
) -> None:
    for count in range(1, CLIENTS):
        stop_when_connected(make, count)
