"""Threads that wait until something is so, whoever makes it so."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Protocol, final

from appsdk_operator.runtime._clock import Clock, present_clock
from appsdk_operator.runtime._fork import fork_safe

__all__ = ["Waiters"]


class _Stop(Protocol):
    """A stop signal, as far as a wait needs one."""

    def is_set(self) -> bool: ...

    def on_set(self, callback: Callable[[], None], /) -> Callable[[], None]: ...


class Latch(threading.Condition):
    """A condition for one waiter that remembers a notification which comes before the wait.

    A plain condition loses the notification of a signal handler that runs in the waiting thread
    between its last look and its falling asleep.
    """

    def __init__(self) -> None:
        super().__init__(threading.RLock())
        # A bare lock: its release is one step, which a signal handler cannot catch half-way.
        self._gate = threading.Lock()
        self._gate.acquire()

    def wait(self, timeout: float | None = None) -> bool:
        self.release()
        try:
            return self._gate.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
        finally:
            self.acquire()

    def notify(self, n: int = 1) -> None:  # noqa: ARG002 - there is one waiter
        with contextlib.suppress(RuntimeError):  # open already
            self._gate.release()

    def notify_all(self) -> None:
        self.notify()


@final
class Waiters:
    """Those who wait until something is so: woken to look again by whoever may have changed it.

    No wake-up is lost, also none of a signal handler that runs in the very thread that waits.
    Thread-safe; waking takes no lock that is held while anybody looks.
    """

    def __init__(self, clock: Clock) -> None:
        """Nobody waits; times are those of ``clock``."""
        self._clock = clock
        # Re-entrant, because a signal handler may wake in the thread that is inside.
        self._lock = fork_safe(threading.RLock())
        self.waiting: set[Latch] = set()
        """Empty while nobody waits; look at it before :meth:`wake` where that is called often."""

    def wait(
        self, done: Callable[[], bool], stop: _Stop | None = None, timeout: float | None = None
    ) -> bool:
        """Wait until ``done()``, which is called without a lock; False when stopped or too late.

        Args:
            done: whether it is so.
            stop: ends the wait.
            timeout: the longest wait, in seconds of the clock; default: no limit.
        """
        if done():
            return True
        clock = present_clock(self._clock)
        deadline = None if timeout is None else clock.monotonic() + timeout
        latch = Latch()
        # First listed, then looked: whenever it comes to be so, it is seen by one of the two.
        with self._lock:
            self.waiting.add(latch)
        detach = stop.on_set(latch.notify) if stop is not None else None
        try:
            while not done():
                left = None if deadline is None else deadline - clock.monotonic()
                if (stop is not None and stop.is_set()) or (left is not None and left <= 0):
                    return False
                with latch:
                    clock.wait(latch, left)
            return True
        finally:
            if detach is not None:
                detach()
            with self._lock:
                self.waiting.discard(latch)

    def wake(self) -> None:
        """Let all look again."""
        with self._lock:
            latches = list(self.waiting)
        for latch in latches:
            latch.notify()
