"""Exponential backoff, as every part of the kit that tries again uses it."""

from __future__ import annotations

import math
import random

import msgspec

_MAX_EXPONENT = 1000  # 2.0**1024 overflows; every maximum in seconds is reached long before


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Exponential backoff: delays that grow with each failure in a row, with jitter.

    It has no state: callers count the failures. The fields are those of apimachinery's
    ``wait.Backoff``; each user chooses its own numbers.

    >>> backoff = Backoff(initial=1.0, maximum=5.0)
    >>> [backoff.delay(failures) for failures in range(5)]
    [1.0, 2.0, 4.0, 5.0, 5.0]
    """

    initial: float
    """Seconds to wait after the first failure."""
    factor: float = 2.0
    """The factor by which each delay is longer than the one before; default 2."""
    maximum: float = math.inf
    """The longest delay in seconds; default: none."""
    jitter: float = 0.0
    """The largest share by which a delay is lengthened at random; default 0."""
    caps_jitter: bool = False
    """Whether ``maximum`` bounds the delay including its jitter. By default jitter is also added at
    the maximum: after a long outage all delays are at the maximum, and all callers would otherwise
    come back at the same moment, again and again."""

    def delay(self, failures: int, rng: random.Random | None = None) -> float:
        """Seconds to wait after one more failure.

        Args:
            failures: the number of failures in a row before this one.
            rng: the source of jitter; without one there is none.
        """
        delay = self.initial * self.factor ** min(failures, _MAX_EXPONENT)
        if not self.caps_jitter:
            delay = min(self.maximum, delay)
        if self.jitter and rng is not None:
            delay *= 1.0 + self.jitter * rng.random()
        return min(self.maximum, delay) if self.caps_jitter else delay
