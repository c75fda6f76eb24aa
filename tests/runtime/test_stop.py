"""The stop signal."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from appsdk_operator.runtime import ManualClock, RealClock, StopSignal


def test_a_signal_is_not_set_until_it_is_set_and_stays_so() -> None:
    stop = StopSignal()
    assert not stop.is_set()
    assert stop.wait(0) is False
    stop.set()
    assert stop.is_set()
    assert stop.wait(0) is True
    assert stop.wait() is True


def test_setting_twice_is_harmless() -> None:
    stop, calls = StopSignal(), []
    stop.on_set(lambda: calls.append(1))
    stop.set()
    stop.set()
    assert calls == [1]


def test_a_child_is_set_together_with_its_parents() -> None:
    one, other = StopSignal(), StopSignal()
    seen: list[list[bool]] = []
    other.on_set(lambda: seen.append([each.is_set() for each in (child, grandchild, one)]))
    child = one.child(other)
    grandchild = child.child()
    calls: list[str] = []
    grandchild.on_set(lambda: calls.append("called"))
    assert not child.is_set()
    other.set()
    assert seen == [[True, True, False]]
    assert calls == ["called"]
    one.set()
    assert calls == ["called"]


def test_a_child_of_several_is_set_alone_and_forgotten_by_all() -> None:
    one, other = StopSignal(), StopSignal()
    one.child(other).set()
    assert not one.is_set()
    assert not other.is_set()
    assert not one._callbacks
    assert not other._callbacks
    one.set()
    assert one.child(other).is_set()
    assert not other._callbacks
    assert other.child(one).is_set()
    assert not other._callbacks


def test_set_wakes_every_waiter() -> None:
    clock = ManualClock()
    stop, results = StopSignal(clock=clock), []
    waiters: list[Callable[[], Any]] = [
        *[lambda: results.append(stop.wait(10.0))] * 3,
        *[lambda: results.append(stop.wait())] * 3,
    ]
    threads = [threading.Thread(target=wait) for wait in waiters]
    for thread in threads:
        thread.start()
    clock.block_until_waiting(3)
    stop.set()
    for thread in threads:
        thread.join()
    assert results == [True] * 6
    assert clock.next_deadline() is None


def test_a_wait_times_out_at_its_time_and_not_before() -> None:
    clock = ManualClock()
    stop, results = StopSignal(clock=clock), []
    thread = threading.Thread(target=lambda: results.append(stop.wait(10.0)))
    thread.start()
    clock.block_until_waiting(1)
    clock.advance(9.9)
    assert results == []
    clock.advance(0.2)
    thread.join()
    assert results == [False]
    assert not stop._waiters.waiting


def test_a_wake_up_without_reason_does_not_end_a_wait() -> None:
    class Nervous:
        def __init__(self) -> None:
            self.calls = 0

        def monotonic(self) -> float:
            return float(self.calls)

        def time(self) -> float:
            return 0.0

        def wait(self, condition: threading.Condition, timeout: float | None = None) -> None:
            self.calls += 1

    clock = Nervous()
    assert StopSignal(clock=clock).wait(5.0) is False
    assert clock.calls == 5


def test_a_child_stops_alone() -> None:
    parent = StopSignal()
    one, other = parent.child(), parent.child()
    one.set()
    assert (one.is_set(), other.is_set(), parent.is_set()) == (True, False, False)


def test_children_and_their_children_stop_with_the_parent() -> None:
    parent = StopSignal()
    child = parent.child()
    grandchild = child.child()
    parent.set()
    assert child.is_set()
    assert grandchild.is_set()


def test_a_child_of_a_stopped_parent_is_born_stopped() -> None:
    parent = StopSignal()
    parent.set()
    assert parent.child().is_set()


def test_a_long_lived_parent_does_not_grow_with_its_children() -> None:
    parent = StopSignal()
    children = [parent.child() for _ in range(100)]
    gone = weakref.WeakSet([_Probe(child) for child in children])
    for child in children:
        child.set()
    assert parent._callbacks == {}
    del children, child
    gc.collect()
    assert not gone


class _Probe:
    """Lives as long as the signal's callbacks: a signal itself takes no weak references."""

    def __init__(self, stop: StopSignal) -> None:
        stop.on_set(self.called)

    def called(self) -> None:
        """Hold on to the probe."""


def test_a_child_waits_on_the_clock_of_its_parent() -> None:
    clock = ManualClock()
    child = StopSignal(clock=clock).child()
    thread = threading.Thread(target=lambda: child.wait(1.0))
    thread.start()
    clock.block_until_waiting(1)
    clock.advance(1.0)
    thread.join()


def test_callbacks_run_once_in_order_in_the_setting_thread() -> None:
    stop, calls = StopSignal(), []
    for n in range(3):
        stop.on_set(lambda n=n: calls.append((n, threading.current_thread().name)))
    thread = threading.Thread(target=stop.set, name="setter")
    thread.start()
    thread.join()
    stop.set()
    assert calls == [(0, "setter"), (1, "setter"), (2, "setter")]


def test_a_callback_that_was_taken_back_does_not_run() -> None:
    stop, calls = StopSignal(), []
    take_back = stop.on_set(lambda: calls.append("taken back"))
    stop.on_set(lambda: calls.append("kept"))
    take_back()
    take_back()
    stop.set()
    take_back()
    assert calls == ["kept"]


def test_a_callback_registered_late_runs_at_once() -> None:
    stop, calls = StopSignal(), []
    stop.set()
    take_back = stop.on_set(lambda: calls.append(1))
    take_back()
    assert calls == [1]
    assert stop._callbacks == {}


def test_a_callback_that_raises_is_logged_and_keeps_no_other_from_running(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stop, calls = StopSignal(), []

    def fail() -> None:
        raise RuntimeError("broken callback")

    stop.on_set(fail)
    stop.on_set(lambda: calls.append(1))
    with caplog.at_level(logging.ERROR):
        stop.set()
        stop.on_set(fail)
    assert calls == [1]
    assert [r.name for r in caplog.records] == ["appsdk_operator.runtime"] * 2
    assert "broken callback" in caplog.text


def test_a_callback_may_use_the_signal() -> None:
    stop, seen = StopSignal(), []
    stop.on_set(lambda: (stop.set(), seen.append(stop.wait()), stop.child()))
    stop.set()
    assert seen == [True]


def test_a_signal_handler_may_set_it_in_the_thread_that_waits() -> None:
    stop = StopSignal()
    before = signal.signal(signal.SIGUSR1, lambda *_: stop.set())
    try:
        sender = threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGUSR1))
        sender.start()
        assert stop.wait(30) is True
        sender.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


class _HandlerBeforeSleep:
    """A clock during whose ``wait`` a signal handler runs, just before the thread sleeps."""

    def __init__(self) -> None:
        self.handler: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return 0.0

    def time(self) -> float:
        return 0.0

    def wait(self, condition: threading.Condition, timeout: float | None = None) -> None:
        self.handler()
        RealClock().wait(condition, timeout)


def test_a_signal_handler_between_the_last_look_and_falling_asleep_is_not_lost() -> None:
    clock = _HandlerBeforeSleep()
    stop = StopSignal(clock=clock)
    clock.handler = stop.set
    thread = threading.Thread(target=stop.wait)
    thread.start()
    thread.join(5)
    lost = thread.is_alive()
    for latch in list(stop._waiters.waiting):  # let a failing test end
        with latch:
            latch.notify_all()
    assert not lost


def test_a_signal_handler_while_a_callback_is_registered_does_not_lose_it() -> None:
    stop, calls = StopSignal(), []

    class SetsFirst(dict[int, Callable[[], None]]):
        def __setitem__(self, key: int, value: Callable[[], None]) -> None:
            stop.set()
            super().__setitem__(key, value)

    stop._callbacks = SetsFirst()
    stop.on_set(lambda: calls.append(1))
    assert calls == [1]


@pytest.mark.stress
def test_setting_waiting_and_registering_from_many_threads_loses_nothing() -> None:
    for _ in range(100):
        parent, calls = StopSignal(), []
        barrier = threading.Barrier(6)

        def wait(parent: StopSignal = parent, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            assert parent.child().wait(30)

        def register(
            parent: StopSignal = parent,
            barrier: threading.Barrier = barrier,
            calls: list[int] = calls,
        ) -> None:
            barrier.wait()
            for _ in range(10):
                parent.on_set(lambda: calls.append(1))

        def stop(parent: StopSignal = parent, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            parent.set()

        threads = [threading.Thread(target=t) for t in (wait, wait, register, register, stop, stop)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(calls) == 20
