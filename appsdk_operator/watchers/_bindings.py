"""All the ways of events into a controller, by kind."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import final

from appsdk_operator.cache import Cache, Delivery, EventSource, Health, Lister, Registration
from appsdk_operator.resource import Kind
from appsdk_operator.runtime import Clock, StopSignal, present_clock
from appsdk_operator.watchers._controller_metrics import ControllerMetrics
from appsdk_operator.watchers._dispatcher import Dispatcher
from appsdk_operator.watchers._informer_binding import (
    Informed,
    OwnInformer,
    RunnableInformer,
    SharedInformers,
)

__all__ = ["Ways"]


@final
class Ways:
    """The informers that a controller runs, and those of caches. Thread-safe."""

    def __init__(
        self,
        delivery: Delivery,
        dispatcher: Dispatcher,
        metrics: ControllerMetrics,
        clock: Clock,
    ) -> None:
        self._delivery = delivery
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._clock = clock
        self._lock = threading.Lock()
        self._all: Sequence[Informed] = ()
        self._over = StopSignal(clock=clock)

    def add_informer(self, informer: RunnableInformer, kind: str) -> OwnInformer:
        """Take the events of ``informer``.

        Raises:
            ValueError: it was added before.
        """
        source = self._delivery.source(kind)
        own = OwnInformer(informer, kind, source)
        with self._lock:
            if self._own(informer) is not None:
                self._delivery.remove(source)
                raise ValueError(
                    f"this informer was added already, under {kind!r} or another kind: an informer "
                    "runs once; to share its events add watchers to its kind"
                )
            self._join(own)
        try:
            registration = informer.add_event_handler(source)
        except BaseException:
            self.remove_informer(informer)
            raise
        own.registration = registration if isinstance(registration, Registration) else None
        return own

    def remove_informer(self, informer: RunnableInformer) -> None:
        """Take its events no more; an unknown one: nothing."""
        with self._lock:
            found = self._own(informer)
        self._leave(found)

    def add_cache(self, cache: Cache, kind: Kind, resync: float | None) -> None:
        """Take the events of a cache's informers of ``kind``.

        Raises:
            ValueError: they were added before.
        """
        source = self._delivery.source(str(kind))
        source.view = kind
        shared = SharedInformers(cache, kind, source)
        with self._lock:
            if self._shared(cache, kind) is not None:
                self._delivery.remove(source)
                raise ValueError(
                    f"{kind} of this cache was added already: to share its events add watchers "
                    "to the kind"
                )
            self._join(shared)
        try:
            shared.begin(resync)
        except BaseException:
            self._leave(shared)
            raise
        if self._over.is_set():
            shared.leave()

    def remove_cache(self, cache: Cache, kind: Kind) -> None:
        """Take their events no more; unknown ones: nothing."""
        with self._lock:
            found = self._shared(cache, kind)
        self._leave(found)

    def end(self) -> None:
        """Take no more events; caches live on, and must not keep what is over."""
        self._over.set()
        self._delivery.stop()
        for one in self._all:
            if isinstance(one, SharedInformers):
                one.leave()

    def has(self, informed: Informed) -> bool:
        """Whether it was not removed meanwhile."""
        return informed in self._all

    def own(self) -> Sequence[OwnInformer]:
        """The informers that the controller runs."""
        return [one for one in self._all if isinstance(one, OwnInformer)]

    def informers(self) -> dict[str, list[object]]:
        """What shows objects, by kind: informers, and caches."""
        found: dict[str, list[object]] = {}
        for one in self._all:
            shown = one.informer if isinstance(one, OwnInformer) else one
            found.setdefault(one.kind, []).append(shown)
        return found

    def kinds(self) -> set[str]:
        """The kinds that have informers."""
        return {one.kind for one in self._all}

    def stores(self, kind: str) -> Sequence[tuple[EventSource, Lister]]:
        """The objects that watchers of ``kind`` may have been told of already."""
        if self._over.is_set():
            return ()
        of_kind = [one for one in self._all if one.kind == kind]
        return [(one.source, store) for one in of_kind for store in one.stores()]

    def healths(self) -> Sequence[Health]:
        """How the informers stand."""
        return [health for one in self._all for health in one.healths()]

    def not_synced(self) -> Informed | None:
        """The first one that has not synced."""
        return next((one for one in self._all if not one.has_synced), None)

    def wait_for_sync(self, stop: StopSignal, timeout: float | None) -> bool:
        """Wait until all have; False when stopped, at the end, or after ``timeout`` seconds."""
        clock = present_clock(self._clock)
        deadline = None if timeout is None else clock.monotonic() + timeout
        either = StopSignal(clock=clock)
        detach = stop.on_set(either.set), self._over.on_set(either.set)
        try:
            while (waiting := self.not_synced()) is not None:
                left = None if deadline is None else max(0.0, deadline - clock.monotonic())
                has_synced = waiting.wait_for_sync(either, left)
                if not has_synced and (either.is_set() or left == 0 or self.has(waiting)):
                    return False
            return True
        finally:
            for each in detach:
                each()

    # The lock is held by the callers of the first three; the list is only ever replaced.

    def _own(self, informer: RunnableInformer) -> OwnInformer | None:
        return next((one for one in self.own() if one.informer is informer), None)

    def _shared(self, cache: Cache, kind: Kind) -> SharedInformers | None:
        shared = (one for one in self._all if isinstance(one, SharedInformers))
        return next((one for one in shared if one.cache is cache and one.kind == str(kind)), None)

    def _join(self, informed: Informed) -> None:
        self._metrics.add_kind(informed.kind)
        self._all = (*self._all, informed)

    def _leave(self, informed: Informed | None) -> None:
        with self._lock:
            if informed is None or informed not in self._all:
                return
            self._all = tuple(one for one in self._all if one is not informed)
        self._delivery.remove(informed.source)
        self._dispatcher.forget(informed.source)
        informed.leave()
