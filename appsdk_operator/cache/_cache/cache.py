"""Informers by kind, shared by everybody who reads or watches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import final

import attrs

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.cache._cache.kind_cache import KindCache
from appsdk_operator.cache._cache.metrics import CacheMetrics
from appsdk_operator.cache._cache.options import (
    CacheOptions,
    NamespaceOptions,
    Namespaces,
    checked_by_kind,
    checked_namespaces,
)
from appsdk_operator.cache._cache.query import FIELD, field_index
from appsdk_operator.cache._cache.reads import CacheReads
from appsdk_operator.cache._cache.registration import CacheRegistration
from appsdk_operator.cache._cache.selection import Selection, selections_of
from appsdk_operator.cache._cache.switchover import SelectionInformer
from appsdk_operator.cache._delivery.event_source import Overflow
from appsdk_operator.cache._events import BatchHandler, EventHandler
from appsdk_operator.cache._informer.health import Health
from appsdk_operator.cache._informer.informer import Informer
from appsdk_operator.cache._informer.reflector import ListWatchClient
from appsdk_operator.cache._informer.registration import check_handler
from appsdk_operator.cache._informer.store import IndexFunction
from appsdk_operator.cache._informer.transforms import Transform
from appsdk_operator.cache._options import (
    check_client,
    check_function,
    check_index,
    checked_seconds,
    join_all,
)
from appsdk_operator.resource import FieldSelection, Kind, LabelSelection, check_kind
from appsdk_operator.runtime import (
    Clock,
    Environment,
    Metrics,
    StopSignal,
    ThreadGroup,
    Waiters,
    check_stop,
)
from appsdk_operator.runtime.validation import (
    check_environment,
    check_flag,
    check_instance,
    check_number,
    check_text,
    check_wait,
)

__all__ = ["Cache"]


@final
class Cache(CacheReads):
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
        namespaces: Namespaces = (),
        label_selector: LabelSelection | None = None,
        field_selector: FieldSelection | None = None,
        transform: Transform | None = None,
        resync: float = 0.0,
        by_kind: Mapping[Kind, CacheOptions] | None = None,
        lazy: bool = False,
        sync_timeout: float = 120.0,
        on_error: Callable[[Exception], None] | None = None,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """A cache without kinds.

        What is to be kept is looked for, each option by itself, in the options of the namespace of
        the kind, of the kind, of the namespace of the cache, and then here; that is
        controller-runtime's order.

        Args:
            client: lists and watches.
            namespaces: the namespaces to follow, as names or as :class:`NamespaceOptions` by name;
                default: all. In a mapping the name ``""`` beside others stands for all the others.
            label_selector: which objects of whatever kind; default: all.
            field_selector: the same for fields.
            transform: what to make of each object before it is kept; default: nothing.
            resync: seconds after which handlers are shown every object once more; default 0: never.
            by_kind: options for kinds that are added later without any.
            lazy: whether a read of an unknown kind adds it, and waits for its first sync.
            sync_timeout: seconds that a lazy read waits; default 120.
            on_error: told of every informer's problems; default: they are logged.
            clock: what it waits on; default: that of its Manager, else the machine's.
            metrics: where it publishes; default: in those of its Manager, else in
                :func:`~appsdk_operator.runtime.default_metrics`.

        Raises:
            ValueError, TypeError: an option is out of bounds, or of no form that is known.
        """
        check_client(client, "list_page", "watch")
        check_function("on_error", on_error)
        check_flag("lazy", lazy)
        check_environment(clock=clock, metrics=metrics)
        check_number("sync_timeout", sync_timeout)
        if not sync_timeout > 0:
            raise ValueError(f"sync_timeout={sync_timeout}: use more than 0 seconds")
        self._client = client
        self._namespaces = checked_namespaces(namespaces)
        self._defaults = NamespaceOptions(
            label_selector=label_selector, field_selector=field_selector, transform=transform
        )
        self._resync = checked_seconds("resync", resync)
        self._by_kind = checked_by_kind({} if by_kind is None else by_kind)
        for kind, options in self._by_kind.items():
            _check_scope(kind, options)
        self._is_lazy = lazy
        self._sync_timeout = sync_timeout
        self._on_error = on_error
        self._environment = Environment(clock, metrics)
        self._clock = clock = self._environment.clock
        self._metrics = self._environment.metrics
        self._lock = threading.RLock()
        self._changed = Waiters(clock)
        self._kept: dict[Kind, KindCache] = {}
        # Kinds that somebody will need whole.
        self._whole: set[Kind] = set()
        self._failure: BaseException | None = None
        self._threads = ThreadGroup("cache")
        self._stop: StopSignal | None = None
        self._has_run = False
        self._is_over = False
        self._numbers = CacheMetrics(self._handlers, self._metrics, self._lock)

    # Which kinds.

    def add(self, kind: Kind, options: CacheOptions | None = None) -> None:
        """Keep ``kind``; while the cache runs its informers start at once.

        Without ``options`` a kind gets those that the cache was made with, ``by_kind``, and one
        that is kept already stays as it is. A kind of which the metadata alone is kept, because
        controllers need no more, is kept whole from now on.

        Raises:
            TypeError: ``kind`` is no Kind.
            ValueError: it is kept already, with other options, or namespaces were given for a
                cluster-scoped kind.
        """
        check_kind(kind)
        if options is not None:
            check_instance("options", options, CacheOptions, "CacheOptions()")
            _check_scope(kind, options)
        informers: Sequence[Informer] = ()
        with self._lock:
            kept = self._kept.get(kind)
            if kept is None:
                self._keep(kind, options or self._options_of(kind))
            elif options is None or (
                kept.may_widen and options == attrs.evolve(kept.options, metadata_only=False)
            ):
                informers = self._widen(kept)
            else:
                _check_same(kind, kept.options, options)
        for informer in informers:
            informer.report_failures()

    def add_metadata(self, kind: Kind) -> None:
        """For sources: keep the metadata of ``kind``, or all of it if anybody needs it whole.

        Unlike with :class:`CacheOptions` that say ``metadata_only``, the kind can be had whole
        later: it is listed again then.
        """
        with self._lock:
            if kind in self._kept:
                return
            options = self._options_of(kind)
            may_widen = kind not in self._whole and not options.metadata_only
            if may_widen:
                options = attrs.evolve(options, metadata_only=True)
            self._keep(kind, options, may_widen=may_widen)

    def expect_whole(self, kind: Kind) -> None:
        """For sources: let whoever adds the metadata of ``kind`` have it kept whole, once added.

        Raises:
            ValueError: the metadata alone is to be kept, by the options of the cache or the kind.
        """
        with self._lock:
            kept = self._kept.get(kind)
            options = self._options_of(kind) if kept is None else kept.options
            if options.metadata_only and not (kept and kept.may_widen):
                raise ValueError(
                    f"of {kind} the cache keeps the metadata only, as its options say, and there "
                    "is one copy for all: say metadata_only=True here too, or nowhere"
                )
            self._whole.add(kind)

    def _options_of(self, kind: Kind) -> CacheOptions:
        return self._by_kind.get(kind) or CacheOptions()

    def _keep(self, kind: Kind, options: CacheOptions, *, may_widen: bool = False) -> None:
        kept = KindCache(kind, options, make=self._informer, run=self._run, may_widen=may_widen)
        kept.follow(self._scopes(kept))
        # Kept once nothing can fail any more: a kind without informers would read as empty.
        self._kept[kind] = kept
        self._changed.wake()

    def _widen(self, kept: KindCache) -> Sequence[Informer]:
        """Keep whole what the metadata alone is kept of; who may have failures to report."""
        if not kept.may_widen:
            return ()
        kept.may_widen = False
        kept.options = attrs.evolve(kept.options, metadata_only=False)
        kept.follow(self._scopes(kept))
        self._changed.wake()
        return [each.informer for each in kept.followed]

    def options_for(self, kind: Kind) -> CacheOptions:
        """What is kept of ``kind``, or would be when it is added without options."""
        with self._lock:
            kept = self._kept.get(kind)
            return self._options_of(kind) if kept is None else kept.options

    def remove(self, kind: Kind, *, timeout: float = 30.0) -> None:
        """Stop the informers of ``kind``, forget it and its handlers; an unknown one: nothing.

        Args:
            kind: the kind.
            timeout: seconds of real time that handlers have to end their calls; default 30.

        Raises:
            TimeoutError: handlers still run; the text names their threads.
        """
        check_kind(kind)
        checked_seconds("timeout", timeout)
        with self._lock:
            kept = self._kept.pop(kind, None)
            if kept is None:
                return
            for registration in kept.registrations:
                registration.stop()
                self._numbers.note_removed(registration)
            kept.end()
            self._changed.wake()
        joins = [registration.join for registration in kept.registrations]
        join_all(joins, timeout, f"the cache of {kind}")

    def set_namespaces(self, namespaces: Namespaces | None, *, kind: Kind | None = None) -> None:
        """Follow these namespaces from now on; empty: all.

        Informers of namespaces that stay go on. What is new is listed, and handlers get its objects
        as initial additions; until that is done, see :meth:`wait_for_sync`, reads of it raise
        :class:`NotCachedError`, or wait in a lazy cache, and so do reads of all namespaces. What is
        followed no longer is gone from reads at once, which raise :class:`NotFollowedError`;
        handlers are told of a deletion with an unknown final state, and events say that it is
        :attr:`Event.is_unfollowed`.

        Between all namespaces and some of them, the old informers serve until the new ones have
        synced. Handlers are then told what happened between the two, and nothing that they know.

        Args:
            namespaces: names, or options by name; None, for a ``kind``: those of the cache.
            kind: the kind to which this applies; default: all that have no namespaces of their own.

        Raises:
            NotCachedError: ``kind`` is not kept.
            ValueError: ``kind`` is cluster-scoped, or a name is empty.
        """
        if namespaces is None and kind is None:
            raise ValueError("namespaces=None: give names, or an empty list for all namespaces")
        if kind is not None:
            check_kind(kind)
        wanted = None if namespaces is None else checked_namespaces(namespaces)
        with self._lock:
            if kind is None:
                self._namespaces = wanted or {}
                changed = list(self._kept.values())
            else:
                kept = self._get(kind)
                options = attrs.evolve(kept.options, namespaces=wanted)
                _check_scope(kind, options)
                kept.options = options
                changed = [kept]
            for kept in changed:
                kept.follow(self._scopes(kept))
            self._changed.wake()
            informers = [f.informer for kept in changed for f in kept.followed]
        for informer in informers:
            informer.report_failures()

    def add_index(
        self, kind: Kind[SpecT, StatusT], name: str, function: IndexFunction[SpecT, StatusT]
    ) -> None:
        """Index the objects of ``kind`` that are there and all that come; waits for no sync.

        Raises:
            NotCachedError: ``kind`` is not kept.
            ValueError: there is an index of that name.
        """
        check_kind(kind)
        check_index(name, function)
        with self._lock:
            kept = self._get(kind)
            if name in kept.indexes:
                raise ValueError(
                    f"{kind} has an index {name!r} already: use it, or choose another name"
                )
            kept.indexes[name] = function
            informers = [each.informer for each in {*kept.followed, *kept.all_followed}]
        # The function is user code, so without the lock.
        for informer in informers:
            informer.add_index(name, function)

    def index_field(
        self,
        kind: Kind[SpecT, StatusT],
        path: str,
        function: IndexFunction[SpecT, StatusT] | None = None,
    ) -> None:
        """Let :meth:`list` answer field selectors on ``path``.

        Args:
            kind: a kind that is kept.
            path: such as ``spec.nodeName``; any name will do if ``function`` is given.
            function: the values of an object; default: what is found at ``path``.

        Raises:
            NotCachedError: ``kind`` is not kept.
            ValueError: ``path`` is indexed already.
        """
        check_text("path", path, empty=False)
        self.add_index(kind, FIELD + path, field_index(path) if function is None else function)

    @property
    def kinds(self) -> Sequence[Kind]:
        """The kinds that are kept."""
        with self._lock:
            return list(self._kept)

    def informers(self, kind: Kind[SpecT, StatusT]) -> Sequence[Informer[SpecT, StatusT]]:
        """The informers of ``kind``, one for each namespace that is followed.

        Raises:
            NotCachedError: ``kind`` is not kept.
        """
        check_kind(kind)
        with self._lock:
            return [each.informer for each in self._get(kind).followed]

    def add_event_handler(
        self,
        kind: Kind[SpecT, StatusT],
        handler: EventHandler[SpecT, StatusT] | BatchHandler,
        *,
        resync: float | None = None,
        max_pending: int = 10_000,
        overflow: Overflow = Overflow.COALESCE,
    ) -> CacheRegistration:
        """Tell ``handler`` of the objects of ``kind``, in namespaces that are added later too.

        An EventHandler is shown objects with the types of ``kind``, whatever those are with which
        the cache was told of it first, in one thread of its own, however many namespaces there are;
        a BatchHandler gets them as they are. See :meth:`Informer.add_event_handler` for the
        arguments.

        Raises:
            NotCachedError: ``kind`` is not kept.
            TypeError, ValueError: as :meth:`Informer.add_event_handler`.
        """
        check_kind(kind)
        check_handler(handler, resync, max_pending, overflow)
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
                changed=self._changed,
                remove=self._remove_handler,
            )
            try:
                kept.register(registration)
            except BaseException:
                registration.stop()
                raise
            if self._stop is not None:
                registration.start()
        registration.report_failures()
        return registration

    def _remove_handler(self, registration: CacheRegistration, timeout: float) -> None:
        with self._lock:
            registration.stop()
            self._changed.wake()
            kept = self._kept.get(registration.kind)
            if kept is not None and registration in kept.registrations:
                kept.registrations.remove(registration)
                self._numbers.note_removed(registration)
        join_all([registration.join], timeout, f"a handler of {registration.kind}")

    # How it stands.

    @property
    def has_synced(self) -> bool:
        """Whether every local copy is complete, and no change of namespaces is under way."""
        with self._lock:
            return all(kept.is_settled for kept in self._kept.values())

    def wait_for_sync(self, stop: StopSignal, timeout: float | None = None) -> bool:
        """Wait for :attr:`has_synced`; False when stopped or after ``timeout`` seconds."""
        check_wait(stop, timeout)
        # Informers may come and go while we wait.
        self._changed.wait(lambda: self.has_synced or self._is_over, stop, timeout)
        return self.has_synced

    def health(self) -> Health:
        """Whether every informer has synced and follows the server, and if not why."""
        with self._lock:
            informers = [f.informer for kept in self._kept.values() for f in kept.all_followed]
        healths = [informer.health() for informer in informers]
        bad = [health.text for health in healths if not health.is_ready]
        return Health(not bad, "; ".join(bad) or f"cache: {len(healths)} informers ok")

    # Running.

    def inherit_environment(self, clock: Clock, metrics: Metrics) -> None:
        """For managers: use these, unless it was given others or was run already."""
        with self._lock:
            if not self._has_run:
                self._environment.inherit(clock, metrics)

    def run(self, stop: StopSignal, *, stop_timeout: float = 30.0) -> None:
        """Run the informers until ``stop`` is set; returns when all threads have ended.

        Args:
            stop: ends it.
            stop_timeout: seconds of real time that informers and handlers have to end after the
                stop; default 30.

        Raises:
            TypeError: ``stop`` is no StopSignal.
            RuntimeError: it was run before, or an informer failed, which should not be.
            TimeoutError: some still run; the text names their threads.
        """
        check_stop(stop)
        checked_seconds("stop_timeout", stop_timeout)
        own = stop.child()
        with self._lock:
            if self._has_run:
                raise RuntimeError("the cache was run before: make a new one")
            self._has_run = True
            self._stop = own
            for kept in self._kept.values():
                for registration in kept.registrations:
                    registration.start()
                kept.run()
        self._numbers.publish()
        try:
            own.wait()
        finally:
            own.set()
            with self._lock:
                self._stop = None
                self._is_over = True
                self._changed.wake()
                registrations = self._handlers()
            for registration in registrations:
                registration.end()
            self._changed.wake()
            self._numbers.retire()
            joins = [self._threads.join, *(r.join for r in registrations)]
            join_all(joins, stop_timeout, "the cache")
        if self._failure is not None:
            raise RuntimeError(f"an informer of the cache failed: {self._failure!r}") from (
                self._failure
            )

    def _informer(self, kept: KindCache, scope: Selection) -> Informer:
        options = kept.options
        informer = Informer(
            kept.kind,
            self._client,
            namespace=scope.namespace,
            label_selector=scope.label_selector,
            field_selector=scope.query,
            transform=scope.transform,
            metadata_only=scope.metadata_only,
            indexes=kept.indexes,
            resync=self._resync if options.resync is None else options.resync,
            on_error=self._on_error,
            clock=self._clock,
            metrics=self._metrics,
        )
        informer.on_synced = lambda: self._synced(kept)
        return informer

    def _synced(self, kept: KindCache) -> None:
        with self._lock:
            if self._kept.get(kept.kind) is kept:
                kept.advance()
            self._changed.wake()
            informers = [each.informer for each in kept.followed]
        for informer in informers:
            informer.report_failures()

    def _run(self, followed: SelectionInformer) -> None:
        stop = self._stop
        if stop is not None and followed.stop is None:
            own = followed.stop = stop.child()
            informer = followed.informer

            def follow() -> None:
                try:
                    informer.run(own)
                except BaseException as error:
                    # A local copy that stands still must not go on to be read as if it followed.
                    self._failure = error
                    stop.set()

            self._threads.start(f"{informer.kind}/{followed.scope}", follow)

    def _scopes(self, kept: KindCache) -> Sequence[Selection]:
        return selections_of(kept.kind, kept.options, self._namespaces, self._defaults)

    def _handlers(self) -> Sequence[CacheRegistration]:
        with self._lock:
            return [r for kept in self._kept.values() for r in kept.registrations]


def _check_scope(kind: Kind, options: CacheOptions) -> None:
    if options.namespaces and not kind.is_namespaced:
        raise ValueError(f"{kind} is cluster-scoped: leave its namespaces out")


def _check_same(kind: Kind, kept: CacheOptions, wanted: CacheOptions) -> None:
    """Refuse what is kept otherwise; whole objects serve those who need their metadata only."""
    if wanted in (kept, attrs.evolve(kept, metadata_only=True)):
        return
    if kept.metadata_only and not wanted.metadata_only:
        raise ValueError(
            f"of {kind} only the metadata is kept, and there is one copy for all: add it without "
            "metadata_only in the first place, which serves both, or remove it first"
        )
    raise ValueError(
        f"{kind} is kept already, with other options: remove it first, or add what you need to the "
        "first call"
    )
