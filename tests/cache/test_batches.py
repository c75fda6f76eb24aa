"""The batch queue of a delivery with one worker: handlers must not notice it."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appsdk_operator.cache import Delivery, Event, Overflow, ResourceAction
from appsdk_operator.cache._delivery.batches import Batch, BatchQueue
from appsdk_operator.runtime import ManualClock, Metrics, WorkQueue
from tests.cache.conftest import NoJitter, thing

CREATE, UPDATE, DELETE, RESYNC, _ = ResourceAction
NAMES = "abc"


class Subject:
    """A delivery whose handler asks for later calls, as retries and requeues do."""

    def __init__(self, max_pending, delays, overflow):
        self.clock = ManualClock()
        self.delivery = Delivery(
            "d",
            self.handle,
            max_pending=max_pending,
            overflow=overflow,
            clock=self.clock,
            rng=NoJitter(),
        )
        self.sources = [self.delivery.source(kind) for kind in ("one", "two")]
        self.delays = iter(delays)
        self.due = {}
        self.seen = []

    def handle(self, key, event):
        now = self.clock.monotonic()
        name = (key.source.kind, key.name)
        if event is not None:
            self.seen.append((name, event.action, event.object.resource_version))
            delay = next(self.delays, None)
            if delay is not None:
                self.due[name] = now + delay
            else:
                self.due.pop(name, None)
        elif name in self.due and self.due[name] <= now:
            del self.due[name]
        return self.due[name] - now if name in self.due else None

    def play(self, step, version):
        what, source, names, number = step
        if what == "put":
            events = [
                Event(UPDATE, thing(name, version + at), thing(name, version + at), False)
                for at, name in enumerate(names)
            ]
            self.sources[source].on_events(events)
        elif what == "initial":
            events = [Event(CREATE, thing(n, version), None, True) for n in set(names)]
            self.sources[source].on_events(sorted(events, key=lambda event: event.object.name))
        elif what == "resync":
            events = [Event(RESYNC, thing(name, version)) for name in sorted(set(names))]
            self.sources[source].on_events(events)
        elif what == "step":
            # There are also turns for what is owed, and those that a removed source leaves.
            wanted = len(self.seen) + number
            while len(self.seen) < wanted and self.delivery.step():
                pass
        elif what == "advance":
            self.clock.advance(float(number))
        elif what == "remove" and number == 3:
            self.delivery.remove(self.sources[source])
            gone = self.sources[source].kind
            self.due = {name: due for name, due in self.due.items() if name[0] != gone}

    def state(self):
        waiting = [source.initial_left for source in self.sources if not source.is_removed]
        return self.seen, self.delivery.pending, waiting, self.sources[0].counts


steps = st.tuples(
    st.sampled_from(["put", "put", "initial", "resync", "step", "step", "advance", "remove"]),
    st.integers(0, 1),
    st.text(NAMES, max_size=6),
    st.integers(0, 3),
)


@given(
    history=st.lists(steps, max_size=30),
    delays=st.lists(st.sampled_from([None, None, 1.0, 3.0]), max_size=30),
    overflow=st.sampled_from(Overflow),
)
def test_the_line_is_as_good_as_a_place_for_each_object(history, delays, overflow):
    # Below 1000 each object has its place. With BLOCK nothing has a bound that makes it exact.
    in_line = Subject(10_000, delays, overflow)
    by_object = Subject(10_000, delays, overflow)
    by_object.delivery._line_bound = 0
    assert in_line.delivery._line_bound
    for number, step in enumerate([*history, ("step", 0, "", 300), ("advance", 0, "", 3)]):
        for subject in (in_line, by_object):
            subject.play(step, 10 * number + 1)
        assert in_line.state() == by_object.state()
    for subject in (in_line, by_object):
        subject.play(("step", 0, "", 300), 0)
        assert not subject.due


def test_what_waits_beyond_half_the_bound_waits_by_object_and_is_merged_at_the_bound():
    delivery = Delivery("d", lambda key, event: None, max_pending=1000, clock=ManualClock())
    source = delivery.source("k")
    for version in range(3000):
        source.on_events([Event(UPDATE, thing("a", version), thing("a", version - 1))])
    assert delivery.pending <= 1001
    assert delivery.merged == 3000 - delivery.pending
    seen = []
    delivery._handle = lambda key, event: seen.append(int(event.object.resource_version))
    while delivery.step():
        pass
    assert seen == sorted(seen)
    assert seen[-1] == 2999
    delivery.stop()


def test_a_handler_that_raises_to_the_top_loses_nothing_that_waits():
    seen = []

    def handle(key, event):
        seen.append(key.name)
        if key.name == "b":
            raise SystemExit

    delivery = Delivery("d", handle, clock=ManualClock())
    delivery.source("k").on_events([Event(CREATE, thing(name, 1)) for name in "abc"])
    item = delivery._queue.try_get()
    with pytest.raises(SystemExit):
        delivery._process(item.key, item.ticket)
    assert delivery.pending == 1
    assert delivery.step()
    assert seen == ["a", "b", "c"]
    delivery.stop()


def test_the_source_has_synced_as_soon_as_the_last_initial_event_was_handled():
    seen = []

    def handle(key, event):
        seen.append((key.name, source.has_synced))

    delivery = Delivery("d", handle, clock=ManualClock())
    source = delivery.source("k")
    source.on_events(
        [
            Event(CREATE, thing("a", 1), None, True),
            Event(CREATE, thing("b", 1), None, True),
            Event(UPDATE, thing("a", 2), thing("a", 1)),
        ]
    )
    source.on_initial_list_end()
    item = delivery._queue.try_get()
    delivery._process(item.key, item.ticket)
    assert seen == [("a", False), ("b", False), ("a", True)]
    delivery.stop()


def test_a_handler_of_events_gets_those_in_line_and_the_other_one_what_became_due():
    clock, seen = ManualClock(), []

    def handle(key, event):
        seen.append((key.name, event))

    def handle_event(source, event):
        seen.append((source.kind, event.object.name))
        return 1.0 if event.object.name == "b" else None

    delivery = Delivery("d", handle, handle_event=handle_event, clock=clock)
    delivery.source("k").on_events([Event(CREATE, thing(name, 1)) for name in "abc"])
    while delivery.step():
        pass
    clock.advance(1.0)
    assert delivery.step()
    assert seen == [("k", "a"), ("k", "b"), ("k", "c"), ("b", None)]
    delivery.stop()


def test_a_turn_ends_when_it_takes_long_so_that_the_queue_knows_how_long_each_event_takes():
    clock, seen = ManualClock(), []

    def handle(key, event):
        seen.append(key.name)
        clock.advance(1.0)

    delivery = Delivery("d", handle, clock=clock)
    delivery.source("k").on_events([Event(CREATE, thing(name, 1)) for name in "abc"])
    for count in (1, 2, 3):
        item = delivery._queue.try_get()
        delivery._process(item.key, item.ticket)
        assert len(seen) == count
    assert not delivery.step()
    delivery.stop()


def test_the_queues_metrics_count_what_waits_and_what_was_handled_in_the_line():
    clock, metrics = ManualClock(), Metrics()
    delivery = Delivery("d", lambda key, event: clock.advance(0.001), clock=clock, metrics=metrics)
    labels = {"name": "d", "controller": "d"}
    delivery.source("k").on_events([Event(CREATE, thing(name, 1)) for name in "abcd"])
    assert metrics.value("workqueue_depth", **labels, priority="0") == 4
    clock.advance(2.0)
    item = delivery._queue.try_get()
    delivery._process(item.key, item.ticket)
    assert metrics.value("workqueue_depth", **labels, priority="0") == 0
    assert metrics.value("workqueue_adds_total", **labels) == 4
    assert metrics.value("workqueue_queue_duration_seconds_count", **labels) == 4
    assert metrics.value("workqueue_queue_duration_seconds_sum", **labels) == pytest.approx(8.0)
    assert metrics.value("workqueue_work_duration_seconds_count", **labels) == 4
    assert metrics.value("workqueue_work_duration_seconds_sum", **labels) == pytest.approx(0.004)
    delivery.stop()


def test_the_age_of_the_oldest_event_is_known_while_a_call_hangs():
    clock, metrics, ages = ManualClock(), Metrics(), []

    def age():
        labels = {"name": "d", "controller": "d"}
        return metrics.value("workqueue_oldest_item_age_seconds", **labels)

    def handle(key, event):
        clock.advance(3.0)
        ages.append(age())

    delivery = Delivery("d", handle, clock=clock, metrics=metrics)
    source = delivery.source("k")
    source.on_events([Event(CREATE, thing("a", 1))])
    clock.advance(2.0)
    source.on_events([Event(CREATE, thing(name, 1)) for name in "bc"])
    clock.advance(1.0)
    assert age() == 3.0
    while (item := delivery._queue.try_get()) is not None:
        delivery._process(item.key, item.ticket)  # takes all that waits, and is interrupted
    assert ages == [4.0, 7.0, 0.0], "b waits since 2 s, and c too; nothing waits behind c"
    assert age() == 0.0
    delivery.stop()


def test_a_line_gives_what_is_before_a_ticket_and_takes_back_what_was_not_handled():
    line = BatchQueue()
    source = Delivery("d", lambda key, event: None).source("k")
    events = [Event(CREATE, thing(name, 1)) for name in "abcdef"]
    line.put(Batch(source, events[:4], 1, 0.0))
    line.put(Batch(source, events[4:], 7, 0.0))
    assert (line.count, line.next_ticket) == (6, 1)
    (run,) = line.take(4, None)
    assert [event.object.name for event in run.events] == ["a", "b", "c"]
    run.handled = 1
    line.taken += 1
    line.put_back([run])
    assert (line.count, line.next_ticket) == (5, 2)
    assert [len(run.events) for run in line.take(None, 4)] == [2, 1, 1]
    assert line.next_ticket == 8


@pytest.mark.parametrize("begun", range(5))
def test_a_worker_that_has_begun_an_event_and_not_counted_it_yet_keeps_it(begun):
    line = BatchQueue()
    source = Delivery("d", lambda key, event: None).source("k")
    events = [Event(CREATE, thing(name, 1)) for name in "abcdef"]
    line.put(Batch(source, events[:2], 1, 0.0))
    line.put(Batch(source, events[2:4], 3, 0.0))
    runs = line.take(None, None)
    for run in runs:
        run.share()
    line.put(Batch(source, events[4:], 5, 0.0))
    working = itertools.chain.from_iterable(run.begun() for run in runs)
    for number in range(begun):
        line.taken = number  # of the last one it is not known yet
        assert next(working) is events[number]
    current, rest = line.take_rest(0)
    assert current == ((source, events[begun - 1]) if begun else None)
    tickets = [(t, e) for run in rest for t, e in enumerate(run.events, run.ticket)]
    assert tickets == list(enumerate(events, 1))[begun:]
    assert next(working, None) is None, "what was taken away is not begun"
    for _ in range(2):
        assert line.count == 0
        line.put(Batch(source, events, 7, 0.0))
        assert line.count == len(events)
        line.clear()
        line.taken = begun  # it is now


def test_events_that_wait_in_line_need_no_keys_although_a_resync_waits(monkeypatch):
    delivery = Delivery("d", lambda key, event: None, clock=ManualClock(), rng=NoJitter())
    source, keys = delivery.source("k"), []
    monkeypatch.setattr(type(source), "key_of", lambda self, obj: keys.append(obj.name))
    source.resync_every(30.0, lambda: None)
    source.on_events([Event(CREATE, thing(name, 1)) for name in "abc"])
    assert (delivery.pending, keys) == (3, [])
    delivery.stop()


def test_a_few_events_are_looked_up_rather_than_all_of_many_resyncs(monkeypatch):
    delivery, looked_up = Delivery("d", lambda key, event: None, clock=ManualClock()), []
    source = delivery.source("k")
    holds_others = WorkQueue.holds_others

    def counted(queue, own, others):
        looked_up.append(len(own))
        return holds_others(queue, own, others)

    monkeypatch.setattr(WorkQueue, "holds_others", counted)
    for _ in range(100):
        source.resync_every(30.0, lambda: None)
    source.on_events([Event(CREATE, thing("a", 1))])
    source.on_events([Event(CREATE, thing(f"n{number}", 1)) for number in range(100)])
    assert looked_up == [1, 101]
    assert delivery.pending == 101
    delivery.stop()
