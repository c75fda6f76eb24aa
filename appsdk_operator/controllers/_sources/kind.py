"""Sources of object events: from a cache, and from an informer."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Generic, TypeVar, final

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.cache import Cache, Followed, Health, Informer
from appsdk_operator.client import NotFound
from appsdk_operator.controllers._protocols import Handler, RequestQueue
from appsdk_operator.controllers._sources.event_pipeline import EventPipeline
from appsdk_operator.resource import Kind, Object
from appsdk_operator.runtime import Clock, Metrics, StopSignal, get_logger
from appsdk_operator.runtime.validation import check_flag

if TYPE_CHECKING:
    from appsdk_operator.controllers._predicates import EventFilter

_log = get_logger("appsdk_operator.controllers")

R = TypeVar("R", bound=Hashable)

_HINT_EVERY = 10.0
"""Seconds between log lines about what a source waits for; controller-runtime's number."""


class _FollowingSource(Generic[R]):
    """What both sources do: they pass the events of what they follow to a pipeline."""

    def __init__(
        self,
        origin: Cache | Informer,
        kind: Kind,
        pipeline: EventPipeline[R],
        *,
        metadata_only: bool | None = None,
    ) -> None:
        self.kind: Kind = kind
        """The kind of the objects."""
        self.clock: Clock = pipeline.clock
        """The clock for retries of the handler."""
        self._pipeline = pipeline
        self._followed = Followed(
            origin, kind, pipeline.events, metadata_only=metadata_only, clock=origin.clock
        )

    def start(self, queue: RequestQueue[R], stop: StopSignal, /) -> None:
        """Start to feed ``queue``, until ``stop`` is set; returns at once.

        Raises:
            RuntimeError: it was started before, or the informer has stopped.
            ValueError: whole objects are needed, but the cache's options were changed since to keep
                only their metadata.
        """
        self._pipeline.claim.take()
        self._followed.attach()
        try:
            self._pipeline.start(queue, stop)
        except BaseException:
            # A source whose start failed is not joined.
            self._followed.detach()
            raise

    @property
    def has_synced(self) -> bool:
        """Whether the local copy has synced, and the handler was called for each existing object.

        Failed calls count, because they would keep the controller from starting: they are retried,
        and :meth:`health` reports them.
        """
        return self._followed.has_synced

    def wait_for_sync(self, stop: StopSignal, timeout: float | None = None, /) -> bool:
        """Wait for :attr:`has_synced`; False when stopped or after ``timeout`` seconds.

        Raises:
            RuntimeError: it was not started.
        """
        if self._followed.registration is None:
            raise RuntimeError(f"source {self} was not started, so it will never sync: start it")
        # That of the local copy, which may differ from ours.
        clock = self._followed.clock
        deadline = None if timeout is None else clock.monotonic() + timeout
        while True:
            now = clock.monotonic()
            wait = _HINT_EVERY if deadline is None else max(0.0, min(_HINT_EVERY, deadline - now))
            if self._followed.wait_for_sync(stop, wait):
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

        The health of the informers after that is part of their cache's or manager's. A failing
        handler leaves the source ready: a restart would not help.
        """
        # Read first: the informers exist before the registration does.
        registration = self._followed.registration
        is_ready = False
        if not self._pipeline.claim.is_taken:
            text = "not started"
        elif self._pipeline.is_stopped:
            text = "stopped"
        elif registration is None:
            text = "is starting"
        elif self._followed.is_dropped:
            text = (
                "the kind was removed from the cache, so no more events come: remove a kind only "
                "after the controllers that watch it have stopped"
            )
        elif registration.has_synced:
            is_ready, text = True, self._pipeline.text()
        else:
            waiting = [one for one in self._followed.informers if not one.has_synced]
            causes = [informer.health().text for informer in waiting]
            if any(isinstance(informer.last_error, NotFound) for informer in waiting):
                causes.append("install its CustomResourceDefinition, or correct the kind")
            if not waiting:
                causes.append(f"its handler has not handled {self._pipeline.pending} objects yet")
            text = f"waits for its first objects: {'; '.join(causes)}"
        return Health(is_ready, f"source {self}: {text}")

    def join(self, timeout: float | None = None, /) -> list[str]:
        """Wait for its threads after the stop; returns the names of those that still run."""
        running = self._pipeline.join(timeout)
        self._followed.detach()
        return running

    def find(self, name: str, namespace: str) -> Object | None:
        """For logs and Events: the object of that name in the local copy, if it is there."""
        return self._followed.find(name, namespace)

    def __str__(self) -> str:
        return str(self.kind)


@final
class KindSource(_FollowingSource[R]):
    """The events of a kind's objects, from a shared cache.

    Its own thread handles the events one by one, in order for each object. Existing objects come
    first, as initial creations. If a handler or its map function raises, the source calls it again
    for the event with growing delays (0.1 s, doubling, up to a minute); later events of the object
    do not wait for it.

    When more than ``max_pending`` events wait for a slow handler, the informer blocks, and so do
    its other users: no state of an object is skipped. So a handler should only use memory; slow
    work belongs into the reconciler. Failed events do not block the informer: the source stores
    them until the handler succeeds, at most 16 events of each object plus its creations and
    deletions. The gauge ``source_retrying_events`` counts them, and :meth:`health` reports them.

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
            metrics: the metrics that it writes to; default: its Manager's, else
                :func:`~appsdk_operator.runtime.default_metrics`.
            rng: the source of jitter, for repeatable tests.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: whole objects are needed, but the cache's options keep only their metadata.
        """
        if not isinstance(cache, Cache):
            raise TypeError(f"cache={cache!r}: give the cache that keeps the kind")
        if not isinstance(kind, Kind):
            raise TypeError(f"kind={kind!r}: give a Kind")
        if metadata_only is not None:
            check_flag("metadata_only", metadata_only)
        pipeline = EventPipeline(
            str(kind),
            handler,
            predicates,
            kind=kind,
            max_pending=max_pending,
            clock=clock,
            metrics=metrics,
            rng=rng,
        )
        super().__init__(cache, kind, pipeline, metadata_only=metadata_only)


@final
class InformerSource(_FollowingSource[R]):
    """The events of an informer that somebody else runs; otherwise as :class:`KindSource`.

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
            clock: the clock for retries of the handler; default: the environment's.
                Waits for the informer use the informer's clock.
            metrics: the metrics that it writes to; default: its Manager's, else
                :func:`~appsdk_operator.runtime.default_metrics`.
            rng: the source of jitter, for repeatable tests.

        Raises:
            TypeError: an argument has the wrong type.
        """
        if not isinstance(informer, Informer):
            raise TypeError(f"informer={informer!r}: give an Informer; KindSource takes a cache")
        pipeline = EventPipeline(
            str(informer.kind),
            handler,
            predicates,
            max_pending=max_pending,
            clock=clock,
            metrics=metrics,
            rng=rng,
        )
        super().__init__(informer, informer.kind, pipeline)
