"""A function call in a thread of its own, so that its caller can stop waiting for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar, final

from appsdk_operator.runtime import Clock, StopSignal, ThreadGroup, as_exception, settle

T = TypeVar("T")


class NotDone(TimeoutError):  # noqa: N818 - not an error of the function
    """A run has not ended at the deadline or at the stop; it may have since."""


@final
class TimedRun(Generic[T]):
    """One call of a function in a thread of its own, started at once. Thread-safe.

    A thread cannot be ended from outside: a function that hangs keeps its thread, so callers have
    to limit the number of runs.
    """

    def __init__(
        self,
        name: str,
        function: Callable[[], T],
        *,
        threads: ThreadGroup,
        clock: Clock,
        stop: StopSignal,
    ) -> None:
        """Run ``function``, which may be ``async``, in a thread of ``threads``.

        Args:
            name: the name of the thread.
            function: what to run.
            threads: the group that joins the thread.
            clock: measures the waits.
            stop: ends every wait.
        """
        self.name = name
        """The name of the thread, for errors."""
        self._function = function
        self._clock = clock
        self._stop = stop
        self._changed = threading.Condition()
        self._is_done = False
        self._outcome: T | None = None
        self._error: BaseException | None = None
        self.started = clock.monotonic()
        """When it began, in seconds of the clock."""
        threads.start(name, self._run)

    @property
    def is_done(self) -> bool:
        """Whether it has ended."""
        return self._is_done

    def wait(self, deadline: float, *stops: StopSignal) -> T | None:
        """Wait for the function and return its result.

        Args:
            deadline: how long to wait, as a time of the clock.
            stops: further signals that end the wait.

        Raises:
            NotDone: it still runs at the deadline, or a stop signal was set.
            Exception: what the function raised.
        """
        stops = (self._stop, *stops)
        detach = [stop.on_set(self._wake) for stop in stops]
        try:
            with self._changed:
                while not self._is_done:
                    left = deadline - self._clock.monotonic()
                    if left <= 0 or any(stop.is_set() for stop in stops):
                        raise NotDone
                    self._clock.wait(self._changed, left)
        finally:
            for each in detach:
                each()
        if self._error is not None:
            raise self._error
        return self._outcome

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _run(self) -> None:
        outcome: T | None = None
        failure: BaseException | None = None
        try:
            outcome = settle(self._function())
        except BaseException as error:
            failure = as_exception("it", error, for_main_thread=False)
        with self._changed:
            self._outcome, self._error, self._is_done = outcome, failure, True
            self._changed.notify_all()
