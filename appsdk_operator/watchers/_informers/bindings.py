"""The informers that feed a controller, by kind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, final

from appsdk_operator.cache import Cache, Delivery, EventSource, Health, Lister, Registration
from appsdk_operator.resource import Kind
from appsdk_operator.runtime import Clock, StopSignal
from appsdk_operator.watchers._dispatch.dispatcher import Dispatcher
from appsdk_operator.watchers._dispatch.metrics import ControllerMetrics
from appsdk_operator.watchers._informers.binding import (
    InformerBinding,
    OwnedInformer,
    RunnableInformer,
    SharedInformers,
)

__all__ = ["InformerBindings"]


@final
class InformerBindings:
    """The informers of a controller: those that it runs, and those of caches. Thread-safe."""

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
        self._bindings: Sequence[InformerBinding] = ()
        self._closed = StopSignal(clock=clock)

    def add_informer(
        self, informer: RunnableInformer, kind: str, check: Callable[[], object]
    ) -> OwnedInformer:
        """Deliver the events of ``informer``, from when ``check`` has passed with it among all.

        Raises:
            ValueError: it was added before.
            Exception: what ``check`` raised.
        """
        source = self._delivery.source(kind)
        owned = OwnedInformer(informer, kind, source)
        with self._lock:
            if self._find_owned(informer) is not None:
                self._delivery.remove(source)
                raise ValueError(
                    f"this informer was added already, under {kind!r} or another kind: an informer "
                    "runs once; to share its events add watchers to its kind"
                )
            self._attach(owned)
        try:
            check()
            registration = informer.add_event_handler(source)
        except BaseException:
            self.remove_informer(informer)
            raise
        owned.registration = registration if isinstance(registration, Registration) else None
        return owned

    def remove_informer(self, informer: RunnableInformer) -> None:
        """Stop the informer and drop its events. An unknown one is ignored."""
        with self._lock:
            found = self._find_owned(informer)
        self._remove(found)

    def add_cache(
        self, cache: Cache, kind: Kind, resync: float | None, check: Callable[[], object]
    ) -> None:
        """As :meth:`add_informer`, for a cache's informers of ``kind``."""
        source = self._delivery.source(str(kind))
        source.view = kind
        shared = SharedInformers(cache, kind, source, clock=self._clock)
        with self._lock:
            if self._find_shared(cache, kind) is not None:
                self._delivery.remove(source)
                raise ValueError(
                    f"{kind} of this cache was added already: to share its events add watchers "
                    "to the kind"
                )
            self._attach(shared)
        try:
            check()
            shared.attach(resync)
        except BaseException:
            self._remove(shared)
            raise
        if self._closed.is_set() or source.is_removed:  # meanwhile
            shared.detach()

    def remove_cache(self, cache: Cache, kind: Kind) -> None:
        """Stop delivering the events of a cache's informers of ``kind``; others are ignored."""
        with self._lock:
            found = self._find_shared(cache, kind)
        self._remove(found)

    def close(self) -> None:
        """Deliver no more events, and detach from caches, which outlive the controller."""
        self._closed.set()
        self._delivery.stop()
        for one in self._bindings:
            if isinstance(one, SharedInformers):
                one.detach()

    def contains(self, binding: InformerBinding) -> bool:
        """Whether the binding is still there."""
        return binding in self._bindings

    def owned(self) -> Sequence[OwnedInformer]:
        """The informers that the controller runs."""
        return [one for one in self._bindings if isinstance(one, OwnedInformer)]

    def informers(self) -> dict[str, list[object]]:
        """The informers by kind; in place of those of a cache, their binding."""
        found: dict[str, list[object]] = {}
        for one in self._bindings:
            informer = one.informer if isinstance(one, OwnedInformer) else one
            found.setdefault(one.kind, []).append(informer)
        return found

    def kinds(self) -> set[str]:
        """The kinds that have informers."""
        return {one.kind for one in self._bindings}

    def names(self) -> tuple[str, ...]:
        """The kinds that have informers, for people: by resource and group, where that is known."""
        found: dict[str, None] = {}
        for one in self._bindings:
            owner = one.informer if isinstance(one, OwnedInformer) else one.source
            kind = getattr(owner, "kind" if isinstance(one, OwnedInformer) else "view", None)
            found[kind.qualified_name if isinstance(kind, Kind) else one.kind] = None
        return tuple(found)

    def stores(self, kind: str) -> Sequence[tuple[EventSource, Lister]]:
        """The local copies whose objects watchers of ``kind`` may have got already."""
        if self._closed.is_set():
            return ()
        of_kind = [one for one in self._bindings if one.kind == kind]
        return [(one.source, store) for one in of_kind for store in one.stores()]

    def healths(self) -> Sequence[Health]:
        """The health of each informer."""
        return [health for one in self._bindings for health in one.healths()]

    def snapshots(self) -> list[dict[str, Any]]:
        """The snapshots of the informers that the controller runs, as JSON values; at most 500."""
        methods: list[Callable[[], dict[str, Any]] | None] = [
            getattr(one.informer, "debug_snapshot", None) for one in self.owned()[:500]
        ]
        return [snapshot() for snapshot in methods if callable(snapshot)]

    def first_unsynced(self) -> InformerBinding | None:
        """The first binding that has not synced; None if all have."""
        return next((one for one in self._bindings if not one.has_synced), None)

    def wait_for_sync(self, stop: StopSignal, timeout: float | None) -> bool:
        """Wait until all have synced; False when stopped, closed, or after ``timeout`` seconds."""
        clock = self._clock
        deadline = None if timeout is None else clock.monotonic() + timeout
        either = StopSignal(clock=clock)
        detach = stop.on_set(either.set), self._closed.on_set(either.set)
        try:
            while (waiting := self.first_unsynced()) is not None:
                left = None if deadline is None else max(0.0, deadline - clock.monotonic())
                has_synced = waiting.wait_for_sync(either, left)
                if not has_synced and (either.is_set() or left == 0 or self.contains(waiting)):
                    return False
            return True
        finally:
            for each in detach:
                each()

    # Callers of the first three hold the lock; the tuple of bindings is replaced, never changed.

    def _find_owned(self, informer: RunnableInformer) -> OwnedInformer | None:
        return next((one for one in self.owned() if one.informer is informer), None)

    def _find_shared(self, cache: Cache, kind: Kind) -> SharedInformers | None:
        shared = (one for one in self._bindings if isinstance(one, SharedInformers))
        return next((one for one in shared if one.cache is cache and one.kind == str(kind)), None)

    def _attach(self, binding: InformerBinding) -> None:
        self._metrics.add_kind(binding.kind)
        self._bindings = (*self._bindings, binding)

    def _remove(self, binding: InformerBinding | None) -> None:
        with self._lock:
            if binding is None or binding not in self._bindings:
                return
            self._bindings = tuple(one for one in self._bindings if one is not binding)
        self._delivery.remove(binding.source)
        self._dispatcher.forget(binding.source)
        binding.detach()
