"""Sources of object events: from a cache, and from an informer."""

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
    RequestQueue,
)
from appsdk_operator.controllers._sources.event_pipeline import EventPipeline
from appsdk_operator.resource import Kind, Object
from appsdk_operator.runtime import Clock, Metrics, StopSignal, get_logger
from appsdk_operator.runtime.validation import check_flag

__all__ = ["InformerSource", "KindSource"]

_log = get_logger("appsdk_operator.controllers")

R = TypeVar("R", bound=Hashable)

_HINT_EVERY = 10.0
"""Seconds between log lines about what a source waits for; controller-runtime's number."""


@final
class KindSource(Generic[R]):
    """The events of a kind's objects, from a shared cache.

    Its own thread handles the events one by one, in order for each object. Existing objects come
    first, as initial creations. A handler, or its map function, that raises is called again for the
    event with growing delays (0.1 s, doubling, up to a minute); later events of the object do not
    wait for it.

    When more than ``max_pending`` events wait for a slow handler, the informer blocks, and so do
    its other users: no state of an object is skipped. A handler should therefore only use memory;
    slow work belongs into the reconciler. Failed events do not block the informer: they are stored
    until the handler succeeds, at most 16 events of each object plus its creations and deletions.
    The gauge ``source_retrying_events`` counts them, and :meth:`health` reports them.

    The source waits for a kind that the server does not know yet, with a hint in the log.
    Thread-safe.
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
            cache: the cache; the kind is added at the start if it is not there.
            kind: the kind. Handlers and predicates read spec and status with its types.
            handler: turns events into requests.
            predicates: an event must pass all of them.
            metadata_only: whether metadata is enough. All users share one copy: False makes the
                cache keep whole objects, also for users that only need metadata. Default: as the
                cache's options say.
            max_pending: how many events may wait before the informer blocks; default 10,000.
            clock: the clock for retries of the handler; default: the environment's.
                Waits for the cache use the cache's clock.
            metrics: where it publishes; default: those of its Manager, else
                :func:`~appsdk_operator.runtime.default_metrics`.
            rng: the source of jitter, for repeatable tests.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: whole objects are needed, but the cache's options keep only their metadata.
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
        """The kind of the objects."""
        self._registration: CacheRegistration | None = None
        if metadata_only is False:
            # Now, so that the start order of several controllers does not matter.
            cache.expect_whole(kind)
        self._pipeline = EventPipeline(
            str(kind),
            handler,
            predicates,
            kind=kind,
            max_pending=max_pending,
            clock=clock,
            metrics=metrics,
            rng=rng,
        )
        self.clock: Clock = self._pipeline.clock
        """The clock for retries of the handler."""

    def start(self, queue: RequestQueue[R], stop: StopSignal, /) -> None:
        """Start to feed ``queue``, until ``stop`` is set; returns at once.

        Raises:
            RuntimeError: it was started before.
            ValueError: whole objects are needed, but the cache's options were changed since to keep
                only their metadata.
        """
        self._pipeline.claim.take()
        if self._metadata_only:
            self._cache.add_metadata(self.kind)
        else:
            if self._metadata_only is False:
                self._cache.expect_whole(self.kind)
            self._cache.add(self.kind)
        self._registration = self._cache.add_event_handler(self.kind, self._pipeline.events)
        try:
            self._pipeline.start(queue, stop)
        except BaseException:
            # A source whose start failed is not joined.
            self._registration.remove()
            raise

    @property
    def has_synced(self) -> bool:
        """Whether the cache has synced, and the handler was called for each existing object.

        Failed calls count, because they would keep the controller from starting: they are retried,
        and :meth:`health` reports them.
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
        # The registration waits on the cache's clock, which may differ from ours.
        clock = next((informer.clock for informer in self._informers()), self.clock)
        deadline = None if timeout is None else clock.monotonic() + timeout
        while True:
            now = clock.monotonic()
            wait = _HINT_EVERY if deadline is None else max(0.0, min(_HINT_EVERY, deadline - now))
            if registration.wait_for_sync(stop, wait):
                return True
            later = clock.monotonic()
            # Returned before the time-out: the registration was removed.
            has_ended = stop.is_set() or self._pipeline.is_stopped or later < now + wait
            if has_ended or (deadline is not None and later >= deadline):
                return False
            _log.warning(
                "%s", self.health().text, extra={"source": str(self), "kind": str(self.kind)}
            )

    def health(self) -> Health:
        """Ready once it has synced; the text has what it waits for, and what its handler fails for.

        The health of the informers after that is part of the cache's. A failing handler leaves the
        source ready: a restart would not help.
        """
        # Read first: the informers exist before the registration does.
        registration = self._registration
        return _health(self, self._pipeline, registration, self._informers())

    def join(self, timeout: float | None = None, /) -> list[str]:
        """Wait for its threads after the stop; returns the names of those that still run."""
        running = self._pipeline.join(timeout)
        if self._registration is not None:
            self._registration.remove()
        return running

    def _informers(self) -> list[Informer]:
        try:
            return list(self._cache.informers(self.kind))
        except NotCachedError:
            return []

    def find(self, name: str, namespace: str) -> Object | None:
        """For logs and Events: the object of that name in the local copy, if it is there."""
        found = (informer.store.get(name, namespace) for informer in self._informers())
        return next((obj for obj in found if obj is not None), None)

    def __str__(self) -> str:
        return str(self.kind)


@final
class InformerSource(Generic[R]):
    """The events of an informer that is run elsewhere; otherwise as :class:`KindSource`.

    Thread-safe.
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
            informer: the informer; this source does not run it.
            handler: turns events into requests.
            predicates: an event must pass all of them.
            max_pending: how many events may wait before the informer blocks; default 10,000.
            clock: the clock for all waits; default: the environment's.
            metrics: where it publishes; default: those of its Manager, else
                :func:`~appsdk_operator.runtime.default_metrics`.
            rng: the source of jitter, for repeatable tests.

        Raises:
            TypeError: an argument has the wrong type.
        """
        if not isinstance(informer, Informer):
            raise TypeError(f"informer={informer!r}: give an Informer; KindSource takes a cache")
        self._informer = informer
        self._registration: Registration | None = None
        self._pipeline = EventPipeline(
            str(informer.kind),
            handler,
            predicates,
            max_pending=max_pending,
            clock=clock,
            metrics=metrics,
            rng=rng,
        )
        self.clock: Clock = self._pipeline.clock
        """The clock for retries of the handler."""

    def start(self, queue: RequestQueue[R], stop: StopSignal, /) -> None:
        """Start to feed ``queue``, until ``stop`` is set; returns at once.

        Raises:
            RuntimeError: it was started before, or the informer has stopped.
        """
        self._pipeline.claim.take()
        self._registration = self._informer.add_event_handler(self._pipeline.events)
        try:
            self._pipeline.start(queue, stop)
        except BaseException:
            # A source whose start failed is not joined.
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
        return _health(self, self._pipeline, self._registration, [self._informer])

    def join(self, timeout: float | None = None, /) -> list[str]:
        """Wait for its threads after the stop; returns the names of those that still run."""
        running = self._pipeline.join(timeout)
        if self._registration is not None:
            self._registration.remove()
        return running

    @property
    def kind(self) -> Kind:
        """The kind of its informer."""
        return self._informer.kind

    def find(self, name: str, namespace: str) -> Object | None:
        """For logs and Events: the object of that name in the local copy, if it is there."""
        found = (informer.store.get(name, namespace) for informer in [self._informer])
        return next((obj for obj in found if obj is not None), None)

    def __str__(self) -> str:
        return str(self._informer.kind)


def _health(
    source: object,
    pipeline: EventPipeline[R],
    registration: CacheRegistration | Registration | None,
    informers: list[Informer],
) -> Health:
    if not pipeline.claim.is_taken:
        return Health(False, f"source {source}: not started")
    if pipeline.is_stopped:
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
        return Health(True, f"source {source}: {pipeline.text()}")
    waiting = [informer for informer in informers if not informer.has_synced]
    causes = [informer.health().text for informer in waiting]
    if any(isinstance(informer.last_error, NotFound) for informer in waiting):
        causes.append("install its CustomResourceDefinition, or correct the kind")
    if not waiting:
        causes.append(f"{pipeline.pending} objects are still to go through its handler")
    return Health(False, f"source {source}: waits for its first objects: {'; '.join(causes)}")
