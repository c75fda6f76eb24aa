"""Managers against an API server, what they run, and how to talk to them."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from appsdk_operator.client import Client, ClientConfig
from appsdk_operator.manager import (
    Manager,
)
from appsdk_operator.resource import MutableObject, kinds
from appsdk_operator.runtime import Metrics, StopSignal
from tests.runs import Run

TIMEOUT = 20.0
LOCAL = "127.0.0.1:0"
CONFIG_MAP = kinds.core.v1.ConfigMap
LEASE = kinds.coordination.v1.Lease
QUICK: dict[str, Any] = {"lease_duration": 15.0, "renew_deadline": 10.0, "retry_period": 0.1}


def client_of(config: ClientConfig) -> Iterator[Client]:
    """A client, and nothing left on the server when the test is over."""
    with Client(config, metrics=Metrics()) as client:
        yield client
        for kind, namespace in ((CONFIG_MAP, "default"), (LEASE, "default")):
            for obj in list(client.list(kind, namespace=namespace)):
                client.delete(kind, obj.name, namespace=namespace)


def managers(config: ClientConfig) -> Iterator[Callable[..., Manager]]:
    """Makes managers, and closes them when the test is over."""
    made: list[Manager] = []

    def make(server: Any = None, **options: Any) -> Manager:
        manager = Manager(server or config, **{"metrics": Metrics(), **options})
        made.append(manager)
        return manager

    yield make
    for manager in made:
        manager.close()


def runs() -> Iterator[Callable[[Manager], Run]]:
    """Runs managers, and stops them when the test is over."""
    started: list[Run] = []

    def start(manager: Manager) -> Run:
        started.append(Run(manager).start())
        return started[-1]

    yield start
    for run in started:
        run.end()


def config_map(name: str, **data: str) -> MutableObject:
    """One to create."""
    obj = MutableObject.new(CONFIG_MAP, name, namespace="default")
    obj["data"] = data
    return obj


def get(address: str, path: str) -> tuple[int, str]:
    """What a server answers."""
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def answers(address: str) -> bool:
    """Whether anybody listens there."""
    try:
        get(address, "/")
    except OSError:
        return False
    return True


@attrs.define(slots=False, eq=False)
class Worker:
    """A runnable that calls a function at its start, and waits."""

    name: str = "worker"
    at_start: Callable[[], object] = lambda: None
    at_stop: Callable[[], object] = lambda: None
    has_started: threading.Event = attrs.field(factory=threading.Event)
    has_ended: threading.Event = attrs.field(factory=threading.Event)

    def run(self, stop: StopSignal) -> None:
        self.at_start()
        self.has_started.set()
        stop.wait()
        self.at_stop()
        self.has_ended.set()
