"""Workers that are lent while they wait for a coroutine: others do their work meanwhile."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from appsdk_operator.cache import Delivery
from appsdk_operator.runtime import ManualClock, Places, StopSignal
from appsdk_operator.testing._world.scheduler import ThreadScheduler
from tests.cache.test_delivery_races import add, adds
from tests.hypothesis_profiles import scaled


class Awaiting:
    """A handler whose calls wait for coroutines, by their number, and work for a second after."""

    def __init__(self, clock: ManualClock, pauses: list[list[float]]) -> None:
        self.clock = clock
        self.pauses = pauses
        self.delivery: Delivery
        self.running: Counter[tuple[str, str]] = Counter()
        self.at_work = self.most_at_work = self.awaiting = self.most_awaiting = 0
        self.begun: list[tuple[float, str, int]] = []
        self.done: list[tuple[str, int]] = []
        self.overlaps: list[tuple[str, str]] = []

    def work(self, seconds: float) -> None:
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        StopSignal(clock=self.clock).wait(seconds)
        self.at_work -= 1

    def __call__(self, key, event):
        found = (key.source.kind, key.name)
        self.overlaps += [found] if self.running[found] else []
        if event is None:  # it looks at what is due, and nothing is
            return
        self.running[found] += 1
        number = len(self.begun)
        version = int(event.object.resource_version)
        self.begun.append((self.clock.monotonic(), key.name, version))
        for pause in self.pauses[number % len(self.pauses)]:
            take_back = self.delivery.lend()
            if take_back is None:
                self.work(pause)
                continue
            self.awaiting += 1
            self.most_awaiting = max(self.most_awaiting, self.awaiting)
            StopSignal(clock=self.clock).wait(pause)
            self.awaiting -= 1
            take_back()
            self.work(1.0)
        self.running[found] -= 1
        self.done.append((key.name, version))


def started(handler, events):
    """A delivery with one worker, which may be lent, and with these events."""
    delivery = handler.delivery = Delivery("d", handler, clock=handler.clock)
    delivery.allow_lending(Places(100))
    delivery.source("k").on_events(events)
    delivery.start()
    return delivery


def run(handler, *, workers, places, seed, batches, later=(), merges=False):
    """Everything that the batches lead to, and what is put by each source later."""
    with ThreadScheduler(handler.clock, seed=seed) as schedule:
        delivery = handler.delivery = Delivery(
            "d", handler, workers=workers, clock=handler.clock, max_pending=10_000
        )
        delivery.allow_lending(Places(places))
        sources = [delivery.source("k"), delivery.source("k")]
        version, expected = 0, {}

        def put(number, names, *, by_object=False):
            nonlocal version
            events = []
            for name in names:
                version += 1
                events.append(add(name, version))
                expected.setdefault((number, name), []).append((name, version))
            delivery.put(sources[number], events, by_object=by_object)

        bound = delivery._line_bound
        for names in batches:
            put(0, names)
        delivery.start()
        schedule.run_ready()
        for number, names, by_object in later:
            put(number, names, by_object=by_object)
            schedule.run_ready()
            schedule.jump()
        assert delivery.wait_idle(1000.0)
        assert delivery._line_bound == bound, "the batch queue is in use again"
        assert delivery.pending == 0
        delivery.stop()
        schedule.run_ready()
        assert delivery.join(10.0) == []
    assert not handler.overlaps
    assert sorted(handler.done) == sorted(each for of in expected.values() for each in of)
    for of in expected.values():
        assert [each for each in handler.done if each in of] == of
    assert handler.most_at_work <= workers
    assert handler.most_awaiting <= places


@given(
    batches=st.lists(st.text("abc", min_size=1, max_size=6), min_size=1, max_size=4),
    later=st.lists(
        st.tuples(st.integers(0, 1), st.text("abcd", min_size=1, max_size=4), st.booleans()),
        max_size=4,
    ),
    pauses=st.lists(
        st.lists(st.sampled_from([0.5, 3.0, 10.0]), max_size=2), min_size=1, max_size=5
    ),
    workers=st.integers(1, 3),
    places=st.sampled_from([0, 1, 2, 100]),
    seed=st.integers(0, 100),
)
@example(
    batches=["ab", "aab"], later=[(0, "a", True)], pauses=[[3.0]], workers=1, places=100, seed=0
)
@example(
    batches=["a"],
    later=[(0, "b", False), (1, "a", False), (0, "a", False), (0, "a", False)],
    pauses=[[0.5]],
    workers=1,
    places=1,
    seed=5,
)
@settings(max_examples=scaled(80), deadline=None)
def test_events_keep_their_order_and_no_more_are_at_work_than_there_are_workers(
    batches, later, pauses, workers, places, seed
):
    handler = Awaiting(ManualClock(), pauses)
    run(handler, workers=workers, places=places, seed=seed, batches=batches, later=later)


@pytest.mark.parametrize("workers", [1, 2])
def test_other_objects_wait_for_no_worker_that_is_lent(workers):
    handler = Awaiting(ManualClock(), [[10.0]])
    run(handler, workers=workers, places=100, seed=0, batches=["abcdef", "a"])
    began = {(name, version): at for at, name, version in handler.begun}
    assert {at for (_, version), at in began.items() if version <= 6} == {0.0}
    assert began["a", 7] >= 10.0
    assert handler.most_awaiting == 6


def test_with_no_place_left_a_worker_is_held():
    handler = Awaiting(ManualClock(), [[10.0]])
    run(handler, workers=2, places=3, seed=0, batches=["abcdefg"])
    assert handler.most_awaiting == 3
    assert handler.most_at_work == 2


@pytest.mark.parametrize("is_taken_back", [False, True])
def test_a_stop_leaves_no_worker_behind(is_taken_back):
    clock = ManualClock()
    handler = Awaiting(clock, [[10.0]])
    with ThreadScheduler(clock) as schedule:
        delivery = handler.delivery = Delivery("d", handler, workers=2, clock=clock)
        delivery.allow_lending(Places(100))
        delivery.source("k").on_events(adds(20))
        delivery.start()
        schedule.run_ready()
        if is_taken_back:
            schedule.jump()  # they have worked for a second when the stop comes
        delivery.stop()
        assert delivery.lend() is None
        assert delivery.join(1000.0) == []


def test_one_that_hangs_before_it_awaits_is_replaced_and_not_lent():
    clock, gate = ManualClock(), StopSignal()
    seen = []
    with ThreadScheduler(clock) as schedule:

        def handle(key, event):
            seen.append(key.name)
            if key.name == "n1":
                threads.append(threading.get_ident())
                gate.wait()
                seen.append(delivery.lend())

        threads: list[int] = []
        delivery = Delivery("d", handle, clock=clock)
        delivery.allow_lending(Places(1))
        delivery.source("k").on_events(adds(3))
        delivery.start()
        schedule.run_ready()
        assert seen == ["n1"]
        assert delivery.replace(threads[0])
        assert not delivery.replace(threads[0])
        schedule.run_ready()
        assert seen == ["n1", "n2", "n3"]
        gate.set()
        assert delivery.wait_idle(10.0)
        assert seen[3:] == [None]
        delivery.stop()
        assert delivery.join(10.0) == []


def test_one_that_is_lent_is_not_replaced_and_says_so():
    clock, gate = ManualClock(), StopSignal()
    threads: list[int] = []
    with ThreadScheduler(clock) as schedule:

        def handle(key, event):
            take_back = delivery.lend()
            threads.append(threading.get_ident())
            gate.wait()
            take_back()

        delivery = Delivery("d", handle, clock=clock)
        delivery.allow_lending(Places(2))
        delivery.source("k").on_events(adds(2))
        delivery.start()
        schedule.run_ready()
        assert len(set(threads)) == 2
        assert all(map(delivery.is_lent, threads))
        assert not any(map(delivery.replace, threads))
        gate.set()
        assert delivery.wait_idle(10.0)
        assert not any(map(delivery.is_lent, threads))
        delivery.stop()
        assert delivery.join(10.0) == []


def test_without_a_thread_for_another_worker_the_lent_one_goes_on(monkeypatch, caplog):
    clock = ManualClock()
    handler = Awaiting(clock, [[10.0]])
    with ThreadScheduler(clock) as schedule:
        delivery = started(handler, adds(3))
        monkeypatch.setattr(delivery._threads, "start", _no_thread)
        schedule.run_ready()
        assert delivery.wait_idle(100.0)
        assert len(handler.done) == 3
        delivery.stop()
        assert delivery.join(10.0) == []
    assert "cannot start a thread for another worker" in caplog.text


def test_no_worker_is_started_without_work():
    with ThreadScheduler(ManualClock()) as schedule:
        delivery = Delivery("d", lambda *_: None, workers=3)
        delivery.start()
        schedule.run_ready()
        delivery.start_missing()
        assert delivery._spares.missing == 2
        delivery.stop()
        assert delivery.join(10.0) == []


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()])
def test_a_worker_that_could_not_be_started_is_tried_again_while_there_is_work(monkeypatch, error):
    clock = ManualClock()
    handler = Awaiting(clock, [[10.0]])
    with ThreadScheduler(clock) as schedule:
        delivery = started(handler, adds(2))
        with monkeypatch.context() as patch:
            patch.setattr(delivery._threads, "start", lambda *_: _no_thread(error=error))
            schedule.run_ready()
            delivery.start_missing()
            schedule.run_ready()
        assert handler.awaiting == 1
        delivery.start_missing()
        schedule.run_ready()
        assert handler.awaiting == 2
        assert delivery.wait_idle(100.0)
        delivery.stop()
        assert delivery.join(10.0) == []


@pytest.mark.parametrize("seconds", [10.0, 11.0], ids=["works again", "rests"])
def test_a_lent_worker_that_is_back_when_the_start_of_another_fails_does_its_work(
    monkeypatch, seconds
):
    clock = ManualClock()
    handler = Awaiting(clock, [[10.0]])
    with ThreadScheduler(clock) as schedule:
        delivery = started(handler, adds(2))

        def comes_back(*_):
            for _ in range(int(seconds)):
                clock.advance(1.0)
                schedule.run_ready()
            _no_thread()

        with monkeypatch.context() as patch:
            patch.setattr(delivery._threads, "start", _no_thread)
            schedule.run_ready()
            patch.setattr(delivery._threads, "start", comes_back)
            delivery.start_missing()
            patch.setattr(delivery._threads, "start", _no_thread)
            for _ in range(30):
                clock.advance(1.0)
                schedule.run_ready()
        assert [name for name, _ in handler.done] == ["n1", "n2"]
        assert delivery._spares.missing == 0
        delivery.stop()
        assert delivery.join(10.0) == []


def _no_thread(*_, error=None):
    raise error or RuntimeError("can't start new thread")


def test_at_a_stop_nobody_waits_for_the_turn_of_one_that_hangs():
    clock, gate = ManualClock(), StopSignal()
    hung: list[str] = []
    with ThreadScheduler(clock) as schedule:

        def handle(key, event):
            take_back = delivery.lend()
            StopSignal(clock=clock).wait(5.0)
            take_back()
            if not hung:
                hung.append(threading.current_thread().name)
                gate.wait()

        delivery = Delivery("d", handle, clock=clock)
        delivery.allow_lending(Places(100))
        delivery.source("k").on_events(adds(4))
        delivery.start()
        schedule.run_ready()
        schedule.jump()
        schedule.run_ready()
        assert hung
        delivery.stop()
        assert delivery.join(10.0) == hung
        gate.set()
        assert delivery.join(10.0) == []


def test_a_plain_call_is_another_reason_to_start_a_worker():
    clock, gate = ManualClock(), StopSignal()
    begun: list[str] = []
    with ThreadScheduler(clock) as schedule:

        def handle(key, event):
            begun.append(key.name)
            gate.wait()

        delivery = Delivery("d", handle, workers=3, clock=clock)
        delivery.allow_lending(Places(100))
        delivery.source("k").on_events(adds(4))
        delivery.start()
        schedule.run_ready()
        assert begun == ["n1", "n2", "n3"]
        gate.set()
        assert delivery.wait_idle(10.0)
        delivery.stop()
        assert delivery.join(10.0) == []


@pytest.mark.parametrize("lends", [True, False])
def test_a_worker_that_is_replaced_after_its_call_leaves_what_comes_next_to_the_other(lends):
    clock = ManualClock()
    handled: list[str] = []
    thread = at_once = most = 0

    def handle(key, event):
        nonlocal thread, at_once, most
        thread, at_once = threading.get_ident(), at_once + 1
        most = max(most, at_once)
        StopSignal(clock=clock).wait(1.0)
        at_once -= 1
        handled.append(key.name)

    with ThreadScheduler(clock, seed=1) as schedule:
        delivery = Delivery("d", handle, clock=clock, max_pending=10)
        if lends:
            delivery.allow_lending(Places(10))
        else:
            delivery.allow_replacement()
        source = delivery.source("k")
        delivery.start()
        delivery.put(source, [add("a", 1)])
        schedule.run_ready()
        schedule.jump()
        schedule.run_ready()
        assert handled == ["a"]
        assert delivery.replace(thread)
        delivery.put(source, [add(name, 2) for name in "bcd"])
        assert delivery.wait_idle(100.0)
        delivery.stop()
        schedule.run_ready()
        assert delivery.join(10.0) == []
    assert (handled, most) == ([*"abcd"], 1)


def test_a_worker_that_waits_for_its_turn_begins_nothing_in_a_hold():
    clock = ManualClock()
    log: list[tuple[float, str]] = []

    def handle(key, event):
        log.append((clock.monotonic(), key.name))
        if key.name == "a":
            take_back = delivery.lend()
            StopSignal(clock=clock).wait(1.0)
            take_back()
            StopSignal(clock=clock).wait(5.0)

    with ThreadScheduler(clock, seed=1) as schedule:
        delivery = Delivery("d", handle, clock=clock, max_pending=10)
        delivery.allow_lending(Places(10))
        source = delivery.source("k")
        delivery.start()
        delivery.put(source, [add("a", 1)])
        schedule.run_ready()
        schedule.jump()  # the coroutine has ended
        delivery.put(source, [add("b", 2)])
        schedule.run_ready()  # the other worker waits for its turn
        delivery.hold()
        schedule.jump()
        schedule.run_ready()
        assert [name for _, name in log] == ["a"]
        delivery.let_go()
        assert delivery.wait_idle(100.0)
        delivery.stop()
        schedule.run_ready()
        assert delivery.join(10.0) == []
    assert [name for _, name in log] == ["a", "b"]
