"""How quick and how small the embedded API server is.

The server runs in a process of its own; clients speak to it over plain sockets, so that next to
nothing of what is measured is theirs.

* start: from the construction to the first answer, in a process that has imported it.
* creates: custom resources with a schema a second, with four connections; ``per core`` counts the
  server's CPU time alone. Then what a stored one costs, and what as many updates again add: the
  history is bounded.
* creates, ConfigMap: the same with a built-in kind.
* 1 watcher, 50 watchers: how many events a second each is sent when the changes are made in the
  server's own process as fast as it can.
"""

from __future__ import annotations

import functools
import json
import re
import selectors
import socket
import statistics
import threading
from collections.abc import Callable
from typing import Any, Final

from appsdk_operator.runtime import ThreadGroup, system_clock
from benchmarks._embedded import CRD, serving
from benchmarks._job import Job, Unit
from benchmarks._measures import Figures, Measure, column, one_case, run

_WIDGETS: Final = "/apis/example.com/v1/namespaces/default/widgets"
_MAPS: Final = "/api/v1/namespaces/default/configmaps"
_TYPE: Final = b'"type":"'
_CONNECTIONS: Final = 4


def _widget(name: str) -> dict[str, Any]:
    """A custom resource with a schema, about 0.5 KB."""
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name, "labels": {"app": "bench"}},
        "spec": {"size": 1, "color": "red", "text": "x" * 300},
    }


def _config_map(name: str) -> dict[str, Any]:
    """A built-in object of about the same size."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"app": "bench"}},
        "data": {"text": "x" * 300},
    }


class _Connection:
    """A keep-alive connection that does no more than it must."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest = b""

    def send(self, verb: str, path: str, body: bytes = b"") -> int:
        """Send a request and read its answer; the status."""
        form = "merge-patch+json" if verb == "PATCH" else "json"
        head = f"{verb} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/{form}\r\n"
        self.socket.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        data = self.rest
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self.socket.recv(1 << 16)
        found = re.search(rb"(?i)content-length: (\d+)", data[:end])
        total = end + 4 + int(found[1] if found else 0)
        while len(data) < total:
            data += self.socket.recv(1 << 16)
        self.rest = data[total:]
        return int(data[9:12])

    def close(self) -> None:
        """Close it."""
        self.socket.close()


class _Events:
    """A watch whose events are counted."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address)
        path = f"{_WIDGETS}?watch=true&resourceVersion=0"
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        self.count = 0
        self.rest = b""

    def read(self) -> None:
        """Take what has come."""
        data = self.rest + self.socket.recv(1 << 20)
        self.count += data.count(_TYPE)
        self.rest = data[1 - len(_TYPE) :]


def starts(*, rounds: int = 20) -> Figures:
    """The time until the first answer."""
    from appsdk_operator.testing import APIServer

    times = []
    for _ in range(rounds):
        began = system_clock.monotonic()
        with APIServer(crds=[CRD]) as each:
            host, _, port = each.url.removeprefix("http://").partition(":")
            connection = _Connection((host, int(port)))
            assert connection.send("GET", _WIDGETS) == 200
            times.append(system_clock.monotonic() - began)
            connection.close()
    return {"seconds": statistics.median(times), "longest": max(times)}


def _spread(first: int, count: int, do: Callable[[int], None]) -> None:
    """Do something for each number, in several threads."""

    def work(offset: int) -> None:
        for number in range(first + offset, first + count, _CONNECTIONS):
            do(number)

    threads = ThreadGroup("creates")
    for offset in range(_CONNECTIONS):
        threads.start(str(offset), functools.partial(work, offset))
    threads.join()


def creates(
    path: str, make: Callable[[str], dict[str, Any]], *, objects: int = 10_000, **_: int
) -> Figures:
    """Objects a second, and what one costs."""
    with serving() as server:
        local = threading.local()

        def create(number: int) -> None:
            if not hasattr(local, "connection"):
                local.connection = _Connection(server.address)
            body = json.dumps(make(f"o{number}")).encode()
            assert local.connection.send("POST", path, body) == 201

        _spread(objects, min(200, objects), create)
        began, cpu, held = system_clock.monotonic(), server.cpu(), server.resident()
        _spread(0, objects, create)
        seconds, busy = system_clock.monotonic() - began, server.cpu() - cpu
        held = server.resident() - held
        connection = _Connection(server.address)
        before = server.resident()
        for number in range(objects):
            change = b'{"metadata":{"labels":{"app":"b%d"}}}' % number
            assert connection.send("PATCH", f"{path}/o1", change) == 200
        grown = server.resident() - before
        connection.close()
    return {
        "creates_per_second": objects / seconds,
        "per_core": objects / busy if busy else 0.0,
        "bytes_per_object": held / objects,
        "bytes_of_json": len(json.dumps(make("o1"))),
        "bytes_after_as_many_updates": grown,
    }


def fan_out(watchers: int, *, writes: int = 5_000, **_: int) -> Figures:
    """How fast events get to many watchers, when requests are not what limits them."""
    with serving() as server, selectors.DefaultSelector() as selector:
        connection = _Connection(server.address)
        connection.send("POST", _WIDGETS, json.dumps(_widget("w")).encode())
        watches = [_Events(server.address) for _ in range(watchers)]
        for watch in watches:
            while not watch.count:
                watch.read()
            selector.register(watch.socket, selectors.EVENT_READ, watch)
        cpu, began = server.cpu(), system_clock.monotonic()
        server.change(writes)
        left = set(watches)
        while left:
            for key, _mask in selector.select():
                key.data.read()
                if key.data.count > writes:
                    left.discard(key.data)
        seconds, busy = system_clock.monotonic() - began, server.cpu() - cpu
        for watch in watches:
            watch.socket.close()
        connection.close()
    return {
        "events_per_second_each": writes / seconds,
        "deliveries_per_second": writes * watchers / seconds,
        "deliveries_per_core": writes * watchers / busy if busy else 0.0,
    }


def _starts(*, rounds: int = 20, **_: int) -> Figures:
    return starts(rounds=rounds)


MEASURES: dict[str, Measure] = {
    "start": _starts,
    "creates": functools.partial(creates, _WIDGETS, _widget),
    "creates, ConfigMap": functools.partial(creates, _MAPS, _config_map),
    "1 watcher": functools.partial(fan_out, 1),
    "50 watchers": functools.partial(fan_out, 50),
}
_QUICK: Final = {"rounds": 3, "objects": 200, "writes": 200}

JOB = Job(
    name="api_server",
    title="The embedded API server",
    text=(
        "The server runs in a process of its own, clients speak to it over plain sockets. `start`: "
        "from its construction to the first answer. `creates`: objects of 0.5 KB, through four "
        "connections, custom resources with a schema or ConfigMaps; what a stored one costs, and "
        "what as many updates again add to that (its history is bounded). `watchers`: one object "
        "is changed as fast as the server can, and each watcher gets each change."
    ),
    columns=(
        column("creates/s", "creates_per_second", Unit.RATE),
        column("per core of the server", "per_core", Unit.RATE),
        column("memory per object", "bytes_per_object", Unit.BYTES),
        column("after as many updates", "bytes_after_as_many_updates", Unit.BYTES),
        column("events/s to each watcher", "events_per_second_each", Unit.RATE),
        column("deliveries/s", "deliveries_per_second", Unit.RATE),
        column("start", "seconds", Unit.SECONDS),
    ),
    cases=one_case(
        "benchmarks.jobs.api_server", MEASURES, _QUICK, in_quick=["start", "creates", "1 watcher"]
    ),
    rounds=3,
)

if __name__ == "__main__":
    run(MEASURES)
