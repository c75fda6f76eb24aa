"""Delivery of events from informers to one handler function: queues, workers, merging, resyncs.

An informer puts events into an :class:`EventSource`; the workers of its :class:`Delivery` take them
out and call the handler. Events of one object stay in order; those of different objects run side by
side when there are several workers. ``docs/internals/delivery.md`` draws the whole path.
"""

from __future__ import annotations

import contextlib
import enum
import operator
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol, final

import msgspec

from appsdk_operator.cache._delivery.batches import Batch, BatchQueue
from appsdk_operator.cache._delivery.coalescing import CoalescingBuffer, OrderedCall
from appsdk_operator.cache._events import Event, ResourceAction
from appsdk_operator.resource import Kind, Object
from appsdk_operator.runtime import (
    Clock,
    Family,
    Metrics,
    Places,
    Sample,
    SpareWorkers,
    StopSignal,
    ThreadGroup,
    Waiters,
    WorkQueue,
    fork_safe,
    get_logger,
    present_clock,
    random_of,
)
from appsdk_operator.runtime.validation import (
    check_count,
    check_environment,
    check_flag,
    check_function,
    check_text,
)

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
_is_initial = operator.attrgetter("is_initial")
_EXACT_BOUND = 1000
"""Smaller bounds than this are enforced event by event, so the batch queue is not used."""
_LINE = "line"
_RESYNC_KEY = "resync "
_MAX_BATCH_TIME = 0.01
"""Seconds after which the worker interrupts the batch queue, so that metrics stay current."""
_CREATE, _RESYNC = ResourceAction.CREATE, ResourceAction.RESYNC
_ACTIONS = tuple(action for action in ResourceAction if action is not ResourceAction.GENERIC)


class Overflow(enum.Enum):
    """The treatment of new events when too many wait for a slow handler."""

    COALESCE = "coalesce"
    """Merge them, object by object, into the newest state. The informer does not wait.

    The handler misses intermediate states of an object, and objects that came and went
    meanwhile."""
    BLOCK = "block"
    """Make the informer wait. The handler sees every event.

    The local copy falls behind the server, and the server may end a watch that is read too
    slowly."""


def check_overflow(overflow: object) -> None:
    """Refuse anything but an :class:`Overflow`, for example its value."""
    if not isinstance(overflow, Overflow):
        raise TypeError(f"overflow={overflow!r}: use Overflow.COALESCE or Overflow.BLOCK")


class DeliveryKey(NamedTuple):
    """One object of one source: the unit that is never handled twice at once."""

    source: EventSource
    namespace: str
    name: str

    def __str__(self) -> str:
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.source.kind} {name}"


class _Waiting(msgspec.Struct, frozen=True):
    """A key that a worker took while another source's event of its object was handled."""

    key: DeliveryKey
    ticket: int


class _InHand:
    """The events of the batch queue that a worker handles now."""

    __slots__ = ("before", "closed", "is_seized", "is_shared")

    def __init__(self, before: int, *, is_shared: bool) -> None:
        self.before = before
        """How many events were taken before these."""
        self.is_shared = is_shared
        """Whether the batches are shared; if not, they end with the present event once workers may
        be replaced."""
        self.is_seized = False
        """Whether those that were not begun were taken away from it."""
        self.closed: DeliveryKey | None = None
        """The object of the one that it handles to its end."""


class Handle(Protocol):
    """The function that a :class:`Delivery` calls; it must not raise."""

    def __call__(self, key: DeliveryKey, event: Event | None) -> float | None:
        """Handle ``event``; None means that the time which an earlier call returned has passed.

        Returns:
            Seconds after which to call again with None unless an event comes first; None: call
            again with the next event only.
        """
        ...


@final
class EventSource:
    """The handler through which one informer puts events into a :class:`Delivery`.

    Add it to the informer with ``add_event_handler``.

    It is a :class:`BatchHandler` for this package's informers and an :class:`EventHandler` for any
    other. Thread-safe.
    """

    def __init__(self, delivery: Delivery, kind: str, counts: dict[ResourceAction, int]) -> None:
        self.kind = kind
        """The kind's name, which labels the event metrics and finds the handlers."""
        self._delivery = delivery
        self.counts = counts
        """Events received, by action; the sources of a kind share one count."""
        self.initial_left = 0
        """How many initial events are not handled yet."""
        self.is_initial_ended = False
        """Whether the informer has put its last initial event."""
        self.is_removed = False
        self.view: Kind | None = None
        """The kind, with its types, that handlers of this source see objects as; None: the
        informer's. Set where several users with different types share an informer."""

    @property
    def has_synced(self) -> bool:
        """Whether the handler has handled every initial event."""
        return self.is_initial_ended and not self.initial_left

    def key_of(self, obj: Object) -> DeliveryKey:
        """The queue key of an object of this source."""
        return DeliveryKey(self, obj.namespace, obj.name)

    def wait_for_sync(self, stop: StopSignal, timeout: float | None = None) -> bool:
        """Wait for :attr:`has_synced`; False when stopped, removed, or after ``timeout`` s."""
        return self._delivery.wait_for_sync(stop, timeout, source=self)

    def on_events(self, events: Sequence[Event]) -> None:
        """Queue events, in order."""
        self._delivery.put(self, events)

    def call_in_order(
        self, keys: Iterable[DeliveryKey], call: Callable[[DeliveryKey], float | None]
    ) -> Collection[DeliveryKey]:
        """As :meth:`Delivery.call_in_order`."""
        return self._delivery.call_in_order(self, keys, call)

    def on_initial_list_end(self) -> None:
        """Record that the last initial event is in the queue."""
        self._delivery.end_initial_list(self)

    def wait_for_space(self, stop: StopSignal | None = None) -> None:
        """With :attr:`Overflow.BLOCK`, wait until fewer than ``max_pending`` events are pending.

        A set ``stop`` and the source's removal end the wait.
        """
        self._delivery.wait_for_space(self, stop)

    def resync_every(self, seconds: float, replay: Callable[[], None]) -> Callable[[], None]:
        """Call ``replay`` in a worker every ``seconds``, plus or minus a tenth.

        Returns:
            A function that ends the calls.
        """
        return self._delivery.resync_every(self, seconds, replay)

    def on_add(self, obj: Object, *, is_initial: bool = False) -> None:
        """As :meth:`EventHandler.on_add`; before the end of the initial list it is initial."""
        self.wait_for_space()
        self._put(Event(ResourceAction.CREATE, obj, None, is_initial or not self.is_initial_ended))

    def on_update(self, old: Object | None, new: Object) -> None:
        """As :meth:`EventHandler.on_update`; informers of other packages may not know ``old``."""
        self.wait_for_space()
        if old is None:
            self._put(Event(ResourceAction.UPDATE, new))
            return
        # Other libraries' informers resync with a new Python object, and report an object that was
        # deleted and recreated under the same name as an update.
        if old.uid != new.uid and old.uid and new.uid:
            self._put(Event(ResourceAction.DELETE, old, None, False, True))
            self._put(Event(ResourceAction.CREATE, new))
        elif old is new or (new.resource_version and old.resource_version == new.resource_version):
            self._put(Event(ResourceAction.RESYNC, new))
        else:
            self._put(Event(ResourceAction.UPDATE, new, old))

    def on_delete(self, obj: Object, *, is_final_state_unknown: bool = False) -> None:
        """As :meth:`EventHandler.on_delete`."""
        self.wait_for_space()
        self._put(Event(ResourceAction.DELETE, obj, None, False, is_final_state_unknown))

    def _put(self, event: Event) -> None:
        self._delivery.put(self, (event,), by_object=True)


@final
class Delivery:
    """Queues and worker threads that deliver events to one handler function.

    Guarantees:
        * The events of one object are handled in order, never two at once, even if several sources
          of its kind deliver them.
        * With one worker all events are handled in order of arrival.
        * The number of pending events is bounded, as :class:`Overflow` says.

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
        is_known: Callable[[DeliveryKey, Event], bool] = lambda *_: False,
        merges_resyncs: bool = True,
        on_failure: Callable[[Exception], None] | None = None,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """A delivery whose workers do not run yet.

        Args:
            name: the name in threads and metrics.
            handle: called with each event.
            workers: the number of threads; default 1.
            max_pending: the pending events above which ``overflow`` applies; default 10,000.
            overflow: how it treats further events; default: coalesce.
            worker_context: a context that each worker enters for its whole life.
            handle_event: a faster form of ``handle`` that computes the key only when it needs it;
                called for events that come from the batch queue.
            is_known: whether a waiting event must not be merged with a later one: a creation whose
                object the handler knows already, or an update that the handler must see before the
                deletion. Called with a lock held.
            merges_resyncs: whether a resync is dropped while another event of its object is
                pending; default True, because an informer's pending event is as new.
            on_failure: called with an error that ``handle`` raises against its contract, and with
                any other error that ends a worker. The worker then ends. Default: log the error,
                and let the worker continue with the next event.
            clock: the clock of all waits; default: the environment's.
            metrics: the metrics that it writes to; default: none.
            rng: the source of jitter, for repeatable tests.
        """
        check_text("name", name, empty=False)
        check_function("handle", handle, required=True)
        check_function("worker_context", worker_context, required=True)
        check_function("handle_event", handle_event)
        check_function("is_known", is_known, required=True)
        check_function("on_failure", on_failure)
        check_flag("merges_resyncs", merges_resyncs)
        check_count("workers", workers)
        if workers < 1:
            raise ValueError(f"workers={workers}: use at least 1")
        check_count("max_pending", max_pending, 1)
        check_overflow(overflow)
        check_environment(clock=clock, metrics=metrics, rng=rng)
        self._name = name
        self._handle = handle
        self._handle_event = handle_event or self._handle_by_key
        self._workers = workers
        self._max_pending = max_pending
        self._overflow = overflow
        self._merges_resyncs = merges_resyncs
        self._worker_context = worker_context
        self._clock = clock = present_clock(clock)
        self._on_failure = on_failure
        self._threads = ThreadGroup(name, on_failure=on_failure)
        # Before the work queue, whose metrics count its events from the start.
        self._line: BatchQueue[EventSource] = BatchQueue()
        # Re-entrant: a signal handler may stop us in the very thread that puts events.
        self._lock = fork_safe(threading.RLock())
        self._queue: WorkQueue[DeliveryKey] = WorkQueue(
            name,
            clock=clock,
            others=lambda: max(0, self._line.count - 1),
            oldest_other=self._oldest_in_line,
        )
        self._synced = Waiters(clock)
        self._room = Waiters(clock)
        bound = max_pending if overflow is Overflow.COALESCE else sys.maxsize
        self._pending: CoalescingBuffer[DeliveryKey] = CoalescingBuffer(
            bound,
            on_dropped=self._on_dropped,
            is_known=is_known,
            merges_resyncs=merges_resyncs,
        )
        # A single worker takes events in order of arrival, so up to this many of them wait in the
        # batch queue, where they need no queue entry per object.
        self._usual_line_bound = bound // 2 if workers == 1 and bound >= _EXACT_BOUND else 0
        self._line_bound = self._usual_line_bound
        self._line_key = DeliveryKey(EventSource(self, "", {}), "", _LINE)
        self._is_line_queued = False
        # Whether workers may be replaced: then they share what they have in hand.
        self._is_replaceable = False
        self._in_hand: _InHand | None = None
        # The workers that were replaced or lent in their present piece of work.
        self._away: set[int] = set()
        self._sources: list[EventSource] = []
        # The queue locks a key, and an object has one for each source. By kind, namespace and name.
        self._handled_now: dict[tuple[str, str, str], tuple[_Waiting, ...]] = {}
        # By kind, because a counter must not go down when a source is removed.
        self._counts: dict[str, dict[ResourceAction, int]] = {}
        self._resyncs: dict[DeliveryKey, tuple[float, Callable[[], None]]] = {}
        self._random = rng or random_of(clock)
        self._resync_number = 0
        self._is_stopped = False
        self._spares = SpareWorkers(name, self._start_worker)
        self._retire: Callable[[], None] = lambda: None
        if metrics is not None:
            self.publish(metrics)

    def publish(self, metrics: Metrics) -> None:
        """Write to ``metrics`` from now on."""
        self._queue.publish(metrics)
        self._retire = metrics.add_source(self._samples)

    def source(self, kind: str) -> EventSource:
        """A new source for one informer, whose events are counted under ``kind``."""
        with self._lock:
            counts = self._counts.setdefault(kind, dict.fromkeys(ResourceAction, 0))
            source = EventSource(self, kind, counts)
            self._sources.append(source)
        return source

    def remove(self, source: EventSource) -> None:
        """Remove a source and its pending events; a call in progress continues."""
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
        """Queue events; never blocks.

        ``by_object`` skips the batch queue, which is cheaper for events that come one at a time.
        """
        events = tuple(events)  # ours from now on: the caller may use its list again
        actions = [event.action for event in events]
        # Nearly always all are of one action, which is cheaper to find than to count each.
        is_uniform = bool(actions) and actions.count(actions[0]) == len(actions)
        counts: dict[ResourceAction, int] = (
            {actions[0]: len(actions)} if is_uniform else Counter(actions)
        )
        # One block: no worker may look at what waits in one place and not yet in the other.
        with self._lock:
            if self._is_stopped or source.is_removed:
                return
            tickets = self._queue.tickets(len(events))
            for action, count in counts.items():
                source.counts[action] += count
            if _CREATE in counts:
                source.initial_left += sum([event.is_initial for event in events])
            has_room = self._line.count + len(events) <= self._line_bound
            may_merge = _RESYNC in counts and self._merges_resyncs
            if has_room and not by_object and not may_merge:
                ready = self._put_in_line(source, events, tickets)
            else:
                ready = self._put_by_object(source, zip(tickets, events, strict=True))
            if ready:
                self._queue.add_all([key for key, _ in ready], tickets=[t for _, t in ready])

    def call_in_order(
        self,
        source: EventSource,
        keys: Iterable[DeliveryKey],
        call: Callable[[DeliveryKey], float | None],
    ) -> Collection[DeliveryKey]:
        """Call ``call`` once for each object: after its events so far, before all later ones.

        Args:
            source: whose objects.
            keys: the objects. Those whose events wait, or are handled now, get a call in any case.
            call: called as the handler is, in a worker.

        Returns:
            The keys of all objects; none after the stop or the removal of ``source``.
        """
        with self._lock:
            if self._is_stopped or source.is_removed:
                return ()
            found = dict.fromkeys((*keys, *self._unfinished(source)))
            queued, put = OrderedCall(call), self._pending.put_call
            tickets = dict(zip(found, self._queue.tickets(len(found)), strict=True))
            ready = [key for key, ticket in tickets.items() if put(key, ticket, queued)]
            self._queue.add_all(ready, tickets=[tickets[key] for key in ready])
        return found

    def _unfinished(self, source: EventSource) -> Iterable[DeliveryKey]:
        """With the lock held: objects with events that wait or are handled, and maybe others."""
        yield from (key for key in self._pending.pending_keys() if key.source is source)
        for namespace, name in self._line.unfinished_objects_of(source):
            yield DeliveryKey(source, namespace, name)
        for kind, namespace, name in self._handled_now:
            if kind == source.kind:
                yield DeliveryKey(source, namespace, name)

    def _oldest_in_line(self) -> float | None:
        with self._lock:
            return self._line.oldest

    def _put_in_line(
        self, source: EventSource, events: Sequence[Event], tickets: range
    ) -> list[tuple[DeliveryKey, int]]:
        """Append events to the batch queue; returns the keys that became ready.

        Events of objects that are in the work queue by themselves join those instead.
        """
        keys = (source.key_of(event.object) for event in events)
        # Where resyncs are many, the keys of a few events are found faster than all of theirs.
        resyncs = self._resyncs if len(self._resyncs) <= 8 * len(events) else ()
        held = self._queue.holds_others((self._line_key, *resyncs), keys)
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
        """Add events to the pending events of their objects; returns the keys that became ready."""
        ready: list[tuple[DeliveryKey, int]] = []
        in_line: set[tuple[str, str]] | None = None
        put = self._pending.put
        # Once for all: under the lock it can only fall.
        elsewhere = self._line.count
        for ticket, event in events:
            obj = event.object
            if event.action is _RESYNC and self._merges_resyncs:
                if in_line is None:
                    in_line = self._line.objects_of(source)
                if (obj.namespace, obj.name) in in_line:
                    continue  # what waits is as new
            key = DeliveryKey(source, obj.namespace, obj.name)  # as key_of makes it, without a call
            if put(key, ticket, event, elsewhere=elsewhere):
                ready.append((key, ticket))
        return ready

    def wait_for_space(
        self, source: EventSource | None = None, stop: StopSignal | None = None
    ) -> None:
        """With :attr:`Overflow.BLOCK`, wait until fewer than ``max_pending`` events are pending.

        An informer waits here, without a lock, before it puts the events of one read; so one read
        may exceed the bound. The wait ends early when this delivery is stopped, the ``source`` is
        removed, or ``stop`` is set.
        """
        if self._overflow is Overflow.BLOCK:
            self._room.wait(lambda: self._has_room or self._has_ended(source), stop)

    @property
    def _has_room(self) -> bool:
        # Not for calls: each may wait for what the informer brings.
        return self.pending - self._pending.calls < self._max_pending

    def resync_every(
        self, source: EventSource, seconds: float, replay: Callable[[], None]
    ) -> Callable[[], None]:
        """Call ``replay`` in a worker every ``seconds``, plus or minus a tenth.

        Returns:
            A function that ends the calls; removing the source ends them too.
        """
        with self._lock:
            self._resync_number += 1
            # A key that no object has: no namespace has a space in its name. Numbered, because
            # several informers may share a source.
            key = DeliveryKey(source, f"{_RESYNC_KEY}{self._resync_number}", "")
            self._resyncs[key] = (seconds, replay)
        self._queue.add(key, after=self._jittered(seconds))
        return lambda: self._end_resync(key)

    def end_initial_list(self, source: EventSource) -> None:
        """Record that ``source`` has put its last initial event."""
        source.is_initial_ended = True
        self._synced.wake()

    def wake(self, key: DeliveryKey) -> None:
        """Call the handler for ``key`` now, instead of when its delay has passed."""
        self._queue.add(key)

    def start(self) -> None:
        """Start the first worker; each starts the next one when all that there are have work."""
        self._spares.open(self._workers - 1)
        self._start_worker(0)

    def _start_worker(self, number: int) -> None:
        self._threads.start(f"worker-{number}", self._work)

    def allow_replacement(self) -> None:
        """Enable :meth:`replace`, for handlers with time limits: before the first such call."""
        self._is_replaceable = True

    def allow_lending(self, places: Places) -> None:
        """Before the start: let workers be lent while they wait for a coroutine; see :meth:`lend`.

        No more calls than there are workers do something at once. ``places`` bounds those that
        wait beyond that.
        """
        self._is_replaceable = True
        self._spares.allow_lending(self._workers, places)

    def lend(self) -> Callable[[], None] | None:
        """The calling worker waits for a coroutine from now on; others do its work meanwhile.

        The object of its call stays closed, and the batch queue stays empty until its call ends.

        Returns:
            What waits for its turn again, to be called once the coroutine has ended; None if the
            worker is held meanwhile.
        """
        is_away = self._go_away(threading.get_ident())
        if self._spares.lend():
            if not self._queue.has_sleepers:
                self._spares.fill()
            return self._spares.take_back
        if is_away:
            self._come_back(threading.get_ident())
        return None

    def is_lent(self, thread: int) -> bool:
        """Whether the worker waits for a coroutine, and others do its work meanwhile."""
        return self._spares.is_lent(thread)

    def replace(self, thread: int) -> bool:
        """Start a worker in place of ``thread``, which ends after its current call.

        Until then no event of the call's object is handled, and the batch queue stays empty.

        Returns:
            Whether a worker was started; False for a thread that was replaced before, and after
            the stop.
        """
        is_away = self._go_away(thread)
        if self._spares.replace(thread):
            return True
        if is_away:
            self._come_back(thread)
        return False

    def start_missing(self) -> None:
        """Start a worker if one is missing that has work; for one that could not be started."""
        self._spares.start_missing(self._queue)

    def _go_away(self, thread: int) -> bool:
        """Another worker may begin what ``thread`` would do next; False if that is so already."""
        with self._lock:
            if self._is_stopped or thread in self._away:
                return False
            self._away.add(thread)
            self._empty_line()
        if self._room.waiting:  # events of a removed source are gone now
            self._room.wake()
        return True

    def _come_back(self, thread: int) -> None:
        """The piece of work has ended in which ``thread`` has gone away, if it has."""
        with self._lock:
            if thread in self._away:
                self._away.discard(thread)
                if not self._away:
                    self._line_bound = self._usual_line_bound

    def _empty_line(self) -> None:
        """Move what waits in the batch queue to the objects' own keys.

        There it waits while its object is handled; the batch queue knows of one worker only.
        """
        self._line_bound = 0
        in_hand, before = self._in_hand, None
        if in_hand is not None and not in_hand.is_seized:
            in_hand.is_seized, before = True, in_hand.before
        current, rest = self._line.take_rest(before)
        if current is not None:
            assert in_hand is not None
            source, event = current
            in_hand.closed = key = source.key_of(event.object)
            self._handled_now[_id_of(key)] = ()
        moved: dict[DeliveryKey, list[tuple[int, Event]]] = {}
        for batch in rest:
            if batch.source.is_removed:
                batch.source.initial_left -= sum(map(_is_initial, batch.events))
                continue
            for ticket, event in enumerate(batch.events, batch.ticket):
                moved.setdefault(batch.source.key_of(event.object), []).append((ticket, event))
        for key, events in moved.items():
            # What waits there already came after these.
            self._pending.put_first(key, events)
        self._queue.add_all(moved, tickets=[events[0][0] for events in moved.values()])

    def stop(self) -> None:
        """Drop pending events and end the workers after their current call; twice is harmless."""
        with self._lock:
            self._is_stopped = True
            self._spares.close()
            self._line.clear()
            self._pending.clear()
            self._resyncs.clear()
        self._notify()
        self._queue.shut_down()
        self._retire()

    def hold(self) -> None:
        """Begin no call until :meth:`let_go`; events are queued as before."""
        self._queue.hold()

    def let_go(self) -> None:
        """Begin calls again, after :meth:`hold`."""
        self._queue.let_go()

    def join(self, timeout: float | None = None) -> list[str]:
        """Wait for the workers to end; returns the names of workers that still run."""
        return self._threads.join(timeout)

    def step(self) -> bool:
        """Handle one event in the calling thread, for tests; False when there is nothing to do."""
        item = self._queue.try_get()
        if item is None:
            return False
        with self._worker_context():
            handled = self._process(item.key, item.ticket, limit=1)
        if handled is not None:
            self._queue.done(handled)
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
        """The number of pending events."""
        return self._pending.count + self._line.count

    @property
    def oldest_wait(self) -> float | None:
        """Seconds since the oldest pending event came; None if no event is pending."""
        return self._queue.oldest_wait

    @property
    def merged(self) -> int:
        """The number of events that were merged into others, because too many were pending."""
        return self._pending.merged_count

    def next_due(self) -> float | None:
        """The monotonic time of the next call with None, for tests that advance a clock."""
        return self._queue.next_due

    def _work(self) -> None:
        with self._worker_context():
            lends = self._spares.lends
            item = self._queue.get()
            while item is not None:
                handled: DeliveryKey | None = None
                if self._spares.have_replaced_me():  # after its last piece of work
                    self._come_back(threading.get_ident())
                    self._put_back(item.key, item.ticket)
                    return
                if self._spares.missing and not self._queue.has_sleepers:
                    self._spares.fill()
                if lends:
                    self._spares.begin()
                    if self._queue.is_held:  # since it has the key
                        self._put_back(item.key, item.ticket)
                        if self._spares.end() and not self._spares.rest():
                            return
                        item = self._queue.get()
                        continue
                try:
                    handled = self._process(item.key, item.ticket)
                except BaseException:
                    if self._on_failure is not None:
                        raise
                    # SystemExit, for example: it must not silently end the worker.
                    _log.exception(
                        "%s: an error of the kit, not of your functions, while it handled %s. "
                        "Please report it with this traceback",
                        self._name,
                        item.key,
                    )
                if self._away:
                    self._come_back(threading.get_ident())
                is_replaced = self._spares.have_replaced_me()
                if is_replaced or (lends and self._spares.end()):
                    if handled is not None:
                        self._queue.done(handled)
                        handled = None
                    if is_replaced or not self._spares.rest():
                        return
                queue = self._queue
                item = queue.get() if handled is None else queue.done_and_get(handled)

    def _put_back(self, key: DeliveryKey, ticket: int) -> None:
        self._queue.add(key, ticket=ticket)
        self._queue.done(key, pieces=0)

    def _process(
        self, key: DeliveryKey, ticket: int, *, limit: int | None = None
    ) -> DeliveryKey | None:
        """Process one key of the work queue: the batch queue, a resync, or an object's event.

        Returns:
            The key, if the caller is to give it back to the work queue.
        """
        if key is self._line_key:
            self._process_batches(limit)
            return None
        if not key.name and key.namespace.startswith(_RESYNC_KEY):
            self._resync(key)
            return None
        found = _id_of(key)
        with self._lock:
            waiting = self._handled_now.get(found)
            if waiting is not None:
                # The key stays locked, and this worker, which may be the only one, is free: the
                # call may take long.
                self._handled_now[found] = (*waiting, _Waiting(key, ticket))
                return None
            self._handled_now[found] = ()
            # Not an event with a later ticket: a delay that has passed brought the key up early.
            event = self._pending.take(key, ticket)
        if self._room.waiting:
            self._room.wake()
        is_initial = event is not None and event.is_initial
        delay: float | None = None
        has_returned = False
        try:
            if is_initial and isinstance(event, OrderedCall):
                is_initial = False
                delay = event.make(key)
            else:
                delay = self._handle(key, event)  # type: ignore[arg-type]  # no call: see is_initial
            has_returned = True
        finally:
            waiting = self._open(key, found, delay, initial=is_initial)
            if waiting or not has_returned:
                self._queue.done(key)
                self._let_go_of(waiting)
        return None if waiting else key

    def _open(
        self,
        key: DeliveryKey,
        found: tuple[str, str, str],
        delay: float | None = None,
        *,
        initial: bool = False,
    ) -> tuple[_Waiting, ...]:
        """The object of ``key`` is handled no more; returns its keys that have waited for that.

        Args:
            key: the key.
            found: kind, namespace and name of the object.
            delay: seconds after which the handler is called again.
            initial: whether the event was an initial one.
        """
        with self._lock:
            following = self._pending.next_ticket(key)
            waiting = self._handled_now.pop(found)
            if initial:
                key.source.initial_left -= 1
        if initial and self._synced.waiting and not key.source.initial_left:
            self._synced.wake()
        if following is not None:
            self._queue.add(key, ticket=following)
        elif delay is not None:
            self._queue.add(key, after=delay)
        return waiting

    def _let_go_of(self, waiting: Iterable[_Waiting]) -> None:
        for each in waiting:
            self._put_back(each.key, each.ticket)

    def _process_batches(self, limit: int | None) -> None:
        """Handle events of the batch queue, up to the ticket of the next key in the work queue."""
        with self._lock:
            began = self._clock.monotonic()
            runs = self._line.take(self._queue.next_ticket(), limit)
            in_hand = _InHand(self._line.taken, is_shared=self._is_replaceable)
            if in_hand.is_shared:
                for run in runs:
                    run.share()
            self._in_hand = in_hand
        until = began + _MAX_BATCH_TIME
        try:
            for run in runs:
                if self._is_stopped or not self._handle_run(
                    run, until, is_shared=in_hand.is_shared
                ):
                    break
        finally:
            pieces = sum(run.handled for run in runs)
            waited = sum((began - run.arrived) * run.handled for run in runs) / (pieces or 1)
            with self._lock:
                self._in_hand = None
                closed = in_hand.closed
                if self._is_stopped:
                    self._line.clear()
                elif not in_hand.is_seized:
                    self._line.put_back(runs)
                following = self._line.next_ticket
                self._is_line_queued = following is not None
            if following is not None:
                self._queue.add(self._line_key, ticket=following)
            waiting = self._open(closed, _id_of(closed)) if closed is not None else ()
            self._queue.done(self._line_key, pieces=pieces, waited=waited)
            self._let_go_of(waiting)

    def _handle_run(self, run: Batch[EventSource], until: float, *, is_shared: bool) -> bool:
        """Handle the events of a batch; returns False when interrupted.

        The time ``until`` interrupts it, and so do a stop, :meth:`hold`, :meth:`replace` and
        :meth:`allow_replacement`.
        """
        line, source, handle = self._line, run.source, self._handle_event
        monotonic, blocked = self._clock.monotonic, self._room.waiting
        queue = self._queue
        before = taken = line.taken
        initial = 0
        try:
            for event in run.begun() if is_shared else run.events:
                is_initial = event.is_initial
                if initial and not is_initial:
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
                    if is_initial:
                        initial += 1
                    if delay is not None:
                        self._queue.add(source.key_of(event.object), after=delay)
                if (
                    self._is_stopped
                    or queue.is_held
                    or self._is_replaceable is not is_shared
                    or monotonic() >= until
                ):
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
                "%s: a resync of %s failed; the next one comes as usual",
                self._name,
                key.source.kind,
            )
        finally:
            if resync is not None and key in self._resyncs:
                self._queue.add(key, after=self._jittered(resync[0]))
            self._queue.done(key)

    def _end_resync(self, key: DeliveryKey) -> None:
        with self._lock:
            self._resyncs.pop(key, None)

    def _jittered(self, seconds: float) -> float:
        # Informers that were started together should not all resync in the same second.
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
                    # Without GENERIC, which comes from no informer.
                    for action in _ACTIONS
                ),
                Sample(_PENDING, (self._name,), self.pending),
                Sample(_MERGED, (self._name,), self._pending.merged_count),
            ]


def _id_of(key: DeliveryKey) -> tuple[str, str, str]:
    """What names an object, whichever source delivers it."""
    return key.source.kind, key.namespace, key.name


def _runs(events: Iterable[tuple[int, Event]]) -> list[tuple[int, list[Event]]]:
    """Groups events with consecutive tickets; each group comes with its first ticket."""
    runs: list[tuple[int, list[Event]]] = []
    for ticket, event in events:
        if runs and runs[-1][0] + len(runs[-1][1]) == ticket:
            runs[-1][1].append(event)
        else:
            runs.append((ticket, [event]))
    return runs
