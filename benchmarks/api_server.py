"""How quick and how small the embedded API server is, in one run.

    python benchmarks/api_server.py [--objects 20000] [--watchers 50]

The server runs in a process of its own; clients speak to it over plain sockets, so that next to
nothing of what is measured is theirs.

* start: from the construction to the first answer, in a process that has imported it.
* creates: objects a second, with four connections; ``per core`` counts the server's CPU time alone.
* fan-out: how many events a second each of the watchers of one kind is sent, when the changes are
  made in the server's own process as fast as it can.
* memory: what a stored object costs, and what as many further writes add: the history is
  bounded.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import selectors
import socket
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from appsdk_operator.runtime import system_clock
from appsdk_operator.testing import APIServer

WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
MAPS = "/api/v1/namespaces/default/configmaps"
TYPE = b'"type":"'
CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["size"],
                                "properties": {
                                    "size": {"type": "integer", "minimum": 0},
                                    "color": {"type": "string", "enum": ["red", "blue"]},
                                    "text": {"type": "string", "maxLength": 10_000},
                                },
                            }
                        },
                    }
                },
            }
        ],
    },
}


def widget(name: str, size: int = 1) -> dict[str, Any]:
    """A custom resource with a schema, about 0.5 KB."""
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name, "labels": {"app": "bench"}},
        "spec": {"size": size, "color": "red", "text": "x" * 300},
    }


def config_map(name: str) -> dict[str, Any]:
    """A built-in object of about the same size."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"app": "bench"}},
        "data": {"text": "x" * 300},
    }


class Connection:
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


class Events:
    """A watch whose events are counted."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address)
        path = f"{WIDGETS}?watch=true&resourceVersion=0"
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        self.count = 0
        self.rest = b""

    def read(self) -> None:
        """Take what has come."""
        data = self.rest + self.socket.recv(1 << 20)
        self.count += data.count(TYPE)
        self.rest = data[1 - len(TYPE) :]


def serve() -> None:
    """The server's process: a line on the input asks for so many changes of one object."""
    with APIServer(crds=[CRD]) as each:
        print(each.url, flush=True)
        core = each._core  # noqa: SLF001
        records = core.served("example.com", "v1", "widgets").resource.collection
        for line in sys.stdin:
            left = int(line)
            key, record = next(iter(records.records.items()))
            obj = record.decode()

            def write() -> None:
                for _ in range(50):
                    core.storage.put(records, key, {**obj, "metadata": dict(obj["metadata"])})  # noqa: B023

            for _ in range(left // 50):
                each._call(write)  # noqa: SLF001


class Server:
    """The server's process."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.pid = process.pid
        self.process = process
        host, _, port = url.removeprefix("http://").partition(":")
        self.address = (host, int(port))

    def cpu(self) -> float:
        """Seconds of CPU time that it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss(self) -> int:
        """Bytes of memory that it holds."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    def write(self, count: int) -> None:
        """Have it change an object so often."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()


@contextmanager
def server() -> Iterator[Server]:
    """Run one."""
    command = [sys.executable, __file__, "--serve"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            yield Server(process, process.stdout.readline().strip())
        finally:
            process.terminate()


def starts() -> str:
    """The median time until the first answer."""
    times = []
    for _ in range(20):
        began = system_clock.monotonic()
        with APIServer(crds=[CRD]) as each:
            host, _, port = each.url.removeprefix("http://").partition(":")
            connection = Connection((host, int(port)))
            assert connection.send("GET", WIDGETS) == 200
            times.append(system_clock.monotonic() - began)
            connection.socket.close()
    return f"{statistics.median(times) * 1000:.1f} ms, longest {max(times) * 1000:.1f} ms"


def spread(count: int, workers: int, do: Callable[[int], None]) -> None:
    """Do something for each number, in several threads."""

    def work(first: int) -> None:
        for number in range(first, count, workers):
            do(number)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def creates(path: str, make: Callable[[str], dict[str, Any]], count: int) -> str:
    """Objects a second, and what one costs."""
    with server() as each:
        local = threading.local()

        def create(number: int) -> None:
            if not hasattr(local, "connection"):
                local.connection = Connection(each.address)
            body = json.dumps(make(f"o{number}")).encode()
            assert local.connection.send("POST", path, body) == 201

        spread(200, 4, lambda number: create(count + number))
        began, cpu, rss = system_clock.monotonic(), each.cpu(), each.rss()
        spread(count, 4, create)
        seconds, busy = system_clock.monotonic() - began, each.cpu() - cpu
        size = len(json.dumps(make("o1")))
        held = (each.rss() - rss) / count
        connection = Connection(each.address)
        before = each.rss()
        for number in range(count):
            change = b'{"metadata":{"labels":{"app":"b%d"}}}' % number
            assert connection.send("PATCH", f"{path}/o1", change) == 200
        grown = each.rss() - before
    return (
        f"{count / seconds:,.0f}/s, per core {count / busy:,.0f}/s; {held:,.0f} bytes for an "
        f"object of {size}, {grown / 1e6:+.1f} MB after as many updates again"
    )


def fan_out(watchers: int, writes: int) -> str:
    """How fast events get to many watchers, when requests are not what limits them."""
    with server() as each, selectors.DefaultSelector() as selector:
        connection = Connection(each.address)
        connection.send("POST", WIDGETS, json.dumps(widget("w")).encode())
        watches = [Events(each.address) for _ in range(watchers)]
        for watch in watches:
            while not watch.count:
                watch.read()
            selector.register(watch.socket, selectors.EVENT_READ, watch)
        cpu, began = each.cpu(), system_clock.monotonic()
        each.write(writes)
        left = set(watches)
        while left:
            for key, _ in selector.select():
                key.data.read()
                if key.data.count > writes:
                    left.discard(key.data)
        seconds, busy = system_clock.monotonic() - began, each.cpu() - cpu
        for watch in watches:
            watch.socket.close()
        connection.socket.close()
    return (
        f"{writes / seconds:,.0f} events/s each, {writes * watchers / seconds:,.0f} deliveries/s; "
        f"per core of the server {writes / busy:,.0f} events/s each"
    )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--objects", type=int, default=20_000)
    parser.add_argument("--watchers", type=int, default=50)
    parser.add_argument("--writes", type=int, default=5_000)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    print(f"{platform.python_implementation()} {platform.python_version()}, {os.cpu_count()} CPUs")
    print(f"start: {starts()}")
    print(f"creates, custom resource: {creates(WIDGETS, widget, options.objects)}")
    print(f"creates, ConfigMap: {creates(MAPS, config_map, options.objects)}")
    print(f"fan-out, 1 watcher: {fan_out(1, options.writes)}")
    print(f"fan-out, {options.watchers} watchers: {fan_out(options.watchers, options.writes)}")


if __name__ == "__main__":
    main()
