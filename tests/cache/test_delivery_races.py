"""Races of a delivery: stops, removals and events in the middle of a worker's call."""

from __future__ import annotations

import collections
import contextlib
import threading

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from appsdk_operator.cache import Delivery, Event, Informer, Overflow, ResourceAction
from appsdk_operator.cache._delivery.batches import Batch
from appsdk_operator.resource import ListPage, Object
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal
from tests.cache.conftest import PATIENCE, THING, thing, told
from tests.hypothesis_profiles import scaled
from tests.waiting import eventually

CREATE, UPDATE, *_ = ResourceAction


def add(name, version=1, *, initial=False):
    return Event(CREATE, thing(name, version), None, initial)


def update(name, version):
    return Event(UPDATE, thing(name, version), thing(name, version - 1))


def adds(count, *, initial=False):
    return [add(f"n{number}", number, initial=initial) for number in range(1, count + 1)]


def steps(delivery):
    while delivery.step():
        pass


def put_in_thread(source, events):
    thread = threading.Thread(target=source.on_events, args=(events,))
    thread.start()
    return thread


@pytest.mark.parametrize("batch", [1, 50], ids=["one event a read", "all in one read"])
@pytest.mark.parametrize("end", ["stop", "remove"])
def test_no_event_is_handled_after_the_one_that_ends_it(batch, end):
    handled, ended = [], threading.Event()

    def handle(key, event):
        handled.append(key.name)
        if end == "stop":
            delivery.stop()
        else:
            delivery.remove(source)
            ended.set()

    delivery = Delivery("d", handle)
    source = delivery.source("k")
    events = adds(50, initial=True)
    for start in range(0, 50, batch):
        source.on_events(events[start : start + batch])
    source.on_initial_list_end()
    delivery.start()
    if end == "remove":
        assert ended.wait(PATIENCE)
        assert delivery.wait_idle(PATIENCE)
        delivery.stop()
    assert delivery.join(PATIENCE) == []
    assert handled == ["n1"]
    assert delivery.pending == 0
    if end == "stop":
        assert not source.has_synced


def test_a_handler_that_removes_itself_is_not_called_for_what_came_event_by_event():
    fed, removed, calls = threading.Event(), threading.Event(), []

    class Stream:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def __iter__(self):
            for number in range(2, 40):
                obj = thing(f"n{number}", number)
                yield [b'{"type":"ADDED","object":%s}' % obj.raw]
            fed.set()
            stop.wait()

    class Client:
        def list_page(self, kind, **_):
            return ListPage([], "1", "", None)

        def watch(self, kind, **_):
            return Stream()

    class Handler:
        def on_add(self, obj: Object, *, is_initial):
            assert fed.wait(PATIENCE)
            calls.append(obj.name)
            if len(calls) == 2:
                registration.remove()
                removed.set()

        def on_update(self, old, new):
            raise AssertionError

        def on_delete(self, obj, *, is_final_state_unknown):
            raise AssertionError

    stop = StopSignal()
    informer = Informer(THING, Client(), stream_first_sync=False, metrics=Metrics())
    registration = informer.add_event_handler(Handler())
    thread = threading.Thread(target=informer.run, args=(stop,))
    thread.start()
    # A delivery that does not run yet has nothing to join.
    assert removed.wait(PATIENCE)
    assert registration.own_delivery.join(PATIENCE) == []
    stop.set()
    thread.join(PATIENCE)
    assert calls == ["n2", "n3"]


def test_a_turn_of_many_small_reads_ends_in_time_as_well():
    clock = ManualClock()
    delivery = Delivery("d", lambda key, event: clock.advance(0.004), clock=clock)
    source = delivery.source("k")
    for event in adds(9):
        source.on_events([event])
    item = delivery._queue.try_get()
    delivery._process(item.key, item.ticket)
    assert delivery.pending == 6


def waits_by_object(handled):
    """A delivery with one worker, where x has a delayed call, so its events wait by object."""

    def handle(key, event):
        if event is not None:
            handled.append(f"{key.name}@{event.object.resource_version}")
        return 1000.0 if key.name == "x" else None

    delivery = Delivery("d", handle, overflow=Overflow.BLOCK)
    source = delivery.source("k")
    source.on_events([update("x", 2)])
    delivery.step()
    return delivery, source


def test_a_worker_that_looks_while_events_are_put_sees_all_of_them_or_none():
    handled, threads = [], []
    delivery, source = waits_by_object(handled)
    add_all = delivery._queue.add_all

    def slow(*args, **options):
        threads.append(threading.Thread(target=steps, args=(delivery,)))
        threads[-1].start()
        add_all(*args, **options)

    source.on_events([update("z", 3)])
    delivery._queue.add_all = slow
    source.on_events([update("a", 4), update("x", 5), update("b", 6)])
    for thread in threads:
        thread.join(PATIENCE)
    steps(delivery)
    assert handled == ["x@2", "z@3", "a@4", "x@5", "b@6"]
    delivery.stop()


def test_what_is_put_while_a_worker_looks_waits_for_its_next_process():
    handled, threads, metrics, clock = [], [], Metrics(), ManualClock()
    delivery = Delivery("d", lambda key, _: handled.append(key.name), metrics=metrics, clock=clock)
    source = delivery.source("k")
    next_ticket = delivery._queue.next_ticket

    def slow():
        clock.advance(1.0)
        threads.append(put_in_thread(source, adds(20)))
        return next_ticket()

    source.on_events([add("first")])
    delivery._queue.next_ticket = slow
    item = delivery._queue.try_get()
    delivery._process(item.key, item.ticket)
    for thread in threads:
        thread.join(PATIENCE)
    delivery._queue.next_ticket = next_ticket
    steps(delivery)
    assert handled == ["first", *(f"n{number}" for number in range(1, 21))]
    labels = {"name": "d", "controller": "d"}
    assert metrics.value("workqueue_queue_duration_seconds_sum", **labels) >= 0
    delivery.stop()


@pytest.mark.stress
def test_with_one_worker_the_order_is_global_while_some_events_wait_by_object():
    versions = []

    def handle(key, event):
        if event is not None:
            versions.append(int(event.object.resource_version))
        return 1000.0 if key.name == "x" else None

    delivery = Delivery("d", handle, overflow=Overflow.BLOCK)
    source = delivery.source("k")
    delivery.start()
    source.on_events([update("x", 1)])
    version = 1
    for _ in range(300):
        events = []
        for number in range(40):
            version += 1
            events.append(update("x" if number == 20 else f"o{number}", version))
        source.on_events(events)
    assert delivery.wait_idle(60)
    delivery.stop()
    assert delivery.join(PATIENCE) == []
    assert versions == list(range(1, version + 1))


@pytest.mark.parametrize("workers", [1, 2])
def test_events_are_the_deliverys_own_once_they_are_put(workers):
    handled = []
    delivery = Delivery("d", lambda key, event: handled.append(told(event)), workers=workers)
    source = delivery.source("k")
    buffer = [add("a", initial=True), add("b", initial=True)]
    source.on_events(buffer)
    buffer.clear()
    source.on_initial_list_end()
    steps(delivery)
    assert handled == ["add a@1 initial", "add b@1 initial"]
    assert source.has_synced
    delivery.stop()


@pytest.mark.parametrize("workers", [1, 2])
def test_an_object_without_a_name_is_no_resync(workers):
    handled = []
    delivery = Delivery("d", lambda key, event: handled.append(key.name), workers=workers)
    source = delivery.source("k")
    nameless = Object.from_json(THING, b'{"metadata":{}}')
    source.on_events([Event(CREATE, nameless, None, True)])
    source.on_initial_list_end()
    steps(delivery)
    assert handled == [""]
    assert source.has_synced
    delivery.stop()


def test_a_foreign_informer_that_says_an_add_twice_has_synced_all_the_same():
    delivery = Delivery("d", lambda key, event: None, max_pending=1)
    source = delivery.source("k")
    for _ in range(2):
        source.on_add(thing("a"), is_initial=True)
    source.on_initial_list_end()
    steps(delivery)
    assert source.has_synced
    delivery.stop()


def test_it_can_be_scraped_from_the_moment_in_which_it_is_made():
    metrics = Metrics()
    add_source = metrics.add_source

    def scraped_at_once(source):
        end = add_source(source)
        metrics.render()
        return end

    metrics.add_source = scraped_at_once  # type: ignore[method-assign]
    Delivery("d", lambda key, event: None, metrics=metrics).stop()


@pytest.mark.parametrize("workers", [1, 2])
def test_what_waits_at_the_stop_is_let_go(workers):
    delivery = Delivery("d", lambda key, event: None, workers=workers)
    source = delivery.source("k")
    source.on_events(adds(5, initial=True))
    source.on_initial_list_end()
    delivery.stop()
    assert delivery.pending == 0
    assert not source.has_synced


SOON = 5.0
"""Seconds: what a defect keeps from coming is not waited for as long as a busy machine may take."""


def is_idle(delivery):
    # Its own time-out is on the manual clock, which nobody moves.
    eventually(lambda: delivery.wait_idle(0.0), SOON)


class Hanging:
    """A handler that hangs in some of its calls, by their number, until the test releases it."""

    def __init__(self, *numbers):
        self.gates = {number: threading.Event() for number in numbers}
        self.entered = {number: threading.Event() for number in numbers}
        self.threads = {}
        self.count = 0
        self.at_first = lambda: None
        self.running, self.overlaps, self.done = set(), [], []
        self.lock = threading.Lock()

    def __call__(self, key, event):
        found = (key.source.kind, key.name)
        with self.lock:
            number, self.count = self.count, self.count + 1
            self.threads[number] = threading.get_ident()
            self.overlaps += [found] if found in self.running else []
            self.running.add(found)
        if number == 0:
            self.at_first()
        if number in self.gates:
            self.entered[number].set()
            assert self.gates[number].wait(PATIENCE)
        with self.lock:
            self.running.discard(found)
            self.done.append((key.name, int(event.object.resource_version)))


@given(
    batches=st.lists(st.text("abc", min_size=1, max_size=6), min_size=1, max_size=5),
    later=st.lists(
        st.tuples(st.integers(0, 1), st.text("abcd", min_size=1, max_size=4)), max_size=4
    ),
    hanging=st.sets(st.integers(0, 8), min_size=1, max_size=3),
    is_allowed_late=st.booleans(),
)
@example(batches=["abc", "ab"], later=[], hanging={0, 1}, is_allowed_late=True)
@example(batches=["abc", "ab"], later=[], hanging={1}, is_allowed_late=True)
# Of a defect that is waited for in vain each smaller example would take seconds.
@settings(max_examples=scaled(40), deadline=None, phases=[Phase.explicit, Phase.generate])
def test_the_events_behind_a_call_that_hangs_are_handled_by_the_worker_that_replaces_it(
    batches, later, hanging, is_allowed_late
):
    handler = Hanging(*hanging)
    delivery = Delivery("d", handler, clock=ManualClock())
    if is_allowed_late:
        handler.at_first = delivery.allow_replacement
    else:
        delivery.allow_replacement()
    sources = [delivery.source("k"), delivery.source("k")]
    version, expected = 0, {}

    def put(source, names):
        nonlocal version
        events = []
        for name in names:
            version += 1
            events.append(add(name, version, initial=True))
            expected.setdefault((source, name), []).append((name, version))
        sources[source].on_events(events)

    for names in batches:
        put(0, names)
    delivery.start()
    first, held = True, set()
    for number in sorted(hanging):
        if number >= sum(map(len, batches)):
            break
        # What belongs to an object in a call that hangs is not begun, so it may never come.
        if not handler.entered[number].wait(PATIENCE if first else 0.2):
            break
        first = False
        held.add(number)
        delivery.replace(handler.threads[number])
        assert not delivery.replace(handler.threads[number])
    for source, names in later:
        put(source, names)
    for source in sources:
        source.on_initial_list_end()
    for number in hanging:
        handler.gates[number].set()
    is_idle(delivery)
    assert not handler.overlaps
    assert sorted(handler.done) == sorted(each for events in expected.values() for each in events)
    for (source, name), events in expected.items():
        of_source = [each for each in handler.done if each in events]
        assert of_source == events, (source, name)
    assert all(source.has_synced for source in sources)
    assert delivery.pending == 0
    put(0, "abc")
    is_idle(delivery)
    delivery.stop()
    assert delivery.join(PATIENCE) == []


@contextlib.contextmanager
def replaced(handler, *events):
    """A delivery whose only worker hangs in the second of ``events``, and was replaced.

    However the block ends, the call returns and the workers end, so that a failure takes seconds.
    """
    delivery = Delivery("d", handler, clock=ManualClock())
    delivery.allow_replacement()
    source = delivery.source("k")
    source.on_events(list(events))
    try:
        delivery.start()
        assert handler.entered[1].wait(SOON)
        assert delivery.replace(handler.threads[1])
        yield delivery, source
    finally:
        handler.gates[1].set()
        delivery.stop()
        assert delivery.join(SOON) == []


def test_the_object_of_a_call_that_hangs_stays_closed_for_all_sources():
    handler = Hanging(1)
    with replaced(handler, *adds(3), update("n2", 4)) as (delivery, source):
        other = delivery.source("k")
        other.on_events([add("n2", 2)])
        source.on_events([update("n2", 5), add("n4", 6)])
        eventually(lambda: ("n4", 6) in handler.done, SOON)
        assert not handler.overlaps
        assert handler.done == [("n1", 1), ("n3", 3), ("n4", 6)]
        handler.gates[1].set()
        is_idle(delivery)
        assert not handler.overlaps
        of_source = [each for each in handler.done[3:] if each != ("n2", 2)]
        assert of_source == [("n2", 4), ("n2", 5)]
        assert handler.done.count(("n2", 2)) == 2


def test_a_worker_that_was_replaced_handles_nothing_of_what_was_taken_from_it():
    handler = Hanging(1)
    with replaced(handler, *adds(6)) as (delivery, _):
        eventually(lambda: len(handler.done) == 5, SOON)
        handler.gates[1].set()
        is_idle(delivery)
        assert handler.done == [(f"n{n}", n) for n in (1, 3, 4, 5, 6, 2)]
        assert delivery.pending == 0


def test_once_the_call_has_returned_events_wait_in_the_batch_queue_again():
    handler = Hanging(1)
    with replaced(handler, *adds(4)) as (delivery, _):
        bound = delivery._usual_line_bound
        assert bound
        eventually(lambda: [name for name, _ in handler.done] == ["n1", "n3", "n4"], SOON)
        assert delivery._line_bound == 0
        handler.gates[1].set()
        eventually(lambda: delivery._line_bound == bound, SOON)
        assert handler.done[-1] == ("n2", 2)


class Watched(collections.deque):
    """A deque that does something else between two of its steps, once."""

    between = staticmethod(lambda: None)

    def pop(self):
        return self._then(super().pop())

    def popleft(self):
        return self._then(super().popleft())

    def _then(self, found):
        between, self.between = self.between, lambda: None
        between()
        return found


def test_each_event_is_begun_by_the_worker_or_taken_away_from_it():
    events = adds(6)
    batch = Batch(Delivery("d", told).source("k"), events, 1, 0.0)
    batch.share()
    batch._left = Watched(batch._left)
    working = batch.begun()
    begun = [next(working)]
    batch._left.between = lambda: begun.append(next(working))
    assert batch.take_away() == 2
    assert begun == events[:2]
    assert next(working, None) is None
