"""A handler's place at a cache: at every informer of a kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from appsdk_operator.cache._delivery.delivery import Delivery
from appsdk_operator.cache._delivery.event_source import Overflow
from appsdk_operator.cache._events import BatchHandler, Event, EventHandler
from appsdk_operator.cache._informer.informer import Informer
from appsdk_operator.cache._informer.registration import ErrorHandler, HandlerCaller, Registration
from appsdk_operator.cache._options import check_overflow
from appsdk_operator.resource import Kind
from appsdk_operator.runtime import Clock, StopSignal, Waiters, present_clock

__all__ = ["CacheRegistration"]


@final
class CacheRegistration:
    """A handler's place at a cache, in all namespaces of a kind. Thread-safe.

    However many namespaces there are, an EventHandler has one thread, and is never called twice at
    once.
    """

    def __init__(
        self,
        kind: Kind,
        handler: EventHandler | BatchHandler,
        *,
        resync: float | None,
        max_pending: int,
        overflow: Overflow,
        on_error: ErrorHandler | None,
        clock: Clock,
        changed: Waiters,
        remove: Callable[[CacheRegistration, float], None],
    ) -> None:
        check_overflow(overflow)
        self.kind = kind
        """The kind whose objects it is told of."""
        self._sink = handler
        self._clock = clock
        self._is_over = self._has_ended = False
        self._changed = changed
        self.is_waiting = False
        """For the cache: whether it is to be told once whole objects are there."""
        self._resync = resync
        self._do_remove = remove
        # Only ever replaced, so that it can be read without the cache's lock.
        self._places: dict[Informer, Registration] = {}
        self._is_started = False
        self._delivery: Delivery | None = None
        if isinstance(handler, EventHandler) and not isinstance(handler, BatchHandler):
            calls = HandlerCaller(handler, on_error, kind, clock=clock)
            self._delivery = Delivery(
                f"cache/{kind}",
                calls,
                max_pending=max_pending,
                overflow=overflow,
                worker_context=calls.bound,
                clock=clock,
            )
            # One for all informers: what one of them said is in order with what the next one says.
            self._sink = self._delivery.source(str(kind))

    @property
    def has_synced(self) -> bool:
        """Whether the handler has handled every object that was there when it was added, and when
        a namespace was added later."""
        return not self.is_waiting and all(p.has_synced for p in self._places.values())

    @property
    def pending_events(self) -> tuple[int, int]:
        """How many events wait for the handler, and how many were merged so far."""
        delivery = self._delivery
        return (0, 0) if delivery is None else (delivery.pending, delivery.merged)

    def wait_for_sync(self, stop: StopSignal, timeout: float | None = None) -> bool:
        """Wait until the local copies are complete, and the handler has handled what was there.

        Args:
            stop: ends the wait.
            timeout: the longest to wait, in seconds of the cache's clock; default: no limit.

        Returns:
            False when stopped, after ``timeout`` seconds, or when the cache or the handler came to
            its end meanwhile.
        """
        clock = present_clock(self._clock)
        deadline = None if timeout is None else clock.monotonic() + timeout
        # Woken when that changes, and at the end of the cache.
        if not self._changed.wait(
            lambda: not self.is_waiting or self._is_over or self._has_ended, stop, timeout
        ):
            return False
        # Namespaces may come and go while we wait.
        while waiting := [place for place in self._places.values() if not place.has_synced]:
            left = None if deadline is None else max(0.0, deadline - clock.monotonic())
            is_over = not waiting[0].wait_for_sync(stop, left)
            if is_over and (waiting[0] in self._places.values() or stop.is_set() or left == 0):
                return False
        return not (self._is_over or self.is_waiting)

    def remove(self, *, timeout: float = 30.0) -> None:
        """Stop handing events to the handler, and wait for the call that runs; twice is harmless.

        A handler that removes itself is not waited for.

        Args:
            timeout: seconds of real time that the call has to end; default 30.

        Raises:
            TimeoutError: it still runs; the text names its thread.
        """
        self._do_remove(self, timeout)

    # For the cache.

    def follows(self, informer: Informer) -> bool:
        """Whether it is handed the events of ``informer``."""
        return informer in self._places

    def follow(self, informer: Informer) -> None:
        """Hand over the events of ``informer`` too."""
        place = informer.attach(self._sink, resync=self._resync)
        self._places = {**self._places, informer: place}

    def report_failures(self) -> None:
        """Report what the handler raised when it was handed what was there; with no lock held."""
        for informer in self._places:
            informer.report_failures()

    def leave(self, informer: Informer, events: Sequence[Event] = ()) -> None:
        """Hand over ``events``, and after them none of ``informer``."""
        place = self._places.get(informer)
        if place is None:
            return
        if events:
            informer.tell(place, events)
        self._places = {i: p for i, p in self._places.items() if i is not informer}
        place.remove()

    def move(
        self,
        old: Sequence[Informer],
        new: Sequence[Informer],
        events: Sequence[Event],
        *,
        tells_end: bool,
    ) -> None:
        """Follow ``new`` instead of ``old``, which differ by ``events``; all are locked."""
        places = {
            informer: informer.attach(self._sink, resync=self._resync, shows_present=False)
            for informer in new
        }
        informer, place = next(iter(places.items()))
        if events:
            informer.tell(place, events)
        if tells_end:
            informer.tell(place, None)
        left = [self._places[informer] for informer in old if informer in self._places]
        kept = {i: p for i, p in self._places.items() if i not in old}
        self._places = {**kept, **places}
        for place in left:
            place.remove()

    def start(self) -> None:
        """Begin to call the handler."""
        if self._delivery is not None and not self._is_started:
            self._is_started = True
            self._delivery.start()

    def end(self) -> None:
        """Begin no more calls; needs no lock of an informer, one of which may be stuck."""
        self._has_ended = True
        if self._delivery is not None:
            self._delivery.stop()

    def stop(self) -> None:
        """Leave every informer; the call that runs goes on."""
        self._is_over = True
        self.end()
        for informer in self._places:
            self.leave(informer)

    def join(self, timeout: float | None = None) -> list[str]:
        """Wait for the call that runs; the name of its thread if it still does."""
        return [] if self._delivery is None else self._delivery.join(timeout)
