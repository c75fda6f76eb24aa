"""How many calls a controller has made, by spans of ten seconds, from counts that only grow."""

from __future__ import annotations

import itertools
from collections import deque
from typing import Any, Final, final

import msgspec

SPAN: Final = 10.0
"""Seconds of one span."""
SPANS: Final = 60


class _Sample(msgspec.Struct, frozen=True):
    span: int
    calls: int
    failures: int
    queued: int


@final
class CallHistory:
    """The calls, failures and queue length of the last ten minutes. Not thread-safe.

    The first call that ends in a span notes the counts so far, so nothing is done while no call
    ends: the counts stay the same until the next note.

    >>> history = CallHistory()
    >>> history.note(100.0, calls=0, failures=0, queued=2)
    >>> history.note(125.0, calls=5, failures=1, queued=0)
    >>> history.series(131.0, calls=7, failures=1, queued=1)["calls"][-4:]
    [5, 0, 2, 0]
    """

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque(maxlen=SPANS + 1)
        self.next: float = float("-inf")
        """The monotonic time from which :meth:`note` is to be called again."""

    def note(self, now: float, *, calls: int, failures: int, queued: int) -> None:
        """Note the counts before what has just ended; of the queue, the longest of a span."""
        span = int(now // SPAN)
        if self._samples and self._samples[-1].span >= span:
            last = self._samples[-1]
            self._samples[-1] = msgspec.structs.replace(last, queued=max(last.queued, queued))
        else:
            self._samples.append(_Sample(span, calls, failures, queued))
        self.next = (span + 1) * SPAN

    def series(self, now: float, *, calls: int, failures: int, queued: int) -> dict[str, Any]:
        """The numbers of each span, oldest first, given the counts at ``now``.

        ``queued`` of a span in which nothing was noted is that of the span before.
        """
        present = int(now // SPAN)
        first = present - SPANS + 1
        found: dict[str, Any] = {name: [0] * SPANS for name in ("calls", "failures", "queued")}
        samples = [*self._samples, _Sample(present + 1, calls, failures, queued)]
        for sample, after in itertools.pairwise(samples):
            for place in range(max(sample.span - first, 0), min(after.span - first, SPANS)):
                found["queued"][place] = sample.queued
            if sample.span >= first:
                place = min(sample.span - first, SPANS - 1)
                found["calls"][place] = max(0, after.calls - sample.calls)
                found["failures"][place] = max(0, after.failures - sample.failures)
        found["queued"][-1] = max(found["queued"][-1], queued)
        return {"seconds": SPAN, **found}
