"""Calls with a time limit."""

from __future__ import annotations

import threading

from appsdk_operator.runtime._clock import Clock
from appsdk_operator.runtime._fork import fork_safe
from appsdk_operator.runtime._logs.durations import duration_text
from appsdk_operator.runtime._threading.stop import StopSignal

# Guards stop signals, which most calls never create; one lock is cheaper than one for each.
_stop_lock = fork_safe(threading.Lock())


class TimeLimitExceeded(TimeoutError):  # noqa: N818 - it says what is so, as StillRunning
    """A call has not returned within its time limit. Like any other failure, it is retried."""


class LimitedCall:
    """One call of a user's function that may have a time limit. Thread-safe."""

    __slots__ = (
        "_clock",
        "_is_over",
        "_parent",
        "_stop",
        "deadline",
        "is_own_time_out",
        "is_timed_out",
        "limit",
        "started",
    )

    def __init__(
        self, started: float, limit: float | None, parent: StopSignal, clock: Clock
    ) -> None:
        """A call that begins now.

        Args:
            started: the monotonic time.
            limit: seconds; None: no limit.
            parent: the stop signal of what it is part of.
            clock: the clock of the times.
        """
        self.started: float = started
        """The monotonic time of its start."""
        self.limit: float | None = limit
        """The seconds that it may take; None: as long as it likes."""
        self.deadline: float | None = None if limit is None else started + limit
        """The monotonic time by which it should end; None without a limit."""
        self.is_timed_out: bool = False
        """Whether the deadline passed while it ran."""
        self.is_own_time_out: bool = False
        """Whether the deadline passed before what it is part of was stopped."""
        self._parent = parent
        self._clock = clock
        self._stop: StopSignal | None = None
        self._is_over = False

    @property
    def stop(self) -> StopSignal:
        """The stop signal, set when the controller stops, at the deadline, and at the end.

        Pass it to everything that waits.
        """
        with _stop_lock:
            if self._stop is None:
                self._stop = self._parent.child()
                if self._is_over or self.is_timed_out:
                    self._stop.set()
            return self._stop

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._is_over

    def remaining(self) -> float | None:
        """Seconds until the deadline, at least 0; None when there is no deadline."""
        deadline = self.deadline  # once: another thread may suspend it
        return None if deadline is None else max(0.0, deadline - self._clock.monotonic())

    # For those who make and watch it.

    def has_reached(self, now: float) -> bool:
        """Whether its deadline has passed, or it was stopped for that."""
        deadline = self.deadline
        return self.is_timed_out or (deadline is not None and now >= deadline)

    def time_out(self) -> bool:
        """Mark the deadline as passed, and set the stop signal; False if it is marked or over."""
        with _stop_lock:
            if self._is_over or self.is_timed_out:
                return False
            self.is_timed_out = True
            self.is_own_time_out = not self._parent.is_set()
            stop = self._stop
        if stop is not None:
            stop.set()
        return True

    def suspend(self) -> float | None:
        """Its time stands still until :meth:`resume`; returns its deadline."""
        with _stop_lock:
            deadline, self.deadline = self.deadline, None
        return deadline

    def resume(self, deadline: float | None) -> None:
        """Its time goes on, until ``deadline``."""
        with _stop_lock:
            self.deadline = deadline

    def end(self) -> None:
        """The call has ended: set its stop signal."""
        # Also without a signal: one that is made now has to see that the call is over.
        with _stop_lock:
            self._is_over = True
            stop = self._stop
        if stop is not None:
            stop.set()

    def exceeded(self, name: str, now: float) -> TimeLimitExceeded:
        """The error of a call of the function ``name``."""
        took, limit = duration_text(now - self.started), duration_text(self.limit or 0.0)
        return TimeLimitExceeded(
            f"{name} took {took}, its time limit is {limit}: set a time-out for what it waits for, "
            "wait on current_stop(), or raise the limit"
        )
