"""The limits of the HTTP server: slow clients, many clients, a lack of files and threads."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from appsdk_operator.manager import HTTPLimits, HTTPRequest, HTTPResponse
from appsdk_operator.runtime import ManualClock, StopSignal
from tests.manager.conftest import read_all
from tests.manager.event_fakes import NoThreads
from tests.manager.http_requests import make, phases

HALF = b"GET /slow HTTP/1.1\r\nHost: a\r\n"
WHOLE = HALF + b"\r\n"


# -- time and connections --------------------------------------------------------------------------


def test_a_client_that_sends_its_headers_too_slowly_gets_408(
    serve: Any, eventually: Callable[..., None]
) -> None:
    clock = ManualClock()
    server = make(clock=clock)
    served = serve(server)
    with served.connect() as client:
        client.sendall(HALF)
        eventually(lambda: any(c.pending for c in server._pool._connections))
        clock.advance(31.0)
        client.sendall(b"X: still there\r\n")
        clock.advance(1.0)
        data = client.recv(65536)
    assert data.startswith(b"HTTP/1.1 408 ")
    assert b"in time (32 s)" in data


def test_a_connection_without_a_request_is_closed_after_its_time(
    serve: Any, eventually: Callable[..., None]
) -> None:
    clock = ManualClock()
    server = make(clock=clock)
    served = serve(server)
    with served.connect() as silent, served.connect() as idle:
        idle.sendall(WHOLE)
        assert b"GET /slow" in idle.recv(65536)
        eventually(lambda: phases(server) == ["waiting", "waiting"])
        # The time of a connection begins with its thread.
        eventually(lambda: all(c.deadline is not None for c in server._pool._connections))
        clock.block_until_waiting(1)
        clock.advance(32.0)
        assert silent.recv(1) == b""
        eventually(lambda: len(server._pool) == 1)
        clock.advance(57.9)
        assert len(server._pool) == 1
        clock.advance(0.1)
        assert idle.recv(1) == b""


def test_a_body_that_comes_too_slowly_is_given_up(
    serve: Any, eventually: Callable[..., None]
) -> None:
    clock = ManualClock()
    server = make(clock=clock)
    served = serve(server)
    with served.connect() as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf")
        eventually(lambda: phases(server) == ["reading"])
        clock.advance(32.0)
        assert client.recv(65536).startswith(b"HTTP/1.1 408 ")
    data = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf"
    with served.connect() as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        assert client.recv(65536).startswith(b"HTTP/1.1 400 ")


def test_a_client_that_does_not_read_its_answer_is_given_up(
    serve: Any, eventually: Callable[..., None]
) -> None:
    clock = ManualClock()
    server = make(clock=clock)
    server.add_handler("/big", lambda request: HTTPResponse(body=bytes(64 << 20)))
    served = serve(server)
    with served.connect() as client:
        client.sendall(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n")
        eventually(lambda: phases(server) == ["writing"])
        clock.advance(60.0)
        eventually(lambda: not len(server._pool))
        assert len(read_all(client)) < 64 << 20


def test_slow_clients_at_the_connection_limit_are_evicted_for_new_connections(
    serve: Any, eventually: Callable[..., None]
) -> None:
    clock = ManualClock()
    server = make(limits=HTTPLimits(max_connections=3), clock=clock)
    served = serve(server)
    with contextlib.ExitStack() as exits:
        slow = []
        for number in range(3):
            slow.append(exits.enter_context(served.connect()))
            slow[-1].sendall(HALF)
            eventually(lambda number=number: len(server._pool) == number + 1)
            eventually(lambda: all(c.pending for c in server._pool._connections))
            clock.advance(1.0)
        for _ in range(3):
            assert served.get("/readyz").status == 200
            eventually(lambda: len(server._pool) == 2)
        # The one that had waited longest went; the others are served once they ask.
        assert read_all(slow[0]).startswith(b"HTTP/1.1 408 ")
        for client in slow[1:]:
            client.sendall(b"Connection: close\r\n\r\n")
            assert read_all(client).endswith(b"GET /slow ")


def test_new_connections_wait_while_handlers_are_busy_with_all(
    serve: Any, eventually: Callable[..., None]
) -> None:
    entered, leave = threading.Event(), threading.Event()

    def busy(request: HTTPRequest) -> HTTPResponse:
        entered.set()
        leave.wait(10)
        return HTTPResponse(body=b"done")

    server = make(limits=HTTPLimits(max_connections=1))
    server.add_handler("/busy", busy)
    served = serve(server)
    with contextlib.ExitStack() as exits:
        first = exits.enter_context(served.connect())
        first.sendall(b"GET /busy HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert entered.wait(10)
        second = exits.enter_context(served.connect())
        second.sendall(b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert len(server._pool) == 1
        leave.set()
        assert read_all(first).endswith(b"done")
        assert read_all(second).endswith(b"GET /x ")


def test_many_clients_at_once_each_get_their_own_answer(serve: Any) -> None:
    served = serve(make(limits=HTTPLimits(max_connections=8)))
    wrong: list[str] = []

    def ask(number: int) -> None:
        for turn in range(5):
            answer = served.get(f"/{number}/{turn}", "POST", b"x" * number)
            if answer.text != f"POST /{number}/{turn} " + "x" * number:
                wrong.append(answer.text)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# -- what goes wrong below -------------------------------------------------------------------------


class Listener:
    """A listening socket whose ``accept`` fails by script."""

    def __init__(self, sock: socket.socket, *errors: Exception) -> None:
        self.sock = sock
        self.errors = list(errors)
        self.failed = threading.Event()

    def accept(self) -> Any:
        if self.errors:
            if len(self.errors) == 1:
                self.failed.set()
            raise self.errors.pop(0)
        return self.sock.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sock, name)


def test_connections_that_vanish_and_a_lack_of_files_do_not_end_the_server(
    serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    server = make()
    gone = ConnectionAbortedError(errno.ECONNABORTED, "gone")
    server._listener = Listener(server._listener, gone, OSError(errno.EMFILE, "no files"))  # type: ignore[assignment]
    served = serve(server, StopSignal(clock=clock))
    with served.connect() as client:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert server._listener.failed.wait(10)  # type: ignore[attr-defined]
        clock.block_until_waiting(1)
        clock.advance(0.5)
        assert read_all(client).endswith(b"GET / ")
    assert "takes no connection for now" in caplog.text


def test_a_listener_that_breaks_ends_the_run_with_its_error() -> None:
    server = make()
    server._listener = Listener(server._listener, RuntimeError("broken"))  # type: ignore[assignment]
    errors: list[BaseException] = []

    def run() -> None:
        try:
            server.run(StopSignal())
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", server.port), timeout=10).close()
    thread.join(10)
    assert [str(error) for error in errors] == ["broken"]


def test_a_signal_handler_that_ends_the_program_at_that_moment_ends_the_run() -> None:
    server = make()
    server._threads = NoThreads(server._threads, KeyboardInterrupt())  # type: ignore[assignment]
    errors: list[BaseException] = []

    def run() -> None:
        try:
            server.run(StopSignal())
        except KeyboardInterrupt as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", server.port), timeout=10).close()
    thread.join(10)
    assert len(errors) == 1


def test_a_thread_that_cannot_be_started_costs_its_connection_only(
    serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = make()
    server._threads = NoThreads(server._threads)  # type: ignore[assignment]
    served = serve(server)
    with served.connect() as client:
        assert read_all(client) == b""
    assert served.get("/").status == 200
    assert "cannot start a thread for a connection" in caplog.text


def test_a_stop_ends_the_wait_of_a_new_connection(serve: Any, eventually: Any) -> None:
    entered, leave = threading.Event(), threading.Event()

    def busy(request: HTTPRequest) -> HTTPResponse:
        entered.set()
        request.stop.wait(10)
        leave.wait(10)
        return HTTPResponse()

    server = make(limits=HTTPLimits(max_connections=1))
    server.add_handler("/busy", busy)
    served = serve(server)
    with contextlib.ExitStack() as exits:
        first = exits.enter_context(served.connect())
        first.sendall(b"GET /busy HTTP/1.1\r\nHost: a\r\n\r\n")
        assert entered.wait(10)
        second = exits.enter_context(served.connect())
        second.sendall(WHOLE)
        served.stop.set()
        assert read_all(second) == b""
        leave.set()
        assert b"200 OK" in read_all(first)


def test_statuses_without_a_phrase_and_long_trailers_are_no_trouble(serve: Any) -> None:
    server = make()
    server.add_handler("/teapot", lambda request: HTTPResponse(status=599))
    served = serve(server)
    assert served.get("/teapot").status == 599
    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
    assert served.talk(head + b"a: b\r\n" * 300).startswith(b"HTTP/1.1 431 ")


def test_a_request_that_arrives_as_its_connection_is_evicted_is_still_answered(
    serve: Any, eventually: Any
) -> None:
    server = make(limits=HTTPLimits(max_connections=1))
    served = serve(server)
    for number in range(20):
        with served.connect() as first, served.connect() as second:
            first.sendall(WHOLE)
            second.sendall(b"GET /second HTTP/1.0\r\n\r\n")
            answers = [read_all(first), read_all(second)]
        # Retired before a byte of it came, a connection is closed as any idle one may be.
        assert answers[0] == b"" or answers[0].endswith(b"GET /slow "), number
        assert answers[1].endswith(b"GET /second ")
        eventually(lambda: not len(server._pool))
