"""An operator with an election, metrics and probes, which says what it takes while it is idle.

It loads no module that an operator does not need.

``python -m benchmarks._idle_process`` reads a line of JSON, with the API server's ``url`` and
``ca`` and the name of the ``lease``, from standard input. It prints a line of JSON once it leads,
has reconciled an object, and has answered a probe and a scrape.
"""

from __future__ import annotations

import time

_BEGAN = time.monotonic()

import socket  # noqa: E402 - the clock first
import sys  # noqa: E402
import threading  # noqa: E402

import msgspec  # noqa: E402

from appsdk_operator import (  # noqa: E402
    ClientConfig,
    Kind,
    Manager,
    Request,
    StopSignal,
    controller_for,
)
from appsdk_operator.manager import (  # noqa: E402
    HealthServerOptions,
    LeaderElection,
    MetricsServerOptions,
)

_WIDGET = Kind(group="example.com", version="v1", kind="Widget")
_PATIENCE = 30.0
_SAMPLES = 20
_PAUSE = 0.1
"""Seconds: the threads of all samples are there while idle. A renewal has one of its own."""


def _get(address: str, path: str) -> None:
    """Ask as kubelet and Prometheus do, without the modules of an HTTP client."""
    host, _, port = address.rpartition(":")
    with socket.socket() as connection:
        connection.settimeout(_PATIENCE)
        connection.connect((host, int(port)))
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    if b" 200 OK" not in answer[:20]:
        raise RuntimeError(f"{path} of {address} answered {answer[:200]!r}")


def _memory() -> dict[str, int]:
    """Bytes in memory: all of them, and those that no other process can share."""
    with open("/proc/self/status", encoding="ascii") as file:  # noqa: PTH123 - pathlib is more to load
        found = dict(line.split(":", 1) for line in file)
    return {name: int(found[name].split()[0]) * 1024 for name in ("VmRSS", "RssAnon")}


def _idle_threads(pause: threading.Event) -> list[str]:
    """The names of the threads that are there all the time, besides the calling one."""
    samples = []
    for _ in range(_SAMPLES):
        samples.append({thread.name for thread in threading.enumerate()})
        pause.wait(_PAUSE)
    return sorted(set.intersection(*samples) - {threading.current_thread().name})


def main() -> None:
    """Be that operator."""
    asked = msgspec.json.decode(sys.stdin.readline())
    ca = asked["ca"]
    stop, reconciled = StopSignal(), threading.Event()
    times: list[float] = []
    failures: list[BaseException] = []

    def reconcile(_: Request) -> None:
        times.append(time.monotonic())
        reconciled.set()

    manager = Manager(
        ClientConfig(server=asked["url"], ca_data=ca.encode() if ca else None),
        leader_election=LeaderElection(id=asked["lease"], namespace="default"),
        metrics_server=MetricsServerOptions(address="127.0.0.1:0"),
        health_server=HealthServerOptions(address="127.0.0.1:0"),
    )
    controller_for(manager).for_(_WIDGET).complete(reconcile)

    def look() -> None:
        try:
            if not reconciled.wait(_PATIENCE):
                raise RuntimeError("nothing was reconciled")
            _get(manager.addresses["health"], "/readyz")
            _get(manager.addresses["metrics"], "/metrics")
            threads = _idle_threads(threading.Event())
            memory = _memory()
            own = [name for name in sys.modules if name.partition(".")[0] == "appsdk_operator"]
            found = {
                "threads": threads,
                "modules": len(own),
                "other modules": len(sys.modules) - len(own),
                "bytes of its own": memory["RssAnon"],
                "bytes": memory["VmRSS"],
                "seconds to the first reconcile": times[0] - _BEGAN,
            }
            print(msgspec.json.encode(found).decode(), flush=True)
        except BaseException as error:
            failures.append(error)
        finally:
            stop.set()

    looker = threading.Thread(target=look, name="looker")
    looker.start()
    manager.run(stop)
    looker.join()
    if failures:
        raise failures[0]


if __name__ == "__main__":
    main()
