"""The event pipeline: a source's thread, its predicates, its handler, and its retries."""

from __future__ import annotations

import collections
import contextlib
import contextvars
import logging
import random
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

from appsdk_operator.cache import (
    Delivery,
    DeliveryKey,
    Event,
    EventSource,
    NotFollowedError,
    NotSyncedError,
    Overflow,
    ResourceAction,
)
from appsdk_operator.controllers._handlers import HANDLERS_WITH_REASONS, EventQueue, check_handler
from appsdk_operator.controllers._protocols import Handler, RequestQueue
from appsdk_operator.controllers._sources.claim import Claim
from appsdk_operator.resource import Kind
from appsdk_operator.runtime import (
    Backoff,
    Clock,
    FailureLog,
    Family,
    LoopThread,
    Metrics,
    Sample,
    StopSignal,
    as_exception,
    counted,
    entered_metrics,
    get_logger,
    present_clock,
    present_metrics,
    random_of,
    safe_repr,
    safe_text,
    settle,
)
from appsdk_operator.runtime.validation import check_count, check_environment, check_text

if TYPE_CHECKING:
    from appsdk_operator.controllers._predicates import EventFilter, Predicate

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
    "Events that the handler failed for.",
    ("source",),
)
_PENDING = Family(
    "source_pending_events", "gauge", "Events that wait for a source's handler.", ("source",)
)

_BACKOFF = Backoff(initial=0.1, maximum=60.0, jitter=0.1)
_TIME_TOLERANCE = 1e-6
"""Seconds that a retry may be early, because sums of floats are rounded."""
_MERGE_FROM = 16
"""The number of stored events of one object from which on further updates are merged."""


_CANCEL_TIMEOUT = 2.0

# The pipeline whose handler runs. A context variable and not a thread local: coroutines, their
# tasks and the threads that they use belong to the handler too.
_current: contextvars.ContextVar[object] = contextvars.ContextVar(
    "appsdk_operator.source", default=None
)


class _FailedEvent:
    """An event that the handler failed for."""

    __slots__ = ("due", "event", "failures")

    def __init__(self, event: Event, due: float) -> None:
        self.event = event
        self.failures = 1
        self.due = due


@final
class EventPipeline(Generic[R]):
    """A thread that passes the events of one source through its predicates to its handler.

    Guarantees:
        * The events of one object are handled in order. One that the handler fails for is tried
          again by itself, and does not keep later ones.
        * An event that passes the predicates is tried until the handler succeeds.
        * When 16 events of one object have failed, a further update is merged into the last one,
          so the newest state is never lost. Creations and deletions are never merged.

    Thread-safe.
    """

    def __init__(
        self,
        name: str,
        handler: Handler[R],
        predicates: Iterable[EventFilter],
        *,
        kind: Kind | None = None,
        max_pending: int = 10_000,
        merges_resyncs: bool = True,
        on_handled: Callable[[Event | None], None] = lambda _: None,
        clock: Clock | None,
        metrics: Metrics | None,
        rng: random.Random | None = None,
    ) -> None:
        check_text("name", name, empty=False)
        check_count("max_pending", max_pending, 1)
        check_environment(clock=clock, metrics=metrics, rng=rng)
        check_handler(handler)
        self.name = name
        self._handler = handler
        self._handler_name = safe_text(handler)
        self._is_own_handler = isinstance(handler, HANDLERS_WITH_REASONS)
        self._predicates: tuple[Predicate, ...] = ()
        if not isinstance(predicates, tuple) or predicates:
            from appsdk_operator.controllers._predicates import as_predicates

            self._predicates = as_predicates(predicates)
        self._kind = kind
        self.clock: Clock = present_clock(clock)
        self._failure_log = FailureLog(_log, self.clock)
        self._random = rng or random_of(self.clock)
        self._on_handled = on_handled
        self._metrics = entered_metrics(metrics)
        self._queue: RequestQueue[R] | None = None
        # Re-entrant: a signal handler may read the health in the thread that holds the lock.
        self._lock = threading.RLock()
        self._failed: dict[DeliveryKey, list[_FailedEvent]] = {}
        self._retrying = 0
        self._counts: collections.Counter[Family] = collections.Counter()
        self._newest_error = ""
        self._loop = LoopThread(f"source/{name}")
        self._delivery = Delivery(
            f"source/{name}",
            self._handle,
            max_pending=max_pending,
            # Not COALESCE, because merged events lose intermediate states: if an object refers to
            # A, then B, then C, a map function that misses B cannot request what B refers to.
            overflow=Overflow.BLOCK,
            merges_resyncs=merges_resyncs,
            worker_context=self._work_context,
            on_failure=self._delivery_failed,
            clock=self.clock,
        )
        self.events: EventSource = self._delivery.source(name)
        """The handler that informers deliver to."""
        self._fail: Callable[[Exception], None] = lambda _: None
        self._detach: Callable[[], None] = lambda: None
        self._retire: Callable[[], None] = lambda: None
        self.claim: Claim = Claim(name)
        """Taken before the start."""
        self.is_stopped: bool = False

    def start(self, queue: RequestQueue[R], stop: StopSignal) -> None:
        """Start to handle events, until ``stop``."""
        # Other queues than a controller's have no fail(); the error is in the log.
        self._fail = getattr(queue, "fail", lambda _: stop.set())
        self._queue = queue
        self._delivery.start()
        self._retire = present_metrics(self._metrics).add_source(self.samples)
        self._detach = stop.on_set(self.stop)

    def stop(self) -> None:
        """Drop waiting events, cancel an async handler, and end after the current event.

        May be called again.
        """
        self.is_stopped = True
        self._delivery.stop()
        self._loop.close(0.0)

    def end(self) -> None:
        """End after the last event was handled: nothing waits, so nothing is dropped."""
        self._delivery.stop()

    def join(self, timeout: float | None = None) -> list[str]:
        """Wait for its threads to end; the names of those that still run."""
        self._detach()
        running = self._delivery.join(timeout)
        if running:
            # Coroutines can be cancelled; the thread of a plain function is reported.
            self._loop.close(_CANCEL_TIMEOUT)
            running = self._delivery.join(_CANCEL_TIMEOUT)
        running += self._loop.close(_CANCEL_TIMEOUT)
        self._retire()
        return running

    @property
    def pending(self) -> int:
        """The number of waiting events."""
        return self._delivery.pending

    @property
    def is_handling(self) -> bool:
        """Whether the caller is the handler, or a task or thread of it."""
        return _current.get() is self

    def step(self) -> bool:
        """Handle one event in the calling thread, for tests; False when none waits."""
        return self._delivery.step()

    @property
    def retrying(self) -> int:
        """The number of events that the handler failed for."""
        return self._retrying

    def text(self) -> str:
        """``"ok"``, or what the handler fails for."""
        with self._lock:
            count, error = self._retrying, self._newest_error
        if not count:
            return "ok"
        return (
            f"its handler {self._handler_name} fails for {counted(count, 'event')}, which it "
            f"retries; newest: {error}"
        )

    def samples(self) -> list[Sample]:
        """Its metrics."""
        labels = (self.name,)
        families = (_EVENTS, _FILTERED, _PREDICATE_ERRORS, _HANDLER_ERRORS)
        with self._lock:
            return [
                *(Sample(family, labels, self._counts[family]) for family in families),
                Sample(_RETRYING, labels, self._retrying),
                Sample(_PENDING, labels, self.pending),
            ]

    def _delivery_failed(self, error: Exception) -> None:
        self._fail(error)

    @contextlib.contextmanager
    def _work_context(self) -> Iterator[None]:
        token = _current.set(self)
        try:
            with self._loop.bound():
                yield
        finally:
            _current.reset(token)

    def _handle(self, key: DeliveryKey, event: Event | None) -> float | None:
        """Handle ``event``, or with None the due retries; see
        :class:`~appsdk_operator.cache.Handle`."""
        try:
            if event is not None:
                self._handle_new(key, event)
            return self._run_due(key) if key in self._failed else None
        finally:
            self._on_handled(event)

    def _handle_new(self, key: DeliveryKey, event: Event) -> None:
        self._count(_EVENTS)
        if self._kind is not None:
            event = event.viewed_as(self._kind)
        if not self._passes(event):
            self._count(_FILTERED)
        elif not self._call(key, event, 0):
            self._keep(key, event)

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
                f"predicate of source {self.name}",
                "source %s: predicate %s failed for %r, so the event passes: %s",
                self.name,
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
                _log.debug(
                    "source %s: %r leads to no request: %s", self.name, event, safe_repr(error)
                )
                return True
            self._report(key, event, failures, error)
            return False
        except BaseException as raised:
            self._report(
                key, event, failures, as_exception(f"handler {self._handler_name}", raised)
            )
            return False
        return True

    def _report(self, key: DeliveryKey, event: Event, failures: int, error: Exception) -> None:
        if self.is_stopped:
            # As when an async handler is cancelled.
            _log.debug("source %s: %r was not handled: %s", self.name, event, safe_repr(error))
            return
        self._count(_HANDLER_ERRORS)
        with self._lock:
            # As text: an exception holds the frames of the failed call and all that is in them.
            self._newest_error = f"{key}: {type(error).__name__}: {safe_text(error)}"[:300]
        is_early = isinstance(error, NotSyncedError)
        self._failure_log.failed(
            error,
            f"handler of source {self.name}",
            "source %s: handler %s failed for %r, and the kit calls it again: %s",
            self.name,
            self._handler_name,
            event,
            safe_repr(error),
            level=logging.INFO if is_early else logging.ERROR,
            with_traceback=not is_early,
            extra={**self._fields(event), "attempt": failures},
        )

    def _keep(self, key: DeliveryKey, event: Event) -> None:
        failed = _FailedEvent(event, self._next_try(0))
        with self._lock:
            kept = self._failed.setdefault(key, [])
            if len(kept) >= _MERGE_FROM and (both := _merged(kept[-1].event, event)) is not None:
                failed.event = both
                kept[-1] = failed
            else:
                kept.append(failed)
                self._retrying += 1

    def _next_try(self, failures: int) -> float:
        return self.clock.monotonic() + _BACKOFF.delay(failures, self._random)

    def _run_due(self, key: DeliveryKey) -> float | None:
        """Retry due events in order; returns the seconds until the next one is due."""
        dues = []
        for failed in list(self._failed[key]):
            if failed.due <= self.clock.monotonic() + _TIME_TOLERANCE:
                if self._call(key, failed.event, failed.failures):
                    self._complete(key, failed)
                    continue
                failed.due = self._next_try(failed.failures)
                failed.failures += 1
            dues.append(failed.due)
        return max(0.0, min(dues) - self.clock.monotonic()) if dues else None

    def _complete(self, key: DeliveryKey, succeeded: _FailedEvent) -> None:
        with self._lock:
            self._retrying -= 1
            left = [failed for failed in self._failed[key] if failed is not succeeded]
            if left:
                self._failed[key] = left
            else:
                del self._failed[key]

    def _count(self, family: Family) -> int:
        with self._lock:
            self._counts[family] += 1
            return self._counts[family]

    def _fields(self, event: Event) -> dict[str, Any]:
        obj = event.object
        return {
            "source": self.name,
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
