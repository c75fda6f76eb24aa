"""Servers that run for one test, and raw conversations with them."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import attrs
import pytest

from appsdk_operator.runtime import RealClock, StopSignal
from tests.manager.lease_fakes import FakeLeases, Running

_CLOCK = RealClock()


class Server(Protocol):
    """What every server of the manager has."""

    @property
    def address(self) -> str: ...

    def run(self, stop: StopSignal, /) -> None: ...

    def close(self) -> None: ...


@attrs.define
class Page:
    """An answer."""

    status: int
    text: str
    headers: dict[str, str]
    body: bytes


@attrs.define(eq=False)
class Served:
    """A server that runs in a thread of its own."""

    server: Any
    signal: StopSignal = attrs.field(factory=StopSignal)
    errors: list[BaseException] = attrs.field(factory=list)
    thread: threading.Thread = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.thread = threading.Thread(target=self._run, name="served")
        self.thread.start()

    def _run(self) -> None:
        try:
            self.server.run(self.signal)
        except BaseException as error:
            self.errors.append(error)

    @property
    def host_and_port(self) -> tuple[str, int]:
        host, _, port = self.server.address.rpartition(":")
        return host.strip("[]"), int(port)

    def stop(self) -> None:
        self.signal.set()
        self.thread.join(20)
        assert not self.thread.is_alive(), "the server did not stop"

    def connect(self) -> socket.socket:
        return socket.create_connection(self.host_and_port, timeout=10)

    def talk(self, data: bytes) -> bytes:
        """Send bytes, and read until the server closes."""
        with self.connect() as client:
            client.sendall(data)
            return read_all(client)

    def get(
        self,
        path: str = "/",
        method: str = "GET",
        body: Any = None,
        context: ssl.SSLContext | None = None,
        **headers: str,
    ) -> Page:
        host, port = self.host_and_port
        connection: http.client.HTTPConnection
        if context is None:
            connection = http.client.HTTPConnection(host, port, timeout=10)
        else:
            connection = http.client.HTTPSConnection(host, port, timeout=10, context=context)
        with contextlib.closing(connection):
            names = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body=body, headers=names)
            answer = connection.getresponse()
            data = answer.read()
            fields = {name.lower(): value for name, value in answer.getheaders()}
            return Page(answer.status, data.decode("latin-1"), fields, data)


def read_all(client: socket.socket) -> bytes:
    """What comes until the other side closes."""
    data = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while more := client.recv(1 << 20):
            data += more
    return bytes(data)


def wait_until(condition: Callable[[], bool], timeout: float = 10.0) -> None:
    """For what another thread does a moment later, and nothing announces."""
    deadline, pause = _CLOCK.monotonic() + timeout, StopSignal()
    while not condition():
        assert _CLOCK.monotonic() < deadline, "it did not happen"
        pause.wait(0.005)


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Waits until a condition holds."""
    return wait_until


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Runs servers until the test ends; one that ended with an error fails the test."""
    running: list[Served] = []

    def start(server: Any, stop: StopSignal | None = None) -> Served:
        running.append(Served(server, stop or StopSignal()))
        return running[-1]

    yield start
    for served in running:
        served.stop()
    errors = [error for served in running for error in served.errors]
    if errors:
        raise errors[0]


@pytest.fixture
def leases() -> Iterator[FakeLeases]:
    """A server with Leases; candidates that still run are ended after the test."""
    leases = FakeLeases()
    yield leases
    leases.fault = lambda verb: None
    for running in Running.all:
        running.stop_signal.set()
        if running.thread.ident is not None:
            running.end()
    Running.all.clear()


@pytest.fixture
def gate(leases: FakeLeases) -> Iterator[threading.Event]:
    """Closed by a test, requests hang until it is open again."""
    gate = threading.Event()
    gate.set()

    def wait(_: str) -> None:
        if not gate.is_set():
            with leases.holding():
                gate.wait(20.0)

    leases.fault = wait
    yield gate
    gate.set()
