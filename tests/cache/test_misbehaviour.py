"""User code that raises more than an Exception, and counts of merged events over removals."""

from __future__ import annotations

import logging
import threading

import pytest

from appsdk_operator.cache import Cache, CacheOptions, Delivery, Event, Informer, ResourceAction
from appsdk_operator.resource import ListPage
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal
from tests.cache.conftest import PATIENCE, THING, thing
from tests.waiting import eventually

UPDATE = ResourceAction.UPDATE


class OneList:
    """A server with one object, and no watches."""

    def __init__(self):
        self.watches = threading.Semaphore(0)

    def list_page(self, kind, **_):
        return ListPage([thing("a")], "1", "", None)

    def watch(self, kind, **_):
        self.watches.release()
        raise OSError("no watches here")


class Handler:
    def on_add(self, obj, *, is_initial):
        pass

    def on_update(self, old, new):
        pass

    def on_delete(self, obj, *, is_final_state_unknown):
        pass


def exits(*_):
    raise SystemExit(3)


@pytest.fixture
def stop():
    return StopSignal()


@pytest.fixture
def running(stop):
    """Runs a cache until the end of the test; what its run raised."""
    started = []

    def run(cache):
        raised = []

        def target():
            try:
                cache.run(stop)
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=target)
        thread.start()
        started.append(thread)
        return raised

    yield run
    stop.set()
    for thread in started:
        thread.join(PATIENCE)


@pytest.mark.parametrize("whose", ["index", "transform", "on_error"])
def test_what_would_end_a_thread_ends_no_informer(whose, running, stop, caplog):
    caplog.set_level(logging.CRITICAL + 1, "appsdk_operator.cache")
    client, clock = OneList(), ManualClock()
    cache = Cache(
        client,
        clock=clock,
        metrics=Metrics(),
        transform=exits if whose == "transform" else None,
        on_error=exits if whose == "on_error" else None,
    )
    cache.add(THING, CacheOptions(indexes={"i": exits} if whose == "index" else {}))
    raised = running(cache)
    clock.block_until_waiting(1)
    clock.advance(100.0)
    assert cache.wait_for_sync(stop, PATIENCE)
    assert [obj.name for obj in cache.list(THING)] == ["a"]
    for _ in range(3):
        assert client.watches.acquire(timeout=PATIENCE), "it goes on"
        clock.block_until_waiting(1)
        clock.advance(100.0)
    assert not raised


def test_a_transform_that_exits_is_reported_as_such(stop):
    problems = []
    informer = Informer(
        THING,
        OneList(),
        stream_first_sync=False,
        transform=exits,
        metrics=Metrics(),
        on_error=problems.append,
    )
    thread = threading.Thread(target=informer.step, args=(stop,))
    thread.start()
    thread.join(PATIENCE)
    assert [str(problem) for problem in problems] == ["the transform raised SystemExit(3)"]


def test_a_cache_whose_informer_fails_fails(running):
    cache = Cache(OneList(), metrics=Metrics())
    cache.add(THING)
    [informer] = cache.informers(THING)
    informer._reflector.run = exits
    raised = running(cache)
    eventually(lambda: raised)
    assert isinstance(raised[0], RuntimeError)
    assert "an informer of the cache failed: SystemExit(3)" in str(raised[0])


def merge_six(take):
    for version in range(2, 9):
        take([Event(UPDATE, thing("a", version), thing("a", version - 1))])


def test_merged_events_are_counted_once_while_their_handler_goes(monkeypatch):
    metrics = Metrics()
    informer = Informer(THING, OneList(), metrics=metrics)
    informer._informer_metrics.publish()
    going = informer.add_event_handler(Handler(), max_pending=1)
    staying = informer.add_event_handler(Handler())
    merge_six(going.sink.on_events)

    def merged():
        name = "informer_handler_merged_events_total"
        return metrics.value(name, kind=str(THING), namespace="")

    pending = Delivery.pending

    def goes_meanwhile(delivery):
        if delivery is staying.own_delivery:
            going.remove()
        return pending.fget(delivery)

    assert merged() == 6
    monkeypatch.setattr(Delivery, "pending", property(goes_meanwhile))
    assert merged() == 6
    assert merged() == 6


@pytest.mark.parametrize("goes", ["the handler", "the kind", "the handler during the scrape"])
def test_the_count_of_merged_events_outlives_handler_and_kind(goes, monkeypatch):
    metrics = Metrics()
    cache = Cache(OneList(), metrics=metrics)
    cache._cache_metrics.publish(metrics)
    cache.add(THING)
    registration = cache.add_event_handler(THING, Handler(), max_pending=1)
    merge_six(registration._sink.on_events)

    def merged():
        return metrics.value("cache_handler_merged_events_total", kind=str(THING))

    assert merged() == 6
    if goes == "the kind":
        cache.remove(THING)
    elif goes == "the handler":
        registration.remove()
    else:
        handlers = cache._cache_metrics._handlers

        def then_it_goes():
            found = handlers()
            registration.remove()
            return found

        cache._cache_metrics._handlers = then_it_goes
    assert merged() == 6


def test_one_of_two_informers_that_has_not_synced_is_seen(stop):
    metrics = Metrics()
    informers = [
        Informer(THING, OneList(), stream_first_sync=False, metrics=metrics) for _ in range(2)
    ]
    for informer in informers:
        informer._informer_metrics.publish()

    def counts():
        labels = {"kind": str(THING), "namespace": ""}
        return [metrics.value(name, **labels) for name in ("informers", "informer_synced")]

    assert counts() == [2, 0]
    informers[0].step(stop)
    assert counts() == [2, 1]
    informers[0]._informer_metrics.retire()
    assert counts() == [1, 0]
