"""One way to ask anything to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import final

from appsdk_operator.runtime._clock import Clock, system_clock
from appsdk_operator.runtime._fork import fork_safe
from appsdk_operator.runtime._logging import get_logger
from appsdk_operator.runtime._waiters import Waiters

__all__ = ["StopSignal", "check_stop"]

_log = get_logger("appsdk_operator.runtime")


@final
class StopSignal:
    """A one-way flag that every blocking call of the kit takes and obeys.

    Setting it twice is harmless. A :meth:`child` stops with its parent, not the parent with it,
    so a group can be stopped alone. Thread-safe; may be set from a signal handler's thread.

    >>> stop = StopSignal()
    >>> group = stop.child()
    >>> group.set()
    >>> stop.is_set()
    False
    """

    def __init__(self, *, clock: Clock = system_clock) -> None:
        """A signal whose waits use ``clock``."""
        self._clock = clock
        # Re-entrant, because a Python signal handler may call set() in the very thread that is
        # inside any of these methods.
        self._lock = fork_safe(threading.RLock())
        self._is_set = False
        self._waiters = Waiters(clock)
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._next_id = 0
        self._detach: Callable[[], None] = lambda: None

    def is_set(self) -> bool:
        """Whether a stop was asked for."""
        return self._is_set

    def set(self) -> None:
        """Ask for the stop: wakes every :meth:`wait` and runs each callback once.

        A callback that raises is logged and keeps no other from running.
        """
        with self._lock:
            if self._is_set:
                return
            self._is_set = True
            callbacks = list(self._callbacks.values())
            self._callbacks.clear()
        self._waiters.wake()
        self._detach()
        for callback in callbacks:
            _run(callback)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the stop for at most ``timeout`` seconds; True when it was asked for."""
        return self._waiters.wait(self.is_set, timeout=timeout)

    def on_set(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` when the stop is asked for, at once when it was already.

        Callbacks run in the thread that sets the signal and must return promptly.

        Returns:
            A function that takes the callback back; calling it later or twice is harmless.
        """
        with self._lock:
            self._next_id += 1
            key = self._next_id
            self._callbacks[key] = callback
            # Looked at after it is listed: a signal handler may have set it just before.
            if not self._is_set or self._callbacks.pop(key, None) is None:
                return lambda: self._forget(key)
        _run(callback)
        return lambda: None

    def child(self) -> StopSignal:
        """A signal that is set together with this one, or alone."""
        child = StopSignal(clock=self._clock)
        # The child takes itself off the parent's list when set, so that a long-lived parent does
        # not grow with every group it ever had.
        child._detach = self.on_set(child.set)
        return child

    def _forget(self, key: int) -> None:
        with self._lock:
            self._callbacks.pop(key, None)


def check_stop(stop: object) -> None:
    """Find what is no stop signal when it is given.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(stop, StopSignal):
        raise TypeError(f"stop={stop!r} is no StopSignal: make one with StopSignal()")


def _run(callback: Callable[[], None]) -> None:
    try:
        callback()
    except BaseException:
        # Also what would end the program: the callbacks after this one have to run.
        _log.exception("a callback of a stop signal failed")
