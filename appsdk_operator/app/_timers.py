"""The timer of an App that is called without an object."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, final

from appsdk_operator.app._schedules import Schedule
from appsdk_operator.controllers import (
    Outcome,
    Request,
    Result,
    RetryAfter,
    TerminalError,
    retry_after_seconds,
    sole_error,
)
from appsdk_operator.runtime import (
    Clock,
    as_exception,
    asked_delay,
    call_limited,
    callback_name,
    get_logger,
    safe_text,
)
from appsdk_operator.runtime.validation import FALLBACK_DELAY
from appsdk_operator.watchers import RetryPolicy

_log = get_logger("appsdk_operator.app")


class TimerError(Exception):
    """A timer failed, and is called again after its interval although its error is terminal."""


@final
class AppTimer:
    """Calls a function at intervals; its controller's rate limiter, too.

    A failed call is repeated as the App's retry policy says, but after the interval at the latest.
    The controller makes one call at a time.
    """

    def __init__(
        self,
        function: Callable[[], Any],
        *,
        schedule: Schedule,
        clock: Clock,
        retry_policy: RetryPolicy,
        time_limit: float | None = None,
    ) -> None:
        self._function = function
        self._time_limit = time_limit
        self._schedule = schedule
        self._clock = clock
        # Of a crontab line, for which the next call is; None: it has none yet.
        self._tick: float | None = None if schedule.cron else 0.0
        self._policy = retry_policy
        self._attempt = 0
        self._delay = 0.0

        def tick(_: Request) -> Outcome:
            return self._call()

        tick.__qualname__ = callback_name(function)  # the one that logs name
        self.reconciler = tick

    def _call(self) -> Outcome:
        if self._tick is None:
            self._tick, pause = self._schedule.first(self._clock.time())
            return Result(requeue_after=pause)
        try:
            call_limited(self._function, seconds=self._time_limit)
        except BaseException as raised:
            error = as_exception("the timer", raised)
            sole = sole_error(error)
            asked = retry_after_seconds(sole)
            tick, pause = self._next()
            if asked is not None:
                if asked < pause:
                    raise
                self._tick = tick
                raise RetryAfter(pause, safe_text(sole)) from raised
            delay = None if isinstance(sole, TerminalError) else self._retry_delay(error)
            if delay is None or delay >= pause:
                self._tick = tick
            if delay is None:
                self._attempt, self._delay = 0, pause
            else:
                self._attempt, self._delay = self._attempt + 1, min(delay, pause)
            if isinstance(sole, TerminalError):
                raise TimerError(safe_text(sole)) from raised
            raise
        self._attempt = 0
        self._tick, pause = self._next()
        return Result(requeue_after=pause)

    def _next(self) -> tuple[float, float]:
        return self._schedule.after(self._tick or 0.0, self._clock.time())

    def _retry_delay(self, error: Exception) -> float | None:
        return asked_delay(
            "retry_policy",
            self._policy,
            *(error, self._attempt),
            failed=lambda _: _log.exception(
                "the retry policy of %s failed: the kit repeats the call in %g s, or at the next "
                "regular time if that comes first",
                callback_name(self._function),
                FALLBACK_DELAY,
            ),
        )

    # The rate limiter.

    def when(self, item: Hashable) -> float:
        """Seconds until the retry after the last failure."""
        del item
        return self._delay

    def forget(self, item: Hashable) -> None:
        """A call has succeeded."""

    def failures(self, item: Hashable) -> int:
        """The failures in a row."""
        del item
        return self._attempt
