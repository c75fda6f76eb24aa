"""Clients that smuggle requests or keep others out, and handlers that answer nonsense."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from appsdk_operator.manager import HTTPLimits, HTTPResponse
from appsdk_operator.runtime import ManualClock, StopSignal
from appsdk_operator.serving._connection import ServerConnection
from appsdk_operator.serving._request_parser import RequestRefused
from tests.manager.http_requests import make, parse_head, phases
from tests.manager.test_auth_filter import TOKEN, Reviewer, metrics_server

CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


def clog(connection: ServerConnection) -> None:
    """Have its client read nothing any more: whoever writes to it blocks until it is cut off."""
    cut, shutdown, sock = threading.Event(), connection._shutdown, connection._sock

    def watched(how: int) -> None:
        shutdown(how)
        if how == socket.SHUT_RDWR:
            cut.set()

    class Clogged:
        def sendall(self, data: bytes) -> None:
            assert cut.wait(20)
            raise BrokenPipeError

        def __getattr__(self, name: str) -> Any:
            return getattr(sock, name)

    connection._shutdown = watched  # type: ignore[method-assign]
    connection._sock = Clogged()  # type: ignore[assignment]


# -- messages that two parties could read in two ways ----------------------------------------------


@pytest.mark.parametrize(
    "rest",
    [
        b"2;a\nxx\r\nok\r\n0\r\n\r\n",  # to some, a bare line feed ends the extension
        b"2;a\rb\r\nok\r\n0\r\n\r\n",
        b" 2\r\nok\r\n0\r\n\r\n",
        b"2\r\nok\r\n0\r\nA: b\nGET /x HTTP/1.1\r\n\r\n",
        b"2\r\nok\r\n0\r\nno field\r\n\r\n",
    ],
)
def test_chunks_and_trailers_are_read_in_one_way_only(serve: Any, rest: bytes) -> None:
    assert serve(make()).talk(CHUNKED + rest).startswith(b"HTTP/1.1 400 ")


def test_the_authority_of_a_target_ends_where_its_query_begins() -> None:
    head = parse_head(b"GET http://a?/metrics HTTP/1.1\r\nHost: a")
    assert (head.path, head.query_string) == ("/", "/metrics")
    for target in (b"http:///metrics", b"/metrics#x", b"http://a#/metrics"):
        with pytest.raises(RequestRefused, match="malformed request"):
            parse_head(b"GET " + target + b" HTTP/1.1\r\nHost: a")


@pytest.mark.parametrize("status", [204, 304])
def test_answers_that_have_no_body_do_not_carry_one(serve: Any, status: int) -> None:
    server = make()
    server.add_handler("/none", lambda request: HTTPResponse(status=status, body=b"smuggled"))
    head = b" HTTP/1.1\r\nHost: a\r\nConnection: "
    last = b"GET /next" + head + b"close\r\n\r\n"
    data = serve(server).talk(b"GET /none" + head + b"keep-alive\r\n\r\n" + last)
    first, _, rest = data.partition(b"\r\n\r\n")
    assert first.startswith(b"HTTP/1.1 %d " % status)
    assert (b"Content-Length" in first) is (status == 304)
    assert rest.startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("name", ["content-length", "Transfer-Encoding", "DATE", "connection"])
def test_a_handler_cannot_give_the_servers_own_fields(name: str) -> None:
    with pytest.raises(ValueError, match="the server's own"):
        HTTPResponse(headers={name: "1"})
    with pytest.raises(ValueError, match="use content_type="):
        HTTPResponse(headers={"content-type": "text/html"})


def test_a_body_that_is_no_bytes_is_refused_where_it_is_made(serve: Any) -> None:
    server = make()
    server.add_handler("/text", lambda request: HTTPResponse(body="text"))  # type: ignore[arg-type]
    assert serve(server).get("/text").status == 500


def test_no_spelling_of_the_path_goes_round_the_filter(serve: Any) -> None:
    reviewer = Reviewer()
    served = serve(metrics_server(reviewer))
    for path in (
        "//metrics",
        "/metrics/",
        "/metrics%2F",
        "/x/../metrics",
        "/metrics%3F",
        "/METRICS",
    ):
        assert served.get(path, Authorization=f"Bearer {TOKEN}").status == 404
    reviewer.allowed = False
    for path in ("/metrics", "/%6detrics?a=b", "http://other/metrics"):
        assert served.get(path).status == 401
        assert served.get(path, Authorization=f"Bearer {TOKEN}").status == 403
    both = f"GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKEN}\r\n".encode()
    data = served.talk(both + b"Connection: close\r\nauthorization: Bearer other\r\n\r\n")
    assert data.startswith(b"HTTP/1.1 401 ")
    assert [spec["nonResourceAttributes"]["path"] for spec in reviewer.specs if "user" in spec] == [
        "/metrics"
    ]


# -- clients that hold a connection-----------------------------------------------------------------


def test_a_client_that_does_not_read_100_continue_is_cut_off(
    serve: Any, eventually: Callable[..., None]
) -> None:
    clock = ManualClock()
    server = make(clock=clock)
    served = serve(server)
    with served.connect() as client:
        eventually(lambda: len(server._pool) == 1)
        (connection,) = server._pool._connections
        clog(connection)
        head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n"
        client.sendall(head + b"Expect: 100-continue\r\n\r\n")
        eventually(lambda: phases(server) != ["waiting"])
        for _ in range(3):
            clock.advance(60.0)
        eventually(lambda: not len(server._pool))


def test_an_evicted_client_has_a_second_to_read_its_answer(
    serve: Any, eventually: Callable[..., None]
) -> None:
    clock = ManualClock()
    server = make(limits=HTTPLimits(max_connections=1), clock=clock)
    served = serve(server)
    with contextlib.ExitStack() as exits:
        slow = exits.enter_context(served.connect())
        slow.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf")
        eventually(lambda: phases(server) == ["reading"])
        (connection,) = server._pool._connections
        clog(connection)
        client = exits.enter_context(served.connect())
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        clock.block_until_waiting(2)
        clock.advance(1.0)
        eventually(lambda: phases(server) == ["writing"])
        clock.block_until_waiting(1)
        clock.advance(1.0)
        assert client.recv(65536).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("sends_slowly", [True, False])
def test_slow_senders_and_slow_readers_are_evicted_for_new_connections(
    serve: Any, eventually: Callable[..., None], sends_slowly: bool
) -> None:
    clock = ManualClock()
    server = make(limits=HTTPLimits(max_connections=2), clock=clock)
    server.add_handler("/big", lambda request: HTTPResponse(body=bytes(64 << 20)))
    served = serve(server)
    slow = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf"
    data, phase = (
        (slow, "reading") if sends_slowly else (b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n", "writing")
    )
    with contextlib.ExitStack() as exits:
        for _ in range(2):
            exits.enter_context(served.connect()).sendall(data)
        eventually(lambda: phases(server) == [phase, phase])
        client = exits.enter_context(served.connect())
        client.sendall(b"GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        # Not at once: they may be as fast as anybody.
        clock.block_until_waiting(2)
        assert phases(server) == [phase, phase]
        clock.advance(1.0)
        assert client.recv(65536).startswith(b"HTTP/1.1 200 OK")


def test_limits_hold_also_while_the_server_stops(
    serve: Any, eventually: Callable[..., None]
) -> None:
    clock = ManualClock()
    server = make(clock=clock, shutdown_timeout=60.0)
    served = serve(server)
    with served.connect() as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf")
        eventually(lambda: phases(server) == ["reading"])
        served.stop.set()
        eventually(lambda: server._pool._is_draining)
        clock.block_until_waiting(1)
        clock.advance(32.0)
        assert client.recv(65536).startswith(b"HTTP/1.1 408 ")
        served.end()


def test_the_thread_that_watches_deadlines_lives_as_long_as_there_are_connections(
    serve: Any, eventually: Callable[..., None]
) -> None:
    def watching() -> list[str]:
        return [t.name for t in threading.enumerate() if t.name.endswith("/deadlines")]

    server = make()
    served = serve(server)
    assert not watching()
    for _ in range(2):
        with served.connect() as first:
            with served.connect() as second:
                eventually(lambda: len(server._pool) == 2)
                assert len(watching()) == 1
                second.close()
            eventually(lambda: len(server._pool) == 1)
            assert len(watching()) == 1
            first.close()
        eventually(lambda: not watching())
        assert not server._pool.is_watched
    served.end()


def test_ctrl_c_in_the_servers_thread_leaves_no_thread_behind() -> None:
    server = make()
    before = threading.active_count()

    def interrupted(stop: StopSignal) -> bool:
        if server._pool._connections:
            raise KeyboardInterrupt
        return True

    server._pool.wait_for_capacity = interrupted  # type: ignore[method-assign]
    address = "127.0.0.1", server.port
    with socket.create_connection(address, timeout=10), socket.create_connection(address):
        with pytest.raises(KeyboardInterrupt):
            server.run(StopSignal())
        assert threading.active_count() <= before
