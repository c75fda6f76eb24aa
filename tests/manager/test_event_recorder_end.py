"""The end of the event recorder: its thread, flushing, and what waits when it is closed."""

from __future__ import annotations

import threading

import pytest

from appsdk_operator.client import ConnectionLost
from appsdk_operator.runtime import StopSignal
from tests.forking import in_child
from tests.manager.event_fakes import (
    PATIENCE,
    NoThreads,
    clock,
    make,
    metrics,
    numbers,
    record,
    store,
)
from tests.waiting import eventually

__all__ = ["clock", "make", "metrics", "store"]


@pytest.mark.parametrize("then", ["another event", "nothing"])
def test_a_thread_that_cannot_be_started_loses_nothing(make, store, caplog, then):
    broadcaster = make()
    broadcaster._threads = NoThreads(broadcaster._threads)
    record(broadcaster.recorder("widgets"))
    assert "cannot start the thread that writes events" in caplog.text
    if then == "another event":
        record(broadcaster.recorder("widgets"), reason="Other")
        store.wait(lambda s: len(s.events) == 2)
    assert broadcaster.close() is True
    assert store.events


def test_there_is_no_thread_while_there_is_nothing_to_write(make, store):
    broadcaster = make()
    record(broadcaster.recorder("widgets"))
    store.wait(lambda s: s.events)
    assert eventually(lambda: not [t for t in threading.enumerate() if t.name.startswith("events")])
    assert broadcaster.flush() is True


def test_flush_waits_until_all_is_written_or_says_that_it_is_not(make, store, clock):
    gate = threading.Event()
    store.fail = lambda verb: gate.wait(PATIENCE)
    broadcaster = make()
    for _ in range(3):
        record(broadcaster.recorder("widgets"))
    assert broadcaster.flush(timeout=0) is False
    gate.set()
    store.wait(lambda s: s.events)
    assert broadcaster.flush() is True
    assert store.only["series"]["count"] == 3


def test_the_end_writes_the_counts_that_wait_and_drops_what_comes_later(
    make, store, clock, metrics, caplog
):
    broadcaster = make()
    recorder = broadcaster.recorder("widgets")
    for _ in range(3):
        record(recorder)
        store.wait(lambda s: s.events)
    assert broadcaster.close() is True
    assert store.only["series"]["count"] == 3
    record(recorder)
    record(recorder)
    assert broadcaster.close() is True
    assert len([r for r in caplog.records if "after the end" in r.message]) == 1
    assert store.only["series"]["count"] == 3


def test_the_end_tries_each_once_and_counts_what_it_could_not_write(make, store, metrics, caplog):
    def fail(verb):
        raise ConnectionLost("no network")

    broadcaster = make()
    record(broadcaster.recorder("widgets"))
    store.wait(lambda s: s.events)
    store.fail = fail
    record(broadcaster.recorder("widgets"), reason="Other")
    record(broadcaster.recorder("widgets"))
    assert broadcaster.close() is False
    assert numbers(metrics)[:3] == [3, 0, 2]
    assert [r for r in caplog.records if "2 events could not be written" in r.message]


def test_a_server_that_hangs_does_not_hold_up_the_end(make, store, caplog):
    gate = threading.Event()
    store.fail = lambda verb: gate.wait(PATIENCE)
    broadcaster = make()
    record(broadcaster.recorder("widgets"))
    store.wait(lambda s: s.writes)
    assert broadcaster.close(timeout=0) is False
    assert [
        r for r in caplog.records if "the API server has not answered these threads" in r.message
    ]
    gate.set()


def test_the_time_to_close_is_for_all_of_it(make, store, clock):
    gate = threading.Event()
    store.fail = lambda verb: gate.wait(PATIENCE)
    broadcaster = make()
    joins = []
    join, broadcaster._threads.join = broadcaster._threads.join, joins.append  # type: ignore[method-assign]
    record(broadcaster.recorder("widgets"))
    store.wait(lambda s: s.writes)
    closing = threading.Thread(target=broadcaster.close, kwargs={"timeout": 5.0})
    closing.start()
    clock.block_until_waiting(1)
    clock.advance(5.0)
    closing.join(PATIENCE)
    gate.set()
    assert joins == [0.0]
    broadcaster._threads.join = join


def test_as_a_runnable_it_ends_with_the_stop(make, store):
    broadcaster = make()
    assert broadcaster.needs_leader_election is False
    stop = StopSignal()
    thread = threading.Thread(target=broadcaster.run, args=(stop,))
    thread.start()
    record(broadcaster.recorder("widgets"))
    stop.set()
    thread.join(PATIENCE)
    assert len(store.events) == 1


def test_a_forked_child_writes_its_own_events(make, store):
    broadcaster = make()
    gate = threading.Event()
    store.fail = lambda verb: gate.wait(PATIENCE)
    record(broadcaster.recorder("widgets"))
    store.wait(lambda s: s.writes)

    def work() -> object:
        store.fail = lambda verb: None
        record(broadcaster.recorder("widgets"), reason="InTheChild")
        return broadcaster.close(), [event["reason"] for event in store.events.values()]

    with broadcaster._condition:  # the writer's, at the moment of the fork
        seen = in_child(work)
    assert seen == str((True, ["InTheChild"]))
    gate.set()
    store.wait(lambda s: s.events)
    assert store.only["reason"] == "Made"
