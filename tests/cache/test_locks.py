"""User code in an informer's thread may take locks of its own."""

from __future__ import annotations

import threading

import pytest

from appsdk_operator.cache import Cache, CacheOptions
from appsdk_operator.runtime import Metrics, StopSignal
from tests.cache.conftest import (
    PATIENCE,
    THING,
    BatchRecorder,
    ScriptedClient,
    Stream,
    line,
    page,
    thing,
)


def ends(target):
    """Whether ``target`` ends in a thread of its own, as it does unless it waits for a lock."""
    done = threading.Event()

    def run():
        target()
        done.set()

    threading.Thread(target=run).start()
    return done.wait(PATIENCE / 3)


class Gate:
    """An index function that waits in the middle."""

    def __init__(self):
        self.entered, self.opened = threading.Event(), threading.Event()

    def __call__(self, obj):
        self.entered.set()
        assert self.opened.wait(PATIENCE)
        return [obj.name]


class Bad(BatchRecorder):
    def on_events(self, events):
        raise RuntimeError("no")


def test_a_handler_can_be_added_while_an_index_function_waits_for_whoever_adds_it(make):
    gate = Gate()
    running = make(
        page(thing("a")),
        Stream([line("ADDED", thing("b", 11))], then=None),
        indexes={"slow": gate},
    )
    handler = BatchRecorder()
    running.start()
    assert gate.entered.wait(PATIENCE)
    added = ends(lambda: running.informer.add_event_handler(handler))
    gate.opened.set()
    assert added
    running.client.wait_for_requests(2)
    running.sync()
    assert handler.calls[0] == "add a@1 initial"


def test_an_index_function_may_read_a_cache_to_which_a_handler_is_added_meanwhile():
    gate = Gate()

    def index(obj):
        gate(obj)
        assert cache.kinds == [THING]
        return [obj.name]

    cache = Cache(ScriptedClient(page(thing("a"))), metrics=Metrics(), on_error=lambda _: None)
    cache.add(THING, CacheOptions(indexes={"slow": index}))
    (informer,) = cache.informers(THING)
    stop = StopSignal()
    stepper = threading.Thread(target=lambda: [informer.step(stop) for _ in range(2)])
    informer._state._may_stream = False
    informer._state._relist(0.0, None)
    stepper.start()
    assert gate.entered.wait(PATIENCE)
    handler = BatchRecorder()
    added = ends(lambda: cache.add_event_handler(THING, handler))
    gate.opened.set()
    stop.set()
    stepper.join(PATIENCE)
    assert added
    assert handler.calls == ["add a@1 initial"]
    assert [obj.name for obj in cache.by_index(THING, "slow", "a")] == ["a"]


def test_an_index_that_is_added_while_objects_are_indexed_gets_them_too(make):
    gate = Gate()
    running = make(page(thing("a")), indexes={"slow": gate})
    stepper = threading.Thread(target=lambda: running.informer.step(running.stop))
    stepper.start()
    assert gate.entered.wait(PATIENCE)
    running.informer.add_index("name", lambda obj: [obj.name])
    gate.opened.set()
    stepper.join(PATIENCE)
    assert [obj.name for obj in running.informer.store.by_index("name", "a")] == ["a"]


@pytest.mark.parametrize("when", ["news", "late", "replay"])
def test_the_failure_of_a_batch_handler_is_reported_without_the_lock(make, when):
    reported = []

    def on_error(error):
        informer = running.informer
        reported.append((str(error), ends(lambda: informer.add_event_handler(BatchRecorder()))))

    running = make(page(thing("a")), on_error=on_error)
    if when == "news":
        running.informer.add_event_handler(Bad())
        running.informer.step(running.stop)
    else:
        running.informer.step(running.stop)
        registration = running.informer.add_event_handler(Bad())
        if when == "replay":
            registration.replay()
    assert set(reported) == {("no", True)}
    assert str(running.informer.last_error) == "no"


def test_the_failure_of_a_batch_handler_is_reported_without_the_lock_of_the_cache():
    reported = []

    def on_error(error):
        reported.append((str(error), ends(lambda: cache.kinds)))

    client = ScriptedClient(page(thing("a")))
    cache = Cache(client, metrics=Metrics(), on_error=on_error)
    cache.add(THING)
    (informer,) = cache.informers(THING)
    informer._state._may_stream = False
    informer._state._relist(0.0, None)
    informer.step(StopSignal())
    cache.add_event_handler(THING, Bad())
    assert reported == [("no", True)]
