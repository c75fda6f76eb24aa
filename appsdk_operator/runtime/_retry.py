"""Retry policies: whether and when a failed call is retried."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, final

from appsdk_operator.runtime._queue.backoff import Backoff
from appsdk_operator.runtime.validation import check_count, check_number

if TYPE_CHECKING:
    import tenacity


class RetryPolicy(Protocol):
    """Decides whether and when to retry a failed call; any function with this signature is one."""

    def __call__(self, error: Exception, attempt: int, /) -> float | None:
        """Seconds until the retry; None gives up.

        Args:
            error: the error of the call.
            attempt: 0 after the first failure of a call, 1 after the failure of its first retry, …
        """
        ...


@final
class ExponentialBackoff:
    """Retry with delays that double: ``initial``, ``2*initial``, ``4*initial``, …

    Attempt numbers start at 0, as in grafana-app-sdk, so ``max_attempts=5`` allows six retries, and
    seven calls. ``max_calls`` counts calls instead.

    >>> policy = ExponentialBackoff(initial=5.0, max_attempts=5)
    >>> policy(ConnectionError("reset"), 2)  # seconds until the next try
    20.0
    >>> policy(ConnectionError("reset"), 6) is None
    True
    """

    def __init__(
        self,
        *,
        initial: float = 5.0,
        max_attempts: int | None = 5,
        max_calls: int | None = None,
        maximum: float | None = None,
        jitter: float = 0.0,
        rng: random.Random | None = None,
    ) -> None:
        """A policy; the defaults are grafana-app-sdk's.

        Args:
            initial: the first delay in seconds; default 5.
            max_attempts: the last attempt number that is retried; default 5. None: no limit.
            max_calls: instead of ``max_attempts``, the most calls, including the first.
            maximum: the longest delay in seconds; default: none.
            jitter: the largest share by which a delay is lengthened at random, so that objects that
                failed together are not retried together; never beyond ``maximum``; default 0.
            rng: the source of randomness, for repeatable tests.

        Raises:
            TypeError: a value is not a number.
            ValueError: a value is out of bounds, or both limits are given.
        """
        check_number("initial", initial, example=False)
        if maximum is not None:
            check_number("maximum", maximum, example=False)
        last = _last_attempt(max_attempts, max_calls, 5)
        if initial <= 0 or jitter < 0:
            raise ValueError(f"initial={initial}, jitter={jitter}: use initial > 0 and jitter >= 0")
        if not math.isfinite(initial) or not math.isfinite(jitter):
            raise ValueError(f"initial={initial}, jitter={jitter}: use finite numbers")
        if maximum is not None and not maximum >= initial:
            raise ValueError(f"maximum={maximum}: must not be below initial={initial}")
        self._backoff = Backoff(
            initial=initial,
            maximum=math.inf if maximum is None else maximum,
            jitter=jitter,
            caps_jitter=True,
        )
        self._last_attempt = last
        self._random = rng or random.Random()

    def __call__(self, error: Exception, attempt: int, /) -> float | None:
        """Seconds until the retry; None once ``attempt`` exceeds the last one."""
        del error
        if self._last_attempt is not None and attempt > self._last_attempt:
            return None
        return self._backoff.delay(attempt, self._random)


@final
class ConstantBackoff:
    """Retry after a constant delay, without limit or ``max_attempts + 1`` times.

    >>> ConstantBackoff(2.0)(ValueError(), 1000)
    2.0
    >>> policy = ConstantBackoff(2.0, max_calls=3)
    >>> [policy(ValueError(), attempt) for attempt in range(3)]
    [2.0, 2.0, None]
    """

    def __init__(
        self, delay: float, *, max_attempts: int | None = None, max_calls: int | None = None
    ) -> None:
        """A policy.

        Args:
            delay: seconds.
            max_attempts: the last attempt number that is retried; default: no limit.
            max_calls: instead of ``max_attempts``, the most calls, including the first.

        Raises:
            TypeError: a value is not a number.
            ValueError: a value is negative, ``delay`` is infinite, or both limits are given.
        """
        check_number("delay", delay, example=False)
        if not 0 <= delay < math.inf:
            raise ValueError(f"delay={delay}: give seconds from 0 on")
        self._delay = delay
        self._last_attempt = _last_attempt(max_attempts, max_calls, None)

    def __call__(self, error: Exception, attempt: int, /) -> float | None:
        """Seconds until the retry; None once ``attempt`` exceeds the last one."""
        del error
        if self._last_attempt is not None and attempt > self._last_attempt:
            return None
        return self._delay


@final
class TenacityRetry:
    """Retry as tenacity's ``stop``, ``wait`` and ``retry`` objects decide.

    A policy has no clock, so for ``stop_after_delay`` the time since the first failure is the sum
    of the waits so far. ``retry`` gets a state whose outcome is the error.

    >>> import tenacity
    >>> policy = TenacityRetry(stop=tenacity.stop_after_attempt(3), wait=tenacity.wait_fixed(2))
    >>> [policy(ValueError(), attempt) for attempt in range(4)]
    [2.0, 2.0, None, None]
    """

    def __init__(
        self,
        *,
        stop: Callable[[tenacity.RetryCallState], bool] | None = None,
        wait: Callable[[tenacity.RetryCallState], float] | None = None,
        retry: Callable[[tenacity.RetryCallState], bool] | None = None,
    ) -> None:
        """A policy from any of the three.

        Args:
            stop: decides when to give up; default: never. ``stop_after_attempt(3)`` allows three
                calls in all, so two retries.
            wait: returns the seconds to wait; default: no wait.
            retry: decides which errors are retried; default: all.

        Raises:
            ValueError: ``stop`` looks only at the time, but there is no ``wait``, so it would never
                stop.
        """
        self._stop = stop
        self._wait = wait
        self._retry = retry
        if stop is not None and wait is None and _looks_at_time_only(stop, self._state):
            raise ValueError(
                f"stop={stop!r} never stops, because the time is the sum of the waits, and there "
                "are none: give wait=, such as tenacity.wait_fixed(1)"
            )

    def __call__(self, error: Exception, attempt: int, /) -> float | None:
        """Seconds until the retry; None if tenacity would stop or not retry."""
        waited = 0.0
        if self._stop is not None:
            # One state for all: to make one takes a hundred times as long as to ask.
            earlier = self._state(error, 0, 0.0)
            for number in range(1, attempt + 1):
                earlier.attempt_number = number
                waited += self._delay(earlier)
        state = self._state(error, attempt, waited)
        if self._retry is not None and not self._retry(state):
            return None
        delay = self._delay(state)
        state.upcoming_sleep = delay
        if self._stop is not None and self._stop(state):
            return None
        return delay

    def _delay(self, state: Any) -> float:
        return float(self._wait(state)) if self._wait is not None else 0.0

    @staticmethod
    def _state(error: Exception, attempt: int, waited: float) -> Any:
        import tenacity

        state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
        state.attempt_number = attempt + 1
        state.set_exception((type(error), error, error.__traceback__))
        state.start_time = 0.0
        state.outcome_timestamp = waited
        state.idle_for = waited
        return state


def _looks_at_time_only(stop: Callable[[Any], bool], state: Callable[..., Any]) -> bool:
    """Whether a ``stop`` of tenacity's stops after some time, and after no number of attempts."""
    import tenacity

    if not isinstance(stop, tenacity.stop.stop_base):
        return False
    error, attempt = ValueError(), 10**9
    return stop(state(error, attempt, 1e15)) and not stop(state(error, attempt, 0.0))


def _last_attempt(
    max_attempts: int | None, max_calls: int | None, default: int | None
) -> int | None:
    """The last attempt number that is retried; None: there is none.

    Raises:
        TypeError, ValueError: the text says what to give.
    """
    if max_attempts is not None:
        check_count("max_attempts", max_attempts, 0)
    if max_calls is None:
        return max_attempts
    check_count("max_calls", max_calls, 1)
    if max_attempts != default:
        raise ValueError(
            f"max_attempts={max_attempts} and max_calls={max_calls} are one limit: give one of them"
        )
    return max_calls - 2  # attempt 0 is the first retry


def never_retry(error: Exception, attempt: int, /) -> None:
    """A :class:`RetryPolicy` that never retries."""
    del error, attempt
