from __future__ import annotations

import random
import threading
from collections import defaultdict

import pytest

from appsdk_operator.cache import Delivery, Event, Overflow, ResourceAction
from appsdk_operator.resource import Kind, Object, WrongKindError
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal
from tests.cache.conftest import PATIENCE, NoJitter, check_history, thing, told

CREATE, UPDATE, DELETE, RESYNC, _ = ResourceAction


class Handler:
    def __init__(self):
        self.condition = threading.Condition()
        self.events = []
        self.wakes = 0
        self.delay = None
        self.hook = lambda key, event: None

    def __call__(self, key, event):
        self.hook(key, event)
        with self.condition:
            if event is None:
                self.wakes += 1
            else:
                self.events.append(event)
            self.condition.notify_all()
        return self.delay

    @property
    def calls(self):
        return [told(event) for event in self.events]

    def wait_for(self, count):
        with self.condition:
            assert self.condition.wait_for(lambda: len(self.events) >= count, PATIENCE), self.calls


@pytest.fixture
def handler():
    return Handler()


@pytest.fixture
def deliver(handler):
    made = []

    def deliver(start=True, **options):
        options = {"clock": ManualClock(), "rng": NoJitter(), **options}
        delivery = Delivery("d", handler, **options)
        made.append(delivery)
        if start:
            delivery.start()
        return delivery

    yield deliver
    for delivery in made:
        delivery.stop()
        assert delivery.join(PATIENCE) == []


def add(name="a", version=1, initial=False):
    return Event(CREATE, thing(name, version), None, initial)


def update(name, before, after):
    return Event(UPDATE, thing(name, after), thing(name, before))


def test_one_worker_handles_all_events_in_the_order_of_their_arrival(deliver, handler):
    delivery = deliver(start=False)
    one, two = delivery.source("one"), delivery.source("two")
    one.on_events([add("a"), add("b")])
    two.on_events([add("c")])
    one.on_events([update("a", 1, 2), add("d"), update("b", 1, 3)])
    while delivery.step():
        pass
    assert handler.calls == [
        "add a@1",
        "add b@1",
        "add c@1",
        "update a@1->2",
        "add d@1",
        "update b@1->3",
    ]


def test_a_worker_waits_for_no_call_of_another_source_for_the_same_object(deliver, handler):
    entered, gate = threading.Event(), threading.Event()

    def hook(key, event):
        if (key.source, key.name) == (one, "a"):
            entered.set()
            assert gate.wait(PATIENCE)

    handler.hook = hook
    delivery = deliver(workers=2)
    one, two = delivery.source("k"), delivery.source("k")
    one.on_events([add("a")])
    assert entered.wait(PATIENCE)
    two.on_events([add("a", 2), add("b"), update("a", 2, 3), add("c")])
    handler.wait_for(2)
    assert handler.calls == ["add b@1", "add c@1"]
    assert not delivery.wait_idle(0)
    gate.set()
    handler.wait_for(5)
    assert handler.calls[2:] == ["add a@1", "add a@2", "update a@2->3"]
    assert delivery.wait_idle(PATIENCE)


@pytest.mark.stress
@pytest.mark.parametrize("overflow", Overflow)
def test_many_workers_keep_the_order_of_each_object_and_never_handle_it_twice_at_once(overflow):
    busy, wrong, seen = set(), [], defaultdict(list)

    def handle(key, event):
        found = (key.source.kind, key.namespace, key.name)
        if found in busy:
            wrong.append(key)
        busy.add(found)
        if event is not None:
            seen[key].append(int(event.object.resource_version))
        busy.discard(found)
        return 0.0 if random.random() < 0.1 else None

    delivery = Delivery("d", handle, workers=8, max_pending=50, overflow=overflow)
    delivery.start()
    sources = [delivery.source("k") for _ in range(2)]

    def write(source):
        for version in range(1, 1500):
            name = f"o{version % 5}"
            source.wait_for_space()
            event = add(name, version) if version <= 5 else update(name, version - 5, version)
            source.on_events([event])
            if not version % 7:
                # A copy, made in one step: the workers add to it meanwhile.
                for key in list(seen)[:1]:
                    delivery.wake(key)

    writers = [threading.Thread(target=write, args=(source,)) for source in sources]
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    assert delivery.wait_idle(PATIENCE)
    delivery.stop()
    assert delivery.join(PATIENCE) == []
    assert not wrong
    assert len(seen) == 10
    for versions in seen.values():
        assert versions == sorted(set(versions))
        assert versions[-1] >= 1495
        if overflow is Overflow.BLOCK:
            assert len(versions) >= 299


def test_a_slow_object_holds_up_no_other_when_there_are_workers(deliver, handler):
    gate = threading.Event()
    handler.hook = lambda key, event: key.name == "slow" and gate.wait(PATIENCE)
    source = deliver(workers=2).source("k")
    source.on_events([add("slow"), add("a"), add("b")])
    handler.wait_for(2)
    assert handler.calls == ["add a@1", "add b@1"]
    gate.set()
    handler.wait_for(3)


# Waking up.


def test_a_handler_that_asks_for_it_is_called_when_the_time_has_come(deliver, handler):
    delivery = deliver(start=False)
    clock = delivery._clock
    source = delivery.source("k")
    handler.delay = 5.0
    source.on_events([add()])
    assert delivery.step()
    assert delivery.next_due() == 5.0
    clock.advance(4.9)
    assert not delivery.step()
    clock.advance(0.1)
    handler.delay = None
    assert delivery.step()
    assert handler.wakes == 1
    assert delivery.next_due() is None


def test_an_event_comes_before_the_time_and_waking_ends_the_wait(deliver, handler):
    delivery = deliver(start=False)
    source = delivery.source("k")
    handler.delay = 5.0
    source.on_events([add()])
    delivery.step()
    source.on_events([update("a", 1, 2)])
    assert delivery.step()
    assert handler.calls == ["add a@1", "update a@1->2"]
    keys = []
    handler.hook = lambda key, event: keys.append(key)
    delivery._clock.advance(5.0)
    delivery.step()
    delivery.wake(keys[0])
    assert delivery.step()
    assert handler.wakes == 2


# Overflow.


def test_beyond_the_bound_a_slow_handler_sees_the_newest_state(deliver, handler):
    metrics = Metrics()
    delivery = deliver(start=False, max_pending=3, metrics=metrics)
    source = delivery.source("k")
    source.on_events([add("a"), add("b")])
    for version in range(2, 1000):
        source.on_events([update("a", version - 1, version)])
    assert delivery.pending == 3
    assert metrics.value("informer_pending_events", controller="d") == 3
    assert metrics.value("informer_merged_events_total", controller="d") == 997
    while delivery.step():
        pass
    assert handler.calls == ["add a@1", "add b@1", "update a@1->999"]


def test_with_block_every_event_is_seen_and_what_waits_is_bounded(deliver, handler):
    delivery = deliver(max_pending=5, overflow=Overflow.BLOCK)
    source = delivery.source("k")
    most = []
    handler.hook = lambda key, event: most.append(delivery.pending)
    source.on_initial_list_end()
    source.on_add(thing("a", 1))
    for version in range(2, 200):
        source.on_update(thing("a", version - 1), thing("a", version))
    handler.wait_for(199)
    assert max(most) <= 5
    check_calls = ["add a@1", *(f"update a@{v - 1}->{v}" for v in range(2, 200))]
    assert handler.calls == check_calls


@pytest.mark.parametrize("end", ["stop the delivery", "remove the source", "set the signal"])
def test_a_wait_for_space_ends_promptly(deliver, handler, end):
    gate, waits = threading.Event(), threading.Event()
    handler.hook = lambda key, event: gate.wait(PATIENCE)
    delivery = deliver(max_pending=1, overflow=Overflow.BLOCK)
    source, other = delivery.source("k"), delivery.source("k")
    other.on_events([add("a"), add("b"), add("c")])
    stop = StopSignal()

    wait = delivery._clock.wait

    def seen_waiting(condition, timeout=None):
        waits.set()
        wait(condition, timeout)

    blocked = threading.Thread(target=source.wait_for_space, args=(stop,))
    delivery._clock.wait = seen_waiting
    blocked.start()
    assert waits.wait(PATIENCE)
    if end == "stop the delivery":
        delivery.stop()
    elif end == "remove the source":
        delivery.remove(source)
    else:
        stop.set()
    blocked.join(PATIENCE)
    is_alive = blocked.is_alive()
    gate.set()
    assert not is_alive


def test_events_of_a_removed_source_take_no_space_once_the_worker_that_has_them_is_replaced(
    deliver, handler
):
    entered, gate, waits = threading.Event(), threading.Event(), threading.Semaphore(0)
    threads = []

    def hook(key, event):
        threads.append(threading.get_ident())
        entered.set()
        assert gate.wait(PATIENCE)

    handler.hook = hook
    delivery = deliver(start=False, max_pending=1, overflow=Overflow.BLOCK)
    delivery.allow_replacement()
    source, other = delivery.source("k"), delivery.source("k")
    other.on_events([add("a"), add("b"), add("c")])
    delivery.start()
    assert entered.wait(PATIENCE)
    wait = delivery._clock.wait

    def seen_waiting(condition, timeout=None):
        if threading.current_thread() is blocked:
            waits.release()
        wait(condition, timeout)

    delivery._clock.wait = seen_waiting
    blocked = threading.Thread(target=source.wait_for_space)
    blocked.start()
    assert waits.acquire(timeout=PATIENCE)
    delivery.remove(other)
    assert waits.acquire(timeout=PATIENCE), "the worker passes over two events after its call"
    assert delivery.replace(threads[0])
    blocked.join(PATIENCE)
    is_alive = blocked.is_alive()
    gate.set()
    delivery.stop()
    assert not is_alive


# Syncing.


def test_a_source_has_synced_when_its_initial_events_were_handled(deliver):
    delivery = deliver(start=False)
    source = delivery.source("k")
    assert not source.has_synced
    source.on_events([add("a", 1, True), add("b", 1, True), add("c")])
    source.on_initial_list_end()
    delivery.step()
    assert not source.has_synced
    delivery.step()
    assert source.has_synced


def test_an_empty_source_has_synced_at_the_end_of_its_list(deliver):
    delivery = deliver(start=False)
    source = delivery.source("k")
    source.on_initial_list_end()
    assert source.has_synced
    assert delivery.wait_for_sync(StopSignal(), 0.0)


def test_initial_events_that_were_merged_or_dropped_count_as_handled(deliver, handler):
    delivery = deliver(start=False, max_pending=1)
    source = delivery.source("k")
    source.on_events([add("a", 1, True), update("a", 1, 2)])
    source.on_events([add("b", 1, True), Event(DELETE, thing("b", 2))])
    source.on_initial_list_end()
    delivery.step()
    assert handler.calls == ["add a@2 initial"]
    assert source.has_synced
    source.on_events([add("c", 1, True)])
    delivery.remove(source)
    assert source.initial_left == 0


@pytest.mark.parametrize(
    ("options", "end"),
    [
        (
            {"max_pending": 1},
            lambda _, source: source.on_events([Event(DELETE, thing("a", 2))]),
        ),
        ({"workers": 1}, lambda delivery, _: delivery.step()),
        ({"workers": 2}, lambda delivery, _: delivery.step()),
    ],
    ids=["dropped", "handled in the batch queue", "handled by its key"],
)
def test_whoever_waits_for_the_sync_learns_what_became_of_the_last_initial_event(
    deliver, options, end
):
    delivery = deliver(start=False, **options)
    source = delivery.source("k")
    source.on_events([add("a", 1, True)])
    source.on_initial_list_end()
    synced = []
    waits = threading.Event()
    wait = delivery._clock.wait

    def seen_waiting(condition, timeout=None):
        waits.set()
        wait(condition, timeout)

    delivery._clock.wait = seen_waiting
    waiter = threading.Thread(target=lambda: synced.append(delivery.wait_for_sync(StopSignal())))
    waiter.start()
    assert waits.wait(PATIENCE)
    end(delivery, source)
    waiter.join(PATIENCE)
    learned = list(synced)
    delivery.stop()  # which wakes a waiter that nothing has woken
    waiter.join(PATIENCE)
    assert learned == [True]


def test_waiting_for_a_sync_ends_with_a_stop_or_in_time(deliver):
    delivery = deliver(start=False)
    delivery.source("k")
    assert not delivery.wait_for_sync(StopSignal(), 0.0)
    stop = StopSignal()
    results = []
    waiter = threading.Thread(target=lambda: results.append(delivery.wait_for_sync(stop)))
    waiter.start()
    stop.set()
    waiter.join(PATIENCE)
    assert results == [False]


# Resyncs, removal, errors, life.


def test_resyncs_come_at_their_time_until_the_source_is_removed(deliver):
    delivery = deliver(start=False)
    one, other = delivery.source("k"), delivery.source("k")
    shown = []
    one.resync_every(10.0, lambda: shown.append("one"))
    end = one.resync_every(10.0, lambda: shown.append("one more"))
    other.resync_every(10.0, lambda: shown.append("other"))

    def after(seconds):
        delivery._clock.advance(seconds)
        while delivery.step():
            pass
        found = sorted(shown)
        shown.clear()
        return found

    assert after(8.9) == []
    assert after(0.2) == ["one", "one more", "other"]
    end()
    assert after(9.0) == ["one", "other"]
    delivery.remove(one)
    assert after(9.0) == ["other"]
    assert after(9.0) == ["other"]


def test_a_resync_that_fails_is_logged_and_comes_again(deliver, caplog):
    delivery = deliver(start=False)
    calls = []

    def fail():
        calls.append(1)
        raise RuntimeError("no")

    delivery.source("k").resync_every(10.0, fail)
    for _ in range(2):
        delivery._clock.advance(9.0)
        assert delivery.step()
    assert len(calls) == 2
    assert "a resync of k failed; the next one comes as usual" in caplog.text


def test_the_events_of_a_batch_are_counted_by_action(deliver):
    metrics = Metrics()
    source = deliver(start=False, metrics=metrics).source("k")
    source.on_events([])
    source.on_events([add("a"), add("b")])
    source.on_events([add("c"), update("a", 1, 2), add("d"), Event(DELETE, thing("b", 3))])
    counts = {
        action: metrics.value("informer_events_total", event_type=action, kind="k")
        for action in ("CREATE", "UPDATE", "DELETE", "RESYNC")
    }
    assert counts == {"CREATE": 4, "UPDATE": 1, "DELETE": 1, "RESYNC": 0}


def test_a_removed_source_is_silent_and_its_counts_stay(deliver, handler):
    metrics = Metrics()
    delivery = deliver(start=False, metrics=metrics)
    source = delivery.source("k")
    source.on_events([add("a"), add("b")])
    delivery.remove(source)
    source.on_events([add("c")])
    while delivery.step():
        pass
    assert handler.events == []
    assert delivery.pending == 0
    assert metrics.value("informer_events_total", event_type="CREATE", kind="k") == 2
    delivery.remove(source)


@pytest.mark.parametrize("error", [RuntimeError("no"), SystemExit(1)])
def test_a_handle_that_raises_is_logged_and_the_worker_goes_on(deliver, handler, caplog, error):
    def fail(key, event):
        if event.object.name == "a":
            raise error

    handler.hook = fail
    source = deliver().source("k")
    source.on_events([add("a", 1, True), add("b")])
    source.on_initial_list_end()
    handler.wait_for(1)
    assert handler.calls == ["add b@1"]
    assert source.has_synced
    assert caplog.records


@pytest.mark.parametrize("error", [RuntimeError("no"), SystemExit(1)])
@pytest.mark.parametrize("by_object", [False, True])
def test_an_owner_who_wants_to_know_is_told_what_ended_a_worker(caplog, error, by_object):
    def fail(*_):
        raise error

    failures, told = [], threading.Event()

    def on_failure(failure):
        failures.append(failure)
        told.set()

    delivery = Delivery("d", fail, on_failure=on_failure)
    delivery.start()
    source = delivery.source("k")
    delivery.put(source, [add("a"), add("b")], by_object=by_object)
    assert told.wait(10)
    delivery.stop()
    assert delivery.join(10) == []
    (failure,) = failures
    assert isinstance(failure, Exception)
    assert failure is error or failure.__cause__ is error
    assert "thread d/worker-0 failed" in caplog.text


def test_a_step_by_hand_raises_what_the_handle_raised():
    def fail(*_):
        raise RuntimeError("no")

    delivery = Delivery("d", fail)
    source = delivery.source("k")
    source.on_events([add("a")])
    with pytest.raises(RuntimeError, match="no"):
        delivery.step()
    assert not delivery.step(), "it is not handled twice"
    delivery.stop()


def test_stopping_drops_what_waits_and_is_harmless_twice(deliver, handler):
    delivery = deliver(start=False)
    source = delivery.source("k")
    source.on_events([add()])
    delivery.stop()
    delivery.stop()
    source.on_events([add("b")])
    assert not delivery.step()
    assert not delivery.wait_for_sync(StopSignal())
    assert handler.events == []


def test_idle_means_that_nothing_waits_and_nothing_runs(deliver, handler):
    delivery = deliver(start=False)
    assert delivery.wait_idle(0.0)
    delivery.source("k").on_events([add()])
    assert not delivery.wait_idle(0.0)
    idle = []
    handler.hook = lambda key, event: idle.append(delivery.wait_idle(0.0))
    delivery.step()
    assert idle == [False]
    assert delivery.wait_idle(0.0)


def test_every_series_is_there_at_0_from_the_start(deliver):
    metrics = Metrics()
    delivery = deliver(start=False, metrics=metrics)
    delivery.source("k")
    for action in ("CREATE", "UPDATE", "DELETE", "RESYNC"):
        assert metrics.value("informer_events_total", event_type=action, kind="k") == 0
    assert metrics.value("informer_pending_events", controller="d") == 0
    assert metrics.value("informer_merged_events_total", controller="d") == 0


@pytest.mark.parametrize("option", ["workers", "max_pending"])
def test_options_are_checked(option):
    with pytest.raises(ValueError, match=f"{option}=0"):
        Delivery("d", Handler(), **{option: 0})


def test_a_source_is_a_handler_for_foreign_informers_too(deliver, handler):
    delivery = deliver(start=False)
    source = delivery.source("k")
    one, two = thing("a", 1), thing("a", 2)
    source.on_add(one, is_initial=True)
    source.on_update(one, two)
    source.on_update(two, two)
    source.on_delete(two, is_final_state_unknown=True)
    while delivery.step():
        pass
    assert handler.calls == ["add a@1 initial", "update a@1->2", "delete a@2 unknown"]
    check_history(handler.events)
    assert source.counts[RESYNC] == 1


def test_an_event_is_viewed_whole_and_one_object_stays_one() -> None:
    plain: Kind = Kind(group="example.com", version="v1", kind="Widget")
    typed = Kind(group="example.com", version="v1", kind="Widget", spec=dict[str, int])
    old = Object.from_dict(plain, {"metadata": {"name": "a"}, "spec": {"size": 1}})
    new = Object.from_dict(plain, {"metadata": {"name": "a"}, "spec": {"size": 2}})
    event = Event(ResourceAction.UPDATE, new, old)
    assert event.viewed_as(plain) is event
    viewed = event.viewed_as(typed)
    assert viewed.old is not None
    assert (viewed.object.kind, viewed.old.kind) == (typed, typed)
    assert (viewed.object.raw, viewed.old.raw) == (new.raw, old.raw)
    gone = Event(ResourceAction.DELETE, new, new, True, True, True).viewed_as(typed)
    assert gone.old is gone.object
    assert (gone.is_initial, gone.is_final_state_unknown, gone.is_unfollowed) == (True, True, True)
    with pytest.raises(WrongKindError, match="not the same kind"):
        event.viewed_as(Kind(group="example.com", version="v1", kind="Gadget"))
