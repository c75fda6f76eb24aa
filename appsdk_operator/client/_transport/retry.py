"""Which failures are worth another try, and after how long: a decision without I/O."""

from __future__ import annotations

import random

import attrs

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

__all__ = ["RetryRules"]


@attrs.frozen(kw_only=True)
class RetryRules:
    """When a failed request is sent again.

    * 429: always, the server did not do it; but not where a disruption budget forbids an eviction.
    * 503: reads always, writes only with ``Retry-After``, by which the server says that it refused
      before it began.
    * 500, 502, 504: reads only, and 500 only with ``Retry-After``.
    * no connection: always, nothing was sent; but not for an untrusted certificate.
    * connection lost or no answer: only what does no harm when it is done twice.

    The waits double, and each is up to twice as long at random. The longest ones are spread as
    well, over the upper half of ``max_wait``: replicas that lost the same server must not all
    come back at the same moment.

    >>> rules = RetryRules(max_retries=9, backoff=1.0, max_wait=30.0)
    >>> seconds = rules.wait_after(Request(method="GET", path="/"), ConnectFailed("refused"), 8)
    >>> 15.0 <= seconds < 30.0
    True
    """

    max_retries: int
    """How often a request is sent again."""
    backoff: float
    """The seconds before the first retry, at least."""
    max_wait: float
    """The seconds that no wait exceeds, but for up to a second at random that is added to a time
    which the server itself named."""
    rng: random.Random = attrs.field(factory=random.Random, repr=False)

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
        """The seconds before the next try, None when there is to be none.

        Args:
            request: what failed.
            error: how it failed.
            attempt: how many retries there were before.
        """
        if attempt >= self.max_retries or not request.retry or not _is_retryable(request, error):
            return None
        # Half the longest, so that there is room for all of the jitter below it.
        backoff = Backoff(initial=self.backoff, maximum=self.max_wait / 2.0, jitter=1.0)
        delay = backoff.delay(attempt, self.rng)
        if isinstance(error, ApiError) and error.retry_after is not None:
            if error.retry_after > self.max_wait:
                return None
            # Never earlier than asked, and not all clients at the same moment.
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
