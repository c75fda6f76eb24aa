"""Waits for a condition, which signal handlers can wake as well."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Protocol, final

from appsdk_operator.runtime._clock import Clock
from appsdk_operator.runtime._fork import fork_safe


class _Stop(Protocol):
    """A stop signal, as far as a wait needs one."""

    def is_set(self) -> bool: ...

    def on_set(self, callback: Callable[[], None], /) -> Callable[[], None]: ...


@final
class Gate:
    """What one thread waits at until another one opens it; it is remembered before the wait."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        # A bare lock: its release is atomic, also for signal handlers.
        self._lock = threading.Lock()
        self._lock.acquire()

    def open(self) -> None:
        """Let one wait end; before that wait, twice is as once."""
        with contextlib.suppress(RuntimeError):  # released already
            self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is opened, which closes it; False after ``timeout`` seconds."""
        return self._lock.acquire(timeout=-1 if timeout is None else max(0.0, timeout))


class Latch(threading.Condition):
    """A condition for one waiter, which remembers a notification before the wait.

    A plain condition loses the notification of a signal handler that runs in the waiting thread
    between its last check and its wait.
    """

    def __init__(self) -> None:
        super().__init__(threading.RLock())
        self._gate = Gate()

    def wait(self, timeout: float | None = None) -> bool:
        self.release()
        try:
            return self._gate.wait(timeout)
        finally:
            self.acquire()

    def notify(self, n: int = 1) -> None:  # noqa: ARG002 - there is one waiter
        self._gate.open()

    def notify_all(self) -> None:
        self.notify()


@final
class Waiters:
    """Threads that wait until a predicate is true; :meth:`wake` makes them check it again.

    No wake-up is lost, not even that of a signal handler in the waiting thread. Thread-safe;
    :meth:`wake` takes no lock that is held during a check.
    """

    def __init__(self, clock: Clock) -> None:
        """Time-outs are measured with ``clock``."""
        self._clock = clock
        # Re-entrant, because a signal handler may call wake() in a thread that is inside.
        self._lock = fork_safe(threading.RLock())
        # By insertion, not by hash: the order of wake-ups is the same in each run.
        self.waiting: dict[Latch, None] = {}
        """Empty without waiters; frequent callers of :meth:`wake` check it first."""

    def wait(
        self, done: Callable[[], bool], stop: _Stop | None = None, timeout: float | None = None
    ) -> bool:
        """Wait until ``done()`` is true; False when stopped or after ``timeout`` seconds.

        Args:
            done: the predicate, called without a lock.
            stop: ends the wait.
            timeout: the longest wait, in seconds of the clock; default: no limit.
        """
        if done():
            return True
        clock = self._clock
        deadline = None if timeout is None else clock.monotonic() + timeout
        latch = Latch()
        # Registered first, checked then: a change at any moment is noticed by one of the two.
        with self._lock:
            self.waiting[latch] = None
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
                self.waiting.pop(latch, None)

    def wake(self) -> None:
        """Make all waiters check their predicates again."""
        with self._lock:
            latches = list(self.waiting)
        for latch in latches:
            latch.notify()
