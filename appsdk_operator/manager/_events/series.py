"""Which events are written and when: repetitions become a series, floods are cut off.

A state machine without I/O, threads or clock; :mod:`._event_recorder` is the shell around it.
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

__all__ = ["Draft", "EventOptions", "EventSeries", "Verdict", "Write"]

_F = TypeVar("_F")


class Verdict(enum.Enum):
    """What became of an occurrence."""

    RECORDED = "recorded"
    FLOODED = "flooded"
    """Dropped: there were too many different events about one object."""
    FULL = "full"
    """Dropped: too many events wait to be written."""


def _positive(_: object, field: attrs.Attribute[float], value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{field.name}={value!r}: use a number greater than 0")


def _at_least_one(_: object, field: attrs.Attribute[int], value: int) -> None:
    if type(value) is not int or value < 1:
        raise ValueError(f"{field.name}={value!r}: use a whole number of at least 1")


@attrs.frozen(kw_only=True)
class EventOptions:
    """How events are aggregated, limited and retried; the numbers are client-go's."""

    legacy: bool = attrs.field(default=False, validator=attrs.validators.instance_of(bool))
    """Whether to write core/v1 Events instead of events.k8s.io/v1, for readers that look at their
    ``count`` and ``source``. Servers show either kind under both APIs. Default: no."""
    capacity: int = attrs.field(default=4096, validator=_at_least_one)
    """Different events that are remembered at once; further ones are dropped and counted while
    none of these is written. Default 4096."""
    burst: int = attrs.field(default=25, validator=_at_least_one)
    """New events about one object that are written at once; repetitions do not count. Default
    25."""
    refill: float = attrs.field(default=300.0, validator=_positive)
    """Seconds until one more new event about the same object may be written. Default 300."""
    idle: float = attrs.field(default=360.0, validator=_positive)
    """Seconds without a repetition after which a series ends. Default 360."""
    refresh: float = attrs.field(default=1800.0, validator=_positive)
    """Seconds after which the count of a series that goes on is written. Default 1800."""
    attempts: int = attrs.field(default=12, validator=_at_least_one)
    """Writes of one event, while the server cannot be reached, before it is given up. Default
    12."""
    retry_pause: float = attrs.field(default=10.0, validator=_positive)
    """Seconds between these. Default 10."""


@attrs.frozen
class Draft(Generic[_F]):
    """An occurrence; those that are equal in ``key`` make a series."""

    key: Hashable
    source: Hashable
    """Whose burst it counts against: the recorder and the object."""
    fields: _F = attrs.field(eq=False, repr=False)
    """What the shell needs to write it."""


@final
@attrs.define(eq=False)
class _Entry(Generic[_F]):
    draft: Draft[_F]
    latest: Draft[_F]
    first: float
    last: float
    count: int = 1
    written: int = 0  # the count that the server's object has now; 0: there is none
    saved: int = 0  # the count that any write has carried; not reset when the object is gone
    written_at: float = 0.0
    failures: int = 0
    retry_at: float = 0.0
    is_hurried: bool = False
    is_under_way: bool = False
    ticket: int = -1

    @property
    def is_dirty(self) -> bool:
        return self.count > self.written

    @property
    def pending(self) -> int:
        return self.count - self.saved

    def due(self, options: EventOptions) -> float:
        if self.is_hurried:
            return -math.inf
        if self.failures:
            return self.retry_at
        if self.written <= 1:  # a new event, or one that becomes a series
            return self.first
        return min(self.written_at + options.refresh, self.last + options.idle)


@final
@attrs.frozen
class Write(Generic[_F]):
    """Something to be written now; the machine is told what became of it."""

    draft: Draft[_F]
    """The first occurrence, which gives the event its name."""
    latest: Draft[_F]
    """The last one."""
    lasted: float
    """Seconds from the first to the last."""
    count: int
    """How often it happened so far."""
    is_new: bool
    """Whether the event is to be created; otherwise its series is to be patched."""


@final
class EventSeries(Generic[_F]):
    """Takes occurrences in, gives writes out. Not thread-safe; times are monotonic seconds.

    Every occurrence is in a count that was written, or in ``pending``, or was counted as
    ``dropped`` (not taken in) or ``failed`` (given up).
    """

    def __init__(self, options: EventOptions) -> None:
        self._options = options
        self._entries: dict[Hashable, _Entry[_F]] = {}
        # Those that are written, the one that was written longest ago first.
        self._clean: OrderedDict[Hashable, None] = OrderedDict()
        # Those that are not, by the time at which they were due when they were put there.
        self._heap: list[tuple[float, int, _Entry[_F]]] = []
        self._tickets = itertools.count()
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()
        self.recorded = 0
        self.dropped = 0
        self.failed = 0

    @property
    def pending(self) -> int:
        """Occurrences that no write has carried yet."""
        return sum(entry.pending for entry in self._entries.values())

    @property
    def is_clean(self) -> bool:
        """Whether nothing is left to be written, now or later."""
        return len(self._clean) == len(self._entries)

    def observe(self, draft: Draft[_F], now: float) -> Verdict:
        """Count an occurrence into its series, begin a new one with it, or drop it."""
        entry = self._entries.get(draft.key)
        if entry is not None and not entry.is_dirty and now - entry.last >= self._options.idle:
            self._forget(entry)
            entry = None
        if entry is not None:
            entry.count += 1
            entry.last = now
            entry.latest = draft
            self._clean.pop(draft.key, None)
            if entry.ticket < 0 and not entry.is_under_way:
                self._plan(entry)
        else:
            verdict = self._room_for(draft, now)
            if verdict is not Verdict.RECORDED:
                self.dropped += 1
                return verdict
            entry = self._entries[draft.key] = _Entry(draft, draft, now, now)
            self._plan(entry)
        self.recorded += 1
        return Verdict.RECORDED

    def next_due(self) -> float | None:
        """The time before which there is nothing to write; None: everything is written."""
        while self._heap and self._heap[0][1] != self._heap[0][2].ticket:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def next_write(self, now: float) -> Write[_F] | None:
        """What is to be written now, if anything is."""
        while (due := self.next_due()) is not None and due <= now:
            entry = heapq.heappop(self._heap)[2]
            entry.ticket = -1
            # A series that went on ends later than it was thought to.
            if entry.due(self._options) > now:
                self._plan(entry)
                continue
            entry.is_under_way = True
            entry.is_hurried = False
            return Write(
                entry.draft,
                entry.latest,
                entry.last - entry.first,
                entry.count,
                is_new=entry.written == 0,
            )
        return None

    def hurry(self, *, retries: bool) -> None:
        """Make everything due that is not written; what failed only if ``retries``."""
        for entry in self._entries.values():
            if entry.is_dirty and not entry.is_hurried and (retries or not entry.failures):
                entry.is_hurried = True
                if not entry.is_under_way:
                    self._plan(entry)

    def succeeded(self, write: Write[_F], now: float) -> None:
        """The server has it."""
        self._has_written(write, write.count, now)

    def exists(self, write: Write[_F], now: float) -> None:
        """What was to be created is there: an earlier attempt had succeeded, unheard."""
        self._has_written(write, 1, now)

    def vanished(self, write: Write[_F]) -> None:
        """What was to be patched is gone, as events are after an hour: it is made anew, with the
        count that it had."""
        entry = self._settled(write)
        entry.written = 0
        self._plan(entry)

    def failed_for_now(self, write: Write[_F], now: float) -> bool:
        """The server could not be reached; False when that was the last attempt."""
        entry = self._settled(write)
        entry.failures += 1
        if entry.failures >= self._options.attempts:
            self._give_up(entry)
            return False
        entry.is_hurried = False
        entry.retry_at = now + self._options.retry_pause
        self._plan(entry)
        return True

    def refused(self, write: Write[_F]) -> None:
        """The server will not have it."""
        self._give_up(self._settled(write))

    def give_up(self) -> int:
        """Forget everything; returns how many occurrences were not written."""
        pending = self.pending
        self.failed += pending
        self._entries.clear()
        self._clean.clear()
        self._heap.clear()
        return pending

    def _plan(self, entry: _Entry[_F]) -> None:
        entry.ticket = next(self._tickets)
        heapq.heappush(self._heap, (entry.due(self._options), entry.ticket, entry))

    def _settled(self, write: Write[_F]) -> _Entry[_F]:
        entry = self._entries[write.draft.key]
        entry.is_under_way = False
        return entry

    def _has_written(self, write: Write[_F], count: int, now: float) -> None:
        entry = self._settled(write)
        entry.failures = 0
        entry.written = count
        entry.written_at = now
        entry.saved = max(entry.saved, count)
        if entry.is_dirty:
            self._plan(entry)
        else:
            entry.is_hurried = False
            self._clean[write.draft.key] = None

    def _give_up(self, entry: _Entry[_F]) -> None:
        self.failed += entry.pending
        self._forget(entry)

    def _forget(self, entry: _Entry[_F]) -> None:
        entry.ticket = -1
        del self._entries[entry.draft.key]
        self._clean.pop(entry.draft.key, None)

    def _room_for(self, draft: Draft[_F], now: float) -> Verdict:
        if len(self._entries) >= self._options.capacity:
            if not self._clean:
                return Verdict.FULL
            # Nothing is lost with it: its next repetition begins another event.
            self._forget(self._entries[next(iter(self._clean))])
        tokens, since = self._buckets.pop(draft.source, (float(self._options.burst), now))
        tokens = min(float(self._options.burst), tokens + (now - since) / self._options.refill)
        may_begin = tokens >= 1
        self._buckets[draft.source] = (tokens - may_begin, now)
        if len(self._buckets) > self._options.capacity:
            self._buckets.popitem(last=False)
        return Verdict.RECORDED if may_begin else Verdict.FLOODED
