"""From informers to handlers: events in order for each object, side by side for different ones."""

from __future__ import annotations

import contextlib
import operator
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, final

from appsdk_operator.cache._delivery.batches import Batch, BatchQueue
from appsdk_operator.cache._delivery.coalescing import CoalescingBuffer
from appsdk_operator.cache._delivery.event_source import DeliveryKey, EventSource, Overflow
from appsdk_operator.cache._events import Event, ResourceAction
from appsdk_operator.cache._options import check_overflow
from appsdk_operator.runtime import (
    Clock,
    Family,
    InheritedClock,
    Metrics,
    Sample,
    StopSignal,
    ThreadGroup,
    Waiters,
    WorkQueue,
    get_logger,
    random_of,
    system_clock,
)
from appsdk_operator.runtime.validation import (
    check_count,
    check_environment,
    check_function,
    check_text,
)

__all__ = ["Delivery", "Handle"]

_log = get_logger("appsdk_operator.cache")

_EVENTS = Family(
    "informer_events_total", "counter", "Events handed over by informers.", ("event_type", "kind")
)
_PENDING = Family(
    "informer_pending_events", "gauge", "Events that wait for a handler.", ("controller",)
)
_MERGED = Family(
    "informer_merged_events_total",
    "counter",
    "Events merged into another one of the same object, because too many were waiting.",
    ("controller",),
)
_action_of = operator.attrgetter("action")
_is_initial = operator.attrgetter("is_initial")
_EXACT_BOUND = 1000
"""A smaller bound is kept to the event, so that each has its place by object from the start."""
_LINE = "line"
_RESYNC_KEY = "resync "
_LONGEST_TURN = 0.01
"""Seconds after which the line has its next turn, so that the queue's metrics tell of them."""
_CREATE, _RESYNC = ResourceAction.CREATE, ResourceAction.RESYNC
_ACTIONS = tuple(action for action in ResourceAction if action is not ResourceAction.GENERIC)


class Handle(Protocol):
    """What a :class:`Delivery` calls; must not raise."""

    def __call__(self, key: DeliveryKey, event: Event | None) -> float | None:
        """Handle ``event``, or what became due meanwhile when it is None.

        Returns:
            In how many seconds to be called again with None, unless an event comes first; None:
            not before the next event.
        """
        ...


@final
class Delivery:
    """Workers that hand events to one function.

    Guarantees:
        * The events of one object come in order, and never two at once.
        * With one worker all events come in the order in which they arrived.
        * What waits is bounded, as the :class:`Overflow` says.

    Thread-safe.
    """

    def __init__(
        self,
        name: str,
        handle: Handle,
        *,
        workers: int = 1,
        max_pending: int = 10_000,
        overflow: Overflow = Overflow.COALESCE,
        worker_context: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
        handle_event: Callable[[EventSource, Event], float | None] | None = None,
        on_failure: Callable[[Exception], None] | None = None,
        clock: Clock = system_clock,
        metrics: Metrics | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Workers that are not running yet.

        Args:
            name: names threads and labels metrics.
            handle: what is called with each event.
            workers: how many threads; default 1.
            max_pending: how many events may wait before ``overflow`` applies; default 10,000.
            overflow: what happens then; default: coalesce.
            worker_context: entered by each worker for as long as it works.
            handle_event: the same as ``handle`` for one that seldom needs the key of an event;
                called instead of it where the key is not known yet.
            on_failure: told of what ``handle`` raised all the same, and of whatever else ends a
                worker, which does not go on then; default: it is logged, and the worker goes on
                with the next event.
            clock: what it waits on.
            metrics: where it publishes; default: nowhere.
            rng: the source of jitter, for repeatable tests.
        """
        check_text("name", name, empty=False)
        check_function("handle", handle, required=True)
        check_function("worker_context", worker_context, required=True)
        check_function("handle_event", handle_event)
        check_function("on_failure", on_failure)
        check_count("workers", workers)
        if workers < 1:
            raise ValueError(f"workers={workers}: at least 1 is needed to handle anything")
        check_count("max_pending", max_pending, 1)
        check_overflow(overflow)
        check_environment(clock=clock, metrics=metrics, rng=rng)
        self._name = name
        self._handle = handle
        self._handle_event = handle_event or self._handle_by_key
        self._workers = workers
        self._max_pending = max_pending
        self._overflow = overflow
        self._worker_context = worker_context
        self._clock = clock
        self._metrics = metrics
        self._on_failure = on_failure
        self._threads = ThreadGroup(name, on_failure=on_failure)
        # Before the queue, whose metrics count it from the moment in which it is made.
        self._line = BatchQueue()
        # Re-entrant: a signal handler may stop us in the very thread that puts events.
        self._lock = threading.RLock()
        if isinstance(clock, InheritedClock):
            clock.add_keeper(self)  # before the queue, whose lock is taken under ours
        self._queue: WorkQueue[DeliveryKey] = WorkQueue(
            name, clock=clock, metrics=metrics, beside=lambda: max(0, self._line.count - 1)
        )
        self._synced = Waiters(clock)
        self._room = Waiters(clock)
        bound = max_pending if overflow is Overflow.COALESCE else sys.maxsize
        self._pending: CoalescingBuffer[DeliveryKey] = CoalescingBuffer(
            bound, on_dropped=self._on_dropped
        )
        # One worker takes events as they come, without a place for each object: as many as this.
        self._line_bound = bound // 2 if workers == 1 and bound >= _EXACT_BOUND else 0
        self._line_key = DeliveryKey(EventSource(self, "", {}), "", _LINE)
        self._is_line_queued = False
        self._sources: list[EventSource] = []
        # By kind, because a counter must not fall when a source is removed.
        self._counts: dict[str, dict[ResourceAction, int]] = {}
        self._resyncs: dict[DeliveryKey, tuple[float, Callable[[], None]]] = {}
        self._random = rng or random_of(clock)
        self._resync_number = 0
        self._is_stopped = False
        self._retire = metrics.add_source(self._samples) if metrics else lambda: None

    def source(self, kind: str) -> EventSource:
        """A way in for one informer, its events counted under ``kind``."""
        with self._lock:
            counts = self._counts.setdefault(kind, dict.fromkeys(ResourceAction, 0))
            source = EventSource(self, kind, counts)
            self._sources.append(source)
        return source

    def remove(self, source: EventSource) -> None:
        """Forget a source and the events of its that wait; what is being handled goes on."""
        with self._lock:
            if source in self._sources:
                self._sources.remove(source)
            source.is_removed = True
            for key in [key for key in self._resyncs if key.source is source]:
                del self._resyncs[key]
            self._pending.drop(lambda key: key.source is source)
            source.initial_left -= sum(map(_is_initial, self._line.drop(source)))
        self._notify()

    def put(self, source: EventSource, events: Sequence[Event], *, by_object: bool = False) -> None:
        """Queue events; never waits.

        Those that come one at a time are better put ``by_object`` at once.
        """
        events = tuple(events)  # ours from now on: the caller may use its list again
        counts = Counter(map(_action_of, events))
        # One block: no worker may look at what waits in one place and not yet in the other.
        with self._lock:
            if self._is_stopped or source.is_removed:
                return
            tickets = self._queue.tickets(len(events))
            for action, count in counts.items():
                source.counts[action] += count
            if _CREATE in counts:
                source.initial_left += sum(map(_is_initial, events))
            has_room = self._line.count + len(events) <= self._line_bound
            if has_room and not by_object and _RESYNC not in counts:
                ready = self._put_in_line(source, events, tickets)
            else:
                ready = self._put_by_object(source, zip(tickets, events, strict=True))
            if ready:
                self._queue.add_all([key for key, _ in ready], tickets=[t for _, t in ready])

    def _put_in_line(
        self, source: EventSource, events: Sequence[Event], tickets: range
    ) -> list[tuple[DeliveryKey, int]]:
        """Let events wait in the line, but for objects that wait already; who became ready."""
        keys = (source.key_of(event.object) for event in events)
        held = self._queue.holds_others(self._line_key, keys)
        ready: list[tuple[DeliveryKey, int]] = []
        runs: list[tuple[int, Sequence[Event]]] = []
        if held is not None and any(held):
            apart = [(t, e) for t, e, is_held in zip(tickets, events, held, strict=True) if is_held]
            ready = self._put_by_object(source, apart)
            runs += _runs([(t, e) for t, e, h in zip(tickets, events, held, strict=True) if not h])
        elif events:
            runs.append((tickets.start, events))
        now = self._clock.monotonic()
        for ticket, run in runs:
            self._line.put(Batch(source, run, ticket, now))
        if runs and not self._is_line_queued:
            self._is_line_queued = True
            ready.append((self._line_key, runs[0][0]))
        return ready

    def _put_by_object(
        self, source: EventSource, events: Iterable[tuple[int, Event]]
    ) -> list[tuple[DeliveryKey, int]]:
        """Let events wait in the places of their objects; who became ready."""
        ready: list[tuple[DeliveryKey, int]] = []
        in_line: set[tuple[str, str]] | None = None
        for ticket, event in events:
            obj = event.object
            if event.action is _RESYNC:
                if in_line is None:
                    in_line = self._line.objects_of(source)
                if (obj.namespace, obj.name) in in_line:
                    continue  # what waits is as new
            key = source.key_of(obj)
            if self._pending.put(key, ticket, event, beside=self._line.count):
                ready.append((key, ticket))
        return ready

    def wait_for_room(
        self, source: EventSource | None = None, stop: StopSignal | None = None
    ) -> None:
        """Wait, with :attr:`Overflow.BLOCK`, until fewer than ``max_pending`` events wait.

        An informer asks before it hands over what one read brought, and without a lock, so the
        bound may be passed by that much. The wait ends early when this delivery is stopped, the
        ``source`` is removed, or ``stop`` is set.
        """
        if self._overflow is Overflow.BLOCK:
            self._room.wait(
                lambda: self.pending < self._max_pending or self._has_ended(source), stop
            )

    def resync_every(
        self, source: EventSource, seconds: float, replay: Callable[[], None]
    ) -> Callable[[], None]:
        """Call ``replay`` in a worker each ``seconds``, give or take a tenth, until removed.

        Returns:
            A function that ends it.
        """
        with self._lock:
            self._resync_number += 1
            # No namespace has a space in its name; several informers may share a source.
            key = DeliveryKey(source, f"{_RESYNC_KEY}{self._resync_number}", "")
            self._resyncs[key] = (seconds, replay)
        self._queue.add(key, after=self._jittered(seconds))
        return lambda: self._end_resync(key)

    def hold_times(self) -> threading.RLock:
        """For inherited clocks: the lock under which it keeps times."""
        return self._lock

    def shift_times(self, seconds: float) -> None:
        """For inherited clocks: add ``seconds`` to every time; the lock is held."""
        self._line.shift(seconds)

    def end_initial_list(self, source: EventSource) -> None:
        """Every initial event of ``source`` was put."""
        source.is_initial_ended = True
        self._synced.wake()

    def wake(self, key: DeliveryKey) -> None:
        """Call the handler for ``key`` soon, as if its time had come."""
        self._queue.add(key)

    def start(self) -> None:
        """Start the workers."""
        for number in range(self._workers):
            self._threads.start(f"worker-{number}", self._work)

    def stop(self) -> None:
        """Drop what waits and let the workers end after what they do now; twice is harmless."""
        with self._lock:
            self._is_stopped = True
            self._line.clear()
            self._pending.clear()
            self._resyncs.clear()
        self._notify()
        self._queue.shut_down()
        self._retire()

    def join(self, timeout: float | None = None) -> list[str]:
        """Wait for the workers to end; the names of those that still run."""
        return self._threads.join(timeout)

    def step(self) -> bool:
        """Handle one event in the calling thread, for tests; False when there is nothing to do."""
        item = self._queue.try_get()
        if item is None:
            return False
        with self._worker_context():
            self._turn(item.key, item.ticket, limit=1)
        return True

    def wait_idle(self, timeout: float | None = None) -> bool:
        """Wait until every event has been handled; False after ``timeout`` seconds."""
        return self._queue.wait_idle(timeout)

    def wait_for_sync(
        self, stop: StopSignal, timeout: float | None = None, *, source: EventSource | None = None
    ) -> bool:
        """Wait until ``source`` (default: every source) has synced.

        Returns:
            False when stopped, after ``timeout`` seconds, or when ``source`` was removed.
        """
        self._synced.wait(
            lambda: self._have_synced(source) or self._has_ended(source), stop, timeout
        )
        return self._have_synced(source)

    def _have_synced(self, source: EventSource | None) -> bool:
        sources = list(self._sources) if source is None else [source]
        return all(source.has_synced for source in sources)

    def _has_ended(self, source: EventSource | None) -> bool:
        return self._is_stopped or (source is not None and source.is_removed)

    @property
    def pending(self) -> int:
        """How many events wait."""
        return self._pending.count + self._line.count

    @property
    def merged(self) -> int:
        """How many events were merged into others, because too many waited."""
        return self._pending.merged_count

    def next_due(self) -> float | None:
        """The monotonic time of the next call with None, for tests that move a clock."""
        return self._queue.next_due

    def _work(self) -> None:
        with self._worker_context():
            while (item := self._queue.get()) is not None:
                try:
                    self._turn(item.key, item.ticket)
                except BaseException:
                    if self._on_failure is not None:
                        raise
                    # Such as SystemExit: it must not silently leave us without workers.
                    _log.exception(
                        "%s: handling %s failed outside of the user's code", self._name, item.key
                    )

    def _turn(self, key: DeliveryKey, ticket: int, *, limit: int | None = None) -> None:
        """Handle what ``key`` stands for: at most ``limit`` events."""
        if key is self._line_key:
            self._line_turn(limit)
            return
        if not key.name and key.namespace.startswith(_RESYNC_KEY):
            self._resync(key)
            return
        with self._lock:
            # An event has its own place in line, also where its key came up earlier because a
            # time had come.
            event = self._pending.take(key, ticket)
        if self._room.waiting:
            self._room.wake()
        delay: float | None = None
        try:
            delay = self._handle(key, event)
        finally:
            if event is not None and event.is_initial:
                self._initial_handled(key.source)
            with self._lock:
                following = self._pending.next_ticket(key)
            if following is not None:
                self._queue.add(key, ticket=following)
            elif delay is not None:
                self._queue.add(key, after=delay)
            self._queue.done(key)

    def _line_turn(self, limit: int | None) -> None:
        """Handle the events that wait in line, up to the first object that waits by itself."""
        with self._lock:
            began = self._clock.monotonic()
            runs = self._line.take(self._queue.next_ticket(), limit)
        until = began + _LONGEST_TURN
        try:
            for run in runs:
                if self._is_stopped or not self._handle_run(run, until):
                    break
        finally:
            pieces = sum(run.handled for run in runs)
            waited = sum((began - run.arrived) * run.handled for run in runs) / (pieces or 1)
            with self._lock:
                if self._is_stopped:
                    self._line.clear()
                else:
                    self._line.put_back(runs)
                following = self._line.next_ticket
                self._is_line_queued = following is not None
            if following is not None:
                self._queue.add(self._line_key, ticket=following)
            self._queue.done(self._line_key, pieces=pieces, waited=waited)

    def _handle_run(self, run: Batch, until: float) -> bool:
        """Handle one event of the run after another; whether there is time for more.

        There is not when the time is ``until``, or after a stop.
        """
        line, source, handle = self._line, run.source, self._handle_event
        monotonic, blocked = self._clock.monotonic, self._room.waiting
        before = taken = line.taken
        initial = 0
        try:
            for event in run.events:
                if initial and not event.is_initial:
                    self._initial_handled(source, initial)
                    initial = 0
                taken += 1
                line.taken = taken
                if blocked:
                    self._room.wake()
                delay: float | None = None
                try:
                    if not source.is_removed:
                        delay = handle(source, event)
                finally:
                    if event.is_initial:
                        initial += 1
                    if delay is not None:
                        self._queue.add(source.key_of(event.object), after=delay)
                if self._is_stopped or monotonic() >= until:
                    return False
            return True
        finally:
            run.handled = taken - before
            if initial:
                self._initial_handled(source, initial)

    def _handle_by_key(self, source: EventSource, event: Event) -> float | None:
        return self._handle(source.key_of(event.object), event)

    def _initial_handled(self, source: EventSource, count: int = 1) -> None:
        with self._lock:
            source.initial_left -= count
        if self._synced.waiting and not source.initial_left:
            self._synced.wake()

    def _resync(self, key: DeliveryKey) -> None:
        resync = self._resyncs.get(key)
        try:
            if resync is not None:
                resync[1]()
        except Exception:
            _log.exception(
                "%s: showing the objects of %s again failed", self._name, key.source.kind
            )
        finally:
            if resync is not None and key in self._resyncs:
                self._queue.add(key, after=self._jittered(resync[0]))
            self._queue.done(key)

    def _end_resync(self, key: DeliveryKey) -> None:
        with self._lock:
            self._resyncs.pop(key, None)

    def _jittered(self, seconds: float) -> float:
        # Many informers that were started together should not all resync in the same second.
        return seconds * self._random.uniform(0.9, 1.1)

    def _on_dropped(self, key: DeliveryKey, event: Event) -> None:
        if event.is_initial:
            self._initial_handled(key.source)

    def _notify(self) -> None:
        self._synced.wake()
        self._room.wake()

    def _samples(self) -> list[Sample]:
        with self._lock:
            return [
                *(
                    Sample(_EVENTS, (action.value, kind), counts[action])
                    for kind, counts in self._counts.items()
                    # No informer says GENERIC, only those who deliver events of their own.
                    for action in _ACTIONS
                ),
                Sample(_PENDING, (self._name,), self.pending),
                Sample(_MERGED, (self._name,), self._pending.merged_count),
            ]


def _runs(events: Iterable[tuple[int, Event]]) -> list[tuple[int, list[Event]]]:
    """Events whose tickets follow each other, together with the first ticket."""
    runs: list[tuple[int, list[Event]]] = []
    for ticket, event in events:
        if runs and runs[-1][0] + len(runs[-1][1]) == ticket:
            runs[-1][1].append(event)
        else:
            runs.append((ticket, [event]))
    return runs
