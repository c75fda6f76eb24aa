"""The work queue: controller-runtime's rules one by one, waiting threads, shut-downs, stress."""

from __future__ import annotations

import logging
import math
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from appsdk_operator.runtime import (
    ItemExponential,
    ManualClock,
    Metrics,
    QueueState,
    WorkQueue,
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def queue(clock: ManualClock, metrics: Metrics) -> WorkQueue[str]:
    limiter = ItemExponential(base=1.0, jitter=0.0)
    return WorkQueue("q", controller="c", clock=clock, metrics=metrics, rate_limiter=limiter)


def ready(queue: WorkQueue[str]) -> list[str]:
    """Everything that is handed out now, in order; nothing of it is done."""
    keys = []
    while (item := queue.try_get()) is not None:
        keys.append(item.key)
    return keys


def in_thread(target: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(target()))
    thread.start()
    return thread, results


def until_sleeping(queue: WorkQueue[Any], count: int) -> None:
    """Return once ``count`` threads sleep in ``get``: it is checked under the queue's own lock."""
    while True:
        with queue._condition:
            if queue._sleepers == count:
                return


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.value(f"workqueue_{name}", name="q", controller="c", **labels)


# Order


def test_keys_come_in_the_order_of_their_arrival(queue: WorkQueue[str]) -> None:
    for key in "cab":
        queue.add(key)
    assert ready(queue) == ["c", "a", "b"]


def test_higher_priorities_come_first(queue: WorkQueue[str]) -> None:
    queue.add("low", priority=-100)
    queue.add("zero")
    queue.add("high", priority=1)
    assert ready(queue) == ["high", "zero", "low"]


def test_a_raised_key_goes_to_the_end_of_its_new_priority(queue: WorkQueue[str]) -> None:
    queue.add("a")
    queue.add("high", priority=1)
    queue.add("a", priority=1)
    queue.add("later", priority=1)
    assert ready(queue) == ["high", "a", "later"]


def test_a_priority_is_never_lowered_by_a_later_add(queue: WorkQueue[str]) -> None:
    queue.add("a", priority=5)
    queue.add("b", priority=1)
    queue.add("a", priority=-1)
    item = queue.try_get()
    assert item is not None
    assert (item.key, item.priority) == ("a", 5)


def test_a_key_added_again_is_one_key_at_its_first_place(queue: WorkQueue[str]) -> None:
    for key in ["a", "b", "a", "a"]:
        queue.add(key)
    assert len(queue) == 2
    assert ready(queue) == ["a", "b"]


def test_tickets_decide_the_order_whatever_the_order_of_the_adds(queue: WorkQueue[str]) -> None:
    first, second, third = queue.tickets(3)
    queue.add("b", ticket=second)
    queue.add("end")
    queue.add_all(["c", "a"], tickets=[third, first])
    assert ready(queue) == ["a", "b", "c", "end"]


def test_the_next_ticket_is_that_of_the_key_that_comes_next(queue: WorkQueue[str]) -> None:
    assert queue.next_ticket() is None
    first, second = queue.tickets(2)
    queue.add("b", ticket=second)
    assert queue.next_ticket() == second
    queue.add("a", ticket=first)
    assert queue.next_ticket() == first


def test_tickets_are_after_the_keys_whose_time_came_before(
    queue: WorkQueue[str], clock: ManualClock
) -> None:
    queue.add("waited", after=1.0)
    clock.advance(1.0)
    (ticket,) = queue.tickets(1)
    queue.add("new", ticket=ticket)
    assert ready(queue) == ["waited", "new"]


def test_a_queue_knows_which_keys_it_holds_beside_some(queue: WorkQueue[str]) -> None:
    own = ("own", "mine")
    assert queue.holds_others(own, ["a", "b"]) is None
    queue.add("own")
    queue.add("mine", after=50.0)
    assert queue.holds_others(own, ["a", "b"]) is None
    queue.add("a", after=5.0)
    assert queue.holds_others(own, ["a", "b"]) == [True, False]
    queue.add("b")
    for _ in range(2):
        assert queue.get() is not None  # what is worked on is held, too
    assert queue.holds_others(own, ["a", "b", "c"]) == [True, True, False]


def test_of_two_tickets_of_a_key_the_earlier_counts(queue: WorkQueue[str]) -> None:
    first, second, third = queue.tickets(3)
    queue.add("a", ticket=third)
    queue.add("b", ticket=second)
    queue.add("a", ticket=first)
    queue.add("b", ticket=third)
    assert ready(queue) == ["a", "b"]


def test_add_all_with_too_few_tickets_queues_nothing(queue: WorkQueue[str]) -> None:
    with pytest.raises(ValueError, match="shorter"):
        queue.add_all(["a", "b"], tickets=queue.tickets(1))
    assert len(queue) == 0


@pytest.mark.parametrize("priority", [None, "high", 1.5, math.nan])
def test_a_priority_that_is_no_whole_number_is_refused_and_blocks_nothing(
    queue: WorkQueue[str], priority: Any
) -> None:
    for after in (0.0, 1.0):
        with pytest.raises(TypeError, match="give a whole number"):
            queue.add("a", priority=priority, after=after)
    with pytest.raises(TypeError, match="give a whole number"):
        queue.add_all(["a"], priority=priority)
    assert queue.wait_idle(0)
    queue.add("a")
    assert ready(queue) == ["a"]


def test_a_delay_beyond_any_float_is_refused_and_blocks_nothing(
    queue: WorkQueue[str], clock: ManualClock
) -> None:
    for _ in range(2):
        with pytest.raises(OverflowError):
            queue.add("a", after=10**400)
    assert queue.snapshot() == []
    queue.add("a", after=1.0)
    clock.advance(1.0)
    assert ready(queue) == ["a"]


def test_add_all_runs_the_callers_iterable_outside_the_lock(queue: WorkQueue[str]) -> None:
    def keys() -> Iterator[str]:
        yield "a"
        queue.add("b")  # would wait for the lock for ever
        yield "c"

    thread, _ = in_thread(lambda: queue.add_all(keys()))
    thread.join(5)
    assert not thread.is_alive()
    assert ready(queue) == ["b", "a", "c"]


# One key, one worker


def test_a_key_added_while_it_is_worked_on_comes_once_more_right_after_done(
    queue: WorkQueue[str],
) -> None:
    queue.add("a")
    queue.try_get()
    for _ in range(5):
        queue.add("a")
    queue.add("b")
    assert len(queue) == 2
    assert ready(queue) == ["b"]
    queue.done("a")
    assert ready(queue) == ["a"]
    queue.done("a")
    assert ready(queue) == []


def test_done_of_a_key_that_was_not_added_again_does_not_bring_it_back(
    queue: WorkQueue[str],
) -> None:
    queue.add("a")
    queue.try_get()
    queue.done("a")
    assert ready(queue) == []
    queue.add("a")
    assert ready(queue) == ["a"]


def test_a_key_that_becomes_due_while_it_is_worked_on_waits_for_done(
    queue: WorkQueue[str], clock: ManualClock
) -> None:
    queue.add("a")
    queue.try_get()
    queue.add("a", after=1.0)
    clock.advance(2.0)
    assert len(queue) == 1
    assert ready(queue) == []
    queue.done("a")
    assert ready(queue) == ["a"]


def test_done_before_the_delay_is_over_does_not_end_the_wait(
    queue: WorkQueue[str], clock: ManualClock
) -> None:
    queue.add("a")
    queue.try_get()
    queue.add("a", after=5.0)
    queue.done("a")
    assert ready(queue) == []
    clock.advance(5.0)
    assert ready(queue) == ["a"]


def test_done_without_get_is_logged_and_harmless(
    queue: WorkQueue[str], caplog: pytest.LogCaptureFixture
) -> None:
    queue.add("a")
    with caplog.at_level(logging.WARNING):
        queue.done("a")
    assert "done('a') without get()" in caplog.text
    assert ready(queue) == ["a"]


# Time


def test_a_key_is_never_handed_out_before_its_time(
    queue: WorkQueue[str], clock: ManualClock
) -> None:
    queue.add("a", after=10.0)
    clock.advance(9.999)
    assert (ready(queue), len(queue), queue.waiting) == ([], 0, 1)
    clock.advance(0.001)
    assert (len(queue), queue.waiting) == (1, 0)
    assert ready(queue) == ["a"]


def test_only_ready_keys_count_and_becoming_ready_counts_them(
    queue: WorkQueue[str], clock: ManualClock, metrics: Metrics
) -> None:
    queue.add("a", after=1.0)
    queue.add("b", after=2.0, priority=7)
    assert (len(queue), value(metrics, "adds_total"), value(metrics, "retries_total")) == (0, 0, 2)
    clock.advance(1.0)
    assert (value(metrics, "depth", priority="0"), value(metrics, "adds_total")) == (1, 1)
    clock.advance(1.0)
    assert (value(metrics, "depth", priority="7"), value(metrics, "adds_total")) == (1, 2)
    assert len(queue) == 2


def test_of_two_delays_the_earlier_counts(queue: WorkQueue[str], clock: ManualClock) -> None:
    queue.add("a", after=10.0)
    queue.add("a", after=2.0)
    queue.add("a", after=5.0)
    assert queue.next_due == 2.0
    clock.advance(2.0)
    assert ready(queue) == ["a"]
    queue.done("a")
    clock.advance(20.0)
    assert ready(queue) == []


@pytest.mark.parametrize("priority", [0, 3])
def test_a_plain_add_ends_the_wait_and_there_is_one_run(
    queue: WorkQueue[str], clock: ManualClock, metrics: Metrics, priority: int
) -> None:
    queue.add("a", after=10.0)
    queue.add("a", priority=priority)
    assert value(metrics, "depth", priority=str(priority)) == 1
    assert ready(queue) == ["a"]
    queue.done("a")
    clock.advance(100.0)
    assert ready(queue) == []
    assert value(metrics, "adds_total") == 1
    assert value(metrics, "retries_total") == 1


def test_several_delays_come_in_the_order_of_their_times(
    queue: WorkQueue[str], clock: ManualClock
) -> None:
    for key, delay in [("c", 3.0), ("a", 1.0), ("d", 3.0), ("b", 2.0)]:
        queue.add(key, after=delay)
    clock.advance(10.0)
    assert ready(queue) == ["a", "b", "c", "d"]


def test_a_key_that_became_due_goes_before_one_added_later_even_if_nobody_looked(
    queue: WorkQueue[str], clock: ManualClock
) -> None:
    queue.add("due", after=1.0)
    clock.advance(5.0)
    queue.add("later")
    assert ready(queue) == ["due", "later"]


def test_an_urgent_key_that_becomes_due_goes_before_ready_ones(
    queue: WorkQueue[str], clock: ManualClock
) -> None:
    queue.add("urgent", priority=10, after=1.0)
    queue.add("a")
    queue.add("b")
    clock.advance(1.0)
    assert ready(queue) == ["urgent", "a", "b"]


def test_a_negative_delay_is_none(queue: WorkQueue[str], metrics: Metrics) -> None:
    queue.add("a", after=-5.0)
    assert ready(queue) == ["a"]
    assert value(metrics, "retries_total") == 0


def test_rate_limited_keys_have_delays_of_their_own(queue: WorkQueue[str]) -> None:
    assert [queue.add_rate_limited("a") for _ in range(3)] == [1.0, 2.0, 4.0]
    assert queue.add_rate_limited("b") == 1.0
    assert (queue.failures("a"), queue.failures("b")) == (3, 1)
    assert queue.next_due == 1.0


def test_forget_resets_the_delays_but_not_the_queued_key(queue: WorkQueue[str]) -> None:
    queue.add_rate_limited("a")
    queue.forget("a")
    assert queue.failures("a") == 0
    assert queue.waiting == 1
    assert queue.add_rate_limited("a") == 1.0


def test_of_rate_limit_and_after_the_sooner_counts_and_the_failure_counts_anyway(
    queue: WorkQueue[str],
) -> None:
    assert queue.add_rate_limited("a", after=0.5) == 0.5
    assert queue.add_rate_limited("a", after=10.0) == 2.0
    assert queue.failures("a") == 2


# Reasons


def test_the_first_and_the_newest_reasons_are_kept() -> None:
    queue = WorkQueue[str]("q", max_reasons=3)
    for n in range(10):
        queue.add("a", reason=n)
    item = queue.try_get()
    assert item is not None
    assert item.reasons == (0, 8, 9)


def test_a_single_kept_reason_is_the_newest() -> None:
    queue = WorkQueue[str]("q", max_reasons=1)
    queue.add("a", reason="first")
    queue.add("a", reason="second")
    item = queue.try_get()
    assert item is not None
    assert item.reasons == ("second",)


def test_reasons_end_with_the_run_they_led_to(queue: WorkQueue[str]) -> None:
    queue.add("a", reason="one")
    queue.try_get()
    queue.add("a", reason="two")
    queue.done("a")
    item = queue.try_get()
    assert item is not None
    assert item.reasons == ("two",)


def test_the_text_of_a_reason_is_made_outside_the_lock(queue: WorkQueue[str]) -> None:
    class Reason:
        def __str__(self) -> str:
            return f"one of {len(queue)}"

    queue.add("a", reason=Reason())
    thread, results = in_thread(queue.snapshot)
    thread.join(5)
    assert not thread.is_alive()
    assert results[0][0]["reasons"] == ["one of 1"]


def test_a_queue_keeps_at_least_one_reason() -> None:
    with pytest.raises(ValueError, match="keep at least 1"):
        WorkQueue("q", max_reasons=0)


# Waiting threads


def test_get_waits_for_an_add(queue: WorkQueue[str]) -> None:
    thread, results = in_thread(queue.get)
    until_sleeping(queue, 1)
    queue.add("a")
    thread.join()
    assert results[0].key == "a"


def test_get_hands_out_a_waiting_key_as_soon_as_it_is_due(
    queue: WorkQueue[str], clock: ManualClock
) -> None:
    thread, results = in_thread(queue.get)
    until_sleeping(queue, 1)
    queue.add("a", after=10.0)
    clock.block_until_waiting(1)
    clock.advance(9.0)
    assert results == []
    clock.advance(1.0)
    thread.join()
    assert (results[0].key, results[0].waited) == ("a", 0.0)


def test_get_waits_for_an_earlier_key_that_was_added_later(
    queue: WorkQueue[str], clock: ManualClock
) -> None:
    queue.add("late", after=100.0)
    thread, results = in_thread(queue.get)
    clock.block_until_waiting(1)
    queue.add("early", after=10.0)
    while clock.next_deadline() != 10.0:
        clock.block_until_waiting(1)
    clock.advance(10.0)
    thread.join()
    assert results[0].key == "early"


@pytest.mark.parametrize("sleepers", [2, 3, 8])
def test_keys_due_at_the_same_moment_wake_as_many_sleepers(
    queue: WorkQueue[str], clock: ManualClock, sleepers: int
) -> None:
    started = [in_thread(queue.get) for _ in range(sleepers)]
    until_sleeping(queue, sleepers)
    for n in range(sleepers):
        queue.add(f"k{n}", after=5.0)
    clock.block_until_waiting(1)
    clock.advance(5.0)
    for thread, _ in started:  # none of them calls done() or get() again
        thread.join(5)
    stuck = [thread for thread, _ in started if thread.is_alive()]
    queue.shut_down()
    assert not stuck
    assert sorted(results[0].key for _, results in started) == [f"k{n}" for n in range(sleepers)]


def test_the_watch_for_the_next_due_time_passes_on_to_another_sleeper(
    queue: WorkQueue[str], clock: ManualClock
) -> None:
    started = [in_thread(queue.get) for _ in range(3)]
    until_sleeping(queue, 3)
    for n in range(1, 4):
        queue.add(f"k{n}", after=float(n))
    for n in range(1, 4):
        while clock.next_deadline() != float(n):
            clock.block_until_waiting(1)
        clock.advance(1.0)
    for thread, _ in started:
        thread.join(5)
    stuck = [thread for thread, _ in started if thread.is_alive()]
    queue.shut_down()
    assert not stuck


def test_somebody_who_waits_for_idleness_takes_no_wake_up_from_those_who_work(
    queue: WorkQueue[str], clock: ManualClock
) -> None:
    queue.add("busy")
    queue.try_get()
    idle_thread, idle = in_thread(queue.wait_idle)
    started = [in_thread(queue.get) for _ in range(2)]
    until_sleeping(queue, 2)
    queue.add("a", after=1.0)
    queue.add("b", after=2.0)
    for deadline in (1.0, 2.0):
        while clock.next_deadline() != deadline:
            clock.block_until_waiting(1)
        clock.advance(1.0)
    for thread, _ in started:
        thread.join(5)
    stuck = [thread for thread, _ in started if thread.is_alive()]
    for key in ("busy", "a", "b"):
        queue.done(key)
    idle_thread.join()
    queue.shut_down()
    assert not stuck
    assert idle == [True]


def test_threads_that_find_the_queue_in_use_come_to_their_turn(queue: WorkQueue[str]) -> None:
    queue.add("a")
    assert queue.try_get() is not None
    queue.add("b")
    with queue._condition:  # for longer than they try
        adding, _ = in_thread(lambda: queue.add("c"))
        getting, got = in_thread(lambda: queue.done_and_get("a"))
        adding.join(0.05)
        getting.join(0.05)
        assert adding.is_alive()
        assert getting.is_alive()
    adding.join()
    getting.join()
    assert [item.key for item in got] == ["b"]
    assert ready(queue) == ["c"]


def test_an_endless_delay_stops_no_worker() -> None:
    queue = WorkQueue[str]("q")
    queue.add("never", after=math.inf)
    thread, results = in_thread(queue.get)
    until_sleeping(queue, 1)
    queue.add("now")
    thread.join()
    assert results[0].key == "now"


def test_wait_idle_waits_for_the_work_that_is_under_way(
    queue: WorkQueue[str], clock: ManualClock
) -> None:
    assert queue.wait_idle()
    queue.add("later", after=100.0)
    assert queue.wait_idle(), "a key whose time has not come is no work"
    queue.add("a")
    assert queue.wait_idle(0) is False
    queue.try_get()
    thread, results = in_thread(lambda: queue.wait_idle(10.0))
    clock.block_until_waiting(1)
    queue.done("a")
    thread.join()
    assert results == [True]


def test_wait_idle_gives_up_at_its_time_out(queue: WorkQueue[str], clock: ManualClock) -> None:
    queue.add("a")
    thread, results = in_thread(lambda: queue.wait_idle(10.0))
    clock.block_until_waiting(1)
    clock.advance(10.0)
    thread.join()
    assert results == [False]


# Shut down


@pytest.mark.parametrize("drain", [False, True])
def test_shut_down_unblocks_every_get(queue: WorkQueue[str], drain: bool) -> None:
    queue.add("later", after=10.0)
    started = [in_thread(queue.get) for _ in range(4)]
    until_sleeping(queue, 4)
    queue.shut_down(drain=drain)
    for thread, results in started:
        thread.join()
        assert results == [None]


def test_shut_down_drops_what_is_queued_and_refuses_more(queue: WorkQueue[str]) -> None:
    queue.add("a")
    queue.shut_down()
    queue.shut_down()
    queue.add("b")
    queue.add_all(["c"])
    queue.add_rate_limited("d")
    assert queue.get() is None
    assert (len(queue), queue.waiting, queue.snapshot()) == (0, 0, [])


def test_draining_hands_out_what_is_ready_and_what_was_added_while_worked_on(
    queue: WorkQueue[str], clock: ManualClock
) -> None:
    queue.add("a")
    queue.add("b")
    queue.add("due", after=1.0)
    queue.add("later", after=60.0)
    assert queue.get() is not None
    queue.add("a")
    clock.advance(2.0)
    queue.shut_down(drain=True)
    queue.add("refused")
    assert [queue.get().key for _ in range(2)] == ["b", "due"]  # type: ignore[union-attr]
    thread, results = in_thread(queue.get)
    until_sleeping(queue, 1)
    queue.done("a")
    thread.join()
    assert results[0].key == "a"
    for key in ("a", "b", "due"):
        queue.done(key)
    assert queue.get() is None


def test_a_drain_ends_for_every_worker_when_the_last_key_is_done(queue: WorkQueue[str]) -> None:
    queue.add("a")
    queue.try_get()
    queue.shut_down(drain=True)
    started = [in_thread(queue.get) for _ in range(3)]
    until_sleeping(queue, 3)
    queue.done("a")
    for thread, results in started:
        thread.join()
        assert results == [None]


@pytest.mark.parametrize("sleepers", [0, 2])
def test_a_worker_that_takes_the_next_key_as_it_gives_one_back_wakes_who_waits_for_the_end(
    queue: WorkQueue[str], sleepers: int
) -> None:
    queue.add("a")
    queue.add("b")
    queue.try_get()
    queue.shut_down(drain=True)
    idle_thread, idle = in_thread(queue.wait_idle)
    item = queue.done_and_get("a")
    assert item is not None
    started = [in_thread(queue.get) for _ in range(sleepers)]
    until_sleeping(queue, sleepers)
    assert queue.done_and_get("b") is None
    for thread, results in started:
        thread.join()
        assert results == [None]
    idle_thread.join()
    assert idle == [True]


def test_a_key_that_was_added_while_it_was_worked_on_comes_again_as_it_is_given_back(
    queue: WorkQueue[str],
) -> None:
    queue.add("a")
    queue.try_get()
    queue.add("a", reason="again")
    item = queue.done_and_get("a")
    assert item is not None
    assert (item.key, item.reasons) == ("a", ("again",))


def test_a_worker_that_gives_its_key_back_waits_for_the_next_one(
    queue: WorkQueue[str], clock: ManualClock
) -> None:
    queue.add("a")
    queue.try_get()
    queue.add("later", after=10.0)
    idle_thread, idle = in_thread(queue.wait_idle)
    thread, results = in_thread(lambda: queue.done_and_get("a"))
    idle_thread.join()
    assert idle == [True]
    clock.block_until_waiting(1)
    clock.advance(10.0)
    thread.join()
    assert results[0].key == "later"


def test_a_worker_that_takes_a_key_wakes_another_one_for_the_next(queue: WorkQueue[str]) -> None:
    queue.add("a")
    queue.try_get()
    started = [in_thread(queue.get) for _ in range(2)]
    until_sleeping(queue, 2)
    queue.hold()
    for key in ("b", "c", "d"):
        queue.add(key)
    queue.is_held = False  # as let_go(), which would wake all
    assert queue.done_and_get("a") is not None
    for thread, _ in started:
        thread.join(5)
    stuck = [thread for thread, _ in started if thread.is_alive()]
    queue.shut_down()
    assert not stuck


def test_a_shut_down_without_drain_ends_a_drain(queue: WorkQueue[str]) -> None:
    queue.add("a")
    queue.add("b")
    queue.try_get()
    queue.shut_down(drain=True)
    waiter, idle = in_thread(lambda: (queue.done("a"), queue.wait_idle()))
    queue.shut_down()
    assert queue.get() is None
    waiter.join()
    assert idle[0][1] is True


def test_done_after_shut_down_is_harmless(queue: WorkQueue[str]) -> None:
    queue.add("a")
    queue.try_get()
    queue.shut_down()
    queue.done("a")
    assert queue.get() is None


# Metrics


def test_every_series_exists_at_0_from_the_start(queue: WorkQueue[str], metrics: Metrics) -> None:
    assert value(metrics, "depth", priority="0") == 0
    for name in (
        "adds_total",
        "retries_total",
        "queue_duration_seconds_count",
        "queue_duration_seconds_sum",
        "work_duration_seconds_count",
        "unfinished_work_seconds",
        "longest_running_processor_seconds",
    ):
        assert value(metrics, name) == 0, name


def test_depth_is_by_priority_and_a_priority_once_seen_stays_at_0(
    queue: WorkQueue[str], metrics: Metrics
) -> None:
    queue.add("a")
    queue.add("b", priority=7)
    queue.add("c", priority=7)
    assert value(metrics, "depth", priority="0") == 1
    assert value(metrics, "depth", priority="7") == 2
    ready(queue)
    assert value(metrics, "depth", priority="7") == 0


def test_depth_has_no_more_than_25_priorities(queue: WorkQueue[str], metrics: Metrics) -> None:
    for priority in range(1, 41):
        queue.add(f"k{priority}", priority=priority)
    queue.add("zero")
    priorities = [
        sample.labels["priority"]
        for family in metrics.collect()
        if family.name == "workqueue_depth"
        for sample in family.samples
    ]
    assert len(priorities) == 26
    assert value(metrics, "depth", priority="0") == 1
    assert value(metrics, "depth", priority="24") == 1
    assert value(metrics, "depth", priority="exceeded_cardinality_limit") == 16


def test_durations_are_those_of_the_clock(
    queue: WorkQueue[str], clock: ManualClock, metrics: Metrics
) -> None:
    queue.add("a")
    queue.add("b", after=1.0)
    clock.advance(3.0)
    queue.try_get()
    queue.try_get()
    assert value(metrics, "queue_duration_seconds_sum") == 3.0 + 2.0
    clock.advance(4.0)
    queue.done("a")
    clock.advance(6.0)
    assert value(metrics, "work_duration_seconds_sum") == 4.0
    assert value(metrics, "unfinished_work_seconds") == 10.0
    assert value(metrics, "longest_running_processor_seconds") == 10.0
    assert value(metrics, "work_duration_seconds_bucket", le="10.0") == 1
    assert value(metrics, "work_duration_seconds_bucket", le="1.0") == 0


@pytest.mark.parametrize("drain", [False, True])
def test_totals_survive_the_shut_down_with_the_work_that_ends_after_it(
    queue: WorkQueue[str], clock: ManualClock, metrics: Metrics, drain: bool
) -> None:
    queue.add("a")
    queue.try_get()
    queue.shut_down(drain=drain)
    clock.advance(2.0)
    assert value(metrics, "unfinished_work_seconds") == 2.0
    queue.done("a")
    queue.shut_down()
    assert value(metrics, "adds_total") == 1
    assert value(metrics, "work_duration_seconds_sum") == 2.0
    assert value(metrics, "unfinished_work_seconds") is None
    assert value(metrics, "depth", priority="0") is None


def test_a_successor_counts_on_where_the_last_queue_ended(metrics: Metrics) -> None:
    for _ in range(3):
        queue = WorkQueue[str]("q", controller="c", metrics=metrics)
        queue.add("a")
        queue.shut_down()
    assert value(metrics, "adds_total") == 3


def test_the_controller_label_is_the_name_unless_given(metrics: Metrics) -> None:
    queue = WorkQueue[str]("alone", metrics=metrics)
    assert metrics.value("workqueue_adds_total", name="alone", controller="alone") == 0
    queue.shut_down()


# Size


def test_a_wait_that_is_ended_again_and_again_leaves_nothing_behind() -> None:
    state: QueueState[str] = QueueState()
    state.add("blocker", 0.0, delay=1.0)
    for n in range(5000):
        state.add("a", 0.0, delay=3600.0 + n)
        state.add("a", 0.0)
        state.pop(0.0)
        state.done("a")
    assert len(state._waiting) < 200


def test_a_priority_that_is_raised_again_and_again_leaves_nothing_behind() -> None:
    state: QueueState[str] = QueueState()
    for _ in range(5000):
        state.add("a", 0.0, priority=-100)
        state.add("a", 0.0, priority=1)
        state.add("b", 0.0, priority=0)
        state.pop(0.0)
        state.done("a")
    assert len(state._ready) < 200


# Stress


@pytest.mark.stress
@pytest.mark.parametrize("seed", range(3))
def test_many_threads_never_get_a_key_twice_at_once_and_lose_none(seed: int) -> None:
    queue = WorkQueue[int]("q")
    keys, workers, producers, rounds = 40, 8, 4, 400
    versions = [0] * keys  # what a producer wants done
    handled = [0] * keys
    busy: Counter[int] = Counter()
    lock = threading.Lock()
    doubles: list[int] = []

    def produce(n: int) -> None:
        rng = random.Random(f"{seed}-{n}")
        for _ in range(rounds):
            key = rng.randrange(keys)
            with lock:
                versions[key] += 1
            delay = rng.choice([0.0, 0.0, rng.random() * 0.005])
            queue.add(key, priority=rng.choice([0, 1]), after=delay)

    def work(n: int) -> None:
        rng = random.Random(f"{seed}-{n}")
        item = queue.get()
        while item is not None:
            with lock:
                busy[item.key] += 1
                if busy[item.key] > 1:
                    doubles.append(item.key)
                version = versions[item.key]
            if rng.random() < 0.1:
                queue.add(item.key, after=rng.random() * 0.002)
            with lock:
                handled[item.key] = max(handled[item.key], version)
                busy[item.key] -= 1
            if rng.random() < 0.5:
                item = queue.done_and_get(item.key)
                continue
            queue.done(item.key)
            item = queue.get()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(workers)]
    threads += [threading.Thread(target=produce, args=(n,)) for n in range(producers)]
    for thread in threads:
        thread.start()
    for thread in threads[workers:]:
        thread.join()
    watch = threading.Event()
    for _ in range(2000):  # until the delays are over: the queue has no call that waits for those
        if not queue.waiting and queue.wait_idle(0):
            break
        watch.wait(0.005)
    queue.shut_down(drain=True)
    for thread in threads[:workers]:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    assert doubles == []
    assert handled == versions


@pytest.mark.stress
def test_timers_are_served_while_other_workers_are_stuck() -> None:
    # Eight sleepers, waves of keys due at about the same moment, workers that never come back in
    # between: each key of a wave must find a sleeper of its own.
    for _ in range(30):
        queue = WorkQueue[int]("q")
        barrier = threading.Barrier(9, timeout=10)

        def work(queue: WorkQueue[int] = queue, barrier: threading.Barrier = barrier) -> int | None:
            item = queue.get()
            barrier.wait()
            return item.key if item else None

        started = [in_thread(work) for _ in range(8)]
        for n in range(8):
            queue.add(n, after=0.001 if n % 2 else 0.0011)
        barrier.wait()  # broken if one of them is not handed out
        for thread, _ in started:
            thread.join()
        assert sorted(results[0] for _, results in started) == list(range(8))


def test_a_held_queue_hands_out_nothing_and_its_delays_run(
    queue: WorkQueue[str], clock: ManualClock
) -> None:
    queue.add("a")
    queue.add("later", after=5.0)
    assert queue.get() is not None
    queue.hold()
    queue.hold()
    queue.add("b")
    queue.add("a")
    queue.done("a")
    clock.advance(10.0)
    assert queue.is_held
    assert queue.try_get() is None
    assert len(queue) == 3
    queue.let_go()
    queue.let_go()
    assert ready(queue) == ["b", "a", "later"]


def test_a_thread_that_waits_at_a_held_queue_sleeps_until_it_is_let_go() -> None:
    clock = ManualClock()
    queue = WorkQueue[str]("q", clock=clock)
    queue.hold()
    queue.add("due", after=1.0)
    thread, results = in_thread(queue.get)
    until_sleeping(queue, 1)
    clock.advance(5.0)  # what is due wakes nobody again and again
    queue.add("now")
    assert not results
    queue.let_go()
    thread.join(10)
    assert [item.key for item in results if item] == ["due"]


@pytest.mark.parametrize("drain", [False, True])
def test_a_held_queue_is_shut_down_without_handing_out_what_waits(drain: bool) -> None:
    queue = WorkQueue[str]("q")
    queue.add("a")
    queue.hold()
    thread, results = in_thread(queue.get)
    queue.shut_down(drain=drain)
    thread.join(10)
    assert results == [None]


@pytest.mark.stress
def test_keys_are_handed_out_once_while_a_queue_is_held_and_let_go_all_the_time() -> None:
    queue = WorkQueue[int]("q")
    seen: Counter[int] = Counter()
    lock = threading.Lock()

    def work() -> None:
        while (item := queue.get()) is not None:
            with lock:
                seen[item.key] += 1
            queue.done(item.key)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(2000):
        queue.add(number, after=0.0001 if number % 3 else 0.0)
        (queue.hold if number % 2 else queue.let_go)()
    queue.let_go()
    while len(seen) < 2000:
        assert queue.wait_idle(10)
    queue.shut_down()
    for thread in threads:
        thread.join(10)
    assert seen == Counter(range(2000))


@pytest.mark.stress
@pytest.mark.parametrize("drain", [False, True])
def test_shutting_down_while_handing_out_does_not_deadlock(drain: bool) -> None:
    for _ in range(40):
        queue = WorkQueue[int]("q", metrics=Metrics())

        def work(queue: WorkQueue[int] = queue) -> None:
            while (item := queue.get()) is not None:
                queue.add(item.key, after=0.0001)
                queue.add(item.key + 1)
                queue.done(item.key)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for n in range(50):
            queue.add(n)
        queue.shut_down(drain=drain)
        for thread in threads:
            thread.join(10)
        assert not any(thread.is_alive() for thread in threads)
