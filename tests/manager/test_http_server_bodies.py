"""Bodies of many clients at once: their memory is bounded, and others are served."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from appsdk_operator.manager import HTTPLimits, HTTPRequest, HTTPResponse, HTTPServer
from tests.manager.conftest import read_all

POST = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
SIZE = 300_000
LIMITS = HTTPLimits(max_buffered_bytes=1_000_000)


def size_of(request: HTTPRequest) -> HTTPResponse:
    return HTTPResponse(body=str(len(request.body)).encode())


def make(handler: Any = size_of, **options: Any) -> HTTPServer:
    server = HTTPServer("127.0.0.1:0", name="pages", **{"limits": LIMITS, **options})
    server.add_handler("/", handler, is_prefix=True, methods=["POST"])
    return server


def held(server: HTTPServer) -> int:
    """Bytes that the server says it holds, which are those that its connections hold."""
    pool = server._pool
    with pool._changed:
        assert pool._held == sum(c.held for c in pool._connections)
        return pool._held


def begin(clients: contextlib.ExitStack, served: Any, head: bytes, size: int) -> socket.socket:
    """Send ``size`` bytes of a body."""
    client: socket.socket = clients.enter_context(served.connect())
    client.sendall(head + b"x" * size)
    return client


@pytest.mark.parametrize(
    ("head", "end"), [(POST % (SIZE + 1), b"y"), (CHUNKED + b"%x\r\n" % SIZE, b"\r\n0\r\n\r\n")]
)
def test_beyond_the_limit_the_body_that_has_taken_longest_is_refused(
    serve: Any, eventually: Callable[..., None], head: bytes, end: bytes
) -> None:
    served = serve(server := make())
    with contextlib.ExitStack() as clients:
        opened = []
        for number in range(1, 4):
            opened.append(begin(clients, served, head, SIZE))
            eventually(lambda n=number: held(server) >= n * SIZE)
        opened.append(begin(clients, served, head, SIZE))
        answer = read_all(opened[0])
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"too many large bodies at once: try again" in answer
        for client in opened[1:]:
            client.sendall(end)
            assert read_all(client).startswith(b"HTTP/1.1 200 ")
        eventually(lambda: held(server) == 0)


def test_small_requests_are_answered_while_large_ones_wait(
    serve: Any, eventually: Callable[..., None]
) -> None:
    served = serve(server := make())
    with contextlib.ExitStack() as clients:
        for number in range(1, 4):
            begin(clients, served, POST % (SIZE + 1), SIZE)
            eventually(lambda n=number: held(server) >= n * SIZE)
        for _ in range(20):
            assert served.talk(POST % 5 + b"hello").endswith(b"5")
    eventually(lambda: held(server) == 0)


def test_a_body_counts_until_it_is_answered(serve: Any, eventually: Callable[..., None]) -> None:
    entered, leave = threading.Semaphore(0), threading.Event()

    def slow(request: HTTPRequest) -> HTTPResponse:
        entered.release()
        assert leave.wait(20)
        return size_of(request)

    served = serve(server := make(slow))
    with contextlib.ExitStack() as clients:
        clients.callback(leave.set)
        handled = [begin(clients, served, POST % SIZE, SIZE) for _ in range(3)]
        for _ in handled:
            assert entered.acquire(timeout=20)
        # Nobody else may be refused in its place: it is under way.
        late = begin(clients, served, POST % SIZE, SIZE - 1)
        assert b"too many large bodies" in read_all(late)
        leave.set()
        for client in handled:
            assert read_all(client).endswith(b"\r\n\r\n300000")
        eventually(lambda: held(server) == 0)


def test_an_answered_body_is_not_counted_while_its_connection_waits(
    serve: Any, eventually: Callable[..., None]
) -> None:
    served = serve(server := make())
    with served.connect() as client:
        client.sendall((POST % SIZE).replace(b"Connection: close\r\n", b"") + b"x" * (SIZE - 1))
        eventually(lambda: held(server) == SIZE - 1)
        client.sendall(b"x")
        assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
        eventually(lambda: held(server) == 0)
        assert len(server._pool) == 1


def test_a_client_that_sends_on_without_an_end_is_refused_as_well(serve: Any) -> None:
    served = serve(make(limits=HTTPLimits(max_buffered_bytes=500_000, max_body_bytes=1 << 30)))
    with served.connect() as client:
        client.settimeout(2)
        client.sendall(CHUNKED)
        with contextlib.suppress(OSError):  # a reset, or nobody who reads any more
            for _ in range(10_000):
                client.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            pytest.fail("it reads on for ever")


def test_one_body_may_be_as_large_as_the_limit(serve: Any) -> None:
    served = serve(make())
    assert served.talk(POST % 1_000_000 + b"x" * 1_000_000).endswith(b"1000000")
    assert b" 408 " in served.talk(POST % 1_000_002 + b"x" * 1_000_001)
    with pytest.raises(ValueError, match="max_buffered_bytes=0: use more than 0"):
        HTTPLimits(max_buffered_bytes=0)
