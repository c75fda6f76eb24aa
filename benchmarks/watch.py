"""How many watch events a second reach a callback, beside two floors, in one run.

    python benchmarks/watch.py [--events 100000] [--rounds 5] [--tls]

A replay server in a process of its own sends the same events to each contestant, which runs in a
fresh process; the contestants take turns. What counts are the ratios: the absolute numbers belong
to the machine.

* drain: the socket is read, nothing is done. The server must be far faster than the others.
* partial: urllib3's stream, split into lines, name, namespace, uid and version decoded by msgspec.
* appsdk: an informer's store is updated, and a SimpleWatcher of an InformerController is called.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from appsdk_operator.runtime import system_clock
from appsdk_operator.testing._server._tls import make_context

OBJECTS = 1000
CONTESTANTS = ("drain", "partial", "appsdk")


class Metadata(msgspec.Struct, gc=False, rename="camel"):
    """What identifies an object."""

    name: str
    namespace: str
    uid: str
    resource_version: str


class Object(msgspec.Struct, gc=False):
    """An object, all but its metadata left alone."""

    metadata: Metadata


class Event(msgspec.Struct, gc=False):
    """A line of a watch."""

    type: str
    object: Object


def event(number: int) -> bytes:
    """One event of a 2 KB custom resource."""
    index = number % OBJECTS
    obj = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {
            "name": f"widget-{index:05}",
            "namespace": "default",
            "uid": f"7b1cf4c2-2f2a-4f0e-9d0e-{index:012}",
            "resourceVersion": str(number + 2),
            "generation": 1 + number // OBJECTS,
            "creationTimestamp": "2024-01-01T00:00:00Z",
            "labels": {"app": "widget", "tier": "backend"},
            "managedFields": [
                {
                    "manager": "kubectl",
                    "operation": "Apply",
                    "apiVersion": "example.com/v1",
                    "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:spec": {f"f:field{n}": {} for n in range(35)}},
                }
            ],
        },
        "spec": {f"field{n}": f"value {n} of widget {index}" for n in range(35)},
    }
    kind = "ADDED" if number < OBJECTS else "MODIFIED"
    return json.dumps({"type": kind, "object": obj}, separators=(",", ":")).encode() + b"\n"


def serve(ready: Any, events: int, *, tls: bool) -> None:
    """Answer lists with nothing and watches with all events, one chunk each, as API servers do."""
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(e), e) for e in map(event, range(events)))
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    empty = b'{"kind":"WidgetList","apiVersion":"example.com/v1",'
    empty += b'"metadata":{"resourceVersion":"1"},"items":[]}'
    listener = socket.create_server(("127.0.0.1", 0))
    context, ca = make_context("127.0.0.1", system_clock.time()) if tls else (None, b"")
    ready.send((listener.getsockname()[1], ca))

    def answer(connection: socket.socket) -> None:
        with connection:
            while request := connection.recv(65536):
                if b"sendInitialEvents" in request:
                    connection.sendall(b"HTTP/1.1 422 Unprocessable\r\nContent-Length: 0\r\n\r\n")
                elif b"watch=true" in request:
                    connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
                    connection.sendall(chunks)
                else:
                    length = b"Content-Length: %d\r\n\r\n" % len(empty)
                    connection.sendall(head + length + empty)

    while True:
        connection, _ = listener.accept()
        try:
            connection = (
                context.wrap_socket(connection, server_side=True) if context else connection
            )
        except OSError:
            continue
        threading.Thread(target=_quietly, args=(answer, connection), daemon=True).start()


def _quietly(call: Callable[[socket.socket], None], connection: socket.socket) -> None:
    try:
        call(connection)
    except OSError:
        connection.close()


def drain(port: int, events: int, ca: str | None) -> float:
    """Read the socket until the last event."""
    connection = socket.create_connection(("127.0.0.1", port))
    if ca:
        connection = ssl.create_default_context(cafile=ca).wrap_socket(
            connection, server_hostname="127.0.0.1"
        )
    left = sum(len(event(number)) for number in range(events))
    with connection:
        connection.sendall(b"GET /?watch=true HTTP/1.1\r\nHost: a\r\n\r\n")
        began = system_clock.monotonic()
        while left > 0:
            left -= len(connection.recv(65536))
        return system_clock.monotonic() - began


def partial(port: int, events: int, ca: str | None) -> float:
    """urllib3's stream and a partial decode."""
    import urllib3

    decode = msgspec.json.Decoder(Event).decode
    pool = urllib3.PoolManager(ca_certs=ca)
    scheme = "https" if ca else "http"
    url = f"{scheme}://127.0.0.1:{port}/?watch=true"
    answer = pool.request("GET", url, preload_content=False)
    began = system_clock.monotonic()
    seen = 0
    rest = b""
    for data in answer.stream(None):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            decode(line)
        seen += len(lines)
        if seen >= events:
            break
    took = system_clock.monotonic() - began
    answer.close()
    return took


def appsdk(port: int, events: int, ca: str | None) -> float:
    """The kit: store updated, watcher called."""
    from appsdk_operator import (
        Client,
        ClientConfig,
        Informer,
        InformerController,
        Kind,
        SimpleWatcher,
        StopSignal,
    )

    kind = Kind(group="example.com", version="v1", kind="Widget")
    scheme = "https" if ca else "http"
    stop = StopSignal()
    times: list[float] = []
    left = events

    def count(*_: object) -> None:
        nonlocal left
        left -= 1
        if left == events - 1:
            times.append(system_clock.monotonic())
        elif not left:
            times.append(system_clock.monotonic())
            stop.set()

    config = ClientConfig(server=f"{scheme}://127.0.0.1:{port}", ca_file=ca)
    with Client(config) as client:
        controller = InformerController(max_pending=events + 1)
        controller.add_informer(Informer(kind, client), kind)
        controller.add_watcher(SimpleWatcher(add=count, update=count), kind)
        controller.run(stop)
    return times[1] - times[0]


def rounds(port: int, options: argparse.Namespace, ca: str | None) -> Iterator[dict[str, float]]:
    """Events a second by contestant, round by round, each in a fresh process."""
    for _ in range(options.rounds):
        result = {}
        for name in CONTESTANTS:
            command = [sys.executable, __file__, "--contestant", name, "--port", str(port)]
            command += ["--events", str(options.events)] + (["--ca", ca] if ca else [])
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            result[name] = options.events / float(done.stdout)
        yield result


def main() -> None:
    """Run the contestants and print the table, or be one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tls", action="store_true")
    for hidden in ("--contestant", "--port", "--ca"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contestant:
        print(globals()[options.contestant](int(options.port), options.events, options.ca))
        return
    context = multiprocessing.get_context("spawn")
    ready, theirs = context.Pipe()
    server = context.Process(
        target=serve, args=(theirs, options.events), kwargs={"tls": options.tls}, daemon=True
    )
    server.start()
    try:
        port, authority = ready.recv()
        with tempfile.NamedTemporaryFile() as ca:
            ca.write(authority)
            ca.flush()
            results = list(rounds(port, options, ca.name if options.tls else None))
    finally:
        server.terminate()
        server.join()
    print(
        f"Python {platform.python_version()}, {platform.machine()}, {len(event(0))} bytes an event"
    )
    floor = statistics.median(r["partial"] for r in results)
    for name in CONTESTANTS:
        rates = [result[name] for result in results]
        median = statistics.median(rates)
        print(
            f"{name:<8} {median:>10,.0f} events/s ({min(rates):,.0f}-{max(rates):,.0f}), "
            f"{median / floor:.2f} of partial"
        )


if __name__ == "__main__":
    main()
