"""A handler that was added to a cache: it is registered at every informer of a kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from appsdk_operator.cache._delivery.delivery import (
    Delivery,
    EventSource,
    Overflow,
    check_overflow,
)
from appsdk_operator.cache._events import BatchHandler, Event, EventHandler
from appsdk_operator.cache._informer.handler_caller import ErrorHandler, HandlerCaller
from appsdk_operator.cache._informer.informer import Informer, Registration, access_to
from appsdk_operator.resource import Kind
from appsdk_operator.runtime import Clock, StopSignal, Waiters


@final
class CacheRegistration:
    """A handler that was added to a cache, for all namespaces of a kind. Thread-safe.

    An EventHandler has one thread however many namespaces there are, and is never called twice at
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
        are_namespaces_known: Callable[[], bool],
        remove: Callable[[CacheRegistration, float], None],
    ) -> None:
        check_overflow(overflow)
        self.kind = kind
        """The kind whose events it gets."""
        self._sink = handler
        self._clock = clock
        self._has_ended = self._had_synced = False
        self._changed = changed
        self._are_namespaces_known = are_namespaces_known
        self.is_over: bool = False
        """Whether it was removed, by itself or with its kind."""
        self.awaits_full_objects = False
        """For the cache: whether it gets no events until an upgrade to full objects is done."""
        self._resync = resync
        self._do_remove = remove
        # Replaced, never changed, so that it can be read without the cache's lock.
        self._registrations: dict[Informer, Registration] = {}
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
            # One source for all informers, so that events of one object stay in order when another
            # informer takes over.
            self._sink = self._delivery.source(str(kind))

    @property
    def has_synced(self) -> bool:
        """Whether the handler has handled the initial objects of every followed namespace.

        A namespace that a selector chose later, and which was not listed yet, does not count. After
        the end of the handler, or of the cache: whether it had.
        """
        if self.is_over:
            return self._had_synced
        return self._has_informers and all(each.has_synced for each in self._awaited)

    @property
    def pending_events(self) -> tuple[int, int]:
        """How many events are pending for the handler, and how many were merged so far."""
        delivery = self._delivery
        return (0, 0) if delivery is None else (delivery.pending, delivery.merged)

    def wait_for_sync(self, stop: StopSignal, timeout: float | None = None) -> bool:
        """Wait until the local copies are complete and the handler has handled their objects.

        Args:
            stop: ends the wait.
            timeout: the longest to wait, in seconds of the cache's clock; default: no limit.

        Returns:
            False when stopped, after ``timeout`` seconds, or when the cache or the handler ended
            meanwhile.
        """
        clock = self._clock
        deadline = None if timeout is None else clock.monotonic() + timeout
        for informer in self._registrations:
            access_to(informer).check_process()
        while True:
            left = None if deadline is None else max(0.0, deadline - clock.monotonic())
            # Not at the informers: namespaces come and go during the wait, and so do informers.
            # Woken by every change and every sync, and by the end of the cache.
            if not self._changed.wait(lambda: self._are_listed or self._is_ended, stop, left):
                return False
            if self.has_synced and not self.is_over:
                return True
            if self._is_ended:
                return False
            if not isinstance(self._sink, EventSource):
                return True
            left = None if deadline is None else max(0.0, deadline - clock.monotonic())
            if not self._sink.wait_for_sync(stop, left):
                return False

    @property
    def _are_listed(self) -> bool:
        """Whether the handler was sent the objects of every followed namespace."""
        return self._has_informers and all(
            each.informer.has_synced and each.has_list_end for each in self._awaited
        )

    @property
    def _awaited(self) -> Sequence[Registration]:
        return [each for each in self._registrations.values() if each.is_awaited]

    @property
    def _has_informers(self) -> bool:
        """Whether it is registered at every informer; there may be none."""
        return not self.awaits_full_objects and self._are_namespaces_known()

    @property
    def _is_ended(self) -> bool:
        return self.is_over or self._has_ended

    def remove(self, *, timeout: float = 30.0) -> None:
        """Stop delivering events, and wait for a call in progress; twice is harmless.

        A handler that removes itself is not waited for.

        Args:
            timeout: seconds of real time that the call has to end; default 30.

        Raises:
            TimeoutError: it still runs; the text names its thread.
        """
        self._do_remove(self, timeout)

    # For the cache.

    def follows(self, informer: Informer) -> bool:
        """Whether it gets the events of ``informer``."""
        return informer in self._registrations

    def sends_to(self, source: EventSource) -> bool:
        """Whether ``source`` gets the events."""
        return self._sink is source

    @property
    def informers(self) -> Sequence[Informer]:
        """The informers whose events it gets."""
        return list(self._registrations)

    def follow(self, informer: Informer, *, is_joining: bool = False) -> None:
        """Get the events of ``informer`` too; ``is_joining``: without waiting for it."""
        registration = access_to(informer).attach(self._sink, resync=self._resync)
        registration.is_awaited = not is_joining
        self._registrations = {**self._registrations, informer: registration}

    def report_failures(self) -> None:
        """Report what the handler raised when it got the present objects; with no lock held."""
        for informer in self._registrations:
            access_to(informer).report_failures()

    def unfollow(self, informer: Informer, events: Sequence[Event] = ()) -> None:
        """Get ``events``, and after them none of ``informer``."""
        registration = self._registrations.get(informer)
        if registration is None:
            return
        if events:
            access_to(informer).send(registration, events)
        others = {i: r for i, r in self._registrations.items() if i is not informer}
        self._registrations = others
        registration.remove()

    def switch(
        self,
        old: Sequence[Informer],
        new: Sequence[Informer],
        events: Sequence[Event],
        *,
        sends_list_end: bool,
    ) -> None:
        """Follow ``new`` instead of ``old``, which differ by ``events``, with all locks held."""
        added = {
            informer: access_to(informer).attach(
                self._sink, resync=self._resync, sends_present=False
            )
            for informer in new
        }
        informer, registration = next(iter(added.items()))
        if events:
            access_to(informer).send(registration, events)
        if sends_list_end:
            access_to(informer).send(registration, None)
        removed = [self._registrations[i] for i in old if i in self._registrations]
        others = {i: r for i, r in self._registrations.items() if i not in old}
        self._registrations = {**others, **added}
        for registration in removed:
            registration.remove()

    def start(self) -> None:
        """Start the handler's thread."""
        if self._delivery is not None and not self._is_started:
            self._is_started = True
            self._delivery.start()

    def end(self) -> None:
        """Begin no more calls; takes no lock of an informer, which may be stuck."""
        self._has_ended = True
        if self._delivery is not None:
            self._delivery.stop()

    def stop(self) -> None:
        """Unfollow every informer; a call in progress continues."""
        self._had_synced = self.has_synced
        self.is_over = True
        self.end()
        for informer in self._registrations:
            self.unfollow(informer)

    def join(self, timeout: float | None = None) -> list[str]:
        """Wait for the handler's thread to end; returns its name if it still runs."""
        return [] if self._delivery is None else self._delivery.join(timeout)
