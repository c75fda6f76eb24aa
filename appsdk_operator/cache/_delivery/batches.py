"""Events that wait in the order of their arrival, a whole read at a time."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import TYPE_CHECKING, final

from appsdk_operator.cache._events import Event

if TYPE_CHECKING:
    from appsdk_operator.cache._delivery.event_source import EventSource

__all__ = ["Batch", "BatchQueue"]


@final
class Batch:
    """Events of one source that came together; the first has ``ticket``, each next one more."""

    __slots__ = ("arrived", "events", "handled", "source", "ticket")

    def __init__(
        self, source: EventSource, events: Sequence[Event], ticket: int, arrived: float
    ) -> None:
        self.source = source
        self.events = events
        self.ticket = ticket
        self.arrived = arrived
        self.handled = 0
        """How many of them were handled, once it was taken."""

    def split(self, count: int) -> Batch:
        """Keep the first ``count`` events; the rest."""
        rest = Batch(self.source, self.events[count:], self.ticket + count, self.arrived)
        self.events = self.events[:count]
        return rest


@final
class BatchQueue:
    """Runs, first come, first served.

    What one worker takes in order needs no place for each object, which is most of what an event
    costs on its way. All is done under a lock of the caller's; only :attr:`taken` is counted
    without one, by the worker.
    """

    def __init__(self) -> None:
        self._runs: collections.deque[Batch] = collections.deque()
        self._arrived = 0
        self.taken = 0
        """How many events the worker has begun with, or passed over."""

    def shift(self, seconds: float) -> None:
        """Add ``seconds`` to every time, because from now on they are told by another clock."""
        for run in self._runs:
            run.arrived += seconds

    @property
    def count(self) -> int:
        """How many events wait."""
        # What the worker does when the line is cleared may be counted a moment later.
        return max(0, self._arrived - self.taken)

    @property
    def next_ticket(self) -> int | None:
        """The ticket of the first event; None when none waits."""
        return self._runs[0].ticket if self._runs else None

    def objects_of(self, source: EventSource) -> set[tuple[str, str]]:
        """Namespace and name of the objects whose events wait."""
        objects = (e.object for run in self._runs if run.source is source for e in run.events)
        return {(obj.namespace, obj.name) for obj in objects}

    def put(self, run: Batch) -> None:
        """Let a run wait, whose tickets are after those of all that wait."""
        self._runs.append(run)
        self._arrived += len(run.events)

    def take(self, before: int | None, limit: int | None) -> list[Batch]:
        """What waits, in order: what has a ticket less than ``before``, and ``limit`` at most."""
        taken: list[Batch] = []
        while self._runs:
            run = self._runs.popleft()
            size = len(run.events)
            count = size if before is None else min(size, before - run.ticket)
            count = count if limit is None else min(count, limit)
            if count < size:
                self._runs.appendleft(run.split(count) if count > 0 else run)
            if count > 0:
                taken.append(run)
                limit = None if limit is None else limit - count
            if count < size:
                break
        return taken

    def put_back(self, runs: Sequence[Batch]) -> None:
        """Let what was taken and not handled wait again, in front."""
        left = [run.split(run.handled) for run in runs if run.handled < len(run.events)]
        self._runs.extendleft(reversed(left))

    def clear(self) -> None:
        """Forget what waits, and what was taken and is not handled."""
        self._runs.clear()
        self._arrived = self.taken

    def drop(self, source: EventSource) -> list[Event]:
        """Forget the events of ``source`` that were not taken; these are they."""
        dropped = [event for run in self._runs if run.source is source for event in run.events]
        self._runs = collections.deque(run for run in self._runs if run.source is not source)
        self._arrived -= len(dropped)
        return dropped
