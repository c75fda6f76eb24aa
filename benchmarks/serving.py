"""Requests per second of the HTTP server, and the latency of a metrics scrape.

``python -m benchmarks.serving`` runs the servers in a process of their own and prints: requests per
second over one keep-alive connection and over eight, the same of requests whose body comes in 16
chunks, and the median time of a scrape of ``/metrics``; each with the CPU time of the server per
request, which varies less on a busy machine. ``--seconds`` is the length of each measurement.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import subprocess
import sys
import threading
from typing import Final

from appsdk_operator.manager import (
    HTTPRequest,
    HTTPResponse,
    HTTPServer,
    MetricsServer,
    MetricsServerOptions,
)
from appsdk_operator.runtime import Metrics, StopSignal, ThreadGroup, system_clock
from benchmarks._measures import own_cpu

_FIELDS: Final = (
    "Host: 127.0.0.1:8080\r\nUser-Agent: kube-probe/1.33\r\nAccept: */*\r\n"
    "Accept-Encoding: gzip\r\nConnection: keep-alive\r\n"
)
_GET: Final = f"GET /readyz?verbose HTTP/1.1\r\n{_FIELDS}\r\n".encode()
_SCRAPE: Final = f"GET /metrics HTTP/1.1\r\n{_FIELDS}\r\n".encode()
_CPU: Final = f"GET /cpu HTTP/1.1\r\n{_FIELDS}\r\n".encode()
_CHUNKS: Final = b"400\r\n" + bytes(1024) + b"\r\n"
_POST: Final = (
    f"POST /readyz HTTP/1.1\r\n{_FIELDS}Transfer-Encoding: chunked\r\n\r\n".encode()
    + _CHUNKS * 16
    + b"0\r\n\r\n"
)


def serve() -> None:
    """Serve until standard input ends; prints both ports."""
    pages = HTTPServer("127.0.0.1:0", name="pages")

    def answer(_: HTTPRequest) -> HTTPResponse:
        return HTTPResponse(body=b"ok")

    pages.add_handler("/readyz", answer, methods=["GET", "POST"])
    pages.add_handler("/cpu", lambda _: HTTPResponse(body=str(own_cpu()).encode()))
    metrics = MetricsServer(MetricsServerOptions(address="127.0.0.1:0"), metrics=Metrics())
    stop, threads = StopSignal(), ThreadGroup("benchmark")
    threads.start("pages", lambda: pages.run(stop))
    threads.start("metrics", lambda: metrics.run(stop))
    print(pages.port, metrics.address.rpartition(":")[2], flush=True)
    sys.stdin.read()
    stop.set()
    threads.join()


def exchange(client: socket.socket, request: bytes) -> bytes:
    """Send a request and read the body of its answer."""
    client.sendall(request)
    data = b""
    while b"\r\n\r\n" not in data:
        data += client.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += client.recv(65536)
    return body


def times(port: int, request: bytes, seconds: float) -> list[float]:
    """The seconds that each of as many exchanges took as fit into ``seconds``."""
    found: list[float] = []
    end = system_clock.monotonic() + seconds
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while (begin := system_clock.monotonic()) < end:
            exchange(client, request)
            found.append(system_clock.monotonic() - begin)
    return found


def cpu(port: int) -> float:
    """Seconds of CPU time that the server has used."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        return float(exchange(client, _CPU))


def measure(ports: tuple[int, int], request: bytes, seconds: float, connections: int) -> str:
    """Requests per second over this number of connections, their median time and their CPU time."""
    found: list[float] = []
    group = ThreadGroup("clients")
    barrier = threading.Barrier(connections)
    port, cpu_port = ports

    def ask() -> None:
        barrier.wait()
        found.extend(times(port, request, seconds))

    before = cpu(cpu_port)
    for number in range(connections):
        group.start(str(number), ask)
    group.join()
    used = (cpu(cpu_port) - before) / len(found)
    rate, median = len(found) / seconds, statistics.median(found)
    return f"{rate:8.0f} requests/s {median * 1e3:8.2f} ms {used * 1e6:8.0f} us of CPU each"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    command = [sys.executable, "-m", "benchmarks.serving", "--serve"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdout is not None
        pages, metrics = map(int, server.stdout.readline().split())
        for label, port, request, connections in (
            ("1 connection", pages, _GET, 1),
            ("8 connections", pages, _GET, 8),
            ("16 chunks", pages, _POST, 1),
            ("scrape", metrics, _SCRAPE, 1),
        ):
            times(port, request, 0.2)
            text = measure((port, pages), request, options.seconds, connections)
            print(f"{label:14}{text}")
        server.communicate("")


if __name__ == "__main__":
    main()
