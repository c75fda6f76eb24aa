"""A signal handler may stop whatever runs in its thread, whichever line it interrupts.

Python calls a signal handler between two instructions of the main thread. The tests call what the
handler would call before a line of the kit, or of what it waits with, that Hypothesis chooses.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appsdk_operator
from appsdk_operator import App, InformerController, Manager, SimpleWatcher, controller_for, kinds
from appsdk_operator.cache import Cache, Informer
from appsdk_operator.client import Client, ClientError
from appsdk_operator.controllers import Result
from appsdk_operator.manager import LeaderElection
from appsdk_operator.resource import MutableObject
from appsdk_operator.runtime import Metrics, StopSignal, WorkQueue
from appsdk_operator.testing import APIServer, MemoryServer
from appsdk_operator.webhooks import SelfSigned, WebhookServer
from tests.hypothesis_profiles import scaled

CONFIG_MAP = kinds.core.v1.ConfigMap
INTERRUPTED = (str(Path(appsdk_operator.__file__).parent), threading.__file__)


@attrs.frozen
class Running:
    """Something that runs until ``handler`` ends it."""

    run: Callable[[], object]
    handler: Callable[[], object]


@pytest.fixture(scope="module")
def memory() -> MemoryServer:
    server = MemoryServer()
    server.client().create(MutableObject.new(CONFIG_MAP, "a", namespace="default", data={}))
    return server


@pytest.fixture(scope="module")
def api() -> Iterator[APIServer]:
    with APIServer() as server:
        with Client(server.client_config()) as client:
            client.create(MutableObject.new(CONFIG_MAP, "a", namespace="default", data={}))
        yield server


NUMBERS = itertools.count()
Begun = Callable[..., Any]
"""To be called once it works."""


def a_manager(memory: MemoryServer, api: APIServer, begun: Begun) -> Running:
    manager, stop = Manager(memory.client(), metrics=Metrics()), StopSignal()
    controller_for(manager).for_(CONFIG_MAP).complete(lambda request: begun() or Result())
    return Running(lambda: manager.run(stop), stop.set)


def a_leader(memory: MemoryServer, api: APIServer, begun: Begun) -> Running:
    election = LeaderElection(
        id=f"leader-{next(NUMBERS)}",  # a Lease of its own, which nobody has to give back first
        namespace="default",
        lease_duration=3.0,
        renew_deadline=2.0,
        retry_period=0.1,
    )
    manager = Manager(memory.client(), metrics=Metrics(), leader_election=election)
    controller_for(manager).for_(CONFIG_MAP).complete(lambda request: begun() or Result())
    stop = StopSignal()
    return Running(lambda: manager.run(stop), stop.set)


def an_app(memory: MemoryServer, api: APIServer, begun: Begun) -> Running:
    app, stop = App("any-operator"), StopSignal()
    app.on_add(CONFIG_MAP)(lambda obj: begun())
    app.on_sync(CONFIG_MAP)(lambda obj: begun())
    app.every(60.0, CONFIG_MAP)(lambda obj: None)
    manager = app.manager(memory.client(), metrics=Metrics())
    return Running(lambda: manager.run(stop), stop.set)


def informers(memory: MemoryServer, api: APIServer, begun: Begun) -> Running:
    controller, stop = InformerController(metrics=Metrics()), StopSignal()
    informer = Informer(CONFIG_MAP, memory.client(), metrics=Metrics())
    controller.add_informer(informer, CONFIG_MAP)
    controller.add_watcher(SimpleWatcher(add=lambda obj: begun()), CONFIG_MAP)
    return Running(lambda: controller.run(stop), stop.set)


def a_cache(memory: MemoryServer, api: APIServer, begun: Begun) -> Running:
    cache, stop = Cache(memory.client(), metrics=Metrics()), StopSignal()
    cache.add(CONFIG_MAP)
    cache.add_event_handler(CONFIG_MAP, _Handler(begun))
    return Running(lambda: cache.run(stop), stop.set)


def an_informer(memory: MemoryServer, api: APIServer, begun: Begun) -> Running:
    client, stop = Client(api.client_config(), metrics=Metrics()), StopSignal()
    informer = Informer(CONFIG_MAP, client, metrics=Metrics())
    informer.add_event_handler(_Handler(begun))

    def run() -> None:
        with client:
            informer.run(stop)

    return Running(run, stop.set)


def requests(memory: MemoryServer, api: APIServer, begun: Begun) -> Running:
    client = Client(api.client_config(), metrics=Metrics())

    def run() -> None:
        with client:
            for _ in range(2):
                client.get(CONFIG_MAP, "a", namespace="default")
        begun()

    return Running(run, client.close)


def webhooks(memory: MemoryServer, api: APIServer, begun: Begun) -> Running:
    certificates, stop = SelfSigned(), StopSignal()
    server = WebhookServer("127.0.0.1:0", certificates=certificates, metrics=Metrics())
    waiting = threading.Thread(target=lambda: server.wait_until_ready(stop) and begun())

    def run() -> None:
        waiting.start()
        server.run(stop)
        waiting.join()

    return Running(run, stop.set)


def a_queue(memory: MemoryServer, api: APIServer, begun: Begun) -> Running:
    queue = WorkQueue[str]("any", metrics=Metrics())

    def run() -> None:
        queue.add("a")
        queue.add("b", after=0.001)
        while (item := queue.get()) is not None:
            queue.done(item)
            begun()

    return Running(run, queue.shut_down)


@attrs.frozen
class _Handler:
    begun: Begun

    def on_add(self, obj: Any, *, is_initial: bool) -> None:
        self.begun()

    def on_update(self, old: Any, new: Any) -> None: ...

    def on_delete(self, obj: Any) -> None: ...


def interrupted(running: Running, begun: StopSignal, line: int) -> int:
    """Run it with the handler before this line, or else once it works; the number of lines."""
    count = 0

    def local(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if event == "line":
            count += 1
            if count == line:
                running.handler()
                begun.set()
        return local

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        return local if frame.f_code.co_filename.startswith(INTERRUPTED) else None

    def end() -> None:
        begun.wait()
        running.handler()

    ending = threading.Thread(target=end)
    ending.start()
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        running.run()
    except ClientError:
        pass  # of a closed client
    finally:
        sys.settrace(before)
        begun.set()
        ending.join()
    return count


@pytest.mark.parametrize(
    "make",
    [
        a_manager,
        a_leader,
        an_app,
        informers,
        a_cache,
        an_informer,
        requests,
        webhooks,
        a_queue,
    ],
)
def test_a_signal_handler_ends_what_runs_whichever_line_it_interrupts(
    memory: MemoryServer, api: APIServer, make: Callable[..., Running]
) -> None:
    def run(line: int) -> int:
        begun = StopSignal()
        return interrupted(make(memory, api, begun.set), begun, line)

    lines = run(0)
    assert lines > 50

    @settings(max_examples=scaled(40), deadline=None)
    @given(st.integers(1, lines))
    def at(line: int) -> None:
        run(line)

    at()
