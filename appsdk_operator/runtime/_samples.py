"""The values of metrics: families, samples, and histograms of one series."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Sequence
from typing import Literal, final

import msgspec


class Family(msgspec.Struct, frozen=True, cache_hash=True):
    """A metric family: its name, type, help text and label names."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """The upper bounds of a histogram for :meth:`Metrics.observe`."""

    @property
    def bare_name(self) -> str:
        """The name without the ``_total`` of a counter: two families differ in it."""
        return self.name.removesuffix("_total") if self.type == "counter" else self.name


class Sample(msgspec.Struct, frozen=True):
    """The current value of one series."""

    family: Family
    labels: tuple[str, ...]
    value: float | LocalHistogram


@final
class LocalHistogram:
    """A histogram for one series. Not thread-safe: observe under the owner's lock."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds: tuple[float, ...] = tuple(bounds)
        self.counts: list[int] = [0] * (len(self.bounds) + 1)
        self.total: float = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count ``value`` in the first bucket whose upper bound is not less than it."""
        bounds = self.bounds
        # Most values are in the first bucket.
        place = bisect_left(bounds, value) if bounds and value > bounds[0] else 0
        self.counts[place] += times
        self.total += value * times

    def plus(self, other: LocalHistogram) -> LocalHistogram:
        """The sum of two histograms."""
        merged = LocalHistogram(self.bounds)
        merged.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        merged.total = self.total + other.total
        return merged

    def copy(self) -> LocalHistogram:
        """A copy with the present counts."""
        return self.plus(LocalHistogram(self.bounds))

    def cumulative(self) -> list[tuple[str, float]]:
        """The cumulative buckets, as Prometheus has them."""
        names = [*(str(float(bound)) for bound in self.bounds), "+Inf"]
        return list(zip(names, itertools.accumulate(map(float, self.counts)), strict=True))
