"""The time that an API server waits for a webhook, and when the webhook gives up before it."""

from __future__ import annotations

import functools
import re
from typing import Final

_DURATION: Final = re.compile(r"(?:[0-9]{1,9}(?:\.[0-9]{1,9})?(?:ns|us|ms|h|m|s))+")
_PART: Final = re.compile(r"([0-9.]+)(ns|us|ms|h|m|s)")
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_MARGIN: Final = 0.05  # of the time: an answer has a way back, and 30 s are the most
_LEAST_MARGIN: Final = 0.1


# An API server sends the same few queries again and again.
@functools.lru_cache(maxsize=256)
def seconds_left(query: str) -> float | None:
    """The seconds in the query's ``timeout``, a duration of Go; None without one.

    >>> seconds_left("timeout=1m0s"), seconds_left("timeout=soon"), seconds_left("")
    (60.0, None, None)
    """
    for field in query.split("&"):
        name, _, value = field.partition("=")
        if name == "timeout" and _DURATION.fullmatch(value):
            seconds = sum(float(n) * _SECONDS[unit] for n, unit in _PART.findall(value))
            return seconds if seconds > 0 else None
    return None


def time_limit(query: str) -> float | None:
    """The seconds after which a webhook answers that it failed; None for no limit.

    >>> time_limit("timeout=10s"), time_limit("timeout=1s")
    (9.5, 0.9)
    """
    seconds = seconds_left(query)
    if seconds is None:
        return None
    return max(seconds * 0.5, seconds - max(_LEAST_MARGIN, seconds * _MARGIN))
