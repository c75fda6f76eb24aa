"""The clocks: what moves time in every other test."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

import pytest

from appsdk_operator.runtime import (
    Clock,
    ManualClock,
    RealClock,
    processor_time_of_thread,
    random_of,
    system_clock,
)
from tests.waiting import eventually


class Recording(threading.Condition):
    """A condition that says when it was notified, and may run something then."""

    def __init__(self, name: str, log: list[str], then: Callable[[], None] = lambda: None) -> None:
        super().__init__(threading.RLock())
        self.name = name
        self.log = log
        self.then = then

    def notify_all(self) -> None:
        self.log.append(self.name)
        super().notify_all()
        self.then()


def waiting(clock: ManualClock, condition: threading.Condition, timeout: float) -> threading.Thread:
    """A thread that waits once; it is waiting when this returns."""

    def run() -> None:
        with condition:
            clock.wait(condition, timeout)

    before = len(clock._waiters)
    thread = threading.Thread(target=run)
    thread.start()
    clock.block_until_waiting(before + 1)
    return thread


def test_both_clocks_are_clocks() -> None:
    assert isinstance(ManualClock(), Clock)
    assert isinstance(RealClock(), Clock)
    assert isinstance(system_clock, RealClock)


def test_a_manual_clock_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(start=5.0, epoch=1000.0)
    assert (clock.monotonic(), clock.time()) == (5.0, 1000.0)
    clock.advance(2.5)
    assert (clock.monotonic(), clock.time()) == (7.5, 1002.5)


@pytest.mark.parametrize("seconds", [-0.1, math.nan, -math.inf])
def test_a_clock_does_not_go_back(seconds: float) -> None:
    clock = ManualClock()
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(seconds)
    assert clock.monotonic() == 0.0


def test_advance_wakes_those_who_are_due_and_nobody_else() -> None:
    clock, log = ManualClock(), []
    threads = [
        waiting(clock, Recording(name, log), timeout)
        for name, timeout in [("late", 30.0), ("second", 10.0), ("first", 5.0), ("exact", 20.0)]
    ]
    clock.advance(20.0)
    assert log == ["first", "second", "exact"]
    assert clock.next_deadline() == 30.0
    clock.advance(10.0)
    assert log == ["first", "second", "exact", "late"]
    assert clock.next_deadline() is None
    for thread in threads:
        thread.join()


def test_equal_deadlines_are_woken_in_the_order_of_their_registration() -> None:
    clock, log = ManualClock(), []
    threads = [waiting(clock, Recording(str(n), log), 1.0) for n in range(8)]
    clock.advance(1.0)
    assert log == [str(n) for n in range(8)]
    for thread in threads:
        thread.join()


def test_each_waiter_sees_the_time_of_its_own_deadline_while_the_clock_is_advancing() -> None:
    clock, log, seen = ManualClock(), [], []
    threads = [
        waiting(clock, Recording(str(n), log, lambda: seen.append(clock.monotonic())), float(n))
        for n in (3, 1, 2)
    ]
    clock.advance(10.0)
    assert seen == [1.0, 2.0, 3.0]
    assert clock.monotonic() == 10.0
    for thread in threads:
        thread.join()


def test_a_deadline_that_appears_while_advancing_is_met_on_the_way() -> None:
    clock, log, threads = ManualClock(), [], []
    later = Recording("appeared", log)
    first = Recording("first", log, lambda: threads.append(waiting(clock, later, 1.0)))
    threads.append(waiting(clock, first, 1.0))
    threads.append(waiting(clock, Recording("last", log), 3.0))
    clock.advance(5.0)
    assert log == ["first", "appeared", "last"]
    for thread in threads:
        thread.join()


def test_a_waiter_that_moves_the_clock_on_is_not_undone() -> None:
    clock, log = ManualClock(), []
    slow = Recording("slow", log, lambda: clock.advance(25.0))
    thread = waiting(clock, slow, 10.0)
    clock.advance(10.0)
    assert clock.monotonic() == 35.0
    thread.join()


def test_a_waiter_that_was_notified_early_leaves_no_deadline_behind() -> None:
    clock = ManualClock()
    condition = threading.Condition()
    thread = waiting(clock, condition, 60.0)
    with condition:
        condition.notify_all()
    thread.join()
    assert clock.next_deadline() is None


def test_a_wait_without_time_out_has_no_deadline_and_ends_when_notified() -> None:
    clock = ManualClock()
    condition, entered, done = threading.Condition(), threading.Event(), threading.Event()

    def run() -> None:
        with condition:
            entered.set()
            clock.wait(condition)
        done.set()

    thread = threading.Thread(target=run)
    thread.start()
    entered.wait()
    clock.advance(1e9)
    assert clock.next_deadline() is None
    assert not done.is_set()
    with condition:  # it holds the lock until it waits, so now it waits
        condition.notify_all()
    thread.join()


@pytest.mark.parametrize("timeout", [0.0, -1.0])
@pytest.mark.parametrize("clock", [ManualClock(), RealClock()])
def test_a_wait_of_no_time_returns_at_once(clock: Clock, timeout: float) -> None:
    condition = threading.Condition()
    with condition:
        clock.wait(condition, timeout)


def test_a_wait_counts_from_the_time_that_its_thread_read() -> None:
    # A worker works out `due - now`; the test moves the clock before the worker waits.
    clock = ManualClock()
    condition = threading.Condition()
    with condition:
        left = 10.0 - clock.monotonic()
        mover = threading.Thread(target=clock.advance, args=(25.0,))
        mover.start()
        mover.join()
        clock.wait(condition, left)  # would never return otherwise: nobody moves the clock again
    assert clock.monotonic() == 25.0


def test_a_reading_of_the_clock_counts_for_one_wait_only() -> None:
    clock = ManualClock()
    condition = threading.Condition()
    clock.monotonic()
    clock.advance(100.0)
    with condition:
        clock.wait(condition, 10.0)  # overdue
        thread = threading.Thread(target=lambda: (clock.block_until_waiting(1), clock.advance(10)))
        thread.start()
        clock.wait(condition, 10.0)  # from now on
    thread.join()
    assert clock.monotonic() == 110.0


def test_block_until_waiting_says_how_many_are_missing() -> None:
    clock = ManualClock()
    with pytest.raises(TimeoutError, match="0 of 2 threads wait on the clock"):
        clock.block_until_waiting(2, timeout=0.01)
    clock.block_until_waiting(0, timeout=0.0)


def test_the_real_clock_tells_the_time_of_the_machine() -> None:
    clock = RealClock()
    before, now, after = time.monotonic(), clock.monotonic(), time.monotonic()
    assert before <= now <= after
    before, now, after = time.time(), clock.time(), time.time()
    assert before <= now <= after


def test_the_real_clock_waits_for_the_time_out_and_not_much_less() -> None:
    clock = RealClock()
    condition = threading.Condition()
    start = clock.monotonic()
    with condition:
        while clock.monotonic() - start < 0.02:
            clock.wait(condition, 0.02)
    assert clock.monotonic() - start < 5.0


@pytest.mark.parametrize("timeout", [math.inf, 1e30])
def test_the_real_clock_waits_for_times_longer_than_python_can(timeout: float) -> None:
    condition, entered = threading.Condition(), threading.Event()

    def run() -> None:
        with condition:
            entered.set()
            RealClock().wait(condition, timeout)

    thread = threading.Thread(target=run)
    thread.start()
    entered.wait()
    with condition:
        condition.notify_all()
    thread.join(5)
    assert not thread.is_alive()


def test_a_manual_clock_gives_the_same_jitter_for_the_same_seed_and_a_real_one_does_not():
    def some(clock: Clock) -> list[float]:
        return [random_of(clock).random() for _ in range(3)]

    assert some(ManualClock(seed=7)) == some(ManualClock(seed=7)) != some(ManualClock(seed=8))
    assert some(system_clock) != some(system_clock)


def test_an_alarm_is_asked_at_each_step_and_stops_the_clock_at_the_time_it_names() -> None:
    clock, times = ManualClock(), []
    dues = [2.0, 5.0]

    def alarm() -> float | None:
        now = clock.monotonic()
        if dues and now >= dues[0]:
            times.append(dues.pop(0))
            assert now == times[-1]
        return dues[0] if dues else None

    remove = clock.add_alarm(alarm)
    assert clock.next_deadline() == 2.0
    clock.advance(1.0)
    assert not times
    clock.advance(4.0)
    assert times == [2.0, 5.0]
    assert clock.monotonic() == 5.0
    assert clock.next_deadline() is None
    dues.append(6.0)
    remove()
    clock.advance(9.0)
    assert times == [2.0, 5.0]


def test_a_jump_goes_to_the_earliest_deadline_and_asks_each_alarm_once() -> None:
    clock, asked = ManualClock(), []

    def alarm() -> float:
        asked.append(clock.monotonic())
        return 9.0

    assert not clock.advance_to_next()
    remove = clock.add_alarm(alarm)
    condition, woken = threading.Condition(), []

    def wait() -> None:
        with condition:
            clock.wait(condition, 4.0)
            woken.append(clock.monotonic())

    thread = threading.Thread(target=wait)
    thread.start()
    clock.block_until_waiting(1)
    assert not clock.advance_to_next(until=3.9)
    asked.clear()
    assert clock.advance_to_next(until=4.0)
    assert asked == [0.0]
    thread.join()
    assert woken == [4.0]
    assert clock.advance_to_next()
    assert clock.monotonic() == 9.0
    assert asked == [0.0, 4.0, 9.0]
    remove()


def test_an_alarm_that_names_no_later_time_does_not_hold_the_clock() -> None:
    clock = ManualClock()
    clock.add_alarm(lambda: 0.0)
    clock.advance(3.0)
    assert clock.monotonic() == 3.0
    assert clock.next_deadline() is None


@pytest.mark.skipif(
    not hasattr(time, "pthread_getcpuclockid"), reason="this system has no clock for each thread"
)
def test_any_thread_may_read_the_processor_time_of_another_until_that_has_ended() -> None:
    readers: list[Callable[[], float]] = []
    has_computed, ends = threading.Event(), threading.Event()

    def compute() -> None:
        read = processor_time_of_thread()
        while read() < 0.02:
            pass
        readers.append(read)
        has_computed.set()
        ends.wait()

    mine = processor_time_of_thread()
    thread = threading.Thread(target=compute)
    thread.start()
    has_computed.wait()
    before = mine()
    assert 0.02 <= readers[0]() < 1.0
    assert mine() - before < 0.02
    ends.set()
    thread.join()
    # A thread of the system ends a little later than Python's.
    eventually(lambda: readers[0]() == 0.0)


def test_a_system_without_a_clock_for_each_thread_has_that_of_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(time, "pthread_getcpuclockid", raising=False)
    read = processor_time_of_thread()
    assert time.process_time() - 1.0 < read() <= time.process_time()
