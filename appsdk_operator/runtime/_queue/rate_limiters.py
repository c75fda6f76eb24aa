"""Rate limiters: the delay of an item, or of a request, before it may go on.

Semantics and numbers are those of client-go's rate limiters.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Hashable
from typing import Protocol, final

from appsdk_operator.runtime._clock import Clock
from appsdk_operator.runtime._environment import present_clock
from appsdk_operator.runtime._fork import fork_safe
from appsdk_operator.runtime._queue.backoff import Backoff


class RateLimiter(Protocol):
    """Decides on the delay of an item. Implementations are thread-safe."""

    def when(self, item: Hashable) -> float:
        """Seconds until ``item`` may be handled again; counts one more failure of it."""
        ...

    def forget(self, item: Hashable) -> None:
        """Reset the failures of ``item``: the next :meth:`when` counts as its first failure."""
        ...

    def failures(self, item: Hashable) -> int:
        """How often :meth:`when` was called for ``item`` since the last :meth:`forget`."""
        ...


class _FailureCounts:
    """The number of failures by item. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures: dict[Hashable, int] = {}

    def add(self, item: Hashable) -> int:
        with self._lock:
            failures = self._failures.get(item, 0)
            self._failures[item] = failures + 1
            return failures

    def forget(self, item: Hashable) -> None:
        # The usual item has never failed, and must not cost a lock.
        if item in self._failures:
            with self._lock:
                self._failures.pop(item, None)

    def failures(self, item: Hashable) -> int:
        return self._failures.get(item, 0)


@final
class ItemExponential:
    """Delays that double with each failure of an item: ``base``, ``2*base``, … up to ``maximum``.

    Args:
        base: the first delay in seconds; default 5 ms, as in client-go.
        maximum: the longest delay in seconds, before the jitter; default 1000 s, as in client-go.
        jitter: the largest share by which a delay is lengthened at random, at the maximum, too, so
            that not all items retry at once when a dependency comes back; default 0.1. client-go
            has no jitter.
        rng: the source of randomness, for repeatable tests.

    >>> limiter = ItemExponential(jitter=0.0)
    >>> [limiter.when("a") for _ in range(3)]
    [0.005, 0.01, 0.02]
    """

    def __init__(
        self,
        *,
        base: float = 0.005,
        maximum: float = 1000.0,
        jitter: float = 0.1,
        rng: random.Random | None = None,
    ) -> None:
        if not (0 < base <= maximum and jitter >= 0):
            raise ValueError(
                f"base={base}, maximum={maximum}, jitter={jitter}: use 0 < base <= maximum "
                "and jitter >= 0"
            )
        self._backoff = Backoff(initial=base, maximum=maximum, jitter=jitter)
        self._random = rng or random.Random()
        self._counts = _FailureCounts()

    def when(self, item: Hashable) -> float:
        """The delay for one more failure of ``item``, in seconds."""
        return self._backoff.delay(self._counts.add(item), self._random)

    def forget(self, item: Hashable) -> None:
        """Start again with ``base``."""
        self._counts.forget(item)

    def failures(self, item: Hashable) -> int:
        """The failures counted since the last :meth:`forget`."""
        return self._counts.failures(item)


@final
class TokenBucket:
    """At most ``burst`` at once and ``rate`` a second in the long run, over all items together.

    >>> from appsdk_operator.runtime import ManualClock
    >>> bucket = TokenBucket(rate=10.0, burst=2, clock=ManualClock())
    >>> [round(bucket.reserve(), 3) for _ in range(4)]
    [0.0, 0.0, 0.1, 0.2]
    """

    def __init__(self, *, rate: float = 10.0, burst: int = 100, clock: Clock | None = None) -> None:
        if not (rate > 0 and burst >= 1):
            raise ValueError(f"rate={rate}, burst={burst}: use rate > 0 and burst >= 1")
        self._rate = rate
        self._burst = float(burst)
        self._clock = clock
        self._lock = fork_safe(threading.Lock())
        self._tokens = self._burst
        self._updated = present_clock(clock).monotonic()

    def reserve(self) -> float:
        """Take the next token; returns the seconds until it may be used."""
        with self._lock:
            # Not once for all: an App has one for all of its processes in a simulation.
            now = present_clock(self._clock).monotonic()
            gained = max(0.0, now - self._updated) * self._rate
            self._tokens = min(self._burst, self._tokens + gained)
            self._updated = now
            self._tokens -= 1.0
            return max(0.0, -self._tokens / self._rate)

    def cancel(self) -> None:
        """Give back a token that was reserved and will not be used."""
        with self._lock:
            self._tokens += 1.0

    def when(self, item: Hashable) -> float:  # noqa: ARG002 - items share the bucket
        """The same as :meth:`reserve`."""
        return self.reserve()

    def forget(self, item: Hashable) -> None:
        """Do nothing: all items share the bucket."""

    def failures(self, item: Hashable) -> int:  # noqa: ARG002
        """Always 0."""
        return 0


@final
class MaxOf:
    """The longest delay, and the highest count, of several limiters."""

    def __init__(self, *limiters: RateLimiter) -> None:
        if not limiters:
            raise ValueError("MaxOf needs at least one limiter")
        self._limiters = limiters

    def when(self, item: Hashable) -> float:
        """The longest delay; every limiter counts the failure."""
        return max([limiter.when(item) for limiter in self._limiters])

    def forget(self, item: Hashable) -> None:
        """Forget ``item`` in every limiter."""
        for limiter in self._limiters:
            limiter.forget(item)

    def failures(self, item: Hashable) -> int:
        """The highest count."""
        return max(limiter.failures(item) for limiter in self._limiters)
