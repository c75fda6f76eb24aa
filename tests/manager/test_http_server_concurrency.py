"""Large answers to slow readers: how many at once, who is next, and what they hold in memory."""

from __future__ import annotations

import contextlib
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

from appsdk_operator.manager import HTTPLimits, HTTPRequest, HTTPResponse, HTTPServer
from appsdk_operator.manager._servers.metrics import _SharedPages
from appsdk_operator.runtime import ManualClock
from tests.manager.conftest import read_all

LARGE = bytes(8 << 20)
GET = b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


@attrs.define(eq=False)
class Bench:
    """A server whose one page is large and limited, and clients that do not read it."""

    serve: Any
    eventually: Callable[..., None]
    clients: contextlib.ExitStack
    clock: ManualClock = attrs.field(factory=ManualClock)
    server: Any = None
    served: Any = None

    def start(self, limit: int, **limits: Any) -> None:
        self.server = HTTPServer(
            "127.0.0.1:0", name="pages", limits=HTTPLimits(**limits), clock=self.clock
        )
        page = self.server.limited(lambda request: HTTPResponse(body=LARGE), limit)
        self.server.add_handler("/large", page)
        self.server.add_handler("/small", lambda request: HTTPResponse(body=b"small"))
        self.served = self.serve(self.server)

    def ask(self, peer: int = 1) -> socket.socket:
        """Ask for the page from an address of its own, and read nothing of it."""
        before = sum(self.phases().values())
        client = socket.socket()
        self.clients.enter_context(client)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        client.settimeout(10)
        client.bind((f"127.0.0.{peer}", 0))
        client.connect(self.served.host_and_port)
        client.sendall(GET)
        self.eventually(lambda: sum(self.phases().values()) > before)
        self.eventually(lambda: not set(self.phases()) & {"waiting", "handling"})
        return client

    def phases(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for connection in list(self.server._pool._connections):
            found[connection.phase] = found.get(connection.phase, 0) + 1
        return found

    def reach(self, **phases: int) -> None:
        self.eventually(lambda: self.phases() == phases)


@pytest.fixture
def bench(serve: Any, eventually: Callable[..., None]) -> Iterator[Bench]:
    with contextlib.ExitStack() as clients:
        yield Bench(serve, eventually, clients)


def test_a_large_body_is_in_memory_once_for_any_number_of_slow_readers(bench: Bench) -> None:
    bench.start(8)
    tracemalloc.start()
    try:
        for _ in range(4):
            bench.ask()
        bench.reach(writing=4)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(LARGE) / 2  # of LARGE itself, which was there before, nobody has a copy


def test_no_more_than_the_limit_are_answered_at_once(bench: Bench) -> None:
    bench.start(2)
    first, *_ = [bench.ask() for _ in range(3)]
    bench.reach(writing=2, queued=1)
    assert bench.served.get("/small").text == "small"
    assert read_all(first).endswith(bytes(1000))
    bench.reach(writing=2)


def test_the_slowest_reader_is_cut_off_after_a_second_for_a_waiting_request(bench: Bench) -> None:
    bench.start(2)
    slow = bench.ask()
    bench.clock.advance(0.5)
    second = bench.ask()
    waiting = bench.ask()
    bench.reach(writing=2, queued=1)
    bench.clock.advance(0.25)
    bench.reach(writing=2, queued=1)
    bench.clock.advance(0.25)
    bench.reach(writing=2)
    assert len(read_all(slow)) < len(LARGE)
    for client in (second, waiting):
        assert len(read_all(client)) > len(LARGE)


def test_the_next_one_is_of_the_peer_that_has_the_fewest_answers_under_way(bench: Bench) -> None:
    bench.start(2)
    crowd = [bench.ask(peer=2) for _ in range(6)]
    good = bench.ask(peer=3)
    bench.reach(writing=2, queued=5)
    bench.clock.advance(1.0)
    assert len(read_all(good)) > len(LARGE)
    assert len(read_all(crowd[0])) < len(LARGE)


def test_a_request_that_has_waited_for_ten_seconds_gets_503_with_retry_after(bench: Bench) -> None:
    leave = threading.Event()
    bench.start(1)
    busy = bench.server.limited(lambda request: leave.wait(20) and HTTPResponse(body=b"busy"), 1)
    bench.server.add_handler("/busy", busy)
    first, second = bench.served.connect(), bench.served.connect()
    with first, second:
        for client, phases in (
            (first, {"handling": 1, "waiting": 1}),
            (second, {"handling": 1, "queued": 1}),
        ):
            client.sendall(GET.replace(b"large", b"busy"))
            bench.reach(**phases)
        bench.eventually(lambda: bench.clock.next_deadline() == 10.0)
        bench.clock.advance(10.0)
        answer = read_all(second)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 1" in answer
        leave.set()
        assert read_all(first).endswith(b"busy")


def test_a_stop_answers_requests_that_wait_for_the_limit(bench: Bench) -> None:
    bench.start(1)
    bench.ask()
    waiting = bench.ask()
    bench.reach(writing=1, queued=1)
    bench.served.stop.set()
    assert read_all(waiting).startswith(b"HTTP/1.1 503 ")
    bench.eventually(lambda: bench.clock.next_deadline() is not None)
    bench.clock.advance(60.0)
    bench.served.end()


def test_a_queued_request_gets_503_when_a_new_connection_needs_its_slot(bench: Bench) -> None:
    bench.start(1, max_connections=4)
    bench.ask(peer=2)
    kept = bench.ask(peer=3)
    bench.clock.advance(0.125)
    bench.ask(peer=2)
    bench.clock.advance(0.125)
    gone = bench.ask(peer=2)
    bench.reach(writing=1, queued=3)
    assert bench.served.get("/small").text == "small"
    assert read_all(gone).startswith(b"HTTP/1.1 503 ")
    bench.reach(writing=1, queued=2)
    bench.clock.advance(1.0)
    assert len(read_all(kept)) > len(LARGE)


def test_a_request_stops_counting_with_its_answer_also_on_a_kept_alive_connection(
    bench: Bench,
) -> None:
    bench.start(1)
    with bench.served.connect() as client:
        client.sendall(GET.replace(b"Connection: close\r\n", b""))
        left = len(LARGE)
        while left > 0:
            left -= len(client.recv(1 << 20))
        bench.reach(waiting=1)
        assert len(bench.served.talk(GET)) > len(LARGE)


def test_outside_of_a_connection_nothing_is_limited(bench: Bench) -> None:
    bench.start(1)
    for _ in range(2):
        assert bench.server.answer(HTTPRequest(method="GET", path="/large")).status == 200
    with pytest.raises(ValueError, match="use at least 1"):
        bench.server.limited(lambda request: HTTPResponse(), 0)


# -- pages that are shared -------------------------------------------------------------------------


def test_requests_that_come_while_a_page_is_made_share_the_next_one(
    eventually: Callable[..., None],
) -> None:
    pages, made = _SharedPages(), []
    leave, entered = threading.Event(), threading.Event()

    def make() -> tuple[bytes, bool]:
        made.append(1)
        entered.set()
        leave.wait(10)
        return bytes([len(made)]), False

    got: list[int] = []
    threads = [
        threading.Thread(target=lambda: got.append(pages.get("text", make)[0][0])) for _ in range(5)
    ]
    threads[0].start()
    assert entered.wait(10)
    for thread in threads[1:]:
        thread.start()
    eventually(lambda: pages._waiting == 5)
    leave.set()
    for thread in threads:
        thread.join(10)
    assert sorted(got) == [1, 2, 2, 2, 2]
    assert pages._made == {}
    assert pages.get("text", make)[0] == bytes([3])


def test_a_page_that_cannot_be_made_fails_for_its_reader_alone() -> None:
    pages = _SharedPages()

    def fail() -> tuple[bytes, bool]:
        raise ValueError("a collector failed")

    with pytest.raises(ValueError, match="a collector failed"):
        pages.get("text", fail)
    assert pages.get("text", lambda: (b"page", False)) == (b"page", False)
