"""The event pipeline: applies predicates, calls the handler, and retries failed events."""

from __future__ import annotations

import collections
import logging
import random
import threading
from collections.abc import Hashable, Iterable
from typing import Any, Generic, TypeVar, final

from appsdk_operator.cache import (
    DeliveryKey,
    Event,
    NotFollowedError,
    NotSyncedError,
    ResourceAction,
)
from appsdk_operator.controllers._handlers import HANDLERS_WITH_REASONS, EventQueue, check_handler
from appsdk_operator.controllers._predicates import Predicate, as_predicates
from appsdk_operator.controllers._protocols import EventFilter, Handler, RequestQueue
from appsdk_operator.resource import Kind
from appsdk_operator.runtime import (
    Backoff,
    Clock,
    FailureLog,
    Family,
    Sample,
    as_exception,
    get_logger,
    random_of,
    safe_repr,
    safe_text,
    settle,
)

__all__ = ["EventPipeline"]

_log = get_logger("appsdk_operator.controllers")

R = TypeVar("R", bound=Hashable)

_EVENTS = Family("source_events_total", "counter", "Events that came from a source.", ("source",))
_FILTERED = Family(
    "source_filtered_events_total",
    "counter",
    "Events that a predicate kept from the handler.",
    ("source",),
)
_PREDICATE_ERRORS = Family(
    "source_predicate_errors_total",
    "counter",
    "Calls of predicates that failed; the event passed.",
    ("source",),
)
_HANDLER_ERRORS = Family(
    "source_handler_errors_total",
    "counter",
    "Calls of handlers that failed; the event is tried again.",
    ("source",),
)
_RETRYING = Family(
    "source_retrying_events",
    "gauge",
    "Events that the handler failed for, and those that wait behind them.",
    ("source",),
)

_BACKOFF = Backoff(initial=0.1, maximum=60.0, jitter=0.1)
_BLOCKING_TRIES = 5
"""Tries after which later events of the object no longer wait: 3 seconds, by the backoff above."""
_TIME_TOLERANCE = 1e-6
"""Seconds that a retry may be early, because sums of floats are rounded."""
_MERGE_FROM = 16
"""The number of stored events of one object from which on further updates are merged."""


class _PendingEvent:
    """An event that the handler failed for, or that waits behind one."""

    __slots__ = ("due", "event", "failures")

    def __init__(self, event: Event, due: float) -> None:
        self.event = event
        self.failures = 0
        self.due = due

    @property
    def blocks_later_events(self) -> bool:
        return self.failures < _BLOCKING_TRIES


@final
class EventPipeline(Generic[R]):
    """Passes the events of one source through its predicates to its handler.

    Guarantees:
        * An event that passes the predicates is retried until the handler succeeds.
        * The events of one object are handled in order. After five failed tries an event no longer
          blocks later ones, but is still retried.
        * When 16 events of one object wait, further updates are merged into the last one, so the
          newest state is never lost. Creations and deletions are never merged.

    :meth:`handle` is called by one thread; everything else is thread-safe.
    """

    def __init__(
        self,
        name: str,
        handler: Handler[R],
        predicates: Iterable[EventFilter],
        *,
        kind: Kind | None,
        clock: Clock,
        rng: random.Random | None,
    ) -> None:
        check_handler(handler)
        self._name = name
        self._handler = handler
        self._handler_name = safe_text(handler)
        self._is_own_handler = isinstance(handler, HANDLERS_WITH_REASONS)
        self._predicates = as_predicates(predicates)
        self._kind = kind
        self._clock = clock
        self._failure_log = FailureLog(_log, clock)
        self._random = rng or random_of(clock)
        self._queue: RequestQueue[R] | None = None
        # Re-entrant: a signal handler may read the health in the thread that holds the lock.
        self._lock = threading.RLock()
        self._pending: dict[DeliveryKey, list[_PendingEvent]] = {}
        self._retrying = 0
        self._counts: collections.Counter[Family] = collections.Counter()
        self._newest_error = ""
        self.is_stopped = False
        """Whether failed events are dropped instead of retried; a plain flag."""

    def set_queue(self, queue: RequestQueue[R]) -> None:
        """Set the queue for requests; call it before the first :meth:`handle`."""
        self._queue = queue

    @property
    def retrying(self) -> int:
        """The number of events that the handler failed for, and of those that wait behind them."""
        return self._retrying

    def text(self) -> str:
        """``"ok"``, or what the handler fails for."""
        with self._lock:
            count, error = self._retrying, self._newest_error
        if not count:
            return "ok"
        return (
            f"its handler {self._handler_name} fails, {count} events are tried again; "
            f"newest: {error}"
        )

    def samples(self) -> list[Sample]:
        """Its metrics."""
        labels = (self._name,)
        families = (_EVENTS, _FILTERED, _PREDICATE_ERRORS, _HANDLER_ERRORS)
        with self._lock:
            return [
                *(Sample(family, labels, self._counts[family]) for family in families),
                Sample(_RETRYING, labels, self._retrying),
            ]

    def handle(self, key: DeliveryKey, event: Event | None) -> float | None:
        """Handle ``event``, or with None the due retries; see
        :class:`~appsdk_operator.cache.Handle`."""
        if event is not None:
            self._count(_EVENTS)
            if self._kind is not None:
                event = event.viewed_as(self._kind)
            if not self._passes(event):
                self._count(_FILTERED)
            elif key in self._pending or not self._call(key, event, 0):
                self._schedule(key, event)
        return self._run_due(key) if key in self._pending else None

    def _passes(self, event: Event) -> bool:
        return all(self._passes_one(predicate, event) for predicate in self._predicates)

    def _passes_one(self, predicate: Predicate, event: Event) -> bool:
        try:
            return predicate(event)
        except BaseException as raised:
            error = as_exception(f"predicate {predicate}", raised)
            self._count(_PREDICATE_ERRORS)
            self._failure_log.failed(
                error,
                f"predicate of source {self._name}",
                "source %s: predicate %s failed for %r, which passes therefore: %s",
                self._name,
                predicate,
                event,
                safe_repr(error),
                extra=self._fields(event),
            )
            return True

    def _call(self, key: DeliveryKey, event: Event, failures: int) -> bool:
        """Call the handler; returns whether it succeeded."""
        queue = self._queue
        assert queue is not None, "a source begins before its first event"
        if not self._is_own_handler:
            queue = EventQueue(queue, event, None)
        try:
            settle(self._handler.handle(event, queue))
        except NotFollowedError as error:
            if error.namespace and error.namespace == event.object.namespace:
                # The namespace is no longer followed; if it is again, new events come.
                _log.debug("source %s: %r concerns nobody: %s", self._name, event, safe_repr(error))
                return True
            self._failed(key, event, failures, error)
            return False
        except BaseException as raised:
            self._failed(
                key, event, failures, as_exception(f"handler {self._handler_name}", raised)
            )
            return False
        return True

    def _failed(self, key: DeliveryKey, event: Event, failures: int, error: Exception) -> None:
        if self.is_stopped:
            # As when an async handler is cancelled.
            _log.debug("source %s: %r was not handled: %s", self._name, event, safe_repr(error))
            return
        self._count(_HANDLER_ERRORS)
        with self._lock:
            # As text: an exception holds the frames of the failed call and all that is in them.
            self._newest_error = f"{key}: {type(error).__name__}: {safe_text(error)}"[:300]
        hint = (
            "; later events of the object go first from now on"
            if failures + 1 == _BLOCKING_TRIES
            else ""
        )
        is_early = isinstance(error, NotSyncedError)
        self._failure_log.failed(
            error,
            f"handler of source {self._name}",
            "source %s: handler %s failed for %r, and will be called again%s: %s",
            self._name,
            self._handler_name,
            event,
            hint,
            safe_repr(error),
            level=logging.INFO if is_early else logging.ERROR,
            with_traceback=not is_early,
            extra={**self._fields(event), "attempt": failures},
        )

    def _schedule(self, key: DeliveryKey, event: Event) -> None:
        now = self._clock.monotonic()
        with self._lock:
            pending = self._pending.setdefault(key, [])
            if (
                len(pending) >= _MERGE_FROM
                and (both := _merged(pending[-1].event, event)) is not None
            ):
                # Without failures, so that the newest state is tried at once.
                pending[-1] = _PendingEvent(both, now)
                return
            newest = _PendingEvent(event, now)
            if not pending:
                # It was tried just now.
                self._postpone(newest)
            pending.append(newest)
            self._retrying += 1

    def _postpone(self, pending: _PendingEvent) -> None:
        pending.due = self._clock.monotonic() + _BACKOFF.delay(pending.failures, self._random)
        pending.failures += 1

    def _run_due(self, key: DeliveryKey) -> float | None:
        """Retry due events in order; returns the seconds until the next one is due."""
        dues = []
        for pending in list(self._pending[key]):
            if pending.due <= self._clock.monotonic() + _TIME_TOLERANCE:
                if self._call(key, pending.event, pending.failures):
                    self._complete(key, pending)
                    continue
                with self._lock:
                    self._postpone(pending)
            dues.append(pending.due)
            if pending.blocks_later_events:
                break
        return max(0.0, min(dues) - self._clock.monotonic()) if dues else None

    def _complete(self, key: DeliveryKey, pending: _PendingEvent) -> None:
        with self._lock:
            self._retrying -= 1
            left = [other for other in self._pending[key] if other is not pending]
            if left:
                self._pending[key] = left
            else:
                del self._pending[key]

    def _count(self, family: Family) -> int:
        with self._lock:
            self._counts[family] += 1
            return self._counts[family]

    def _fields(self, event: Event) -> dict[str, Any]:
        obj = event.object
        return {
            "source": self._name,
            "kind": str(obj.kind),
            "namespace": obj.namespace,
            "object": obj.name,
            "action": event.action.value,
        }


_UPDATES = (ResourceAction.UPDATE, ResourceAction.RESYNC)


def _merged(before: Event, event: Event) -> Event | None:
    """Two consecutive events merged; None when one of them is a creation or a deletion."""
    if before.action is event.action and event.action in (
        ResourceAction.GENERIC,
        ResourceAction.RESYNC,
    ):
        return event
    if before.action in _UPDATES and event.action in _UPDATES:
        return Event(ResourceAction.UPDATE, event.object, before.old or before.object)
    return None
