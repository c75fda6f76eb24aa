"""Sources of what happens to objects: of a kind in a cache, and of an informer."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar, final

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.cache import (
    Cache,
    CacheRegistration,
    Health,
    Informer,
    NotCachedError,
    Registration,
)
from appsdk_operator.client import NotFound
from appsdk_operator.controllers._protocols import (
    EventFilter,
    Handler,
    JoinableSource,
    RequestQueue,
    SyncingSource,
)
from appsdk_operator.controllers._sources.event_feed import EventFeed
from appsdk_operator.resource import Kind
from appsdk_operator.runtime import Clock, Metrics, StopSignal, get_logger, present_clock
from appsdk_operator.runtime.validation import check_flag

__all__ = ["InformerSource", "KindSource"]

_log = get_logger("appsdk_operator.controllers")

R = TypeVar("R", bound=Hashable)

_HINT_EVERY = 10.0
"""Seconds between two words about what a source waits for; controller-runtime's number."""


@final
class KindSource(Generic[R]):
    """What happens to the objects of a kind, from a cache that others share.

    Its events are handled in a thread of its own, one by one, each object's in order. What is there
    at the start comes first, as initial creations. A handler, or its map function, that raises is
    called again for the event with growing delays (0.1 s, doubling, up to a minute), and the
    object's later events wait up to five tries for it.

    When more than ``max_pending`` events wait for a slow handler, the informer, and with it all who
    share it, wait: no state of an object is left out. So a handler should only look at what is in
    memory; what takes time belongs into the reconciler. What a handler fails for does not make the
    informer wait: it is kept until it works, of each object at most 16 events and its creations and
    deletions. The gauge ``source_retrying_events`` counts it, and :meth:`health` tells.

    A kind that the server does not know (yet) is waited for, with a hint in the log. Thread-safe.
    """

    def __init__(
        self,
        cache: Cache,
        kind: Kind[SpecT, StatusT],
        handler: Handler[R, SpecT, StatusT],
        predicates: Iterable[EventFilter[SpecT, StatusT]] = (),
        *,
        metadata_only: bool | None = None,
        max_pending: int = 10_000,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """A source that does nothing before its controller starts it.

        Args:
            cache: keeps the kind; it is added at the start if it is not there.
            kind: whose objects. Handlers and predicates read spec and status with its types.
            handler: turns events into requests.
            predicates: all of them must let an event pass to the handler.
            metadata_only: whether the objects' metadata is enough. There is one copy for all: False
                has the cache keep the kind whole, for those too that need only its metadata.
                Default: what the options of the cache say.
            max_pending: how many events may wait before the informer does; default 10,000.
            clock: what it waits on before it calls a failed handler again; default: that of its
                Manager, else the machine's. For its cache it waits on the cache's.
            metrics: where it publishes; default: in those of its Manager, else in
                :func:`~appsdk_operator.runtime.default_metrics`.
            rng: the source of jitter, for repeatable tests.

        Raises:
            TypeError: an argument has no form that is known.
            ValueError: whole objects are needed, and by its options the cache keeps their metadata
                only.
        """
        if not callable(getattr(cache, "add_event_handler", None)):
            raise TypeError(f"cache={cache!r}: give the cache that keeps the kind")
        if not isinstance(kind, Kind):
            raise TypeError(f"kind={kind!r}: give a Kind")
        if metadata_only is not None:
            check_flag("metadata_only", metadata_only)
        self._cache = cache
        self._metadata_only = metadata_only
        self.kind = kind
        """Whose objects."""
        self._registration: CacheRegistration | None = None
        if metadata_only is False:
            # Said now, so that it does not matter which of several controllers starts first.
            cache.expect_whole(kind)
        self._feed = EventFeed(
            str(kind),
            handler,
            predicates,
            kind=kind,
            max_pending=max_pending,
            clock=clock,
            metrics=metrics,
            rng=rng,
        )
        self._clock = self._feed.clock

    def inherit_environment(self, clock: Clock, metrics: Metrics) -> None:
        """For managers: use these, unless it was given others or was started already."""
        self._feed.inherit_environment(clock, metrics)

    def start(self, queue: RequestQueue[R], stop: StopSignal, /) -> None:
        """Begin to feed ``queue`` until ``stop`` is set; returns without waiting.

        Raises:
            RuntimeError: it was started before.
            ValueError: whole objects are needed, and by its options the cache keeps their metadata
                only, since this source was made.
        """
        self._feed.claim()
        if self._metadata_only:
            self._cache.add_metadata(self.kind)
        else:
            if self._metadata_only is False:
                self._cache.expect_whole(self.kind)
            self._cache.add(self.kind)
        self._registration = self._cache.add_event_handler(self.kind, self._feed.events)
        try:
            self._feed.start(queue, stop)
        except BaseException:
            # Nobody joins a source whose start failed.
            self._registration.remove()
            raise

    @property
    def has_synced(self) -> bool:
        """Whether the cache has synced, and each object that was there went through the handler.

        One for which the handler raised counts, or it would keep the controller from starting: it
        is tried again, and :meth:`health` tells.
        """
        return self._registration is not None and self._registration.has_synced

    def wait_for_sync(self, stop: StopSignal, timeout: float | None = None, /) -> bool:
        """Wait for :attr:`has_synced`; False when stopped or after ``timeout`` seconds.

        Raises:
            RuntimeError: it was not started.
        """
        registration = self._registration
        if registration is None:
            raise RuntimeError(f"source {self} was not started, so it will never sync: start it")
        # The cache's, by which the registration waits; ours may be another one.
        clock = present_clock(next((informer.clock for informer in self._informers()), self._clock))
        deadline = None if timeout is None else clock.monotonic() + timeout
        while True:
            now = clock.monotonic()
            wait = _HINT_EVERY if deadline is None else max(0.0, min(_HINT_EVERY, deadline - now))
            if registration.wait_for_sync(stop, wait):
                return True
            later = clock.monotonic()
            # Earlier than it was told to wait: the handler's place is gone.
            has_ended = stop.is_set() or self._feed.is_stopped or later < now + wait
            if has_ended or (deadline is not None and later >= deadline):
                return False
            _log.warning(
                "%s", self.health().text, extra={"source": str(self), "kind": str(self.kind)}
            )

    def health(self) -> Health:
        """Whether it has synced, and what it waits for; and what its handler fails for.

        How the informers stand after that is told by the cache. A handler that fails leaves it
        ready: no restart would help.
        """
        # Looked at first: the informers are there before the registration is.
        registration = self._registration
        return _health(self, self._feed, registration, self._informers())

    def join(self, timeout: float | None = None, /) -> list[str]:
        """Wait, after the stop, for its threads; the names of those that still run."""
        running = self._feed.join(timeout)
        if self._registration is not None:
            self._registration.remove()
        return running

    def _informers(self) -> list[Informer]:
        try:
            return list(self._cache.informers(self.kind))
        except NotCachedError:
            return []

    def __str__(self) -> str:
        return str(self.kind)


@final
class InformerSource(Generic[R]):
    """What happens to the objects of an informer that somebody else runs.

    As :class:`KindSource` in everything else. Thread-safe.
    """

    def __init__(
        self,
        informer: Informer[SpecT, StatusT],
        handler: Handler[R, SpecT, StatusT],
        predicates: Iterable[EventFilter[SpecT, StatusT]] = (),
        *,
        max_pending: int = 10_000,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """A source that does nothing before its controller starts it.

        Args:
            informer: tells of the objects; running it is not this source's business.
            handler: turns events into requests.
            predicates: all of them must let an event pass to the handler.
            max_pending: how many events may wait before the informer does; default 10,000.
            clock: what it waits on; default: that of its Manager, else the machine's.
            metrics: where it publishes; default: in those of its Manager, else in
                :func:`~appsdk_operator.runtime.default_metrics`.
            rng: the source of jitter, for repeatable tests.

        Raises:
            TypeError: an argument has no form that is known.
        """
        if not isinstance(informer, Informer):
            raise TypeError(f"informer={informer!r}: give an Informer; KindSource takes a cache")
        self._informer = informer
        self._registration: Registration | None = None
        self._feed = EventFeed(
            str(informer.kind),
            handler,
            predicates,
            max_pending=max_pending,
            clock=clock,
            metrics=metrics,
            rng=rng,
        )

    def inherit_environment(self, clock: Clock, metrics: Metrics) -> None:
        """For managers: use these, unless it was given others or was started already."""
        self._feed.inherit_environment(clock, metrics)

    def start(self, queue: RequestQueue[R], stop: StopSignal, /) -> None:
        """Begin to feed ``queue`` until ``stop`` is set; returns without waiting.

        Raises:
            RuntimeError: it was started before, or the informer has stopped.
        """
        self._feed.claim()
        self._registration = self._informer.add_event_handler(self._feed.events)
        try:
            self._feed.start(queue, stop)
        except BaseException:
            # Nobody joins a source whose start failed.
            self._registration.remove()
            raise

    @property
    def has_synced(self) -> bool:
        """As :attr:`KindSource.has_synced`."""
        return self._registration is not None and self._registration.has_synced

    def wait_for_sync(self, stop: StopSignal, timeout: float | None = None, /) -> bool:
        """Wait for :attr:`has_synced`; False when stopped or after ``timeout`` seconds.

        Raises:
            RuntimeError: it was not started.
        """
        if self._registration is None:
            raise RuntimeError(f"source {self} was not started, so it will never sync: start it")
        return self._registration.wait_for_sync(stop, timeout)

    def health(self) -> Health:
        """As :meth:`KindSource.health`."""
        return _health(self, self._feed, self._registration, [self._informer])

    def join(self, timeout: float | None = None, /) -> list[str]:
        """Wait, after the stop, for its threads; the names of those that still run."""
        running = self._feed.join(timeout)
        if self._registration is not None:
            self._registration.remove()
        return running

    def __str__(self) -> str:
        return str(self._informer.kind)


def _health(
    source: object,
    feed: EventFeed[R],
    registration: CacheRegistration | Registration | None,
    informers: list[Informer],
) -> Health:
    if not feed.is_started:
        return Health(False, f"source {source}: not started")
    if feed.is_stopped:
        return Health(False, f"source {source}: stopped")
    if registration is None:
        return Health(False, f"source {source}: is starting")
    if not informers:
        return Health(
            False,
            f"source {source}: the kind was removed from the cache, so that nothing comes any "
            "more: remove a kind only after the controllers that watch it have stopped",
        )
    if registration.has_synced:
        return Health(True, f"source {source}: {feed.pipeline.text()}")
    waiting = [informer for informer in informers if not informer.has_synced]
    causes = [informer.health().text for informer in waiting]
    if any(isinstance(informer.last_error, NotFound) for informer in waiting):
        causes.append("install its CustomResourceDefinition, or correct the kind")
    if not waiting:
        causes.append(f"{feed.pending} objects are still to go through its handler")
    return Health(False, f"source {source}: waits for its first objects: {'; '.join(causes)}")


def _fits(
    kind_source: KindSource[R], informer_source: InformerSource[R]
) -> tuple[SyncingSource[R], JoinableSource[R], SyncingSource[R], JoinableSource[R]]:
    return kind_source, kind_source, informer_source, informer_source
