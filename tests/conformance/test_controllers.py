"""A controller with real sources on both servers: complete before it begins, then convergent."""

from __future__ import annotations

import collections
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from appsdk_operator.cache import Cache, Event, ResourceAction
from appsdk_operator.client import NotFound
from appsdk_operator.controllers import (
    LOW_PRIORITY,
    ChannelSource,
    Controller,
    ControllerOptions,
    KindSource,
    Request,
    RequestQueue,
    Result,
    for_object,
)
from appsdk_operator.runtime import ItemExponential, Metrics, StopSignal
from tests.conformance.conftest import TIMEOUT, WIDGET, World
from tests.runs import Run
from tests.waiting import eventually


class Beginning:
    """A source of the test's own that has synced when the test says so."""

    def __init__(self) -> None:
        self.has_synced = threading.Event()

    def start(self, queue: RequestQueue[Request], stop: StopSignal) -> None:
        queue.add(Request("", "from the test"))

    def wait_for_sync(self, stop: StopSignal, timeout: float | None = None) -> bool:
        return self.has_synced.wait(TIMEOUT)


class Running:
    """A cache and a controller in threads until the test ends."""

    def __init__(self, world: World, reconcile: Any, **options: Any) -> None:
        self.metrics = Metrics()
        self.cache = Cache(world.client, namespaces=[world.namespace], metrics=self.metrics)
        self.controller: Controller[Request] = Controller(
            f"widgets-{world.namespace}",
            reconcile,
            options=ControllerOptions(**options),
            kind=WIDGET,
            metrics=self.metrics,
        )
        self.stop_signal = StopSignal()
        self.runs = [Run(part, self.stop_signal) for part in (self.cache, self.controller)]

    def watch_widgets(self) -> None:
        source = KindSource(self.cache, WIDGET, for_object(), metrics=self.metrics)
        self.controller.watch(source)

    def start(self) -> None:
        for run in self.runs:
            run.start()

    def stop(self) -> None:
        self.stop_signal.set()
        assert [error for run in self.runs for error in run.end()] == []


@pytest.fixture
def run(world: World) -> Iterator[Any]:
    made: list[Running] = []

    def make(reconcile: Any, **options: Any) -> Running:
        made.append(Running(world, reconcile, **options))
        return made[-1]

    yield make
    for running in made:
        running.stop()


def test_nothing_is_reconciled_before_every_kind_of_source_has_handed_over_all_it_had(
    world: World, run: Any
) -> None:
    names = [f"w-{number:02}" for number in range(20)]
    for name in names:
        world.create(WIDGET, name)
    seen: dict[str, int] = {}
    beginning = Beginning()

    def reconcile(request: Request) -> None:
        assert beginning.has_synced.is_set()
        seen[request.name] = len(running.cache.list(WIDGET))

    running = run(reconcile, max_concurrent_reconciles=2)
    running.watch_widgets()
    channel = ChannelSource(for_object(), metrics=running.metrics)
    channel.push(Event(ResourceAction.GENERIC, world.get(WIDGET, "w-00")))
    running.controller.watch(channel)
    running.controller.watch(beginning)
    running.start()

    def queued_now() -> dict[str, Any]:
        found = running.controller.debug_snapshot().get("planned", [])
        return {each["object"]: each for each in found}

    first = f"{world.namespace}/w-00"
    # Pushed, too, which is handed over by a thread of its own.
    assert eventually(lambda: queued_now().get(first, {}).get("priority") == 0)
    assert eventually(lambda: len(queued_now()) == 21)
    queued = queued_now()
    last = queued[f"{world.namespace}/w-19"]
    assert last["why"] == f"Widget {world.namespace}/w-19 was there at the start"
    assert last["priority"] == LOW_PRIORITY
    assert queued[first]["priority"] == 0
    health = running.controller.health()
    assert not health.is_ready
    assert "Beginning" in health.text
    assert seen == {}
    beginning.has_synced.set()
    assert eventually(lambda: len(seen) == 21)
    assert seen == dict.fromkeys([*names, "from the test"], 20)
    assert eventually(lambda: running.controller.health().is_ready)


def test_whatever_fails_and_whatever_happens_the_last_state_is_reconciled(
    world: World, run: Any
) -> None:
    lock = threading.Lock()
    running_now: set[Request] = set()
    overlaps: list[Request] = []
    last: dict[str, str | None] = {}
    calls: collections.Counter[str] = collections.Counter()

    def reconcile(request: Request) -> Result | None:
        with lock:
            if request in running_now:
                overlaps.append(request)
            running_now.add(request)
            calls[request.name] += 1
            number = calls[request.name]
        try:
            if number % 3 == 1:
                raise ConnectionError("planned")
            try:
                version = world.client.get(WIDGET, request.name, namespace=request.namespace)
            except NotFound:
                last[request.name] = None
                return None
            last[request.name] = version.resource_version
            return Result(requeue_after=60.0) if number % 2 else None
        finally:
            with lock:
                running_now.discard(request)

    running = run(
        reconcile,
        max_concurrent_reconciles=4,
        rate_limiter=lambda: ItemExponential(base=0.001, maximum=0.05),
    )
    running.watch_widgets()
    for number in range(5):
        world.create(WIDGET, f"early-{number}")
    running.start()
    for number in range(5):
        world.create(WIDGET, f"late-{number}")
    for size in range(2, 6):
        for number in range(5):
            world.resize(WIDGET, f"early-{number}", size)
    world.delete(WIDGET, "early-0")
    world.delete(WIDGET, "late-0")
    expected: dict[str, str | None] = {"early-0": None, "late-0": None}
    expected.update(world.versions(WIDGET))
    assert eventually(lambda: last == expected), (last, expected)
    assert overlaps == []
    labels = {"controller": running.controller.name, "result": "error"}
    assert (running.metrics.value("controller_runtime_reconcile_total", **labels) or 0) >= 10
