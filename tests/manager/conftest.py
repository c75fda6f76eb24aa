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

from appsdk_operator.runtime import StopSignal
from tests import waiting
from tests.manager.lease_fakes import FakeLeases, Running
from tests.runs import Run


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


class Served(Run):
    """A server that runs in a thread of its own, and requests to it."""

    @property
    def host_and_port(self) -> tuple[str, int]:
        host, _, port = self.part.address.rpartition(":")
        return host.strip("[]"), int(port)

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


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Waits until a condition holds."""
    return waiting.eventually


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Runs servers until the test ends; one that ended with an error fails the test."""
    running: list[Served] = []

    def start(server: Any, stop: StopSignal | None = None) -> Served:
        running.append(Served(server, stop or StopSignal()).start())
        return running[-1]

    yield start
    for served in running:
        served.end()
    errors = [error for served in running for error in served.raised]
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
