from __future__ import annotations

import threading

import pytest

from appsdk_operator.runtime import ManualClock, StopSignal, system_clock
from appsdk_operator.runtime._threading.waiters import Waiters

PATIENCE = 10.0


class Flag:
    def __init__(self) -> None:
        self.is_up = False

    def __call__(self) -> bool:
        return self.is_up


def test_what_is_so_already_is_not_waited_for() -> None:
    waiters = Waiters(ManualClock())
    assert waiters.wait(lambda: True)
    assert waiters.wait(lambda: True, timeout=0.0)
    assert not waiters.waiting


def test_a_wait_ends_when_it_is_so_and_not_with_any_wake_up() -> None:
    waiters, flag, looked = Waiters(system_clock), Flag(), threading.Semaphore(0)

    def done() -> bool:
        looked.release()
        return flag.is_up

    outcomes: list[bool] = []
    thread = threading.Thread(target=lambda: outcomes.append(waiters.wait(done)))
    thread.start()
    for _ in range(2):
        assert looked.acquire(timeout=PATIENCE)
    waiters.wake()
    assert looked.acquire(timeout=PATIENCE)
    assert not outcomes
    flag.is_up = True
    waiters.wake()
    thread.join(PATIENCE)
    assert outcomes == [True]
    assert not waiters.waiting


@pytest.mark.parametrize("ends_by", ["the stop", "the time"])
def test_a_wait_in_vain_says_so(ends_by: str) -> None:
    clock, stop = ManualClock(), StopSignal()
    waiters = Waiters(clock)
    outcomes: list[bool] = []
    thread = threading.Thread(target=lambda: outcomes.append(waiters.wait(Flag(), stop, 5.0)))
    thread.start()
    clock.block_until_waiting(1)
    if ends_by == "the stop":
        stop.set()
    else:
        clock.advance(5.0)
    thread.join(PATIENCE)
    assert outcomes == [False]
    assert not waiters.waiting
    assert not stop._callbacks


class HandlerBeforeSleep:
    """Runs a handler when a thread is about to fall asleep, as a signal may."""

    monotonic = staticmethod(system_clock.monotonic)
    time = staticmethod(system_clock.time)

    def __init__(self) -> None:
        self.handler = lambda: None

    def wait(self, condition: threading.Condition, timeout: float | None = None) -> None:
        self.handler()
        system_clock.wait(condition, timeout)


@pytest.mark.parametrize("what", ["is so", "is stopped"])
def test_what_a_signal_handler_does_just_before_the_sleep_is_seen(what: str) -> None:
    clock, flag, stop = HandlerBeforeSleep(), Flag(), StopSignal()
    waiters = Waiters(clock)

    def handler() -> None:
        if what == "is so":
            flag.is_up = True
            waiters.wake()
        else:
            stop.set()

    clock.handler = handler
    outcomes: list[bool] = []
    thread = threading.Thread(target=lambda: outcomes.append(waiters.wait(flag, stop)))
    thread.start()
    thread.join(PATIENCE)
    hangs = thread.is_alive()
    for latch in list(waiters.waiting):  # let a failing test end
        latch.notify()
    assert not hangs
    assert outcomes == [what == "is so"]
