"""Servers that stop while clients connect over TLS leave no connection open."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest

from appsdk_operator.apiserver import APIServer
from tests.apiserver.webhook_tools import WebhookServer

CLIENTS = 12


def address_of(server: APIServer | WebhookServer) -> tuple[str, int]:
    if isinstance(server, WebhookServer):
        return "127.0.0.1", server.port
    url = urlsplit(server.url)
    assert url.hostname is not None
    assert url.port is not None
    return url.hostname, url.port


def stop_when_connected(make: Callable[[], APIServer | WebhookServer], count: int) -> None:
    """Stop a server when so many clients are about to begin their handshakes."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    connected = threading.Semaphore(0)
    sockets: list[socket.socket] = []

    def connect(address: tuple[str, int]) -> None:
        with contextlib.suppress(OSError):
            plain = socket.create_connection(address, 60)
            sockets.append(plain)
            connected.release()
            sockets.append(tls.wrap_socket(plain))

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


@pytest.mark.stress
@pytest.mark.parametrize("make", [WebhookServer, lambda: APIServer(tls=True)])
def test_a_handshake_may_end_while_the_server_stops(
    make: Callable[[], APIServer | WebhookServer],
) -> None:
    for count in range(1, CLIENTS):
        stop_when_connected(make, count)
