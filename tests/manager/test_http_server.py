"""The HTTP server: what it answers, what it refuses, what it bounds, and how it ends."""

from __future__ import annotations

import contextlib
import email.utils
import http.client
import itertools
import logging
import math
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appsdk_operator.manager import HTTPLimits, HTTPRequest, HTTPResponse, HTTPServer
from appsdk_operator.runtime import ManualClock, StopSignal
from appsdk_operator.serving._addresses import listen, parse_address
from appsdk_operator.serving._connection import _http_date
from appsdk_operator.serving._messages import Headers
from appsdk_operator.serving._request_parser import RequestParser, RequestRefused
from tests.manager.conftest import read_all
from tests.manager.http_requests import echo, make, parse_all, parse_head

HALF = b"GET /slow HTTP/1.1\r\nHost: a\r\n"
BOTH_LENGTHS = (
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
)
WHOLE = HALF + b"\r\n"


# -- answers ---------------------------------------------------------------------------------------


def test_the_exact_path_goes_before_the_longest_prefix(serve: Any) -> None:
    server = HTTPServer("127.0.0.1:0")
    for path in ("/a", "/a/b"):
        server.add_handler(path, lambda r, p=path: HTTPResponse(body=p.encode()), is_prefix=True)
    server.add_handler("/a/b/c", lambda r: HTTPResponse(body=b"exact"))
    served = serve(server)
    assert served.get("/a").text == "/a"
    assert served.get("/a/x").text == "/a"
    assert served.get("/a/b/x?q=1").text == "/a/b"
    assert served.get("/a/b/c").text == "exact"
    assert (served.get("/ab").status, served.get("/").status) == (404, 404)
    assert served.get("/a/b/c/").text == "/a/b"
    assert served.get("/a%2Fb").text == "/a/b"


@given(st.integers(0, 4_000_000_000))
def test_dates_are_those_of_the_standard_library(seconds: int) -> None:
    assert _http_date(seconds) == email.utils.formatdate(seconds, usegmt=True)


def test_a_handler_sees_the_whole_request(serve: Any) -> None:
    seen: list[HTTPRequest] = []

    def handle(request: HTTPRequest) -> HTTPResponse:
        seen.append(request)
        return HTTPResponse(status=201, content_type="application/json", headers={"X-Own": "1"})

    server = HTTPServer("127.0.0.1:0")
    server.add_handler("/ü", handle, methods=["POST"])
    answer = serve(server).get("/%C3%BC?a=1&a=2&b", "POST", b"body", X_Token="secret")
    assert (answer.status, answer.headers["x-own"]) == (201, "1")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["date"].endswith("GMT")
    (request,) = seen
    assert (request.method, request.path, request.body) == ("POST", "/ü", b"body")
    assert request.query == {"a": ["1", "2"], "b": [""]}
    assert request.headers["x-TOKEN"] == "secret"
    assert request.peer == "127.0.0.1"
    assert "secret" not in repr(request) + repr(request.headers)
    assert "body" not in repr(request)


def test_a_connection_serves_many_requests_also_when_they_are_sent_at_once(serve: Any) -> None:
    served = serve(make())
    connection = http.client.HTTPConnection(*served.host_and_port, timeout=10)
    with contextlib.closing(connection):
        for path in ("/1", "/2", "/3"):
            connection.request("GET", path)
            assert connection.getresponse().read().decode() == f"GET {path} "
        assert served.part._accepted == 1
    last = b"GET /5 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    data = served.talk(b"GET /4 HTTP/1.1\r\nHost: a\r\n\r\n\r\n" + last)
    assert data.count(b"HTTP/1.1 200 OK") == 2
    assert data.endswith(b"GET /5 ")
    assert data.count(b"Connection: close") == 1


def test_http_1_0_closes_unless_it_asks_to_stay(serve: Any) -> None:
    served = serve(make())
    assert b"Connection: close" in served.talk(b"GET / HTTP/1.0\r\n\r\n")
    stays = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
    data = served.talk(stays + b"GET / HTTP/1.0\r\n\r\n")
    assert data.count(b"200 OK") == 2
    assert data.count(b"Connection: keep-alive") == 1


def test_head_is_answered_without_the_body(serve: Any) -> None:
    served = serve(make())
    data = served.talk(b"HEAD /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert b"Content-Length: 8\r\n" in data
    assert data.endswith(b"\r\n\r\n")


def test_a_method_that_is_not_handled_is_answered_with_those_that_are(serve: Any) -> None:
    server = HTTPServer("127.0.0.1:0")
    server.add_handler("/metrics", echo)
    served = serve(server)
    answer = served.get("/metrics", "POST", b"x")
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
    assert served.get("/metrics", "BREW").status == 405
    assert served.get("/other", "BREW").status == 404


@pytest.mark.parametrize("error", [ValueError("the password is x"), SystemExit(3)])
def test_a_handler_that_raises_is_logged_and_tells_the_client_nothing(
    serve: Any, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(request: HTTPRequest) -> HTTPResponse:
        raise error

    server = make()
    server.add_handler("/broken", broken)
    server.add_handler("/none", lambda request: None)  # type: ignore[arg-type, return-value]
    served = serve(server)
    with caplog.at_level(logging.ERROR):
        for path in ("/broken", "/none"):
            answer = served.get(path)
            assert (answer.status, answer.text) == (500, "500 internal server error\n")
    assert served.get("/well").status == 200
    assert repr(error) in caplog.text or str(error) in caplog.text
    assert "handler of /none returned no HTTPResponse" in caplog.text


def test_bodies_come_in_chunks_and_after_100_continue(serve: Any) -> None:
    served = serve(make())
    head = b"POST /c HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
    chunks = b"5;x=y\r\nhello\r\n1\r\n!\r\n0\r\nTrailer: t\r\n\r\n"
    data = served.talk(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
    assert data.endswith(b"POST /c hello!")
    with served.connect() as client:
        client.sendall(head + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"ok")
        data = b""
        while more := client.recv(65536):
            data += more
    assert data.endswith(b"POST /c ok")


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x00\xff\r\n\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET / HTTP/1.1 x\r\nHost: a\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"G(T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /%ff HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        (b"GET / HTTPS/1\r\nHost: a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nHost: a\n\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\n folded: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nSpace : x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nNul: \x00\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1_0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx", 400),
        (BOTH_LENGTHS, 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 2000, 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n", 413),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 5000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 500_000, 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"x:\r\n" * 1001 + b"\r\n", 431),
    ],
)
def test_malformed_and_oversized_requests_are_refused_and_the_connection_closed(
    serve: Any, data: bytes, status: int
) -> None:
    limits = HTTPLimits(max_header_bytes=4096 if b"x:\r\n" not in data else 1 << 20)
    limits = HTTPLimits(max_header_bytes=limits.max_header_bytes, max_body_bytes=1000)
    answer = serve(make(limits=limits)).talk(data)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"Connection: close\r\n" in answer
    assert answer.count(b"\r\nContent-Length: ") == 1


def test_targets_in_absolute_form_are_understood() -> None:
    head = parse_head(b"GET http://a:1/b?c HTTP/1.1\r\nHost: a")
    assert (head.path, head.query_string) == ("/b", "c")
    assert parse_head(b"GET http://a HTTP/1.1\r\nHost: a").path == "/"
    assert parse_head(b"OPTIONS * HTTP/1.1\r\nHost: a").path == "*"


@given(st.one_of(st.binary(), st.binary().map(lambda b: b"GET / HTTP/1.1\r\nHost: a\r\n" + b)))
@settings(deadline=None)
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    parser = RequestParser(HTTPLimits())
    parser.receive_data(data + b"\r\n\r\n")
    status, head = 0, None
    try:
        head = parser.read_head()
    except RequestRefused as refused:
        status = refused.status
    if head is None:
        is_empty = not data.replace(b"\r\n", b"")
        assert (status, is_empty) in [(0, True), *((s, False) for s in (400, 431, 501, 505))]
        return
    assert head.method
    assert head.content_length >= 0
    assert all("\n" not in value and "\r" not in value for value in head.headers.values())


HEAD = b"POST /a?b HTTP/1.1\r\nHost: a\r\n"
PARTS = st.sampled_from(
    [
        b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /2 HTTP/1.0\r\n\r\n",
        HEAD + b"Content-Length: 3\r\n\r\n\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n",
        b"3;x\r\n\n\r\n\r\n",
        b"1\r\nx\r\n",
        b"0\r\n",
        b"A: b\r\n",
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b";",
        b":",
        b"\0",
        b"Content-Length: 1\r\n",
    ]
)


@given(st.lists(PARTS | st.binary(max_size=3), max_size=12), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_requests_do_not_depend_on_how_the_network_splits_them(
    parts: list[bytes], random: Any
) -> None:
    data = b"".join(parts)
    cuts = sorted(random.randrange(len(data) + 1) for _ in range(random.randrange(8)))
    pieces = [data[a:b] for a, b in itertools.pairwise([0, *cuts, len(data)])]
    single = [data[at : at + 1] for at in range(len(data))]
    found = [list(_accepted(each)) for each in ([data], pieces, single)]
    assert found[0] == found[1] == found[2]
    assert {each for each in found[0] if isinstance(each, int)} <= {400, 413, 431, 501, 505}


def _accepted(pieces: list[bytes]) -> Iterator[Any]:
    try:
        for head, body in parse_all(pieces):
            yield head.method, head.path, head.query_string, dict(head.headers), body
    except RequestRefused as refused:
        yield refused.status


@pytest.mark.parametrize(
    "rest",
    [
        b"Host: b\r\n",
        b"X: a\nTransfer-Encoding: chunked\r\n",
        b"X: a\rTransfer-Encoding: chunked\r\n",
        b"X: a\r\n Content-Length: 5\r\n",
        b"Content-Length: 5, 5\r\n",
        b"Content-Length: +5\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length : 5\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Transfer-Encoding:\x0bchunked\r\n",
        b"Transfer-Encoding\0: chunked\r\n",
    ],
)
def test_heads_that_two_parties_could_read_in_two_ways_are_refused(rest: bytes) -> None:
    data = HEAD + rest + b"\r\n5\r\nGET /\r\n0\r\n\r\n"
    for pieces in ([data], [data[at : at + 1] for at in range(len(data))]):
        with pytest.raises(RequestRefused) as caught:
            next(parse_all(pieces))
        assert caught.value.status in {400, 501}


@pytest.mark.parametrize(
    ("data", "status", "text"),
    [
        (b"GET /\r\n\r\n", 400, "malformed request line"),
        (b"GET /#a HTTP/1.1\r\nHost: a\r\n\r\n", 400, "malformed request line"),
        (b"GET / HTTP/1.\r\n\r\n", 400, "malformed HTTP version"),
        (b"GET / HTTP/3\r\n\r\n", 505, "HTTP/1.1 is spoken here"),
        (b"GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400, "malformed request target"),
        (b"GET / HTTP/1.1\nHost: a\r\n", 400, "lines end with CR LF"),
        (HEAD + b"X: a\nb\r\n\r\n", 400, "malformed header field"),
        (HEAD + b"X : a\r\n\r\n", 400, "malformed header field"),
        (HEAD + b"Host: a\r\n\r\n", 400, "exactly one Host header is required"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "exactly one Host header is required"),
        (HEAD + b"Content-Length: 1, 1\r\n\r\n", 400, "malformed Content-Length"),
        (HEAD + b"Content-Length: 1\r\n" * 2 + b"\r\n", 400, "malformed Content-Length"),
        (
            HEAD + b"Content-Length: 1\r\nTransfer-Encoding: gzip\r\n\r\n",
            400,
            "Transfer-Encoding does not go with Content-Length or HTTP/1.0",
        ),
        (
            HEAD + b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\n",
            501,
            "the only transfer encoding is chunked",
        ),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nabc", 400, "malformed chunk"),
        (
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * 16 + b"\r\n",
            400,
            "malformed chunk",
        ),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nx\r\n", 400, "malformed header field"),
    ],
)
def test_refusals_say_what_is_wrong(data: bytes, status: int, text: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        next(parse_all([data]))
    assert (caught.value.status, str(caught.value)) == (status, text)


def test_a_response_cannot_smuggle_header_lines() -> None:
    for options in (
        {"content_type": "a\r\nb: c"},
        {"headers": {"a": "b\r\nc: d"}},
        {"headers": {"a b": "c"}},
        {"status": 100},
    ):
        with pytest.raises(ValueError, match=r"line break|name of a header|final HTTP status"):
            HTTPResponse(**options)  # type: ignore[arg-type]
    assert len(Headers([("A", "1"), ("a", "2")])) == 1


@pytest.mark.parametrize("name", [a.name for a in HTTPLimits.__attrs_attrs__])  # type: ignore[attr-defined]
def test_limits_are_more_than_nothing(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}=0: use more than 0"):
        HTTPLimits(**{name: 0})


def test_handlers_that_cannot_be_reached_are_refused() -> None:
    server = make()
    with contextlib.closing(server):
        with pytest.raises(ValueError, match="does not begin with a slash"):
            server.add_handler("x", echo)
        with pytest.raises(ValueError, match="has a handler already"):
            server.add_handler("/", echo)
        with pytest.raises(TypeError, match="cannot be called"):
            server.add_handler("/x", None)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="name at least one"):
            server.add_handler("/x", echo, methods="GET")


# -- the address -----------------------------------------------------------------------------------


def test_a_taken_port_is_an_error_at_construction_that_says_what_to_do() -> None:
    server = make()
    with contextlib.closing(server):
        with pytest.raises(OSError, match="already in use: another server listens") as caught:
            HTTPServer(server.address, name="metrics")
        assert f"the metrics server cannot listen on {server.address}" in str(caught.value)
    HTTPServer(server.address).close()


def test_addresses_that_cannot_be_are_refused() -> None:
    for address in ("", "8080", "localhost", "host:", "::1:80", "[::1]", "a:99999", "a b:1"):
        with pytest.raises(ValueError, match="is not an address: write host:port"):
            parse_address(address)
    with pytest.raises(OSError, match=r"192\.0\.2\.1:0: .*: this machine has no such address"):
        HTTPServer("192.0.2.1:0")
    with pytest.raises(OSError, match="check the host's name"):
        HTTPServer("no-such-host.invalid:0")


def test_ipv6_and_all_addresses_are_served(serve: Any) -> None:
    try:
        server = HTTPServer("[::1]:0")
    except OSError:
        pytest.skip("this machine has no IPv6")
    server.add_handler("/", echo)
    assert server.address == f"[::1]:{server.port}"
    assert serve(server).get("/").status == 200
    everywhere = make_on(":0")
    served = serve(everywhere)
    for host in ("127.0.0.1", "::1"):
        with socket.create_connection((host, everywhere.port), timeout=10) as client:
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert read_all(client).endswith(b"GET / ")
    assert served.thread.is_alive()


def make_on(address: str) -> HTTPServer:
    server = HTTPServer(address)
    server.add_handler("/", echo)
    return server


# -- the end ---------------------------------------------------------------------------------------


def test_a_server_runs_once_and_says_so() -> None:
    stop = StopSignal()
    stop.set()
    server = make()
    assert not server.needs_leader_election
    assert repr(server) == f"<pages server on {server.address}>"
    server.run(stop)
    server.close()
    server.close()
    with pytest.raises(RuntimeError, match="ran before or was closed"):
        server.run(stop)
    closed = make(only_serve_when_leader=True)
    assert closed.needs_leader_election
    closed.close()
    with pytest.raises(RuntimeError, match="ran before or was closed"):
        closed.run(stop)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", closed.port))
    for seconds in (-1, math.inf):
        with pytest.raises(ValueError, match=f"shutdown_timeout={seconds}: use"):
            make(shutdown_timeout=seconds)


def test_with_a_delay_a_stopped_server_answers_and_closes_each_connection_after_it(
    serve: Any, eventually: Callable[..., None]
) -> None:
    clock = ManualClock()
    served = serve(make(clock=clock, shutdown_delay=5.0))
    with served.connect() as idle:
        idle.sendall(WHOLE)
        assert b"close" not in idle.recv(65536).lower()
        served.stop.set()
        eventually(lambda: served.part.is_closing)
        # The idle connection may send one more request, and new ones are accepted.
        for connection in (idle, served.connect()):
            connection.sendall(WHOLE)
            answer = b""
            while more := connection.recv(65536):
                answer += more
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert b"connection: close" in answer.lower()
            connection.close()
    assert served.thread.is_alive()
    # Its wait begins before that of the connection pool, or after it.
    while served.thread.is_alive():
        clock.advance(5.0)
        served.thread.join(0.01)
    with pytest.raises(ConnectionRefusedError):
        served.connect()
    with pytest.raises(ValueError, match="shutdown_delay=-1"):
        make(shutdown_delay=-1)


def test_a_server_with_a_delay_that_fails_ends_at_once(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make(shutdown_delay=1000.0)

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(server, "_accept_one", broken)
    served = serve(server)
    with contextlib.suppress(ConnectionError):  # it may end before the connection is closed
        served.connect().close()
    served.thread.join(20)
    assert not served.thread.is_alive()
    assert [str(error) for error in served.raised] == ["a bug"]
    served.raised.clear()


def test_a_stop_ends_idle_connections_at_once_and_lets_requests_finish(serve: Any) -> None:
    entered, leave = threading.Event(), threading.Event()
    stops: list[StopSignal] = []

    def busy(request: HTTPRequest) -> HTTPResponse:
        stops.append(request.stop)
        entered.set()
        leave.wait(10)
        return HTTPResponse(body=b"finished")

    server = make()
    server.add_handler("/busy", busy)
    served = serve(server)
    with served.connect() as idle, served.connect() as half, served.connect() as client:
        idle.sendall(WHOLE)
        assert idle.recv(65536)
        half.sendall(HALF)
        client.sendall(b"GET /busy HTTP/1.1\r\nHost: a\r\n\r\n")
        assert entered.wait(10)
        server.close()  # as its stop signal does
        server.close()
        assert idle.recv(1) == b""
        assert read_all(half).startswith(b"HTTP/1.1 408 ")
        assert stops[0].wait(10)
        leave.set()
        answer = read_all(client)
    assert answer.endswith(b"finished")
    assert b"Connection: close" in answer
    served.end()
    with pytest.raises(ConnectionRefusedError):
        served.connect()


def test_a_handler_that_does_not_end_is_named(eventually: Callable[..., None]) -> None:
    entered, leave = threading.Event(), threading.Event()

    def hanging(request: HTTPRequest) -> HTTPResponse:
        entered.set()
        leave.wait(30)
        return HTTPResponse()

    clock = ManualClock()
    server = make(shutdown_timeout=3.0, clock=clock)
    server.add_handler("/hang", hanging)
    errors: list[BaseException] = []
    stop = StopSignal()

    def run() -> None:
        try:
            server.run(stop)
        except TimeoutError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\n")
        assert entered.wait(10)
        stop.set()
        eventually(lambda: server._pool._is_draining and clock.next_deadline() == 3.0)
        assert thread.is_alive()
        clock.advance(3.0)
        thread.join(10)
    leave.set()
    assert "the pages server still handles /hang 3 s after its stop" in str(errors[0])
    assert "request.stop" in str(errors[0])


# -- handlers with a time limit --------------------------------------------------------------------


def test_the_answer_of_a_late_handler_is_dropped(
    serve: Any, eventually: Callable[..., None]
) -> None:
    begun, go, late, release, closed = (threading.Event() for _ in range(5))

    class Pieces:
        def __iter__(self) -> Any:
            return self

        def __next__(self) -> bytes:
            return b"mine"

        def close(self) -> None:
            closed.set()

    class Limits:
        def body_limit(self, path: str, /) -> int:
            return 10

        def time_limit(self, request: HTTPRequest, /) -> float | None:
            return 5.0

        def timed_out(self, request: HTTPRequest, /) -> HTTPResponse:
            late.set()
            release.wait(20)
            return HTTPResponse(status=500, body=b"late")

    def slow(request: HTTPRequest) -> HTTPResponse:
        begun.set()
        go.wait(20)
        return HTTPResponse(stream=Pieces())

    clock = ManualClock()
    server = HTTPServer("127.0.0.1:0", clock=clock)
    server.add_handler("/slow", slow, limits=Limits())
    served = serve(server)
    with served.connect() as client:
        client.sendall(WHOLE)
        assert begun.wait(20)
        clock.advance(5.0)
        assert late.wait(20)
        [connection] = server._pool._connections
        go.set()
        eventually(lambda: connection.phase == "writing")
        release.set()
        answer = read_all(client)
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert answer.endswith(b"\r\n\r\nlate")
    assert answer.count(b"HTTP/1.1") == 1
    assert closed.wait(20)


def test_a_request_that_is_complete_when_the_server_stops_keeps_its_time_limit(serve: Any) -> None:
    class Limits:
        def body_limit(self, path: str, /) -> int:
            return 10

        def time_limit(self, request: HTTPRequest, /) -> float | None:
            server._pool.close_idle()
            return 5.0

        def timed_out(self, request: HTTPRequest, /) -> HTTPResponse:
            raise AssertionError("it is not late")

    def slow(request: HTTPRequest) -> HTTPResponse:
        [connection] = server._pool._connections
        return HTTPResponse(body=f"{connection.is_expired} {connection.deadline}".encode())

    server = HTTPServer("127.0.0.1:0", clock=ManualClock())
    server.add_handler("/slow", slow, limits=Limits())
    assert serve(server).talk(WHOLE).endswith(b"\r\n\r\nTrue 5.0")


def test_a_handler_that_has_claimed_its_answer_gives_it_though_its_time_is_up_by_then(
    serve: Any, eventually: Any
) -> None:
    class Limits:
        def body_limit(self, path: str, /) -> int:
            return 10

        def time_limit(self, request: HTTPRequest, /) -> float | None:
            return 5.0

        def timed_out(self, request: HTTPRequest, /) -> HTTPResponse:
            raise AssertionError("the handler's answer is on its way")

    def last_moment(request: HTTPRequest) -> HTTPResponse:
        assert request.claim_answer("handler")
        [connection] = server._pool._connections
        clock.advance(5.0)
        eventually(lambda: connection.deadline is None)
        return HTTPResponse(body=b"in time")

    clock = ManualClock()
    server = HTTPServer("127.0.0.1:0", clock=clock)
    server.add_handler("/slow", last_moment, limits=Limits())
    asked = b"GET /slow HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    assert serve(server).talk(asked).endswith(b"\r\n\r\nin time")


@pytest.mark.stress
def test_whoever_claims_an_answer_first_keeps_it() -> None:
    request = HTTPRequest(method="GET", path="/")
    barrier = threading.Barrier(8)
    found: list[tuple[str, bool]] = []

    def claim(by: Any) -> None:
        barrier.wait(20)
        found.extend((by, request.claim_answer(by)) for _ in range(3))

    for _ in range(50):
        request = HTTPRequest(method="GET", path="/")
        found.clear()
        threads = [
            threading.Thread(target=claim, args=(by,)) for by in ("handler", "time limit") * 4
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        winner = {by for by, has_it in found if has_it}
        assert len(winner) == 1
        assert all(has_it is (by in winner) for by, has_it in found)


# -- requests, as h11 reads them -------------------------------------------------------------------

names = st.sampled_from(["Host", "host", "Accept", "X-a", "Content-Length", "Expect", "Connection"])
values = st.sampled_from(
    ["a", "", " a ", "\ta\t", "7", "07", "100-continue", "a, 100-Continue", "close", "a\xe9\xa0"]
)
lines = st.lists(st.tuples(names, values), max_size=5)
targets = st.sampled_from(["/", "/a?b=c", "/%41", "*", "http://a/b", "/a!$&'()*+,;=:@"])


@given(
    method=st.sampled_from(["GET", "POST", "M-SEARCH"]),
    target=targets,
    version=st.sampled_from(["1.1", "1.0"]),
    fields=lines,
)
def test_a_head_that_is_accepted_is_read_as_h11_reads_it(
    method: str, target: str, version: str, fields: list[tuple[str, str]]
) -> None:
    text = f"{method} {target} HTTP/{version}\r\n"
    data = (text + "\r\n".join(f"{n}:{v}" for n, v in fields)).encode("latin-1")
    try:
        head = parse_head(data.removesuffix(b"\r\n"))
    except RequestRefused:
        return
    peer = h11.Connection(h11.SERVER)
    peer.receive_data(data.removesuffix(b"\r\n") + b"\r\n\r\n")
    event = peer.next_event()
    assert isinstance(event, h11.Request)
    assert (head.method, head.version) == (event.method.decode(), f"HTTP/{version}")
    read = [(name.decode(), value.decode("latin-1")) for name, value in event.headers]
    assert dict(head.headers) == dict(Headers(read))
    assert head.expects_continue == peer.they_are_waiting_for_100_continue
    framed = peer.next_event()
    assert isinstance(framed, h11.EndOfMessage) is not head.has_body


@given(
    st.lists(
        st.sampled_from([b"3\r\nabc\r\n", b"0\r\n", b"1 ;x=y\r\na\r\n", b"a: b\r\n", b"\r\n"])
        | st.sampled_from([b"2", b"\r", b"\n", b";", b" ", b"x", b"0" * 300])
    )
)
@settings(deadline=None)
def test_a_body_in_chunks_that_is_accepted_is_read_as_h11_reads_it(parts: list[bytes]) -> None:
    data = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(parts)
    parser = RequestParser(HTTPLimits())
    parser.receive_data(data)
    assert parser.read_head() is not None
    body = None
    with contextlib.suppress(RequestRefused):
        body = parser.read_body()
    if body is None:
        return
    peer, read = h11.Connection(h11.SERVER), b""
    peer.receive_data(data)
    assert isinstance(peer.next_event(), h11.Request)
    try:
        while isinstance(event := peer.next_event(), h11.Data):
            read += event.data
    except h11.RemoteProtocolError as refused:
        assert re.search(r"[ \t];", str(refused)) is not None  # noqa: PT017 - RFC 9112 allows it
        return
    assert isinstance(event, h11.EndOfMessage)
    assert body == read
    assert len(peer.trailing_data[0]) == parser.pending


def test_a_server_takes_a_socket_that_the_process_was_started_with() -> None:
    with socket.create_server(("127.0.0.1", 0)) as inherited:
        address = f"fd:{inherited.fileno()}"
        assert parse_address(address) == inherited.getsockname()
        with listen(address, "metrics server") as listener:
            assert listener.getsockname() == inherited.getsockname()
        with socket.create_connection(inherited.getsockname()):
            pass  # it still listens


def test_an_inherited_socket_that_cannot_serve_is_refused() -> None:
    first, second = socket.socketpair()
    with first, second, socket.socket() as silent:
        for number in (first.fileno(), silent.fileno()):
            with pytest.raises(ValueError, match="is not a TCP socket that listens"):
                parse_address(f"fd:{number}")
        for address in ("fd:999999", "fd:", "fd:-1", "fd:x", f"fd:{10**12}"):
            with pytest.raises(ValueError, match="is not a socket of this process"):
                parse_address(address)


def test_a_file_that_is_no_socket_is_refused_without_a_descriptor_left(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:

        def next_descriptor() -> int:
            free = os.dup(file.fileno())
            os.close(free)
            return free

        before = next_descriptor()
        with pytest.raises(ValueError, match="is not a socket of this process"):
            parse_address(f"fd:{file.fileno()}")
        assert next_descriptor() <= before  # garbage may have held one below
