"""A bounded buffer of events per object, which merges events once it is full."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar, final

from appsdk_operator.cache._events import Event, ResourceAction

K = TypeVar("K", bound=Hashable)

_CREATE, _UPDATE, _DELETE, _RESYNC = (
    ResourceAction.CREATE,
    ResourceAction.UPDATE,
    ResourceAction.DELETE,
    ResourceAction.RESYNC,
)


@final
class OrderedCall(Generic[K]):
    """A call in line with an object's events; those before it never merge with those behind it."""

    __slots__ = ("make",)

    is_initial = True
    """As of an event: so a worker asks only initial events whether they are calls."""

    def __init__(self, make: Callable[[K], float | None]) -> None:
        self.make = make
        """Called with the key, as the handler is with an event."""


def coalesced(before: Event, event: Event) -> Event | None:
    """Two consecutive events as one; None when they cancel each other out.

    Both must be about one object (one uid), and the first not delivered yet.
    """
    if event.action is _RESYNC:
        return before
    if event.action is _DELETE:
        return None if before.action is _CREATE else event
    if before.action is _CREATE:
        return Event(_CREATE, event.object, None, before.is_initial)
    return Event(_UPDATE, event.object, before.old or before.object)


@final
class CoalescingBuffer(Generic[K]):
    """Events and calls by key, each with its ticket. Not thread-safe.

    Up to ``bound`` events are stored one by one. Beyond that, a new event is merged with the last
    one of its object, so that the number of objects bounds the memory, not the number of events.
    """

    def __init__(
        self,
        bound: int,
        *,
        on_dropped: Callable[[K, Event], None],
        is_known: Callable[[K, Event], bool] = lambda *_: False,
        merges_resyncs: bool = True,
    ) -> None:
        """An empty buffer.

        Args:
            bound: how many events it holds before merging begins.
            on_dropped: called with each event that will never be delivered, because it was merged
                into another one or cancelled out.
            is_known: whether a waiting event must not be merged: the creation of an object that a
                handler knows already, which ignores it and would miss the later event, or an update
                that a handler must see before the deletion.
            merges_resyncs: whether a resync adds nothing to another event of its object.
        """
        self._merges_resyncs = merges_resyncs
        self._bound = bound
        self._on_dropped = on_dropped
        self._is_known = is_known
        # Lists and not deques: nearly all hold one event, and a deque takes 600 bytes for it.
        self._by_key: dict[K, list[tuple[int, Event | OrderedCall[K]]]] = {}
        self.count = 0
        self.calls = 0
        """How many of them are calls, which do not count against the bound: they never merge."""
        self.merged_count = 0

    def put(self, key: K, ticket: int, event: Event, *, elsewhere: int = 0) -> bool:
        """Add an event; returns whether it is the first pending one of ``key``.

        ``elsewhere`` is the number of events queued elsewhere that count against the bound too.
        """
        waiting = self._by_key.get(key)
        if waiting is None:
            self._by_key[key] = [(ticket, event)]
            self.count += 1
            return True
        if (
            event.action is _RESYNC
            and self._merges_resyncs
            and any(isinstance(each, Event) for _, each in waiting)
        ):
            # The pending event is at least as new as the resync.
            return False
        if self.count - self.calls + elsewhere >= self._bound and self._merge(key, waiting, event):
            return False
        waiting.append((ticket, event))
        self.count += 1
        return False

    def put_call(self, key: K, ticket: int, call: OrderedCall[K]) -> bool:
        """Add a call; returns whether nothing else of ``key`` is pending."""
        waiting = self._by_key.setdefault(key, [])
        waiting.append((ticket, call))
        self.count += 1
        self.calls += 1
        return len(waiting) == 1

    def pending_keys(self) -> list[K]:
        """The keys of what is pending."""
        return list(self._by_key)

    def put_first(self, key: K, events: Sequence[tuple[int, Event]]) -> None:
        """Add events, each with its ticket, before those of ``key``; none of them is merged."""
        self._by_key[key] = [*events, *self._by_key.get(key, ())]
        self.count += len(events)

    def take(self, key: K, up_to: int) -> Event | OrderedCall[K] | None:
        """Remove and return the oldest item of ``key`` if its ticket is at most ``up_to``."""
        waiting = self._by_key.get(key)
        if waiting is None or waiting[0][0] > up_to:
            return None
        _, event = waiting.pop(0)
        self.count -= 1
        if event.is_initial and isinstance(event, OrderedCall):
            self.calls -= 1
        if not waiting:
            del self._by_key[key]
        return event

    def next_ticket(self, key: K) -> int | None:
        """The ticket of the oldest event of ``key``, None when nothing is pending."""
        waiting = self._by_key.get(key)
        return waiting[0][0] if waiting else None

    def clear(self) -> None:
        """Remove all events, without calls of ``on_dropped``."""
        self._by_key.clear()
        self.count = self.calls = 0

    def drop(self, matches: Callable[[K], bool]) -> None:
        """Remove the events of the keys that match."""
        for key in [key for key in self._by_key if matches(key)]:
            waiting = self._by_key.pop(key)
            self.count -= len(waiting)
            for _, event in waiting:
                if isinstance(event, Event):
                    self._on_dropped(key, event)
                else:
                    self.calls -= 1

    def _merge(
        self, key: K, waiting: list[tuple[int, Event | OrderedCall[K]]], event: Event
    ) -> bool:
        ticket, before = waiting[-1]
        if not isinstance(before, Event):
            return False
        if before.object.uid != event.object.uid or before.action is _DELETE:
            return False
        if (before.action is _CREATE or event.action is _DELETE) and self._is_known(key, before):
            return False
        both = coalesced(before, event)
        if both is None and len(waiting) > 1 and not isinstance(waiting[-2][1], Event):
            return False  # before the call, the object may have been unfollowed: see below
        self.merged_count += 1
        if both is not None:
            self._on_dropped(key, event)
            waiting[-1] = (ticket, both)
            return True
        waiting.pop()
        self.count -= 1
        dropped = event
        if waiting and not event.is_unfollowed:
            ticket, last = waiting[-1]
            assert isinstance(last, Event)
            if last.is_unfollowed and last.object.uid == event.object.uid:
                # It was left and followed again: that it is deleted must be the last word.
                waiting[-1], dropped = (ticket, event), last
        self._on_dropped(key, dropped)
        self._on_dropped(key, before)
        if not waiting:
            del self._by_key[key]
        return True
