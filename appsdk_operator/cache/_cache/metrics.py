"""The metrics of a cache, besides those of its informers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import final

from appsdk_operator.cache._cache.registration import CacheRegistration
from appsdk_operator.runtime import Family, Metrics, Sample

_PENDING = Family(
    "cache_handler_pending_events", "gauge", "Events that wait for event handlers.", ("kind",)
)
_MERGED = Family(
    "cache_handler_merged_events_total",
    "counter",
    "Events for event handlers merged into others of the same object, because too many waited.",
    ("kind",),
)


@final
class CacheMetrics:
    """Pending and merged events of the handlers, by kind."""

    def __init__(
        self,
        handlers: Callable[[], Sequence[CacheRegistration]],
        lock: threading.RLock,
    ) -> None:
        self._handlers = handlers
        # The cache's lock, so that a removed handler is counted exactly once.
        self._lock = lock
        # Merged events of removed handlers: a counter must not go down.
        self._removed: dict[str, int] = {}
        self.retire: Callable[[], None] = lambda: None

    def publish(self, metrics: Metrics) -> None:
        """Publish in ``metrics`` from now on."""
        self.retire = metrics.add_source(self._samples)

    def note_removed(self, registration: CacheRegistration) -> None:
        """With the lock held, keep the count of a handler that is removed."""
        kind = str(registration.kind)
        self._removed[kind] = self._removed.get(kind, 0) + registration.pending_events[1]

    def _samples(self) -> list[Sample]:
        pending: dict[str, int] = {}
        with self._lock:
            merged, handlers = dict(self._removed), self._handlers()
        for registration in handlers:
            kind = str(registration.kind)
            waiting, count = registration.pending_events
            pending[kind] = pending.get(kind, 0) + waiting
            merged[kind] = merged.get(kind, 0) + count
        return [
            *(Sample(_PENDING, (kind,), count) for kind, count in pending.items()),
            *(Sample(_MERGED, (kind,), count) for kind, count in merged.items()),
        ]
