"""The timer of an App that is called without an object."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any, final

from appsdk_operator.controllers import (
    Outcome,
    Request,
    Result,
    RetryAfter,
    TerminalError,
    retry_after_seconds,
    sole_error,
)
from appsdk_operator.runtime import call_limited, callback_name, get_logger, safe_text
from appsdk_operator.runtime.validation import no_awaitable
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
        interval: float,
        retry_policy: RetryPolicy,
        time_limit: float | None = None,
    ) -> None:
        self._function = function
        self._time_limit = time_limit
        self._interval = interval
        self._policy = retry_policy
        self._attempt = 0
        self._delay = 0.0

        def tick(_: Request) -> Outcome:
            return self._tick()

        tick.__qualname__ = callback_name(function)  # the one that logs name
        self.reconciler = tick

    def _tick(self) -> Outcome:
        try:
            call_limited(self._function, seconds=self._time_limit)
        except Exception as error:
            sole = sole_error(error)
            asked = retry_after_seconds(sole)
            if asked is not None:
                if asked <= self._interval:
                    raise
                raise RetryAfter(self._interval, safe_text(sole)) from error
            if isinstance(sole, TerminalError):
                self._attempt, self._delay = 0, self._interval
                raise TimerError(safe_text(sole)) from error
            delay = self._retry_delay(error)
            if delay is None:
                self._attempt, self._delay = 0, self._interval
            else:
                self._attempt, self._delay = self._attempt + 1, min(delay, self._interval)
            raise
        self._attempt = 0
        return Result(requeue_after=self._interval)

    def _retry_delay(self, error: Exception) -> float | None:
        try:
            delay = no_awaitable("retry_policy", self._policy(error, self._attempt))
            return delay if delay is not None and 0 <= delay < math.inf else None
        except Exception:
            _log.exception(
                "the retry policy failed: %s is called again after its interval",
                callback_name(self._function),
            )
            return None

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
