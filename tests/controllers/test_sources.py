from __future__ import annotations

import threading
from typing import Any

import attrs
import pytest

from appsdk_operator import client as c
from appsdk_operator.cache import Cache, CacheOptions, Informer, NotCachedError
from appsdk_operator.controllers import (
    LOW_PRIORITY,
    HandlerFunctions,
    InformerSource,
    KindSource,
    for_object,
    map_objects,
)
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal
from tests.cache.conftest import (
    PATIENCE,
    THING,
    Hang,
    NoJitter,
    ScriptedClient,
    Stream,
    error_line,
    line,
    page,
    thing,
)
from tests.controllers.event_tools import RecordingQueue
from tests.waiting import eventually

NO_STREAM = c.error_from_status({"code": 422})
NOT_FOUND = c.error_from_status({"code": 404, "reason": "NotFound", "message": "no such kind"})


class Running:
    """A cache, or an informer, that runs on a script, and what is started on it."""

    def __init__(self, *answers, informer=False, options=None):
        self.client = ScriptedClient(NO_STREAM, *answers)
        self.clock, self.metrics = ManualClock(), Metrics()
        self.stop, self.queue, self.sources = StopSignal(), RecordingQueue(), []
        shared = {"clock": self.clock, "metrics": self.metrics, "on_error": lambda _: None}
        if informer:
            self.it = Informer(THING, self.client, rng=NoJitter(), **shared)
        else:
            self.it = Cache(self.client, **shared)
            if options is not None:
                self.it.add(THING, options)
        self.thread = threading.Thread(target=self.it.run, args=(self.stop,))

    def run(self):
        self.thread.start()
        return self

    def source(self, handler=None, *predicates, kind=THING, start=True, **options):
        options = {"clock": self.clock, "metrics": self.metrics, **options}
        handler = handler or for_object()
        if isinstance(self.it, Informer):
            source = InformerSource(self.it, handler, predicates, **options)
        else:
            source = KindSource(self.it, kind, handler, predicates, **options)
        if start:
            source.start(self.queue, self.stop)
        self.sources.append(source)
        return source

    def end(self):
        self.stop.set()
        for source in self.sources:
            assert source.join(PATIENCE) == []
        if self.thread.ident:
            self.thread.join(PATIENCE)
            assert not self.thread.is_alive()


@pytest.fixture
def make():
    made = []

    def make(*answers, **options):
        made.append(Running(*answers, **options))
        return made[-1]

    yield make
    for running in made:
        running.end()


BOTH = pytest.mark.parametrize("informer", [False, True], ids=["kind", "informer"])


@BOTH
def test_what_is_there_comes_first_with_low_priority_and_then_what_happens(make, informer):
    stream = Stream(then=None)
    running = make(page(thing("a", 1), thing("b", 2)), stream, informer=informer)
    source = running.source()
    running.run()
    assert source.wait_for_sync(running.stop, None)
    assert source.has_synced
    assert sorted(running.queue.names) == ["x/a", "x/b"]
    stream.send(line("MODIFIED", thing("a", 11)), line("ADDED", thing("c", 12)))
    stream.send(line("DELETED", thing("b", 13)))
    assert running.queue.wait_for(5)[2:] == ["x/a", "x/c", "x/b"]
    assert running.queue.priorities == [LOW_PRIORITY, LOW_PRIORITY, None, None, None]
    assert [r.action.value for r in running.queue.reasons] == [
        "CREATE",
        "CREATE",
        "UPDATE",
        "CREATE",
        "DELETE",
    ]


def test_a_source_added_late_gets_what_is_there(make):
    running = make(page(thing("a")), Stream(then=None)).run()
    first = running.source()
    assert first.wait_for_sync(running.stop, None)
    second = running.source()
    assert second.wait_for_sync(running.stop, None)
    assert running.queue.names == ["x/a", "x/a"]


def test_a_deletion_that_was_missed_comes_with_its_state_flagged_as_unknown(make):
    seen = RecordingQueue()
    handler = HandlerFunctions(
        delete=lambda event, _: seen.add((event.object.name, event.is_final_state_unknown))
    )
    stream = Stream([error_line(410, "Expired")])
    running = make(
        page(thing("a", 1), thing("b", 2)), stream, page(thing("b", 2)), Stream(then=None)
    )
    source = running.source(handler)
    running.run()
    assert source.wait_for_sync(running.stop, None)
    assert seen.wait_for(1) == ["('a', True)"]


def test_predicates_filter(make):
    running = make(page(thing("a"), thing("b")), Stream(then=None))
    source = running.source(None, lambda event: event.object.name == "b")
    running.run()
    assert source.wait_for_sync(running.stop, None)
    assert running.queue.names == ["x/b"]


@attrs.frozen
class Spec:
    size: int = 0


def test_handlers_and_predicates_read_the_spec_with_the_types_of_the_source_s_kind(make):
    typed = THING.typed(spec=Spec)
    running = make(page(thing("a", spec={"size": 3})), Stream(then=None), options=CacheOptions())
    source = running.source(
        map_objects(lambda it: [it.spec.size]),
        lambda event: event.object.spec == Spec(3),
        kind=typed,
    )
    running.run()
    assert source.wait_for_sync(running.stop, None)
    assert running.queue.requests == [3]


def test_a_kind_that_the_cache_keeps_with_options_keeps_them(make):
    options = CacheOptions(label_selector="app=web")
    running = make(page(thing("a")), Stream(then=None), options=options)
    source = running.source()
    running.run()
    assert source.wait_for_sync(running.stop, None)
    assert running.client.wait_for_requests(2).label_selector == "app=web"


@BOTH
def test_a_source_has_synced_only_when_its_handler_has_handled_what_was_there(make, informer):
    entered, opened = threading.Event(), threading.Event()

    def slow(it):
        entered.set()
        assert opened.wait(PATIENCE)
        return [it.key]

    running = make(page(thing("a")), Stream(then=None), informer=informer)
    source = running.source(map_objects(slow))
    running.run()
    assert entered.wait(PATIENCE)
    assert running.sources[0].wait_for_sync(running.stop, 0.0) is False
    assert not source.has_synced
    assert not source.health().is_ready
    opened.set()
    assert source.wait_for_sync(running.stop, None)
    assert running.queue.names == ["x/a"]
    assert source.health().text == "source things.v1.example.com: ok"


def test_an_object_for_which_the_map_function_fails_does_not_keep_the_source_from_syncing(make):
    is_broken = threading.Event()
    is_broken.set()

    def function(it):
        if it.name == "a" and is_broken.is_set():
            raise ValueError("cannot say")
        return [it.key]

    running = make(page(thing("a"), thing("b")), Stream(then=None))
    source = running.source(map_objects(function), rng=NoJitter())
    running.run()
    assert source.wait_for_sync(running.stop, None)
    assert running.queue.names == ["x/b"]
    health = source.health()
    assert health.is_ready, "no restart would help"
    assert "newest: things.v1.example.com x/a: ValueError: cannot say" in health.text
    is_broken.clear()
    running.clock.block_until_waiting(1)
    running.clock.advance(0.2)
    assert running.queue.wait_for(2) == ["x/b", "x/a"]


def test_a_slow_handler_is_shown_every_state_and_makes_the_informer_wait(make):
    entered, opened = threading.Event(), threading.Event()

    def targets(it):
        entered.set()
        assert opened.wait(PATIENCE)
        return [it["spec"]["target"]]

    stream = Stream(then=None)
    running = make(page(thing("a", 1, spec={"target": "t1"})), stream)
    source = running.source(map_objects(targets), max_pending=2)
    running.run()
    assert entered.wait(PATIENCE)
    for version in range(2, 9):
        stream.send(line("MODIFIED", thing("a", version + 10, spec={"target": f"t{version}"})))
    # Each comes alone, so that no more are taken over than there is room for, and one.
    eventually(lambda: source._pipeline._delivery._room.waiting)
    assert source._pipeline.pending <= 3
    opened.set()
    running.queue.wait_for(15)
    assert source.wait_for_sync(running.stop, None)
    assert list(dict.fromkeys(running.queue.names)) == [f"t{n}" for n in range(1, 9)]


# Waiting.


def test_a_stop_while_waiting_is_no_error(make):
    running = make(Hang)
    source = running.source()
    running.run()
    running.client.wait_for_requests(2)
    running.stop.set()
    assert source.wait_for_sync(running.stop, None) is False
    assert source.health().text == "source things.v1.example.com: stopped"


def test_a_wait_that_takes_too_long_says_what_it_waited_for(make):
    running = make(Hang)
    source = running.source()
    running.run()
    running.client.wait_for_requests(2)
    outcome = []
    waiter = threading.Thread(
        target=lambda: outcome.append(source.wait_for_sync(running.stop, 5.0))
    )
    waiter.start()
    running.clock.block_until_waiting(1)
    running.clock.advance(5.0)
    waiter.join(PATIENCE)
    assert outcome == [False]
    assert "waits for its first objects: informer of things.example.com: not synced yet" in (
        source.health().text
    )


def test_a_kind_that_does_not_exist_yet_is_waited_for_with_a_hint_in_the_log(make, caplog):
    running = make(*[NOT_FOUND] * 12, page(thing("a")), Stream(then=None))
    source = running.source()
    running.run()
    outcome = []
    waiter = threading.Thread(
        target=lambda: outcome.append(source.wait_for_sync(running.stop, 120.0))
    )
    waiter.start()

    def has_ended_or_both_wait():
        return not waiter.is_alive() or len(running.clock._waiters) == 2

    while running.clock.monotonic() < 119:
        eventually(has_ended_or_both_wait)
        running.clock.advance(1.0)
    waiter.join(PATIENCE)
    assert outcome == [True]
    assert running.queue.names == ["x/a"]
    assert "install its CustomResourceDefinition, or correct the kind" in caplog.text


@BOTH
def test_the_wait_for_the_sync_counts_on_the_cache_s_clock_whatever_the_source_s_own_is(
    make, informer, caplog
):
    running = make(Hang, informer=informer)
    source = running.source(clock=ManualClock())
    running.run()
    running.client.wait_for_requests(2)
    outcome = []
    waiter = threading.Thread(
        target=lambda: outcome.append(source.wait_for_sync(running.stop, 30.0))
    )
    waiter.start()
    for _ in range(3):
        assert outcome == []
        running.clock.block_until_waiting(1)
        running.clock.advance(10.0)
    waiter.join(PATIENCE)
    assert outcome == [False]
    assert "waits for its first objects" in caplog.text


def test_a_kind_that_is_removed_while_its_source_is_asked_how_it_stands_breaks_nothing(
    make, monkeypatch
):
    running = make(page(), Stream(then=None))
    source = running.source()

    def gone(kind):
        raise NotCachedError(THING, "removed")

    monkeypatch.setattr(running.it, "informers", gone)
    assert "the kind was removed from the cache" in source.health().text


def test_a_source_that_was_not_started_is_not_waited_for(make):
    source = make().source(start=False)
    with pytest.raises(RuntimeError, match="was not started"):
        source.wait_for_sync(StopSignal())
    assert source.health().text == "source things.v1.example.com: not started"
    source._pipeline.claim.take()  # as at the beginning of a start
    assert source.health().text == "source things.v1.example.com: is starting"


@pytest.mark.parametrize("is_added_again", [False, True])
def test_a_kind_that_is_removed_from_the_cache_is_told_in_the_health(make, is_added_again):
    running = make(page(thing("a")), Stream(then=None), Hang)
    source = running.source()
    running.run()
    assert source.wait_for_sync(running.stop, None)
    running.it.remove(THING)
    if is_added_again:
        running.it.add(THING)
    assert "the kind was removed from the cache" in source.health().text
    assert source.wait_for_sync(running.stop, 100.0) in (True, False), "it returns at once"


def test_after_a_stop_and_join_nothing_more_is_queued_and_the_cache_goes_on(make):
    stream = Stream(then=None)
    running = make(page(thing("a")), stream)
    running.run()
    stop, queue = StopSignal(), RecordingQueue()
    source = running.source(start=False)
    source.start(queue, stop)
    other = running.source()
    assert source.wait_for_sync(stop, None)
    assert other.wait_for_sync(stop, None)
    stop.set()
    assert source.join(PATIENCE) == []
    stream.send(line("ADDED", thing("b", 11)))
    assert running.queue.wait_for(2)[-1] == "x/b"
    assert queue.names == ["x/a"]


@BOTH
def test_a_source_that_gets_no_thread_leaves_nothing_behind(make, informer, monkeypatch):
    running = make(informer=informer)
    source = running.source(start=False)

    def no_thread(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("appsdk_operator.runtime.ThreadGroup.start", no_thread)
    with pytest.raises(RuntimeError, match="new thread"):
        source.start(running.queue, running.stop)
    monkeypatch.undo()
    keeper = running.it if informer else running.it._kind_caches[THING]
    assert list(keeper._access.registrations if informer else keeper.registrations) == []
    assert running.metrics.value("source_events_total", source=str(THING)) is None


def test_a_source_belongs_to_one_controller(make):
    running = make()
    source = running.source()
    with pytest.raises(RuntimeError, match="make one for each"):
        source.start(running.queue, running.stop)


def test_a_hanging_async_handler_is_cancelled_at_the_stop(make):
    import asyncio

    entered, ended = threading.Event(), threading.Event()

    class Forever:
        async def handle(self, event, queue):
            entered.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

    running = make(page(thing("a")), Stream(then=None))
    source = running.source(Forever())
    running.run()
    assert entered.wait(PATIENCE)
    running.stop.set()
    assert ended.wait(PATIENCE)
    assert source.join(0.1) == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((None, THING, for_object()), "give the cache"),
        ((THING, THING, for_object()), "give the cache"),
        ((Cache(ScriptedClient()), None, for_object()), "give a Kind"),
        ((Cache(ScriptedClient()), THING, None), "use for_object"),
        ((Cache(ScriptedClient()), THING, for_object(), [None]), "cannot be called"),
        ((Cache(ScriptedClient()), THING, for_object(), for_object()), "list of predicates"),
    ],
)
def test_missing_or_wrong_parts_are_refused_at_construction(arguments, text):
    with pytest.raises(TypeError, match=text):
        KindSource(*arguments)


def test_an_informer_source_needs_an_informer():
    cache: Any = Cache(ScriptedClient())
    with pytest.raises(TypeError, match="KindSource takes a cache"):
        InformerSource(cache, for_object())
