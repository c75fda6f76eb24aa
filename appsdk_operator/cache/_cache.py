"""Informers by kind, shared by everybody who reads or watches."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias, final

import attrs

from appsdk_operator.cache._cache_registration import CacheRegistration
from appsdk_operator.cache._delivery import Overflow
from appsdk_operator.cache._events import BatchHandler, EventHandler
from appsdk_operator.cache._health import Health
from appsdk_operator.cache._informer import Informer
from appsdk_operator.cache._options import (
    check_function,
    check_indexes,
    checked_seconds,
    field_selector_of,
    join_all,
    label_selector_of,
)
from appsdk_operator.cache._reflector import ListWatchClient
from appsdk_operator.cache._store import IndexFunction
from appsdk_operator.cache._transforms import Transform
from appsdk_operator.resource import FieldSelector, Kind, LabelSelector, Object
from appsdk_operator.runtime import (
    Clock,
    Metrics,
    StopSignal,
    ThreadGroup,
    default_metrics,
    system_clock,
)

__all__ = ["Cache", "CacheOptions", "NotCachedError"]

_log = logging.getLogger("appsdk_operator.cache")

# The class below has a method called list.
Objects: TypeAlias = list[Object]
Informers: TypeAlias = list[Informer]


class NotCachedError(LookupError):
    """A kind, or a namespace of it, was read that the cache does not hold, or not yet."""


def _no_names(_: object, __: object, value: Sequence[str]) -> None:
    if isinstance(value, str) or not all(value):
        raise ValueError(
            f"namespaces={value!r}: give a list of names, or none at all for all namespaces"
        )


def _seconds(_: object, field: attrs.Attribute[float], value: float) -> None:
    checked_seconds(field.name, value)


@attrs.frozen(kw_only=True)
class CacheOptions:
    """What to keep of one kind."""

    namespaces: Sequence[str] | None = attrs.field(
        default=None, validator=attrs.validators.optional(_no_names)
    )
    """The namespaces to follow; default: those of the cache; empty: all."""
    label_selector: LabelSelector | None = attrs.field(default=None, converter=label_selector_of)
    """Which objects, as text, as a mapping of labels or as a LabelSelector; default: all."""
    field_selector: FieldSelector | None = attrs.field(default=None, converter=field_selector_of)
    """The same for fields; default: all."""
    transform: Transform | None = attrs.field(
        default=None, validator=lambda _, field, value: check_function(field.name, value)
    )
    """What to make of each object before it is kept; default: the cache's own."""
    indexes: Mapping[str, IndexFunction] = attrs.field(
        factory=dict, validator=lambda _, __, value: check_indexes(value)
    )
    """Index functions by name."""
    resync: float = attrs.field(default=0.0, validator=_seconds)
    """Seconds after which handlers are shown every object once more; default 0: never."""


class _Kept:
    """One kind's informers, by namespace, and the handlers that each of them is to have."""

    def __init__(self, kind: Kind, options: CacheOptions) -> None:
        self.kind = kind
        self.options = options
        self.informers: dict[str, tuple[Informer, StopSignal]] = {}
        self.registrations: list[CacheRegistration] = []


@final
class Cache:
    """Local copies of kinds, each with one informer a namespace however many want it.

    Reading a kind that has no informer is an error that says so, unless the cache was made with
    ``lazy=True``: what a program holds in memory should be written down in it. Typed and untyped
    kinds are views of one copy. Thread-safe.

    >>> from appsdk_operator.resource import kinds
    >>> cache = Cache(client=None)  # doctest: +SKIP
    >>> cache.add(kinds.core.v1.ConfigMap)  # doctest: +SKIP
    """

    def __init__(
        self,
        client: ListWatchClient,
        *,
        namespaces: Sequence[str] = (),
        transform: Transform | None = None,
        lazy: bool = False,
        sync_timeout: float = 120.0,
        on_error: Callable[[Exception], None] | None = None,
        clock: Clock = system_clock,
        metrics: Metrics | None = None,
    ) -> None:
        """A cache without kinds.

        Args:
            client: lists and watches.
            namespaces: the namespaces to follow; default: all.
            transform: what to make of each object before it is kept; default: nothing.
            lazy: whether a read of an unknown kind adds it, and waits for its first sync.
            sync_timeout: seconds that a lazy read waits; default 120.
            on_error: told of every informer's problems; default: they are logged.
            clock: what it waits on.
            metrics: where it publishes; default: :func:`~appsdk_operator.runtime.default_metrics`.
        """
        _no_names(None, None, namespaces)
        check_function("transform", transform)
        check_function("on_error", on_error)
        if not sync_timeout > 0:
            raise ValueError(f"sync_timeout={sync_timeout}: use more than 0 seconds")
        self._client = client
        self._namespaces = tuple(dict.fromkeys(namespaces))
        self._transform = transform
        self._is_lazy = lazy
        self._sync_timeout = sync_timeout
        self._on_error = on_error
        self._clock = clock
        self._metrics = metrics or default_metrics()
        self._lock = threading.RLock()
        self._kept: dict[Kind, _Kept] = {}
        self._threads = ThreadGroup("cache")
        self._stop: StopSignal | None = None
        self._has_run = False

    # Which kinds.

    def add(self, kind: Kind, options: CacheOptions | None = None) -> None:
        """Keep ``kind``; while the cache runs its informers start at once.

        Without ``options`` a kind that is kept already stays as it is.

        Raises:
            ValueError: it is kept already, with other options, or namespaces were given for a
                cluster-scoped kind.
        """
        wanted, options = options, options or CacheOptions()
        if options.namespaces and not kind.is_namespaced:
            raise ValueError(f"{kind} is cluster-scoped: leave its namespaces out")
        with self._lock:
            kept = self._kept.get(kind)
            if kept is not None:
                if wanted is not None and kept.options != options:
                    raise ValueError(
                        f"{kind} is kept already, with other options: remove it first, or add what "
                        "you need to the first call"
                    )
                return
            kept = _Kept(kind, options)
            for namespace in self._namespaces_of(kept):
                kept.informers[namespace] = self._informer(kept, namespace)
            # Kept once nothing can fail any more: a kind without informers would read as empty.
            self._kept[kind] = kept
            for namespace in kept.informers:
                self._run(kept, namespace)

    def remove(self, kind: Kind) -> None:
        """Stop the informers of ``kind``, forget it and its handlers; an unknown one: nothing."""
        with self._lock:
            kept = self._kept.pop(kind, None)
            if kept is None:
                return
            for registration in kept.registrations:
                registration.stop()
            for _, stop in kept.informers.values():
                stop.set()
        for registration in kept.registrations:
            registration.join()

    def set_namespaces(self, namespaces: Sequence[str]) -> None:
        """Follow these namespaces from now on; empty: all.

        Informers of namespaces that stay go on. Those of the others end at once: their objects are
        gone from reads, and handlers are not told of their going, because nobody deleted them.
        What is new is listed, and handlers get its objects as initial additions; until that is
        done, see :meth:`wait_for_sync`, reads of it raise :class:`NotCachedError`, or wait in a
        lazy cache, and so do reads of all namespaces.

        All namespaces and some of them do not overlap here: a change from the one to the other
        ends every informer and begins anew. Handlers then get the objects that they know as
        additions once more, and are told neither of those that are followed no longer nor of what
        was deleted between the two.
        """
        _no_names(None, None, namespaces)
        with self._lock:
            self._namespaces = tuple(dict.fromkeys(namespaces))
            for kept in self._kept.values():
                wanted = self._namespaces_of(kept)
                for namespace in [n for n in kept.informers if n not in wanted]:
                    informer, stop = kept.informers.pop(namespace)
                    for registration in kept.registrations:
                        registration.leave(informer)
                    stop.set()
                for namespace in wanted:
                    if namespace not in kept.informers:
                        informer, stop = self._informer(kept, namespace)
                        for registration in kept.registrations:
                            registration.follow(informer)
                        kept.informers[namespace] = (informer, stop)
                        self._run(kept, namespace)

    @property
    def kinds(self) -> Sequence[Kind]:
        """The kinds that are kept."""
        with self._lock:
            return list(self._kept)

    def informers(self, kind: Kind) -> Sequence[Informer]:
        """The informers of ``kind``, one for each namespace that is followed.

        Raises:
            NotCachedError: ``kind`` is not kept.
        """
        with self._lock:
            return [informer for informer, _ in self._get(kind).informers.values()]

    def add_event_handler(
        self,
        kind: Kind,
        handler: EventHandler | BatchHandler,
        *,
        resync: float | None = None,
        max_pending: int = 10_000,
        overflow: Overflow = Overflow.COALESCE,
    ) -> CacheRegistration:
        """Tell ``handler`` of the objects of ``kind``, in namespaces that are added later too.

        An EventHandler is called in one thread of its own, however many namespaces there are. See
        :meth:`Informer.add_event_handler` for the arguments.

        Raises:
            NotCachedError: ``kind`` is not kept.
            TypeError, ValueError: as :meth:`Informer.add_event_handler`.
        """
        with self._lock:
            kept = self._get(kind)
            registration = CacheRegistration(
                kind,
                handler,
                resync=resync,
                max_pending=max_pending,
                overflow=overflow,
                on_error=self._on_error,
                clock=self._clock,
                remove=self._remove_handler,
            )
            try:
                for informer, _ in kept.informers.values():
                    registration.follow(informer)
            except BaseException:
                registration.stop()
                raise
            kept.registrations.append(registration)
            if self._stop is not None:
                registration.start()
        registration.report_failures()
        return registration

    def _remove_handler(self, registration: CacheRegistration) -> None:
        with self._lock:
            kept = self._kept.get(registration.kind)
            if kept is not None and registration in kept.registrations:
                kept.registrations.remove(registration)
            registration.stop()
        registration.join()

    # Reading.

    def get(self, kind: Kind, name: str, *, namespace: str = "") -> Object | None:
        """The object of that name, None when there is none.

        Raises:
            NotCachedError: ``kind``, or ``namespace`` of it, is not kept, or has not synced yet.
            TimeoutError: a lazy read did not sync in time.
            ValueError: a namespace is missing, or given for a cluster-scoped kind.
        """
        if kind.is_namespaced is not bool(namespace):
            raise ValueError(
                f"namespace={namespace!r}: {kind} is "
                + (
                    "namespaced, say where"
                    if kind.is_namespaced
                    else "cluster-scoped, leave it out"
                )
            )
        for informer in self._readable(kind, namespace):
            obj = informer.store.get(name, namespace)
            if obj is not None:
                return obj.viewed_as(kind)
        return None

    def list(
        self,
        kind: Kind,
        *,
        namespace: str | None = None,
        label_selector: LabelSelector | str | None = None,
    ) -> Objects:
        """The objects in ``namespace`` (default and ``""``: all that are followed), in no order.

        Raises:
            NotCachedError: ``kind``, or ``namespace`` of it, is not kept, or has not synced yet.
            TimeoutError: a lazy read did not sync in time.
            ValueError: a namespace was given for a cluster-scoped kind.
        """
        if namespace and not kind.is_namespaced:
            raise ValueError(f"namespace={namespace!r}: {kind} is cluster-scoped, leave it out")
        return [
            obj.viewed_as(kind)
            for informer in self._readable(kind, namespace or "")
            for obj in informer.store.list(namespace=namespace, label_selector=label_selector)
        ]

    def by_index(self, kind: Kind, index: str, value: str) -> Objects:
        """The objects that ``index`` has under ``value``.

        Raises:
            NotCachedError: ``kind`` is not kept, or has not synced yet.
            KeyError: there is no such index.
        """
        return [
            obj.viewed_as(kind)
            for informer in self._readable(kind, "")
            for obj in informer.store.by_index(index, value)
        ]

    # How it stands.

    @property
    def has_synced(self) -> bool:
        """Whether every informer's local copy was complete at least once."""
        return all(informer.has_synced for informer in self._all())

    def wait_for_sync(self, stop: StopSignal, timeout: float | None = None) -> bool:
        """Wait for :attr:`has_synced`; False when stopped or after ``timeout`` seconds."""
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        # Informers may come and go while we wait.
        while waiting := [informer for informer in self._all() if not informer.has_synced]:
            left = None if deadline is None else max(0.0, deadline - self._clock.monotonic())
            if not waiting[0].wait_for_sync(stop, left) and (
                waiting[0] in self._all() or stop.is_set() or left == 0
            ):
                return False
        return True

    def health(self) -> Health:
        """Whether every informer has synced and follows the server, and if not why."""
        healths = [informer.health() for informer in self._all()]
        bad = [health.text for health in healths if not health.is_ready]
        return Health(not bad, "; ".join(bad) or f"cache: {len(healths)} informers ok")

    # Running.

    def run(self, stop: StopSignal, *, stop_timeout: float = 30.0) -> None:
        """Run the informers until ``stop`` is set; returns when all threads have ended.

        Args:
            stop: ends it.
            stop_timeout: seconds of real time that informers and handlers have to end after the
                stop; default 30.

        Raises:
            RuntimeError: it was run before.
            TimeoutError: some still run; the text names their threads.
        """
        checked_seconds("stop_timeout", stop_timeout)
        own = stop.child()
        with self._lock:
            if self._has_run:
                raise RuntimeError("the cache was run before: make a new one")
            self._has_run = True
            self._stop = own
            for kept in self._kept.values():
                for namespace in kept.informers:
                    self._run(kept, namespace)
        try:
            own.wait()
        finally:
            own.set()
            with self._lock:
                self._stop = None
                registrations = [r for kept in self._kept.values() for r in kept.registrations]
            for registration in registrations:
                registration.end()
            joins = [self._threads.join, *(r.join for r in registrations)]
            join_all(joins, stop_timeout, "the cache")

    def _informer(self, kept: _Kept, namespace: str) -> tuple[Informer, StopSignal]:
        options = kept.options
        informer = Informer(
            kept.kind,
            self._client,
            namespace=namespace,
            label_selector=options.label_selector,
            field_selector=options.field_selector,
            transform=options.transform or self._transform,
            indexes=options.indexes,
            resync=options.resync,
            on_error=self._on_error,
            clock=self._clock,
            metrics=self._metrics,
        )
        return informer, StopSignal(clock=self._clock)

    def _run(self, kept: _Kept, namespace: str) -> None:
        if self._stop is not None:
            informer, _ = kept.informers[namespace]
            own = self._stop.child()
            kept.informers[namespace] = (informer, own)
            for registration in kept.registrations:
                registration.start()
            self._threads.start(f"{kept.kind}/{namespace}", lambda: informer.run(own))

    def _namespaces_of(self, kept: _Kept) -> tuple[str, ...]:
        if not kept.kind.is_namespaced:
            return ("",)
        own = kept.options.namespaces
        return tuple(self._namespaces if own is None else dict.fromkeys(own)) or ("",)

    def _all(self) -> Informers:
        with self._lock:
            return [i for kept in self._kept.values() for i, _ in kept.informers.values()]

    def _get(self, kind: Kind) -> _Kept:
        kept = self._kept.get(kind)
        if kept is None:
            known = ", ".join(sorted(str(k) for k in self._kept)) or "none"
            raise NotCachedError(
                f"{kind} has no informer in this cache (it keeps: {known}): call "
                "cache.add(kind) first, or make the cache with lazy=True"
            )
        return kept

    def _readable(self, kind: Kind, namespace: str) -> Iterable[Informer]:
        """The informers to read from, synced: all for the namespace ``""``."""
        with self._lock:
            if self._is_lazy and kind not in self._kept:
                self.add(kind)
            informers = {n: informer for n, (informer, _) in self._get(kind).informers.items()}
        if namespace and "" not in informers:
            if namespace not in informers:
                raise NotCachedError(
                    f"{kind} is cached in {', '.join(sorted(informers))} only, not in namespace "
                    f"{namespace!r}: add it with set_namespaces, or read through the client"
                )
            informers = {namespace: informers[namespace]}
        for informer in informers.values():
            if not informer.has_synced:
                self._wait_for(informer)
        return informers.values()

    def _wait_for(self, informer: Informer) -> None:
        """A first list that is not complete would read as objects that do not exist."""
        if not self._is_lazy:
            raise NotCachedError(
                f"{informer.health().text}: run the cache and wait with wait_for_sync before "
                "reading"
            )
        stop = self._stop
        if stop is None:
            raise TimeoutError(
                f"the cache does not run, so {informer.kind} cannot be read: run it first"
            )
        if not informer.wait_for_sync(stop, self._sync_timeout):
            raise TimeoutError(f"{informer.health().text}; waited {self._sync_timeout:g} s")
