"""Clients that send drop by drop or without an end: each part of a request has its own time."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from appsdk_operator.manager import (
    HTTPLimits,
    HTTPRequest,
    HTTPResponse,
    HTTPServer,
    TLSOptions,
)
from appsdk_operator.runtime import ManualClock
from tests.manager.conftest import read_all

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


def page(request: HTTPRequest) -> HTTPResponse:
    return HTTPResponse(body=b"ok")


def make(clock: ManualClock, **options: Any) -> HTTPServer:
    server = HTTPServer("127.0.0.1:0", name="pages", clock=clock, **options)
    server.add_handler("/", page, is_prefix=True, methods=["GET", "POST"])
    return server


def is_awaited(server: HTTPServer) -> bool:
    """Whether there is a connection whose time has begun."""
    return any(c.deadline is not None for c in list(server._pool._connections))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def drip(
    client: socket.socket,
    server: HTTPServer,
    clock: ManualClock,
    drops: Iterator[bytes],
    seconds: int,
    eventually: Callable[..., None],
) -> None:
    """Send a drop each second; each is read before the next one comes."""
    for _ in range(seconds):
        (connection,) = server._pool._connections
        before = connection.pending
        client.sendall(next(drops))
        eventually(lambda before=before, c=connection: c.pending != before)
        clock.advance(1.0)


def test_a_byte_a_second_does_not_make_the_headers_last(
    serve: Any, clock: ManualClock, eventually: Callable[..., None]
) -> None:
    server = make(clock)
    with serve(server).connect() as client:
        eventually(lambda: is_awaited(server))
        text = iter(bytes([byte]) for byte in b"GET /" + b"x" * 100)
        drip(client, server, clock, text, 32, eventually)
        assert read_all(client).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    "rest",
    [
        b"1;" + b"x" * 100,  # an extension of a chunk
        b"64\r\n" + b"x" * 100,
        b"0\r\n" + b"a: b\r\n" * 20,  # a trailer
    ],
)
def test_a_byte_a_second_does_not_make_a_body_last(
    serve: Any, clock: ManualClock, eventually: Callable[..., None], rest: bytes
) -> None:
    server = make(clock)
    with serve(server).connect() as client:
        client.sendall(CHUNKED)
        eventually(lambda: [c.phase for c in server._pool._connections] == ["reading"])
        for byte in rest[:32]:
            client.sendall(bytes([byte]))
            clock.advance(1.0)
        assert read_all(client).startswith(b"HTTP/1.1 408 ")


def test_trailers_without_an_end_are_refused(serve: Any, clock: ManualClock) -> None:
    with serve(make(clock)).connect() as client:
        client.sendall(CHUNKED + b"0\r\n" + b"a: b\r\n" * 1000)
        assert read_all(client).startswith(b"HTTP/1.1 431 ")


def test_empty_lines_without_an_end_are_no_request(
    serve: Any, clock: ManualClock, eventually: Callable[..., None]
) -> None:
    server = make(clock)
    with serve(server).connect() as client:
        eventually(lambda: is_awaited(server))
        for _ in range(32):
            client.sendall(b"\r\n")
            clock.advance(1.0)
        assert not read_all(client).startswith(b"HTTP/1.1 200 ")


def test_a_handshake_that_drips_has_the_time_of_the_headers(
    serve: Any, clock: ManualClock, eventually: Callable[..., None]
) -> None:
    server = make(clock, tls=TLSOptions())
    served = serve(server)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    hello = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        hello.do_handshake()
    data = outgoing.read()
    with served.connect() as client:
        eventually(lambda: is_awaited(server))
        for byte in data[:32]:
            client.sendall(bytes([byte]))
            clock.advance(1.0)
        eventually(lambda: not len(server._pool))
        assert b"HTTP/" not in read_all(client)


def test_a_reader_of_some_bytes_a_second_has_its_minute_and_no_more(
    serve: Any, clock: ManualClock, eventually: Callable[..., None]
) -> None:
    server = make(clock)
    server.add_handler("/large", lambda request: HTTPResponse(body=bytes(32 << 20)))
    with serve(server).connect() as client:
        client.sendall(GET.replace(b"/ ", b"/large "))
        eventually(lambda: [c.phase for c in server._pool._connections] == ["writing"])
        for _ in range(60):
            client.recv(1024)
            clock.advance(1.0)
        eventually(lambda: not len(server._pool))
        assert len(read_all(client)) < 32 << 20


def test_requests_that_are_not_read_are_not_answered_for_ever(
    serve: Any, clock: ManualClock, eventually: Callable[..., None]
) -> None:
    server = make(clock)
    server.add_handler("/large", lambda request: HTTPResponse(body=bytes(1 << 20)))
    with serve(server).connect() as client:
        client.sendall(GET.replace(b"/ ", b"/large ") * 1000)
        eventually(lambda: [c.phase for c in server._pool._connections] == ["writing"])
        pause = threading.Event()
        while len(server._pool):
            clock.advance(1.0)
            pause.wait(0.001)
        assert clock.monotonic() < 1000


def test_a_client_that_pipelines_requests_without_end_is_closed_for_a_new_connection(
    serve: Any, clock: ManualClock, eventually: Callable[..., None]
) -> None:
    server = make(clock, limits=HTTPLimits(max_connections=1))
    places = threading.Semaphore(0)
    answered: list[int] = []

    def slow(request: HTTPRequest) -> HTTPResponse:
        places.acquire(timeout=10)
        answered.append(1)
        return HTTPResponse(body=b"slow")

    server.add_handler("/slow", slow)
    served = serve(server)
    with served.connect() as hog:
        hog.sendall(GET.replace(b"/ ", b"/slow ") * 50)
        eventually(lambda: [c.phase for c in server._pool._connections] == ["handling"])
        with served.connect() as other:
            other.sendall(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            eventually(lambda: server._pool._needs_capacity)
            for _ in range(50):
                places.release()
            assert read_all(other).endswith(b"ok")
        assert len(answered) <= 2
