"""The event correlator: aggregates repetitions to a series, and drops floods, as client-go's does.

A state machine without I/O, threads or clock; :mod:`.recorder` runs it.
"""

from __future__ import annotations

import enum
import heapq
import itertools
import math
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar, final

import attrs
import msgspec

_F = TypeVar("_F")


class ObserveResult(enum.Enum):
    """What the correlator did with an occurrence."""

    RECORDED = "recorded"
    FLOODED = "flooded"
    """Dropped: too many different events about one object."""
    FULL = "full"
    """Dropped: too many events are pending."""


def _positive(_: object, field: attrs.Attribute[float], value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{field.name}={value!r}: use a number greater than 0")


def _at_least_one(_: object, field: attrs.Attribute[int], value: int) -> None:
    if type(value) is not int or value < 1:
        raise ValueError(f"{field.name}={value!r}: use a whole number of at least 1")


@attrs.frozen(kw_only=True)
class EventOptions:
    """The aggregation, limits and retries of events; the numbers are client-go's."""

    legacy: bool = attrs.field(default=False, validator=attrs.validators.instance_of(bool))
    """Whether to write core/v1 Events instead of events.k8s.io/v1, for programs that read their
    ``count`` and ``source``. Servers show both kinds under both APIs. Default: no."""
    capacity: int = attrs.field(default=4096, validator=_at_least_one)
    """The most series in memory. While all of them are pending, an event that would begin another
    series is dropped and counted. Default 4096."""
    burst: int = attrs.field(default=25, validator=_at_least_one)
    """The number of new events about one object that are allowed at once; repetitions do not count.
    Default 25."""
    refill: float = attrs.field(default=300.0, validator=_positive)
    """Seconds until one more new event about the same object is allowed. Default 300."""
    idle: float = attrs.field(default=360.0, validator=_positive)
    """Seconds without a repetition after which a series ends. Default 360."""
    refresh: float = attrs.field(default=1800.0, validator=_positive)
    """Seconds between two writes of the count of a series that goes on. Default 1800."""
    attempts: int = attrs.field(default=12, validator=_at_least_one)
    """Attempts to write one event while the server cannot be reached or is overloaded. Default
    12."""
    retry_pause: float = attrs.field(default=10.0, validator=_positive)
    """Seconds between these attempts. Default 10."""


@attrs.frozen
class KeyedOccurrence(Generic[_F]):
    """An occurrence; those with the same ``key`` form a series."""

    key: Hashable
    burst_key: Hashable
    """What ``burst`` limits: the recorder and the object."""
    fields: _F = attrs.field(eq=False, repr=False)
    """The occurrence itself, for the event object."""


@final
class _Series(msgspec.Struct, Generic[_F], eq=False):
    first: KeyedOccurrence[_F]
    latest: KeyedOccurrence[_F]
    first_at: float
    last_at: float
    count: int = 1
    written: int = 0  # the count that the server's object has now; 0: there is none
    saved: int = 0  # the count that any write has carried; not reset when the object is gone
    written_at: float = 0.0
    failures: int = 0
    retry_at: float = 0.0
    is_forced: bool = False
    is_being_written: bool = False
    ticket: int = -1

    @property
    def is_dirty(self) -> bool:
        return self.count > self.written

    @property
    def pending(self) -> int:
        return self.count - self.saved

    def due(self, options: EventOptions) -> float:
        if self.is_forced:
            return -math.inf
        if self.failures:
            return self.retry_at
        if self.written <= 1:  # a new event, or one that becomes a series
            return self.first_at
        return min(self.written_at + options.refresh, self.last_at + options.idle)


@final
class EventWrite(msgspec.Struct, Generic[_F], frozen=True):
    """A write to be made now, whose result the caller reports."""

    first: KeyedOccurrence[_F]
    """The first occurrence, which determines the name of the event."""
    latest: KeyedOccurrence[_F]
    """The last occurrence."""
    lasted: float
    """Seconds from the first to the last."""
    count: int
    """The number of occurrences so far."""
    is_new: bool
    """Whether to create the event; otherwise to patch its series."""


@final
class EventCorrelator(Generic[_F]):
    """Turns occurrences into writes of events. Not thread-safe; times are monotonic seconds.

    Every occurrence is in a written count or in ``pending``, or was counted as ``dropped`` (not
    recorded) or ``failed`` (given up).
    """

    def __init__(self, options: EventOptions) -> None:
        self._options = options
        self._series: dict[Hashable, _Series[_F]] = {}
        # The written series, the least recently written first.
        self._clean: OrderedDict[Hashable, None] = OrderedDict()
        # The pending series, by the time at which they were due when they were scheduled.
        self._heap: list[tuple[float, int, _Series[_F]]] = []
        self._tickets = itertools.count()
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()
        self.recorded = 0
        self.dropped = 0
        self.failed = 0

    @property
    def pending(self) -> int:
        """The number of occurrences that are in no write yet."""
        return sum(series.pending for series in self._series.values())

    @property
    def is_clean(self) -> bool:
        """Whether nothing is pending, now or later."""
        return len(self._clean) == len(self._series)

    def observe(self, occurrence: KeyedOccurrence[_F], now: float) -> ObserveResult:
        """Add an occurrence to its series, begin a series with it, or drop it."""
        series = self._series.get(occurrence.key)
        if (
            series is not None
            and not series.is_dirty
            and now - series.last_at >= self._options.idle
        ):
            self._forget(series)
            series = None
        if series is not None:
            series.count += 1
            series.last_at = now
            series.latest = occurrence
            self._clean.pop(occurrence.key, None)
            if series.ticket < 0 and not series.is_being_written:
                self._schedule(series)
        else:
            result = self._try_begin(occurrence, now)
            if result is not ObserveResult.RECORDED:
                self.dropped += 1
                return result
            series = self._series[occurrence.key] = _Series(occurrence, occurrence, now, now)
            self._schedule(series)
        self.recorded += 1
        return ObserveResult.RECORDED

    def next_due(self) -> float | None:
        """The time of the next write; None: nothing is pending."""
        while self._heap and self._heap[0][1] != self._heap[0][2].ticket:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def next_write(self, now: float) -> EventWrite[_F] | None:
        """The next write that is due, if any."""
        while (due := self.next_due()) is not None and due <= now:
            series = heapq.heappop(self._heap)[2]
            series.ticket = -1
            # The series has gone on since, so it ends later.
            if series.due(self._options) > now:
                self._schedule(series)
                continue
            series.is_being_written = True
            series.is_forced = False
            return EventWrite(
                series.first,
                series.latest,
                series.last_at - series.first_at,
                series.count,
                is_new=series.written == 0,
            )
        return None

    def force(self, *, retries: bool) -> None:
        """Make all pending series due at once; failed ones only with ``retries``."""
        for series in self._series.values():
            if series.is_dirty and not series.is_forced and (retries or not series.failures):
                series.is_forced = True
                if not series.is_being_written:
                    self._schedule(series)

    def succeeded(self, write: EventWrite[_F], now: float) -> None:
        """The server has stored the write."""
        self._has_written(write, write.count, now)

    def already_exists(self, write: EventWrite[_F], now: float) -> None:
        """The event to be created exists: an earlier attempt had succeeded without an answer."""
        self._has_written(write, 1, now)

    def not_found(self, write: EventWrite[_F]) -> None:
        """The event to be patched is gone, as events are after an hour: create it again, with its
        count."""
        series = self._finish_write(write)
        series.written = 0
        self._schedule(series)

    def retry_later(self, write: EventWrite[_F], now: float) -> bool:
        """The server could not be reached; returns False after the last attempt."""
        series = self._finish_write(write)
        series.failures += 1
        if series.failures >= self._options.attempts:
            self._give_up(series)
            return False
        series.is_forced = False
        series.retry_at = now + self._options.retry_pause
        self._schedule(series)
        return True

    def rejected(self, write: EventWrite[_F]) -> None:
        """The server has rejected the write for good."""
        self._give_up(self._finish_write(write))

    def give_up(self) -> int:
        """Drop all series; returns how many occurrences were not written."""
        pending = self.pending
        self.failed += pending
        self._series.clear()
        self._clean.clear()
        self._heap.clear()
        return pending

    def _schedule(self, series: _Series[_F]) -> None:
        series.ticket = next(self._tickets)
        heapq.heappush(self._heap, (series.due(self._options), series.ticket, series))

    def _finish_write(self, write: EventWrite[_F]) -> _Series[_F]:
        series = self._series[write.first.key]
        series.is_being_written = False
        return series

    def _has_written(self, write: EventWrite[_F], count: int, now: float) -> None:
        series = self._finish_write(write)
        series.failures = 0
        series.written = count
        series.written_at = now
        series.saved = max(series.saved, count)
        if series.is_dirty:
            self._schedule(series)
        else:
            series.is_forced = False
            self._clean[write.first.key] = None

    def _give_up(self, series: _Series[_F]) -> None:
        self.failed += series.pending
        self._forget(series)

    def _forget(self, series: _Series[_F]) -> None:
        series.ticket = -1
        del self._series[series.first.key]
        self._clean.pop(series.first.key, None)

    def _try_begin(self, occurrence: KeyedOccurrence[_F], now: float) -> ObserveResult:
        if len(self._series) >= self._options.capacity:
            if not self._clean:
                return ObserveResult.FULL
            # It is written; its next repetition begins another event.
            self._forget(self._series[next(iter(self._clean))])
        tokens, since = self._buckets.pop(occurrence.burst_key, (float(self._options.burst), now))
        tokens = min(float(self._options.burst), tokens + (now - since) / self._options.refill)
        may_begin = tokens >= 1
        self._buckets[occurrence.burst_key] = (tokens - may_begin, now)
        if len(self._buckets) > self._options.capacity:
            self._buckets.popitem(last=False)
        return ObserveResult.RECORDED if may_begin else ObserveResult.FLOODED
