"""A source's own thread: events wait there in order, and are handled one by one."""

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

# Whose handler the code is called by. Not a matter of threads: coroutines, their tasks and what
# they have done in other threads belong to the handler too.
_current_feed: contextvars.ContextVar[object] = contextvars.ContextVar(
    "appsdk_operator.source", default=None
)


@final
class EventFeed(Generic[R]):
    """An :class:`EventPipeline` with a thread. Thread-safe."""

    def __init__(
        self,
        name: str,
        handler: Handler[R],
        predicates: Iterable[EventFilter],
        *,
        kind: Kind | None = None,
        max_pending: int = 10_000,
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
            # Not COALESCE, for events that were merged have lost a state in between. If a map
            # function is not shown that an object pointed at B between A and C, whoever followed
            # it from B is never told that it is gone from there.
            overflow=Overflow.BLOCK,
            worker_context=self._work_context,
            on_failure=self._failed,
            clock=clock,
        )
        self.events: EventSource = self._delivery.source(name)
        """Where the events go in."""
        self._lock = threading.Lock()
        self._fail: Callable[[Exception], None] = lambda _: None
        self._detach: Callable[[], None] = lambda: None
        self._retire: Callable[[], None] = lambda: None
        self.is_started = False
        self.is_stopped = False

    def inherit_environment(self, clock: Clock, metrics: Metrics) -> None:
        """Use these, unless it was given others or was started already."""
        with self._lock:
            if not self.is_started:
                self._environment.inherit(clock, metrics)

    def claim(self) -> None:
        """Note that the source is started.

        Raises:
            RuntimeError: it was before.
        """
        with self._lock:
            if self.is_started:
                raise RuntimeError(
                    f"source {self.name} was started before: a source belongs to one controller, "
                    "make one for each"
                )
            self.is_started = True

    def start(self, queue: RequestQueue[R], stop: StopSignal) -> None:
        """Begin to handle events, until ``stop``."""
        # A queue of somebody else cannot be told why; the log was.
        self._fail = getattr(queue, "fail", lambda _: stop.set())
        self.pipeline.set_queue(queue)
        self._delivery.start()
        self._retire = self._metrics.add_source(self._samples)
        self._detach = stop.on_set(self.stop)

    def stop(self) -> None:
        """Drop what waits, and end after what is being handled; twice is harmless."""
        self.is_stopped = self.pipeline.is_stopped = True
        self._delivery.stop()

    def end(self) -> None:
        """The same when nothing waits, so that nothing is dropped."""
        self._delivery.stop()

    def join(self, timeout: float | None = None) -> list[str]:
        """Wait for its threads to end; the names of those that still run."""
        self._detach()
        running = self._delivery.join(timeout)
        if running:
            # A coroutine lets itself be cancelled; a function that does not return is named.
            self._loop.close(_CANCEL_TIMEOUT)
            running = self._delivery.join(_CANCEL_TIMEOUT)
        running += self._loop.close(_CANCEL_TIMEOUT)
        self._retire()
        return running

    @property
    def pending(self) -> int:
        """How many events wait."""
        return self._delivery.pending

    @property
    def is_handling(self) -> bool:
        """Whether the caller is the handler, or works for it."""
        return _current_feed.get() is self

    def step(self) -> bool:
        """Handle one event in the calling thread, for tests; False when there is nothing to do."""
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
