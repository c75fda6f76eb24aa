"""When failed requests are retried: by a retry policy, or by a rate limiter and a count."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Generic, Protocol, TypeVar, final

from appsdk_operator.runtime import (
    FailureLog,
    RateLimiter,
    RetryPolicy,
    error_text,
    guarded_call,
    is_interrupt,
    safe_text,
)
from appsdk_operator.runtime.validation import FALLBACK_DELAY, no_awaitable, retry_delay

R_contra = TypeVar("R_contra", bound=Hashable, contravariant=True)
R = TypeVar("R", bound=Hashable)


class RequestRetry(Protocol[R_contra]):
    """Decides on the retries of a controller's requests."""

    def delay(self, request: R_contra, error: BaseException, attempt: int) -> float | None:
        """Seconds until the retry of a request; None gives up.

        Args:
            request: the request.
            error: what its reconcile raised.
            attempt: 0 after the first failure in a row, 1 after the next, …
        """
        ...

    def forget(self, request: R_contra) -> None:
        """The request has succeeded, was given up, or is for another state of its object."""
        ...


@final
class ByPolicy:
    """Retries of a :class:`RetryPolicy`, which knows no requests."""

    def __init__(self, policy: RetryPolicy, limiter: RateLimiter) -> None:
        """``limiter`` only delays what handlers add with ``add_rate_limited``."""
        self._policy = policy
        self._limiter = limiter

    def delay(self, request: Hashable, error: BaseException, attempt: int) -> float | None:
        """What the policy says; an error that is none of Python's Exceptions is in a group."""
        del request
        raised = error if isinstance(error, Exception) else RuntimeError(safe_text(error))
        return retry_delay("retry", self._policy(raised, attempt))

    def forget(self, request: Hashable) -> None:
        """Tell the limiter."""
        self._limiter.forget(request)


@final
class ByRateLimiter:
    """Retries as controller-runtime makes them, at most a number of times."""

    def __init__(self, limiter: RateLimiter, max_attempts: int) -> None:
        """``limiter`` says when; after ``max_attempts`` failures nothing does, 0: never."""
        self._limiter = limiter
        self._max_attempts = max_attempts

    def delay(self, request: Hashable, error: BaseException, attempt: int) -> float | None:
        """The limiter's delay, unless it was the last attempt."""
        del error
        if 0 < self._max_attempts <= attempt + 1:
            return None
        return retry_delay("rate_limiter", self._limiter.when(request))

    def forget(self, request: Hashable) -> None:
        """Tell the limiter."""
        forgotten: object = self._limiter.forget(request)  # type: ignore[func-returns-value]
        if forgotten is not None:
            no_awaitable("rate_limiter", forgotten)


@final
class CheckedRetry(Generic[R]):
    """Another one, whose errors are logged and end nothing."""

    def __init__(self, name: str, inner: RequestRetry[R], what: str, log: FailureLog) -> None:
        """``inner`` for controller ``name``, as ``what`` in ``log``."""
        self._name = name
        self._inner = inner
        self._what = what
        self._log = log

    def delay(self, request: R, error: BaseException, attempt: int) -> float | None:
        """As ``inner`` says; 10 seconds where it fails."""

        def failed(raised: Exception) -> float:
            self._log.failed(
                raised,
                self._what,
                "controller %s: the %s failed: %s. The kit retries %s in %g s",
                self._name,
                self._what,
                error_text(raised),
                safe_text(request),
                FALLBACK_DELAY,
                extra={"controller": self._name},
            )
            return FALLBACK_DELAY

        delay: float | None = guarded_call(
            self._what, self._inner.delay, request, error, attempt, failed=failed
        )
        return delay

    def forget(self, request: R) -> None:
        """Tell ``inner``."""
        try:  # after each success: no guarded_call, which costs more
            self._inner.forget(request)
        except BaseException as error:
            if is_interrupt(error):
                raise
            self._log.failed(
                error,
                f"forget() of the {self._what}",
                "controller %s: forget() of the %s failed for %s: the next failure may wait longer",
                self._name,
                self._what,
                safe_text(request),
                extra={"controller": self._name},
            )


def retry_of(
    name: str,
    limiter: RateLimiter,
    *,
    retry: RetryPolicy | None,
    max_attempts: int,
    log: FailureLog,
) -> CheckedRetry[Any]:
    """What decides on the retries of controller ``name``, by its options; it fails to ``log``."""
    if retry is not None:
        return CheckedRetry(name, ByPolicy(retry, limiter), "retry policy", log)
    return CheckedRetry(name, ByRateLimiter(limiter, max_attempts), "rate limiter", log)
