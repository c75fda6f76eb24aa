"""A queue of event batches in order of arrival."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar, final

from appsdk_operator.cache._events import Event

SourceT = TypeVar("SourceT")


@final
class Batch(Generic[SourceT]):
    """Events that one source put together. The first has ``ticket``, each next one more."""

    __slots__ = ("_left", "arrived", "events", "handled", "source", "ticket")

    def __init__(
        self, source: SourceT, events: Sequence[Event], ticket: int, arrived: float
    ) -> None:
        self.source = source
        self.events = events
        self.ticket = ticket
        self.arrived = arrived
        self.handled = 0
        """How many of them the worker has handled since it took the batch."""
        self._left: collections.deque[Event] | None = None

    def share(self) -> None:
        """Let another thread take away what the worker, which uses :meth:`begun`, has not begun."""
        self._left = collections.deque(self.events)

    def begun(self) -> Iterator[Event]:
        """The events, each begun by who gets it from here, until the others are taken away.

        Without a lock: what is taken from one end of a deque is not taken from the other one.
        """
        assert self._left is not None
        take = self._left.popleft
        with contextlib.suppress(IndexError):
            while True:
                yield take()

    def take_away(self) -> int | None:
        """Keep the worker from beginning another event.

        Returns:
            How many it has begun; None: it shares nothing.
        """
        left, taken = self._left, 0
        if left is None:
            return None
        with contextlib.suppress(IndexError):
            while True:
                left.pop()
                taken += 1
        return len(self.events) - taken

    def split(self, count: int) -> Batch[SourceT]:
        """Reduce this batch to its first ``count`` events; returns a batch of the others."""
        rest = Batch(self.source, self.events[count:], self.ticket + count, self.arrived)
        self.events = self.events[:count]
        return rest


@final
class BatchQueue(Generic[SourceT]):
    """Batches, first in, first out.

    A single worker that takes events in order of arrival needs no queue entry for each object,
    which is most of what an event costs between informer and handler. The caller's lock guards
    everything; only :attr:`taken` is written by the worker without it.
    """

    def __init__(self) -> None:
        self._batches: collections.deque[Batch[SourceT]] = collections.deque()
        self._in_hand: Sequence[Batch[SourceT]] = ()
        self._arrived = 0
        self.taken = 0
        """How many events the worker has started with or skipped."""

    @property
    def count(self) -> int:
        """How many events are queued."""
        # The worker may count an event a moment after clear() has removed it.
        return max(0, self._arrived - self.taken)

    @property
    def next_ticket(self) -> int | None:
        """The ticket of the first event; None when the queue is empty."""
        return self._batches[0].ticket if self._batches else None

    @property
    def oldest(self) -> float | None:
        """When the first event arrived that the worker has not started with; None without any."""
        # What waits in batches that the worker has taken, the last ones first.
        waiting = self.count - sum(len(batch.events) for batch in self._batches)
        for batch in reversed(self._in_hand):
            if 0 < waiting <= len(batch.events):
                return batch.arrived
            waiting -= len(batch.events)
        return self._batches[0].arrived if self._batches else None

    def objects_of(self, source: SourceT) -> set[tuple[str, str]]:
        """Namespace and name of the objects of ``source`` with queued events."""
        objects = (
            e.object for batch in self._batches if batch.source is source for e in batch.events
        )
        return {(obj.namespace, obj.name) for obj in objects}

    def unfinished_objects_of(self, source: SourceT) -> set[tuple[str, str]]:
        """:meth:`objects_of`, and the objects of events that the worker has taken or handled."""
        in_hand = (e.object for b in self._in_hand if b.source is source for e in b.events)
        return self.objects_of(source) | {(obj.namespace, obj.name) for obj in in_hand}

    def put(self, batch: Batch[SourceT]) -> None:
        """Append a batch; its tickets must be later than all that are queued."""
        self._batches.append(batch)
        self._arrived += len(batch.events)

    def take(self, before: int | None, limit: int | None) -> list[Batch[SourceT]]:
        """Remove and return events with tickets below ``before``, at most ``limit``, in order."""
        taken: list[Batch[SourceT]] = []
        while self._batches:
            batch = self._batches.popleft()
            size = len(batch.events)
            count = size if before is None else min(size, before - batch.ticket)
            count = count if limit is None else min(count, limit)
            if count < size:
                self._batches.appendleft(batch.split(count) if count > 0 else batch)
            if count > 0:
                taken.append(batch)
                limit = None if limit is None else limit - count
            if count < size:
                break
        self._in_hand = taken
        return taken

    def put_back(self, batches: Sequence[Batch[SourceT]]) -> None:
        """Return events that were taken and not handled to the front of the queue."""
        left = [
            batch.split(batch.handled) for batch in batches if batch.handled < len(batch.events)
        ]
        self._batches.extendleft(reversed(left))
        self._in_hand = ()

    def take_rest(
        self, before: int | None
    ) -> tuple[tuple[SourceT, Event] | None, list[Batch[SourceT]]]:
        """Remove all events, also those that were taken and not begun.

        Args:
            before: how many were taken before those in hand; None: none are in hand.

        Returns:
            The last event that the worker has begun, with its source, and the others, in order.
        """
        current: tuple[SourceT, Event] | None = None
        rest: list[Batch[SourceT]] = []
        taken = before or 0
        for batch in self._in_hand if before is not None else ():
            begun = batch.take_away()
            if begun is None:  # it has been in its present event since it could have begun others
                begun = min(self.taken - taken, len(batch.events))
            if begun:
                current = batch.source, batch.events[begun - 1]
                taken += begun
            if begun < len(batch.events):
                ticket = batch.ticket + begun
                rest.append(Batch(batch.source, batch.events[begun:], ticket, batch.arrived))
        rest += self._batches
        if before is not None:
            self.taken = taken  # the worker counts an event a moment after it has begun it
        self.clear()
        return current, rest

    def clear(self) -> None:
        """Remove all events, also those that were taken and are not handled yet."""
        self._batches.clear()
        self._in_hand = ()
        self._arrived = self.taken

    def drop(self, source: SourceT) -> list[Event]:
        """Remove the queued events of ``source``; returns them."""
        dropped = [e for b in self._batches if b.source is source for e in b.events]
        self._batches = collections.deque(b for b in self._batches if b.source is not source)
        self._arrived -= len(dropped)
        return dropped
