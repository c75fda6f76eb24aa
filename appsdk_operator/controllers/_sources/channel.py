"""A source that a program pushes events into."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar, final

from appsdk_operator.cache import Event, Health, ResourceAction
from appsdk_operator.controllers._protocols import (
    EventFilter,
    Handler,
    JoinableSource,
    RequestQueue,
)
from appsdk_operator.controllers._sources.event_feed import EventFeed
from appsdk_operator.resource import Object
from appsdk_operator.runtime import Clock, Metrics, StopSignal, present_clock
from appsdk_operator.runtime.validation import check_count

__all__ = ["ChannelClosed", "ChannelSource"]

R = TypeVar("R", bound=Hashable)

_MOST_FAILING = 1024
"""Events that a failing handler may owe, if the buffer is not larger."""


class ChannelClosed(RuntimeError):  # noqa: N818 - named as queue.Full and its like are
    """An event was pushed that nobody would handle any more."""


@final
class ChannelSource(Generic[R]):
    """Events that the program makes itself, pushed from any thread.

    Guarantees:
        * What is pushed before the controller starts is kept.
        * At most ``buffer_size`` events wait for their turn, and as many, but 1024 at least, for a
          handler that failed; who pushes more waits too, except for the handler itself.
        * Nothing is lost but what waits when the controller stops. :meth:`close` lets all that was
          pushed be handled first.

    A handler that raises is called again, as with :class:`KindSource`. The source belongs to one
    controller. For several, make one for each and push to each: a slow controller then cannot
    keep an event from another one. (controller-runtime's serves several, and those that start
    later miss what came before.) Thread-safe.

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
            predicates: all of them must let an event pass to the handler.
            buffer_size: how many events may wait; default 1024, as in controller-runtime.
            name: for logs, threads and metrics.
            clock: what it waits on; default: that of its Manager, else the machine's.
            metrics: where it publishes; default: in those of its Manager, else in
                :func:`~appsdk_operator.runtime.default_metrics`.
            rng: the source of jitter, for repeatable tests.

        Raises:
            TypeError: an argument has no form that is known.
            ValueError: ``buffer_size`` is less than 1.
        """
        check_count("buffer_size", buffer_size)
        if buffer_size < 1:
            raise ValueError(f"buffer_size={buffer_size}: use at least 1")
        self._buffer_size = buffer_size
        self._most_failing = max(buffer_size, _MOST_FAILING)
        self._condition = threading.Condition(threading.RLock())
        self._used = 0
        self._is_closed = False
        self._detach: Callable[[], None] = lambda: None
        self._feed = EventFeed(
            name,
            handler,
            predicates,
            on_handled=self._handled,
            clock=clock,
            metrics=metrics,
            rng=rng,
        )
        self._clock = self._feed.clock

    def push(
        self,
        item: Object | Event,
        *,
        timeout: float | None = None,
        stop: StopSignal | None = None,
    ) -> bool:
        """Have ``item`` handled: an event, or an object, which stands for a GENERIC event of it.

        Args:
            item: what happened.
            timeout: the longest wait for room in seconds; default: no limit.
            stop: ends the wait for room.

        Returns:
            False when it was not taken, because there was no room before ``timeout`` or ``stop``.

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
        self._feed.events.on_events((event,))
        return True

    def _take_room(self, timeout: float | None, stop: StopSignal | None) -> bool:
        clock = present_clock(self._clock)
        deadline = None if timeout is None else clock.monotonic() + timeout
        detach = stop.on_set(self._wake) if stop is not None else lambda: None
        try:
            with self._condition:
                while True:
                    if self._is_closed or self._feed.is_stopped:
                        why = "was closed" if self._is_closed else "has stopped with its controller"
                        raise ChannelClosed(f"channel {self} {why}: push nothing after that")
                    # The handler itself never waits, or it would wait for itself.
                    has_room = self._used < self._buffer_size and (
                        self._feed.pipeline.retrying < self._most_failing
                    )
                    if has_room or self._feed.is_handling:
                        self._used += 1
                        return True
                    left = None if deadline is None else deadline - clock.monotonic()
                    if (stop is not None and stop.is_set()) or (left is not None and left <= 0):
                        return False
                    clock.wait(self._condition, left)
        finally:
            detach()

    def close(self) -> None:
        """Take nothing more; what was pushed is handled, then the source ends. Twice is harmless.

        An event whose handler keeps failing keeps it from ending, until the controller stops.
        """
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()
        if self._feed.is_started:
            self._end_if_drained()

    def inherit_environment(self, clock: Clock, metrics: Metrics) -> None:
        """For managers: use these, unless it was given others or was started already."""
        self._feed.inherit_environment(clock, metrics)

    def start(self, queue: RequestQueue[R], stop: StopSignal, /) -> None:
        """Begin to feed ``queue`` until ``stop`` is set; returns without waiting.

        Raises:
            RuntimeError: it was started before.
        """
        self._feed.claim()
        self._feed.start(queue, stop)
        self._detach = stop.on_set(self._wake)
        self._end_if_drained()

    def health(self) -> Health:
        """Whether events are handled."""
        if not self._feed.is_started:
            return Health(False, f"channel {self}: not started, {self._feed.pending} events wait")
        if self._feed.is_stopped:
            return Health(False, f"channel {self}: stopped")
        return Health(True, f"channel {self}: {self._feed.pipeline.text()}")

    def join(self, timeout: float | None = None, /) -> list[str]:
        """Wait, after a stop or :meth:`close`, for its threads; the names of those that still
        run."""
        self._detach()
        return self._feed.join(timeout)

    def _handled(self, event: Event | None) -> None:
        with self._condition:
            if event is not None:
                self._used -= 1
            self._condition.notify_all()
        self._end_if_drained()

    def _end_if_drained(self) -> None:
        with self._condition:
            is_drained = self._is_closed and not self._used
        if is_drained and not self._feed.pipeline.retrying:
            self._feed.end()

    def _wake(self) -> None:
        with self._condition:
            self._condition.notify_all()

    def __str__(self) -> str:
        return self._feed.name


def _fits(source: ChannelSource[R]) -> JoinableSource[R]:
    return source
