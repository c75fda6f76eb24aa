"""The state of a work queue, as a state machine without threads, locks or a clock.

The semantics are those of controller-runtime's priority queue. A queued key is in one place:

* *ready*: can be handed out; ordered by priority, then by ticket (first come, first served);
* *waiting*: has a time before which it must not be handed out;
* *parked*: ready, but processed right now; becomes ready when that is done.

In addition, a key that was handed out is *locked* until it is done.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Generic, TypeVar, final

import msgspec

K = TypeVar("K", bound=Hashable)

_READY, _WAITING, _PARKED, _GONE = range(4)

_SLACK = 64
"""The most stale items in a heap, beyond two for each key, before they are removed."""


class QueueItem(msgspec.Struct, Generic[K], frozen=True):
    """A key that was handed out."""

    key: K
    priority: int
    """The priority with which it was queued; give it again if you queue the key again."""
    reasons: tuple[Any, ...]
    """The reasons given to ``add``, oldest first, up to the queue's limit."""
    waited: float
    """Seconds from the time at which it became ready until it was handed out."""
    ticket: int = 0
    """Its position in the order of arrival."""


class _Entry(msgspec.Struct, gc=False, eq=False, weakref=False):
    """A queued key.

    The garbage collector does not traverse it, because there may be very many. A reason that refers
    back to the queue keeps it alive until the key is handed out or the queue is shut down.
    """

    key: Any
    priority: int
    place: int = _GONE
    ticket: int = 0
    ready_at: float = 0.0
    since: float = 0.0
    reasons: list[Any] | None = None
    has_waited: bool = False

    def __lt__(self, other: _Entry) -> bool:
        return id(self) < id(other)


@final
class QueueState(Generic[K]):
    """The state of a work queue. Not thread-safe; :class:`WorkQueue` is the thread-safe shell."""

    def __init__(self, *, max_reasons: int = 8) -> None:
        self._max_reasons = max_reasons
        self._next_ticket = 1
        self._entries: dict[K, _Entry] = {}
        # Heaps may hold stale items: an item is valid while its entry is in that place and has
        # that position.
        self._ready: list[tuple[int, int, _Entry]] = []
        self._waiting: list[tuple[float, int, _Entry]] = []
        self.locked: dict[K, float] = {}
        """The keys that are processed, and the time at which each was handed out."""
        self.depth: dict[int, int] = {}
        """The number of ready keys by priority; parked ones included."""
        self.adds: int = 0
        """How often a key became ready."""
        self.waiting_count: int = 0

    def tickets(self, count: int, now: float) -> range:
        """Reserve positions in the order of arrival, for later :meth:`add` calls."""
        if self._waiting and self._waiting[0][0] <= now:
            # Keys that became due earlier come first.
            self._wake_due(now)
        first = self._next_ticket
        self._next_ticket = first + count
        return range(first, first + count)

    def next_ticket(self, now: float) -> int | None:
        """The ticket of the key that :meth:`pop` would hand out; None when there is none."""
        return self._ready[0][1] if self.has_ready(now) else None

    def next_key(self, now: float) -> K | None:
        """The key that :meth:`pop` would hand out; None when there is none."""
        return self._ready[0][2].key if self.has_ready(now) else None

    def has_others(self, own: Iterable[K]) -> bool:
        """Whether any other key than these, each named once, is queued or processed."""
        known = sum((key in self._entries) + (key in self.locked) for key in own)
        return len(self._entries) + len(self.locked) > known

    def holds(self, key: K) -> bool:
        """Whether ``key`` is queued or processed."""
        return key in self._entries or key in self.locked

    def add(
        self,
        key: K,
        now: float,
        *,
        priority: int = 0,
        delay: float = 0.0,
        ticket: int | None = None,
        reason: Any = None,
    ) -> None:
        """Queue ``key``, or merge with its present entry.

        A ``ticket`` is used only without ``delay``: a waiting key gets one when it becomes ready. A
        merge keeps the higher priority, the earlier time and the earlier explicit ticket; an entry
        whose priority rises goes behind the others of that priority.
        """
        if self._waiting and self._waiting[0][0] <= now:
            # First the keys that became due earlier: they are ready before this key.
            self._wake_due(now)
        entry = self._entries.get(key)
        if entry is None:
            due = now + delay if delay > 0 else None  # before the entry: it may be no float
            entry = self._entries[key] = _Entry(key, priority)
            if due is not None:
                self._put_waiting(entry, due)
            else:
                self._put_ready(entry, now, ticket)
        elif entry.place == _WAITING:
            entry.priority = max(entry.priority, priority)
            if delay <= 0:
                self.waiting_count -= 1
                self._put_ready(entry, now, ticket)
            elif now + delay < entry.ready_at:
                self.waiting_count -= 1
                self._put_waiting(entry, now + delay)
        elif delay <= 0:
            self._merge_ready(entry, priority, ticket)
        elif priority > entry.priority:
            self._merge_ready(entry, priority, None)
        if reason is not None:
            self._add_reason(entry, reason)

    def pop(self, now: float) -> QueueItem[K] | None:
        """Hand out the next ready key and lock it; None when no key is ready."""
        if self._waiting and self._waiting[0][0] <= now:
            self._wake_due(now)
        ready = self._ready
        while ready:
            negative_priority, ticket, entry = heapq.heappop(ready)
            if not _is_next_ready(negative_priority, ticket, entry):
                continue
            key, priority = entry.key, entry.priority
            entry.place = _GONE
            del self._entries[key]
            self._count(priority, -1)
            self.locked[key] = now
            reasons = tuple(entry.reasons) if entry.reasons else ()
            return QueueItem(key, priority, reasons, now - entry.since, ticket)
        return None

    def done(self, key: K) -> float | None:
        """Unlock ``key``; returns when it was handed out, None when it was not."""
        since = self.locked.pop(key, None)
        if since is None:
            return None
        entry = self._entries.get(key)
        if entry is not None and entry.place == _PARKED:
            self._push_ready(entry)
        return since

    def next_due(self) -> float | None:
        """When the first waiting key becomes ready, None when no key waits."""
        waiting = self._waiting
        while waiting:
            if _is_next_waiting(*waiting[0]):
                return waiting[0][0]
            heapq.heappop(waiting)
        return None

    def has_ready(self, now: float) -> bool:
        """Whether :meth:`pop` would hand out a key."""
        self._wake_due(now)
        ready = self._ready
        while ready:
            if _is_next_ready(*ready[0]):
                return True
            heapq.heappop(ready)
        return False

    def ready_count(self, now: float) -> int:
        """The number of ready keys, parked ones included."""
        self._wake_due(now)
        return sum(self.depth.values())

    def oldest_ready(self, now: float) -> float | None:
        """When the key that has been ready for longest became so; None when no key is ready."""
        self._wake_due(now)
        oldest: float | None = None
        # In the order of their first add, which no key was ready before.
        for entry in self._entries.values():
            if entry.place == _WAITING:
                continue
            if oldest is None or entry.since < oldest:
                oldest = entry.since
            if not entry.has_waited:
                break
        return oldest

    def drop_waiting(self, now: float) -> None:
        """Drop the waiting keys that are not due."""
        self._wake_due(now)
        for key in [k for k, entry in self._entries.items() if entry.place == _WAITING]:
            self._entries.pop(key).place = _GONE
        self._waiting.clear()
        self.waiting_count = 0

    def drop_all(self) -> None:
        """Drop all queued keys."""
        for entry in self._entries.values():
            entry.place = _GONE
        self._entries.clear()
        self._ready.clear()
        self._waiting.clear()
        self.depth.clear()
        self.waiting_count = 0

    def snapshot(self) -> Iterator[tuple[K, str, int, float, tuple[Any, ...]]]:
        """Each queued key with its place, priority, due time and reasons, for debug pages."""
        names = {_READY: "ready", _WAITING: "waiting", _PARKED: "parked"}
        for entry in self._entries.values():
            due = entry.ready_at if entry.place == _WAITING else 0.0
            yield entry.key, names[entry.place], entry.priority, due, tuple(entry.reasons or ())

    def _put_ready(self, entry: _Entry, now: float, ticket: int | None) -> None:
        entry.ticket = ticket if ticket is not None else self._ticket()
        entry.since = now
        self.adds += 1
        self._count(entry.priority, 1)
        if entry.key in self.locked:
            entry.place = _PARKED
        else:
            self._push_ready(entry)

    def _push_ready(self, entry: _Entry) -> None:
        entry.place = _READY
        if len(self._ready) > 2 * len(self._entries) + _SLACK:
            self._ready = [item for item in self._ready if _is_next_ready(*item)]
            heapq.heapify(self._ready)
        heapq.heappush(self._ready, (-entry.priority, entry.ticket, entry))

    def _put_waiting(self, entry: _Entry, ready_at: float) -> None:
        entry.place = _WAITING
        entry.has_waited = True
        entry.ready_at = ready_at
        self.waiting_count += 1
        if len(self._waiting) > 2 * len(self._entries) + _SLACK:
            self._waiting = [item for item in self._waiting if _is_next_waiting(*item)]
            heapq.heapify(self._waiting)
        heapq.heappush(self._waiting, (ready_at, self._ticket(), entry))

    def _merge_ready(self, entry: _Entry, priority: int, ticket: int | None) -> None:
        if priority > entry.priority:
            self._count(entry.priority, -1)
            entry.priority = priority
            self._count(priority, 1)
            entry.ticket = ticket if ticket is not None else self._ticket()
        elif ticket is not None and ticket < entry.ticket:
            entry.ticket = ticket
        else:
            return
        if entry.place == _READY:
            self._push_ready(entry)

    def _wake_due(self, now: float) -> None:
        while (due := self.next_due()) is not None and due <= now:
            _, _, entry = heapq.heappop(self._waiting)
            self.waiting_count -= 1
            self._put_ready(entry, due, None)

    def _ticket(self) -> int:
        ticket = self._next_ticket
        self._next_ticket = ticket + 1
        return ticket

    def _count(self, priority: int, change: int) -> None:
        count = self.depth.get(priority, 0) + change
        if count:
            self.depth[priority] = count
        else:
            self.depth.pop(priority, None)

    def _add_reason(self, entry: _Entry, reason: Any) -> None:
        reasons = entry.reasons
        if reasons is None:
            reasons = entry.reasons = []
        if len(reasons) >= self._max_reasons:
            # Keep the first reason, which shows the origin, and the newest ones.
            del reasons[1 if self._max_reasons > 1 else 0]
        reasons.append(reason)


def _is_next_ready(negative_priority: int, ticket: int, entry: _Entry) -> bool:
    return entry.place == _READY and entry.ticket == ticket and entry.priority == -negative_priority


def _is_next_waiting(ready_at: float, _: int, entry: _Entry) -> bool:
    return entry.place == _WAITING and entry.ready_at == ready_at
