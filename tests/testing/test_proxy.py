"""The fault proxy against a bare echo server: what each fault does to bytes and connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from appsdk_operator.client import Client, ClientConfig, Credential, Credentials
from appsdk_operator.resource import kinds
from appsdk_operator.runtime import RealClock, StopSignal
from appsdk_operator.testing import APIServer, FaultProxy
from appsdk_operator.testing._proxy import http_relay
from tests.testing.event_loops import held_up

SHORT = 0.2  # seconds in which nothing is to happen


def thread_of(proxy: FaultProxy) -> Any:
    """The thread of a proxy that runs."""
    assert proxy._thread.is_running
    return proxy._thread


@pytest.fixture
def echo() -> Iterator[str]:
    """The address of a server that sends everything back, until the client has sent its all."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def answer(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(65536):
                connection.sendall(data)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                thread = threading.Thread(target=answer, args=(connection,))
                thread.start()
                threads.append(thread)

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    # First what starts the others.
    acceptor.join(30)
    for thread in threads:
        thread.join(30)


@pytest.fixture
def proxy(echo: str) -> Iterator[FaultProxy]:
    with FaultProxy(echo) as proxy:
        yield proxy


@contextlib.contextmanager
def connected(proxy: FaultProxy) -> Iterator[socket.socket]:
    address = proxy.url.removeprefix("tcp://").split(":")
    with socket.create_connection((address[0], int(address[1])), timeout=30) as connection:
        yield connection


def echoed(connection: socket.socket, data: bytes = b"hello") -> bytes:
    connection.sendall(data)
    return received(connection, len(data))


def received(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := connection.recv(65536)):
        data += more
    return data


def test_bytes_and_the_end_of_a_side_are_passed_on(proxy: FaultProxy) -> None:
    with connected(proxy) as connection:
        data = bytes(range(256)) * 4000
        sender = threading.Thread(target=connection.sendall, args=(data,))
        sender.start()
        assert received(connection, len(data)) == data
        sender.join()
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
    assert proxy.wait_for(lambda proxy: proxy.connections == 0)


def test_a_cut_resets_every_connection_and_new_ones_work(proxy: FaultProxy) -> None:
    with connected(proxy) as first, connected(proxy) as second:
        assert echoed(first) == echoed(second) == b"hello"
        assert proxy.cut() == 2
        for connection in (first, second):
            with pytest.raises(ConnectionResetError):
                connection.recv(1)
        assert proxy.connections == 0
    with connected(proxy) as third:
        assert echoed(third) == b"hello"
    assert proxy.accepted == 3


def test_a_connection_that_is_cut_as_it_is_taken_is_reset_as_well(
    proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    notify = proxy._notify

    def cut_first() -> None:
        # Its task has been made, and has not begun: so a cut from another thread may find it.
        for task in proxy._pairs:
            task.cancel()
        notify()

    monkeypatch.setattr(proxy, "_notify", cut_first)
    # The reset may come while the connection is still made.
    with pytest.raises(ConnectionError), connected(proxy) as connection:
        echoed(connection)
    assert proxy.wait_for(lambda proxy: proxy.connections == 0)


def test_a_connection_that_comes_as_the_proxy_begins_to_refuse_is_served(
    proxy: FaultProxy,
) -> None:
    with contextlib.ExitStack() as exits:
        with held_up(thread_of(proxy)._loop) as loop:
            connection = exits.enter_context(connected(proxy))

            async def refuse() -> None:
                proxy._stop_listening()

            refused = asyncio.run_coroutine_threadsafe(refuse(), loop)
        refused.result(30)
        assert echoed(connection) == b"hello"


@pytest.mark.parametrize("start", [threading.Thread, http_relay.HTTPRelay])
def test_a_proxy_that_cannot_start_says_so_and_can_be_started_later(
    monkeypatch: pytest.MonkeyPatch, start: type
) -> None:
    def refuse(_self: object) -> None:
        raise OSError("too many open files")

    with APIServer() as server:
        proxy = FaultProxy(server.client_config())
        with monkeypatch.context() as patched:
            patched.setattr(start, "start", refuse)
            with pytest.raises(OSError, match="too many"):
                proxy.start()
            proxy.stop()
        with proxy:
            assert proxy.requests == []


def test_a_proxy_that_is_started_again_has_credentials_still() -> None:
    stopped: list[bool] = []

    class Heeding(Credentials):
        def obtain(self, stop: StopSignal) -> Credential:
            stopped.append(stop.is_set())
            return Credential("Bearer t")

    with APIServer() as server:
        proxy = FaultProxy(
            ClientConfig(server=server.client_config().server, credentials=Heeding())
        )
        for _ in range(2):
            # A client without credentials, for which the proxy has its own.
            with proxy.start(), Client(proxy.client_config(credentials=None)) as client:
                client.get(kinds.core.v1.Namespace, "default")
    assert stopped == [False, False]


@pytest.mark.filterwarnings("error")
def test_a_connection_that_the_reading_part_takes_as_it_stops_is_closed() -> None:
    proxy = FaultProxy(ClientConfig(server="http://127.0.0.1:9")).start()
    assert proxy._address is not None
    with contextlib.ExitStack() as exits:
        with held_up(thread_of(proxy)._loop) as loop:
            address = proxy._address[4]
            connection = exits.enter_context(socket.create_connection(address, timeout=30))
            loop.call_soon_threadsafe(thread_of(proxy)._stopping.set)
        proxy.stop()
        with contextlib.suppress(ConnectionError):
            assert connection.recv(1) == b""


def test_new_connections_are_refused_while_open_ones_go_on(proxy: FaultProxy) -> None:
    with connected(proxy) as before:
        assert echoed(before) == b"hello"
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError), connected(proxy):
            pass
        assert echoed(before) == b"hello"
        proxy.refuse(False)
        with connected(proxy) as after:
            assert echoed(after) == b"hello"


def test_a_stalled_connection_stays_open_and_silent_and_loses_nothing(proxy: FaultProxy) -> None:
    with connected(proxy) as before:
        assert echoed(before) == b"hello"
        proxy.stall()
        with connected(proxy) as after:
            for connection in (before, after):
                connection.sendall(b"late")
                connection.settimeout(SHORT)
                with pytest.raises(TimeoutError):
                    connection.recv(1)
            proxy.stall(False)
            for connection in (before, after):
                connection.settimeout(30)
                assert received(connection, 4) == b"late"


def test_a_delay_is_added_in_both_directions(proxy: FaultProxy) -> None:
    proxy.delay(SHORT)
    started = RealClock().monotonic()
    with connected(proxy) as connection:
        assert echoed(connection) == b"hello"
    assert RealClock().monotonic() - started >= 2 * SHORT


def test_an_answer_is_cut_after_so_many_bytes_of_it(proxy: FaultProxy) -> None:
    with connected(proxy) as first:
        assert echoed(first) == b"hello"
        proxy.cut_after(3)
        first.sendall(b"abcdef")
        with pytest.raises(ConnectionResetError):
            received(first, 6)
    with connected(proxy) as second:
        assert echoed(second, b"abcdef") == b"abcdef"


def test_only_as_many_connections_are_cut_as_asked_for(proxy: FaultProxy) -> None:
    proxy.cut_after(0, times=2)
    for _ in range(2):
        with connected(proxy) as connection, pytest.raises(ConnectionResetError):
            echoed(connection)
    with connected(proxy) as connection:
        assert echoed(connection) == b"hello"


def test_a_throttled_answer_comes_no_faster_than_asked_for(proxy: FaultProxy) -> None:
    proxy.throttle(20_000)
    started = RealClock().monotonic()
    with connected(proxy) as connection:
        data = b"x" * 6000
        assert echoed(connection, data) == data
    assert RealClock().monotonic() - started >= 0.2


def test_clear_ends_all_faults(proxy: FaultProxy) -> None:
    proxy.refuse()
    proxy.stall()
    proxy.delay(60)
    proxy.throttle(1)
    proxy.cut_after(0, times=100)
    proxy.clear()
    with connected(proxy) as connection:
        assert echoed(connection) == b"hello"


def test_a_target_that_is_not_there_resets_the_client(refusing_port: int) -> None:
    with (
        FaultProxy(f"tcp://127.0.0.1:{refusing_port}") as proxy,
        pytest.raises(ConnectionError),  # the reset may come while the connection is being made
        connected(proxy) as connection,
    ):
        echoed(connection)


def test_stop_is_prompt_whatever_is_under_way(echo: str) -> None:
    proxy = FaultProxy(echo).start()
    with connected(proxy) as connection:
        proxy.stall()
        proxy.delay(60)
        connection.sendall(b"hello")
        started = RealClock().monotonic()
        proxy.stop()
        proxy.stop()
        assert RealClock().monotonic() - started < 8
        with pytest.raises(ConnectionResetError):
            connection.recv(1)


def test_a_stopped_proxy_starts_again_on_its_port_and_without_faults(echo: str) -> None:
    proxy = FaultProxy(echo)
    with pytest.raises(RuntimeError, match="does not run"):
        proxy.cut()
    with proxy:
        url = proxy.url
        proxy.stall()
    with proxy:
        assert proxy.url == url
        with connected(proxy) as connection:
            assert echoed(connection) == b"hello"


def test_a_taken_port_is_an_error(echo: str) -> None:
    with pytest.raises(OSError, match="in use"):
        FaultProxy(echo, port=int(echo.rpartition(":")[2])).start()


@pytest.mark.parametrize(
    "target", ["127.0.0.1:80", "ftp://127.0.0.1:1", "tcp://127.0.0.1", "http://:80", "tcp://a:b"]
)
def test_a_target_that_is_no_address_is_refused(target: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        FaultProxy(target)


def test_options_out_of_range_are_refused(proxy: FaultProxy) -> None:
    with pytest.raises(ValueError, match="not a TCP port"):
        FaultProxy("tcp://127.0.0.1:9", port=70000)
    with pytest.raises(ValueError, match="use 0 or more"):
        proxy.delay(-1)
    with pytest.raises(ValueError, match="more than 0"):
        proxy.throttle(0)
    with pytest.raises(ValueError, match="may be negative"):
        proxy.cut_after(-1)


def test_tls_goes_through_with_the_servers_own_certificate() -> None:
    with APIServer(tls=True) as server, FaultProxy(server.url) as proxy:
        config = ClientConfig(server=proxy.url, ca_data=server.ca_data)
        with Client(config) as client:
            names = [n.name for n in client.list(kinds.core.v1.Namespace)]
        assert proxy.url.startswith("https://")
        assert "default" in names
        assert proxy.accepted == 1
