"""The event feed: a source's thread, which handles its events one by one in order."""

from __future__ import annotations

import contextlib
import contextvars
import random
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar, final

from appsdk_operator.cache import Delivery, DeliveryKey, Event, EventSource, Overflow
from appsdk_operator.controllers._protocols import EventFilter, Handler, RequestQueue
from appsdk_operator.controllers._sources.event_pipeline import EventPipeline
from appsdk_operator.resource import Kind
from appsdk_operator.runtime import (
    Clock,
    Environment,
    Family,
    LoopThread,
    Metrics,
    Sample,
    StopSignal,
)
from appsdk_operator.runtime.validation import check_count, check_environment, check_text

__all__ = ["EventFeed"]

R = TypeVar("R", bound=Hashable)

_PENDING = Family(
    "source_pending_events", "gauge", "Events that wait for a source's handler.", ("source",)
)
_CANCEL_TIMEOUT = 2.0

# The feed whose handler runs. A context variable and not a thread local: coroutines, their tasks
# and the threads that they use belong to the handler too.
_current_feed: contextvars.ContextVar[object] = contextvars.ContextVar(
    "appsdk_operator.source", default=None
)


@final
class EventFeed(Generic[R]):
    """A queue of events and the thread that runs an :class:`EventPipeline`. Thread-safe."""

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
        self.name = name
        self._environment = Environment(clock, metrics)
        self.clock: Clock = self._environment.clock
        clock = self.clock
        self.pipeline = EventPipeline(name, handler, predicates, kind=kind, clock=clock, rng=rng)
        self._on_handled = on_handled
        self._metrics = self._environment.metrics
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
            on_failure=self._failed,
            clock=clock,
        )
        self.events: EventSource = self._delivery.source(name)
        """The handler that informers deliver to."""
        self._lock = threading.Lock()
        self._fail: Callable[[Exception], None] = lambda _: None
        self._detach: Callable[[], None] = lambda: None
        self._retire: Callable[[], None] = lambda: None
        self.is_started = False
        self.is_stopped = False

    def inherit_environment(self, clock: Clock, metrics: Metrics) -> None:
        """Use these, unless others were given or it was started already."""
        with self._lock:
            if not self.is_started:
                self._environment.inherit(clock, metrics)

    def claim(self) -> None:
        """Mark the source as started.

        Raises:
            RuntimeError: it was started before.
        """
        with self._lock:
            if self.is_started:
                raise RuntimeError(
                    f"source {self.name} was started before: a source belongs to one controller, "
                    "make one for each"
                )
            self.is_started = True

    def start(self, queue: RequestQueue[R], stop: StopSignal) -> None:
        """Start to handle events, until ``stop``."""
        # Other queues than a controller's have no fail(); the error is in the log.
        self._fail = getattr(queue, "fail", lambda _: stop.set())
        self.pipeline.set_queue(queue)
        self._delivery.start()
        self._retire = self._metrics.add_source(self._samples)
        self._detach = stop.on_set(self.stop)

    def stop(self) -> None:
        """Drop waiting events, and end after the current one; may be called again."""
        self.is_stopped = self.pipeline.is_stopped = True
        self._delivery.stop()

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
        return _current_feed.get() is self

    def step(self) -> bool:
        """Handle one event in the calling thread, for tests; False when none waits."""
        return self._delivery.step()

    def _failed(self, error: Exception) -> None:
        self._fail(error)

    def _handle(self, key: DeliveryKey, event: Event | None) -> float | None:
        try:
            return self.pipeline.handle(key, event)
        finally:
            self._on_handled(event)

    @contextlib.contextmanager
    def _work_context(self) -> Iterator[None]:
        token = _current_feed.set(self)
        try:
            with self._loop.bound():
                yield
        finally:
            _current_feed.reset(token)

    def _samples(self) -> list[Sample]:
        return [*self.pipeline.samples(), Sample(_PENDING, (self.name,), self.pending)]
