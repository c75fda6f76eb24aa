"""The informers that feed a controller, by kind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

from appsdk_operator.cache import Delivery, EventSource, Followed, Health, Lister
from appsdk_operator.resource import Kind, Object
from appsdk_operator.runtime import Clock, StopSignal
from appsdk_operator.watchers._dispatch.dispatcher import Dispatcher
from appsdk_operator.watchers._dispatch.metrics import ControllerMetrics
from appsdk_operator.watchers._informers.owned import OwnedInformer, RunnableInformer

if TYPE_CHECKING:
    from appsdk_operator.cache import Cache


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
        # Replaced, never changed, so that it can be read without the lock.
        self._bindings: Sequence[Followed] = ()
        self._closed = StopSignal(clock=clock)

    def add_informer(
        self,
        informer: RunnableInformer,
        kind: str,
        resync: float | None,
        check: Callable[[], object],
    ) -> OwnedInformer:
        """Deliver the events of ``informer``, from when ``check`` has passed with it among all.

        Raises:
            ValueError: it was added before.
            Exception: what ``check`` raised.
        """
        source = self._delivery.source(kind)
        owned = OwnedInformer(informer, source, resync=resync, clock=self._clock)
        self._add(
            owned,
            check,
            f"this informer was added already, under {kind!r} or another kind, and an informer "
            "runs once: add more watchers to its kind to share its events",
        )
        return owned

    def add_cache(
        self, cache: Cache, kind: Kind, resync: float | None, check: Callable[[], object]
    ) -> None:
        """As :meth:`add_informer`, for a cache's informers of ``kind``."""
        source = self._delivery.source(str(kind))
        source.view = kind
        self._add(
            Followed(cache, kind, source, resync=resync, clock=self._clock),
            check,
            f"{kind.qualified_name} of this cache was added already: to share its events add "
            "watchers to the kind",
        )

    def _add(self, binding: Followed, check: Callable[[], object], present: str) -> None:
        with self._lock:
            if self._find(binding.origin, binding.source.kind) is not None:
                self._delivery.remove(binding.source)
                raise ValueError(present)
            self._metrics.add_kind(binding.source.kind)
            self._bindings = (*self._bindings, binding)
        try:
            check()
            binding.attach()
        except BaseException:
            self._remove(binding)
            raise
        if self._closed.is_set():  # meanwhile
            binding.detach()

    def remove(self, origin: RunnableInformer | Cache, kind: str = "") -> None:
        """Drop the events of an informer, which stops, or of a cache's informers of ``kind``.

        An unknown one is ignored.
        """
        with self._lock:
            found = self._find(origin, kind)
        if found is not None:
            self._remove(found)

    def _find(self, origin: object, kind: str) -> Followed | None:
        """With the lock held: the binding of an informer, or of a cache and ``kind``."""
        for one in self._bindings:
            if one.origin is origin and (isinstance(one, OwnedInformer) or one.source.kind == kind):
                return one
        return None

    def _remove(self, binding: Followed) -> None:
        with self._lock:
            if binding not in self._bindings:
                return
            self._bindings = tuple(one for one in self._bindings if one is not binding)
        self._delivery.remove(binding.source)
        self._dispatcher.forget(binding.source)
        binding.detach()

    def close(self) -> None:
        """Deliver no more events, and detach from caches, which outlive the controller."""
        self._closed.set()
        self._delivery.stop()
        for one in self._bindings:
            if not isinstance(one, OwnedInformer):
                one.detach()

    def contains(self, binding: Followed) -> bool:
        """Whether the binding is still there."""
        return binding in self._bindings

    def owned(self) -> Sequence[OwnedInformer]:
        """The informers that the controller runs."""
        return [one for one in self._bindings if isinstance(one, OwnedInformer)]

    def origins(self) -> dict[str, list[object]]:
        """By kind, the informers that the controller runs, and the caches."""
        found: dict[str, list[object]] = {}
        for one in self._bindings:
            found.setdefault(one.source.kind, []).append(one.origin)
        return found

    def names(self) -> tuple[str, ...]:
        """The kinds that have informers, for people: by resource and group, where that is known."""
        kinds = (getattr(one.kind, "qualified_name", one.source.kind) for one in self._bindings)
        return tuple(dict.fromkeys(kinds))

    def stores(self, kind: str) -> Sequence[Lister]:
        """The local copies of ``kind``."""
        if self._closed.is_set():
            return ()
        of_kind = [one for one in self._bindings if one.source.kind == kind]
        return [informer.store for one in of_kind for informer in one.informers]

    def show_present(
        self, kind: str, show: Callable[[EventSource, Sequence[Object]], None]
    ) -> None:
        """Call ``show`` for each source of ``kind``, with the objects that it has got so far.

        The source gets no event during the call. Informers of other packages have no local copy
        that could be shown.
        """
        for one in () if self._closed.is_set() else self._bindings:
            is_foreign = isinstance(one, OwnedInformer) and not one.informers
            if one.source.kind == kind and not is_foreign:
                with one.paused() as present:
                    show(one.source, present)

    def healths(self) -> Sequence[Health]:
        """The health of each informer."""
        return [health for one in self._bindings for health in one.healths()]

    def snapshots(self) -> list[dict[str, Any]]:
        """The snapshots of the informers that the controller runs, as JSON values; at most 500."""
        methods: list[Callable[[], dict[str, Any]] | None] = [
            getattr(one.informer, "debug_snapshot", None) for one in self.owned()[:500]
        ]
        return [snapshot() for snapshot in methods if callable(snapshot)]

    def first_unsynced(self) -> Followed | None:
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
