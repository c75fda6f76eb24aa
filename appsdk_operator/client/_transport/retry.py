"""The retry rules: which failures are retried, and after how long; without I/O."""

from __future__ import annotations

import random

import msgspec

from appsdk_operator.client._auth.config import ClientConfig
from appsdk_operator.client._errors import (
    ApiError,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    ReadTimeout,
    TLSFailed,
    TransportError,
)
from appsdk_operator.client._request import Request
from appsdk_operator.runtime import Backoff


class RetryRules(msgspec.Struct, frozen=True, kw_only=True):
    """Decides whether and when a failed request is retried.

    * 429: always, the server refused before it began; but not where a disruption budget forbids an
      eviction.
    * 503: reads always, writes only with ``Retry-After``: then the server refused before it began.
    * 500, 502, 504: reads only, and 500 only with ``Retry-After``.
    * no connection: always, nothing was sent; but not for an untrusted certificate.
    * connection lost or no answer: only requests that are ``repeatable``.

    The waits double, with up to 100 % of jitter. The longest ones are spread over the upper half of
    ``max_wait``, so that replicas that lost the same server do not retry at once.

    >>> rules = RetryRules(max_retries=9, backoff=1.0, max_wait=30.0)
    >>> seconds = rules.wait_after(Request(method="GET", path="/"), ConnectFailed("refused"), 8)
    >>> 15.0 <= seconds < 30.0
    True
    """

    max_retries: int
    """The maximum number of retries of a request."""
    backoff: float
    """The minimum seconds before the first retry."""
    max_wait: float
    """The maximum wait in seconds, except for up to a second of jitter on a time that the server
    named."""
    rng: random.Random = msgspec.field(default_factory=random.Random)

    @classmethod
    def of(cls, config: ClientConfig, *, rng: random.Random) -> RetryRules:
        """The rules with a configuration's numbers."""
        return cls(
            rng=rng,
            max_retries=config.max_retries,
            backoff=config.retry_backoff,
            max_wait=config.retry_max_wait,
        )

    def wait_after(self, request: Request, error: ClientError, attempt: int) -> float | None:
        """The seconds before the next attempt; None: do not retry.

        Args:
            request: the failed request.
            error: its failure.
            attempt: the number of retries so far.
        """
        if attempt >= self.max_retries or not request.retry or not _is_retryable(request, error):
            return None
        # Half the maximum, which leaves room for the jitter.
        backoff = Backoff(initial=self.backoff, maximum=self.max_wait / 2.0, jitter=1.0)
        delay = backoff.delay(attempt, self.rng)
        if isinstance(error, ApiError) and error.retry_after is not None:
            if error.retry_after > self.max_wait:
                return None
            # Never earlier than the server asked, and not all clients at once.
            delay = error.retry_after + min(delay, 1.0) * self.rng.random()
        return delay


def _is_retryable(request: Request, error: ClientError) -> bool:
    if isinstance(error, ApiError):
        return _is_retryable_answer(request, error)
    if isinstance(error, TLSFailed):
        return False
    if isinstance(error, ConnectFailed):
        return True
    if isinstance(error, (ConnectionLost, ReadTimeout)):
        return request.repeatable
    return isinstance(error, TransportError) and not error.sent


def _is_retryable_answer(request: Request, error: ApiError) -> bool:
    reads = request.method == "GET"
    asked = error.retry_after is not None
    match error.status:
        case 429:
            return not error.has_cause("DisruptionBudget")
        case 503:
            return reads or asked
        case 502 | 504:
            return reads
        case 500:
            return reads and asked
        case _:
            return False
