"""The channel source: a program pushes events into it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Generic, TypeVar, final

from appsdk_operator.cache import Event, Health, ResourceAction
from appsdk_operator.controllers._protocols import (
    Handler,
    RequestQueue,
)
from appsdk_operator.controllers._sources.event_pipeline import EventPipeline
from appsdk_operator.resource import Object
from appsdk_operator.runtime import Clock, Metrics, StopSignal
from appsdk_operator.runtime.validation import check_count

if TYPE_CHECKING:
    from appsdk_operator.controllers._predicates import EventFilter

R = TypeVar("R", bound=Hashable)

_MAX_RETRYING = 1024
"""The most events that may wait for a failing handler, unless the buffer is larger."""


class ChannelClosed(RuntimeError):  # noqa: N818 - named as queue.Full and its like are
    """An event was pushed into a channel that is closed or stopped."""


@final
class ChannelSource(Generic[R]):
    """Events from the program itself, pushed from any thread.

    Guarantees:
        * Events that are pushed before the controller starts are kept.
        * At most ``buffer_size`` events wait for the handler, and as many, but at least 1024, wait
          for its retry. Further pushes block, except those of the handler itself.
        * Events are lost only when the controller stops while they wait. :meth:`close` handles all
          pushed events first.

    The source calls a handler that raises again, like :class:`KindSource`. It belongs to one
    controller. For several controllers, make a source for each and push to each, so that a slow
    controller does not delay another one. (A channel of controller-runtime serves several, and
    controllers that start later miss earlier events.) Thread-safe.

    >>> from appsdk_operator.controllers import for_object
    >>> builds = ChannelSource(for_object(), name="builds")
    """

    def __init__(
        self,
        handler: Handler[R],
        predicates: Iterable[EventFilter] = (),
        *,
        buffer_size: int = 1024,
        name: str = "channel",
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """An open channel.

        Args:
            handler: turns events into requests.
            predicates: an event must pass all of them.
            buffer_size: the number of events that may wait; default 1024, as in controller-runtime.
            name: the name in logs, threads and metrics.
            clock: the clock for all waits; default: the environment's.
            metrics: the metrics that it writes to; default: the metrics of its Manager, or else
                :func:`~appsdk_operator.runtime.default_metrics`.
            rng: the source of jitter, for repeatable tests.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: ``buffer_size`` is less than 1.
        """
        check_count("buffer_size", buffer_size)
        if buffer_size < 1:
            raise ValueError(f"buffer_size={buffer_size}: use at least 1")
        self._buffer_size = buffer_size
        self._max_retrying = max(buffer_size, _MAX_RETRYING)
        self._condition = threading.Condition(threading.RLock())
        self._used = 0
        self._is_closed = False
        self._detach: Callable[[], None] = lambda: None
        self._pipeline = EventPipeline(
            name,
            handler,
            predicates,
            # Each pushed event is handled: one may be newer than what waits.
            merges_resyncs=False,
            on_handled=self._handled,
            clock=clock,
            metrics=metrics,
            rng=rng,
        )
        self.clock: Clock = self._pipeline.clock
        """The clock for all waits."""

    def push(
        self,
        item: Object | Event,
        *,
        timeout: float | None = None,
        stop: StopSignal | None = None,
    ) -> bool:
        """Push an event; an object stands for a GENERIC event of it.

        Args:
            item: the event or object.
            timeout: the longest wait for space in seconds; default: no limit.
            stop: ends the wait for space.

        Returns:
            False when there was no space before ``timeout`` or ``stop``.

        Raises:
            ChannelClosed: the channel was closed, or its controller has stopped.
            TypeError, ValueError: ``item`` is neither, or its object has no name.
        """
        event = Event(ResourceAction.GENERIC, item) if isinstance(item, Object) else item
        if not isinstance(event, Event):
            # Not the value: it may be a Secret's content.
            raise TypeError(f"a {type(item).__name__} cannot be pushed: give an Object or an Event")
        if not event.object.name:
            raise ValueError(f"{event!r} cannot be pushed: its object has no name")
        if not self._take_room(timeout, stop):
            return False
        self._pipeline.events.on_events((event,))
        return True

    def _take_room(self, timeout: float | None, stop: StopSignal | None) -> bool:
        clock = self.clock
        deadline = None if timeout is None else clock.monotonic() + timeout
        detach = stop.on_set(self._wake) if stop is not None else lambda: None
        try:
            with self._condition:
                while True:
                    if self._is_closed or self._pipeline.is_stopped:
                        why = "was closed" if self._is_closed else "has stopped with its controller"
                        raise ChannelClosed(f"channel {self} {why}: push nothing after that")
                    # The handler itself never waits: it would wait for itself.
                    has_room = self._used < self._buffer_size and (
                        self._pipeline.retrying < self._max_retrying
                    )
                    if has_room or self._pipeline.is_handling:
                        self._used += 1
                        return True
                    left = None if deadline is None else deadline - clock.monotonic()
                    if (stop is not None and stop.is_set()) or (left is not None and left <= 0):
                        return False
                    clock.wait(self._condition, left)
        finally:
            detach()

    def close(self) -> None:
        """Accept no more events; the source ends once it has handled the pushed ones.

        An event whose handler keeps failing delays the end until the controller stops. May be
        called again.
        """
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()
        if self._pipeline.claim.is_taken:
            self._end_if_drained()

    def start(self, queue: RequestQueue[R], stop: StopSignal, /) -> None:
        """Start to feed ``queue``, until ``stop`` is set; returns at once.

        Raises:
            RuntimeError: the source was started before.
        """
        self._pipeline.claim.take()
        self._pipeline.start(queue, stop)
        self._detach = stop.on_set(self._wake)
        self._end_if_drained()

    def health(self) -> Health:
        """Ready while the source runs; the text has the failures of its handler."""
        if not self._pipeline.claim.is_taken:
            return Health(
                False, f"channel {self}: not started, {self._pipeline.pending} events wait"
            )
        if self._pipeline.is_stopped:
            return Health(False, f"channel {self}: stopped")
        return Health(True, f"channel {self}: {self._pipeline.text()}")

    def join(self, timeout: float | None = None, /) -> list[str]:
        """Wait for its threads after a stop or :meth:`close`; returns the names of running ones."""
        self._detach()
        return self._pipeline.join(timeout)

    def _handled(self, event: Event | None) -> None:
        with self._condition:
            if event is not None:
                self._used -= 1
            self._condition.notify_all()
        self._end_if_drained()

    def _end_if_drained(self) -> None:
        with self._condition:
            is_drained = self._is_closed and not self._used
        if is_drained and not self._pipeline.retrying:
            self._pipeline.end()

    def _wake(self) -> None:
        with self._condition:
            self._condition.notify_all()

    def __str__(self) -> str:
        return self._pipeline.name
