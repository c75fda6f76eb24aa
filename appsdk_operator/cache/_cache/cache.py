"""The cache: informers by kind and namespace, shared by all readers and handlers."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, final

import attrs

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.cache._cache.errors import Remedies
from appsdk_operator.cache._cache.kind_cache import KindCache
from appsdk_operator.cache._cache.metrics import CacheMetrics
from appsdk_operator.cache._cache.options import (
    CacheOptions,
    NamespaceOptions,
    Namespaces,
    checked_by_kind,
    checked_namespaces,
    checked_selection,
)
from appsdk_operator.cache._cache.query import (
    FIELD_INDEX,
    Query,
    field_index,
    query_of,
    sorted_objects,
)
from appsdk_operator.cache._cache.registration import CacheRegistration
from appsdk_operator.cache._cache.routing import ReadTarget, Routing, SelectionInformer
from appsdk_operator.cache._cache.selection import Selection, selections_of
from appsdk_operator.cache._delivery.delivery import EventSource, Overflow
from appsdk_operator.cache._events import BatchHandler, EventHandler
from appsdk_operator.cache._informer.handler_caller import check_handler
from appsdk_operator.cache._informer.health import Health
from appsdk_operator.cache._informer.informer import Informer, access_to
from appsdk_operator.cache._informer.reflector import ListWatchClient
from appsdk_operator.cache._informer.store import IndexFunction, check_index
from appsdk_operator.cache._informer.transforms import Transform
from appsdk_operator.cache._threads import join_all
from appsdk_operator.client import RequestStopped, present_stop
from appsdk_operator.resource import (
    Kind,
    Object,
    check_kind,
    check_namespace_name,
    field_selector_of,
    label_selector_of,
)
from appsdk_operator.runtime import (
    Clock,
    Metrics,
    StopSignal,
    ThreadGroup,
    Waiters,
    check_stop,
    counted,
    entered_metrics,
    fork_safe,
    get_logger,
    present_clock,
    present_metrics,
    safe_repr,
)
from appsdk_operator.runtime.validation import (
    check_client,
    check_count,
    check_environment,
    check_flag,
    check_function,
    check_instance,
    check_number,
    check_text,
    check_wait,
    checked_seconds,
)

if TYPE_CHECKING:
    from appsdk_operator.cache._cache.namespace_follower import NamespaceFollower
    from appsdk_operator.cache._cache.namespace_selection import NamespaceSelection
    from appsdk_operator.resource import FieldSelection, LabelSelection

_log = get_logger("appsdk_operator.cache")

# The class below has a method called list.
Objects: TypeAlias = list[Object[SpecT, StatusT]]
ReadTargets: TypeAlias = list[ReadTarget]

_REMEDIES = Remedies(to_follow="add it with set_namespaces, or read it with a client")
_NOWHERE = Routing()
_SELECTED_REMEDIES = Remedies(to_follow="add it to namespaces=, or read it with a client")


@final
class Cache:
    """Local copies of kinds, each with one informer per namespace, shared by all users.

    A read of a kind without an informer is an error, unless the cache was made with ``lazy=True``:
    the code of a program should show which kinds it holds in memory. Typed and untyped kinds are
    views of one copy. Thread-safe.

    >>> from appsdk_operator.resource import kinds
    >>> cache = Cache(client=None)  # doctest: +SKIP
    >>> cache.add(kinds.core.v1.ConfigMap)  # doctest: +SKIP
    """

    def __init__(
        self,
        client: ListWatchClient,
        *,
        namespaces: NamespaceSelection = (),
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

        Each option comes from the first of these that sets it: the options of the kind's namespace,
        the kind, the cache's namespace, and the cache. That is controller-runtime's order.

        Args:
            client: lists and watches.
            namespaces: the namespaces to follow, as names or as :class:`NamespaceOptions` by name;
                default: all. In a mapping, the name ``""`` stands for all namespaces without their
                own name. Or patterns, such as ``["team-*", "!team-x"]``, or a selector of Namespace
                labels: the cache then follows the matching namespaces as they come and go, see
                ``appsdk_operator.resource.NamespaceSelector``. That needs list and watch of
                Namespaces, and one watch for each kind and namespace.
            label_selector: selects objects of any kind by label; default: all.
            field_selector: selects objects of any kind by field; default: all.
            transform: changes each object before it is stored; default: none.
            resync: seconds after which handlers get every object again; default 0: never.
            by_kind: options for kinds that are added later without options.
            lazy: whether a read of an unknown kind adds it, and waits for its first sync.
            sync_timeout: seconds that a lazy read waits; default 120.
            on_error: called with every informer's problems; default: logs them.
            clock: the clock of all waits; default: the environment's.
            metrics: the metrics that it writes to; default: its Manager's, else
                :func:`~appsdk_operator.runtime.default_metrics`.

        Raises:
            ValueError, TypeError: an option is out of bounds, or of the wrong type.
        """
        check_client(client, "list_page", "watch")
        check_function("on_error", on_error)
        check_flag("lazy", lazy)
        check_environment(clock=clock, metrics=metrics)
        check_number("sync_timeout", sync_timeout)
        if not sync_timeout > 0:
            raise ValueError(f"sync_timeout={sync_timeout}: use more than 0 seconds")
        self._client = client
        selection = checked_selection(namespaces)
        is_selected = not isinstance(selection, dict)
        self._namespaces = selection if isinstance(selection, dict) else {}
        # False until it is known which namespaces a selector chooses.
        self._are_namespaces_known = not is_selected
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
        clock = present_clock(clock)
        self.clock: Clock = clock
        """The clock of all waits."""
        self._metrics = entered_metrics(metrics)
        self._follower: NamespaceFollower | None = None
        if not isinstance(selection, dict):
            from appsdk_operator.cache._cache.namespace_follower import NamespaceFollower

            self._follower = NamespaceFollower(
                selection, client, on_error=on_error, clock=clock, metrics=self._metrics
            )
        # For changes. Reads need none: each kind has its routing as one value.
        self._lock = fork_safe(threading.RLock())
        self._changed = Waiters(clock)
        self._kind_caches: dict[Kind, KindCache] = {}
        # Kinds of which full objects will be needed once they are added.
        self._expected_full: set[Kind] = set()
        self._failure: BaseException | None = None
        self._threads = ThreadGroup("cache")
        self._stop: StopSignal | None = None
        self._has_run = False
        self._is_over = False
        self._cache_metrics = CacheMetrics(self._handlers, self._lock)

    # Kinds and namespaces.

    def add(self, kind: Kind, options: CacheOptions | None = None) -> None:
        """Add ``kind``; while the cache runs its informers start at once.

        Without ``options`` a new kind gets the options of ``by_kind``, and an existing kind keeps
        its own. If the cache holds only metadata of the kind, because controllers need no more, it
        gets the full objects.

        Raises:
            TypeError: ``kind`` is not a Kind.
            ValueError: the kind was added already, with other options, or ``options`` have
                namespaces for a cluster-scoped kind.
        """
        check_kind(kind)
        if options is not None:
            check_instance("options", options, CacheOptions, "CacheOptions()")
            _check_scope(kind, options)
        informers: Sequence[Informer] = ()
        with self._lock:
            present = self._kind_caches.get(kind)
            if present is None:
                self._add(kind, options or self._options_of(kind))
            elif options is None or (
                present.may_upgrade
                and options == attrs.evolve(present.options, metadata_only=False)
            ):
                informers = self._upgrade(present)
            else:
                _check_same(kind, present.options, options)
        _report_failures(informers)

    def add_metadata(self, kind: Kind) -> None:
        """Add ``kind`` with metadata only, or full objects if somebody expects them; for sources.

        Unlike a kind with ``metadata_only`` in its :class:`CacheOptions`, it can get full objects
        later; the cache then lists it again.
        """
        with self._lock:
            if kind in self._kind_caches:
                return
            options = self._options_of(kind)
            may_upgrade = kind not in self._expected_full and not options.metadata_only
            if may_upgrade:
                options = attrs.evolve(options, metadata_only=True)
            self._add(kind, options, may_upgrade=may_upgrade)

    def expect_whole(self, kind: Kind) -> None:
        """Announce that full objects of ``kind`` will be needed once it is added; for sources.

        Raises:
            ValueError: the options of the cache or the kind say ``metadata_only``.
        """
        with self._lock:
            present = self._kind_caches.get(kind)
            options = self._options_of(kind) if present is None else present.options
            if options.metadata_only and not (present and present.may_upgrade):
                raise ValueError(
                    f"the cache holds only the metadata of {kind.qualified_name}, as its options "
                    "say, and all users share one copy: give metadata_only=True here too, or "
                    "nowhere"
                )
            self._expected_full.add(kind)

    def _options_of(self, kind: Kind) -> CacheOptions:
        return self._by_kind.get(kind) or CacheOptions()

    def _add(self, kind: Kind, options: CacheOptions, *, may_upgrade: bool = False) -> None:
        added = KindCache(
            kind, options, make=self._make_informer, run=self._run, may_upgrade=may_upgrade
        )
        try:
            added.follow(self._selections(added))
        except BaseException:  # a thread cannot be started; those that were run for nobody
            added.end()
            raise
        # Only once nothing can fail any more: a kind without informers would read as empty.
        self._kind_caches[kind] = added
        self._changed.wake()

    def _upgrade(self, kind_cache: KindCache) -> Sequence[Informer]:
        """Upgrade from metadata to full objects; returns informers with failures to report."""
        if not kind_cache.may_upgrade:
            return ()
        kind_cache.may_upgrade = False
        kind_cache.options = attrs.evolve(kind_cache.options, metadata_only=False)
        kind_cache.follow(self._selections(kind_cache))
        self._changed.wake()
        return [each.informer for each in kind_cache.routing.current]

    def options_for(self, kind: Kind) -> CacheOptions:
        """The options of ``kind``, or the options that it would get if added without any."""
        with self._lock:
            present = self._kind_caches.get(kind)
            return self._options_of(kind) if present is None else present.options

    def remove(self, kind: Kind, *, timeout: float = 30.0) -> None:
        """Remove ``kind`` and its handlers, and stop its informers; ignores an unknown kind.

        Args:
            kind: the kind.
            timeout: seconds of real time that handlers have to end their calls; default 30.

        Raises:
            TimeoutError: handlers still run; the text names their threads.
        """
        check_kind(kind)
        checked_seconds("timeout", timeout)
        with self._lock:
            removed = self._kind_caches.pop(kind, None)
            if removed is None:
                return
            for registration in removed.registrations:
                registration.stop()
                self._cache_metrics.note_removed(registration)
            removed.end()
            self._changed.wake()
            if self._follower is not None:
                self._follower.wake()
        joins = [registration.join for registration in removed.registrations]
        join_all(joins, timeout, f"the cache of {kind.qualified_name}")

    def set_namespaces(self, namespaces: Namespaces | None, *, kind: Kind | None = None) -> None:
        """Follow these namespaces from now on; empty: all.

        Informers of namespaces that stay go on. The cache lists a new namespace, and handlers get
        its objects as initial additions. Until it has synced (see :meth:`wait_for_sync`), reads of
        it and of all namespaces raise :class:`NotCachedError`, or wait in a lazy cache. If the
        cache no longer follows a namespace, reads of it raise :class:`NotFollowedError` at once;
        handlers get deletions with an unknown final state and :attr:`Event.is_unfollowed` set.

        When the cache changes from all namespaces to some of them, or back, the old informers serve
        until the new ones have synced. Handlers then get the changes in between as events, and
        nothing twice.

        Args:
            namespaces: names, or options by name; None, for a ``kind``: the cache's namespaces.
            kind: the kind to which this applies; default: all kinds without their own namespaces.

        Raises:
            NotCachedError: ``kind`` was not added.
            ValueError: ``kind`` is cluster-scoped, a name is empty, or a selector chooses the
                namespaces of the cache, and no ``kind`` is given.
        """
        if namespaces is None and kind is None:
            raise ValueError("namespaces=None: give names, or an empty list for all namespaces")
        if kind is None and self._follower is not None:
            raise ValueError(
                f"the selector {self._follower.selected.selector} chooses the namespaces of this "
                "cache, as they come and go: make the cache with names, or set the namespaces of a "
                "kind"
            )
        if kind is not None:
            check_kind(kind)
        wanted = None if namespaces is None else checked_namespaces(namespaces)
        with self._lock:
            if kind is None:
                self._namespaces = wanted or {}
                changed = list(self._kind_caches.values())
            else:
                kind_cache = self._get(kind)
                options = attrs.evolve(kind_cache.options, namespaces=wanted)
                _check_scope(kind, options)
                kind_cache.options = options
                changed = [kind_cache]
            for kind_cache in changed:
                kind_cache.follow(self._selections(kind_cache))
            self._changed.wake()
            informers = _informers_of(changed)
        _report_failures(informers)

    def add_index(
        self, kind: Kind[SpecT, StatusT], name: str, function: IndexFunction[SpecT, StatusT]
    ) -> None:
        """Add an index of existing and future objects of ``kind``; does not wait for a sync.

        Raises:
            NotCachedError: ``kind`` was not added.
            ValueError: there is an index of that name.
        """
        check_kind(kind)
        check_index(name, function)
        with self._lock:
            kind_cache = self._get(kind)
            if name in kind_cache.indexes:
                raise ValueError(
                    f"{kind.qualified_name} has an index {name!r} already: use it, or choose "
                    "another name"
                )
            kind_cache.indexes[name] = function
            routing = kind_cache.routing
            informers = [each.informer for each in {*routing.current, *routing.active}]
        # Without the lock, because the function is user code.
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
            kind: a kind that was added.
            path: such as ``spec.nodeName``; with ``function`` any name.
            function: returns the values of an object; default: the value at ``path``.

        Raises:
            NotCachedError: ``kind`` was not added.
            ValueError: ``path`` is indexed already.
        """
        check_text("path", path, empty=False)
        self.add_index(
            kind, FIELD_INDEX + path, field_index(path) if function is None else function
        )

    @property
    def kinds(self) -> Sequence[Kind]:
        """The kinds that were added."""
        return list(self._kind_caches)

    def informers(self, kind: Kind[SpecT, StatusT]) -> Sequence[Informer[SpecT, StatusT]]:
        """The informers of ``kind``, one for each followed namespace.

        Raises:
            NotCachedError: ``kind`` was not added.
        """
        check_kind(kind)
        return [each.informer for each in self._get(kind).routing.current]

    def add_event_handler(
        self,
        kind: Kind[SpecT, StatusT],
        handler: EventHandler[SpecT, StatusT] | BatchHandler,
        *,
        resync: float | None = None,
        max_pending: int = 10_000,
        overflow: Overflow = Overflow.COALESCE,
    ) -> CacheRegistration:
        """Send ``handler`` the events of ``kind``, including namespaces that are added later.

        An EventHandler gets objects with the types of this ``kind``, whatever types the kind was
        added with. It has one thread, however many namespaces there are. A BatchHandler gets
        objects with the types that the kind was added with. For the arguments see
        :meth:`Informer.add_event_handler`.

        Raises:
            NotCachedError: ``kind`` was not added.
            TypeError, ValueError: as :meth:`Informer.add_event_handler`.
        """
        check_kind(kind)
        check_handler(handler, resync, max_pending, overflow)
        with self._lock:
            kind_cache = self._get(kind)
            registration = CacheRegistration(
                kind,
                handler,
                resync=resync,
                max_pending=max_pending,
                overflow=overflow,
                on_error=self._on_error,
                clock=self.clock,
                changed=self._changed,
                are_namespaces_known=self._knows_namespaces_of(kind_cache),
                remove=self._remove_handler,
            )
            try:
                if self._stop is not None:
                    registration.start()
                kind_cache.register(registration)
            except BaseException:
                registration.stop()
                raise
        registration.report_failures()
        return registration

    @contextlib.contextmanager
    def held_informers(self, kind: Kind, source: EventSource) -> Iterator[Sequence[Informer]]:
        """Within the block, ``source`` keeps the same informers of ``kind``; yields these."""
        with self._lock:
            kind_cache = self._kind_caches.get(kind)
            registrations = () if kind_cache is None else kind_cache.registrations
            yield [
                informer
                for registration in registrations
                if registration.sends_to(source)
                for informer in registration.informers
            ]

    def _remove_handler(self, registration: CacheRegistration, timeout: float) -> None:
        with self._lock:
            registration.stop()
            self._changed.wake()
            kind_cache = self._kind_caches.get(registration.kind)
            if kind_cache is not None and registration in kind_cache.registrations:
                kind_cache.registrations.remove(registration)
                self._cache_metrics.note_removed(registration)
        join_all([registration.join], timeout, f"a handler of {registration.kind.qualified_name}")

    # Reading.

    def get(
        self, kind: Kind[SpecT, StatusT], name: str, *, namespace: str = ""
    ) -> Object[SpecT, StatusT] | None:
        """The object of this name; None if there is none.

        Raises:
            NotCachedError: ``kind`` was not added, ``namespace`` is not followed, or they have not
                synced.
            TimeoutError: a lazy read did not sync in time.
            ValueError: a namespace is missing, or given for a cluster-scoped kind.
        """
        # This cheap test first, because caches are read very often.
        if type(name) is not str or type(namespace) is not str:
            check_text("name", name)
            check_namespace_name(namespace)
        for target in self.object_read_targets(kind, namespace):
            obj = target.informer.store.get(name, namespace)
            if obj is not None:
                return obj.viewed_as(kind)
        return None

    def list(
        self,
        kind: Kind[SpecT, StatusT],
        *,
        namespace: str | None = None,
        label_selector: LabelSelection | None = None,
        field_selector: FieldSelection | None = None,
        limit: int = 0,
    ) -> Objects[SpecT, StatusT]:
        """The objects in ``namespace`` that the selectors match, sorted by namespace and name.

        Args:
            kind: the kind to list.
            namespace: the namespace; default and ``""``: all namespaces that the cache follows.
            label_selector: as text, as a mapping or parsed.
            field_selector: in the same forms; for equality with ``metadata.name``,
                ``metadata.namespace`` and the paths given to :meth:`index_field`.
            limit: the most objects to return, the first ones; default 0: all.

        Raises:
            NotCachedError: ``kind`` was not added, ``namespace`` is not followed, or they have not
                synced.
            TimeoutError: a lazy read did not sync in time.
            ValueError: a namespace was given for a cluster-scoped kind, or no index answers the
                field selector.
        """
        check_kind(kind)
        check_count("limit", limit)
        if limit < 0:
            raise ValueError(f"limit={limit}: use 0 for all, or more")
        check_namespace_name("" if namespace is None else namespace)
        labels, fields = label_selector_of(label_selector), field_selector_of(field_selector)
        targets = self.read_targets(kind, namespace or "")
        query = self.query(kind, namespace=namespace, label_selector=labels, field_selector=fields)
        if query and query.namespace != (namespace or ""):  # the field selector names it
            targets = self.read_targets(kind, query.namespace)
        found = [obj for target in targets for obj in query.objects_in(target)] if query else []
        return sorted_objects(found, kind, limit)

    def by_index(
        self, kind: Kind[SpecT, StatusT], index: str, value: str
    ) -> Objects[SpecT, StatusT]:
        """The objects that ``index`` has under ``value``, sorted by namespace and name.

        Raises:
            NotCachedError: ``kind`` was not added, or has not synced.
            KeyError: there is no such index.
        """
        check_kind(kind)
        check_text("index", index)
        check_text("value", value)
        query = Query(indexes=[(index, value)])
        targets = self.read_targets(kind, "")
        found = [obj for target in targets for obj in query.objects_in(target)]
        return sorted_objects(found, kind, 0)

    # State.

    @property
    def has_synced(self) -> bool:
        """Whether every local copy is complete, and no change of namespaces is under way.

        A namespace that a selector chose later does not count.
        """
        return self._are_namespaces_known and all(
            kind_cache.routing.is_settled for kind_cache in list(self._kind_caches.values())
        )

    def wait_for_sync(self, stop: StopSignal, timeout: float | None = None) -> bool:
        """Wait until the cache runs and :attr:`has_synced`.

        Returns:
            False when stopped or after ``timeout`` seconds.
        """
        check_wait(stop, timeout)

        def is_done() -> bool:
            # Informers may come and go during the wait. Without any it has synced before it runs,
            # and could not answer the first read of a lazy cache.
            return self._has_run and (self.has_synced or self._is_over)

        self._changed.wait(is_done, stop, timeout)
        return self._has_run and self.has_synced

    def debug_snapshot(self) -> dict[str, Any]:
        """The informers, as JSON values; at most 500."""
        found = []
        for kind in self.kinds:
            with contextlib.suppress(LookupError):
                found += [informer.debug_snapshot() for informer in self.informers(kind)]
        if self._follower is not None:
            found.insert(0, self._follower.informer.debug_snapshot())
        return {"informers": found[:500]}

    def health(self) -> Health:
        """Whether every informer has synced and follows the server, and if not, why.

        A problem of a namespace that a selector chose later, and that was not listed yet, is a
        note.
        """
        active = [each for kc in list(self._kind_caches.values()) for each in kc.routing.active]
        joining: list[Health] = []
        healths = [] if self._follower is None else [self._follower.informer.health()]
        for each in active:
            (joining if each.is_joining else healths).append(each.informer.health())
        bad, notes = (
            "; ".join(health.text for health in found if not health.is_ready)
            for found in (healths, joining)
        )
        return Health(not bad, bad or f"cache: {counted(len(healths), 'informer')} ok", notes)

    # Running.

    def run(
        self,
        stop: StopSignal,
        *,
        stop_timeout: float = 30.0,
        meanwhile: Callable[[StopSignal], None] | None = None,
    ) -> None:
        """Run the informers until ``stop`` is set; returns once all threads have ended.

        Args:
            stop: ends it.
            stop_timeout: seconds of real time that informers and handlers have to end after the
                stop; default 30.
            meanwhile: called in this thread once the informers run, with a stop signal at which it
                has to return. If it returns or fails earlier, the cache goes on. Default: nothing.

        Raises:
            TypeError: ``stop`` is not a StopSignal, or ``meanwhile`` no plain function.
            RuntimeError: the cache was run before, or an informer failed, which is a defect, or
                could not be started when the namespaces changed.
            TimeoutError: informers or handlers still run; the text names their threads.
        """
        check_stop(stop)
        checked_seconds("stop_timeout", stop_timeout)
        check_function("meanwhile", meanwhile)
        own = stop.child()
        with self._lock:
            if self._has_run:
                raise RuntimeError("the cache was run before: make a new one")
            self._has_run = True
            self._stop = own
            self._metrics = metrics = present_metrics(self._metrics)
        if meanwhile is not None:
            own.on_set(self._end_handlers)  # it may take its time to return
        try:
            with self._lock:
                for kind_cache in self._kind_caches.values():
                    for registration in kind_cache.registrations:
                        registration.start()
                    kind_cache.run()
            if self._follower is not None:
                self._run_follower(self._follower, own)
            self._changed.wake()
            self._cache_metrics.publish(metrics)
            if meanwhile is not None:
                try:
                    meanwhile(own)
                except Exception:
                    _log.exception("meanwhile= of Cache.run() failed; the cache goes on")
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
            self._cache_metrics.retire()
            joins = [self._threads.join, *(r.join for r in registrations)]
            join_all(joins, stop_timeout, "the cache")
        if self._failure is not None:
            raise RuntimeError(
                f"an informer of the cache failed: {safe_repr(self._failure)}"
            ) from self._failure

    def _end_handlers(self) -> None:
        """Begin no more calls. Without the lock: whoever sets the stop may hold others."""
        for kind_cache in list(self._kind_caches.values()):
            for registration in list(kind_cache.registrations):
                registration.end()
        self._changed.wake()

    # For the cached client.

    def object_read_targets(self, kind: Kind, namespace: str) -> ReadTargets:
        """The informers for a read of one object.

        Raises:
            as :meth:`get`.
        """
        if check_kind(kind).is_namespaced is not bool(namespace):
            raise ValueError(
                f"namespace={namespace!r}: {kind.qualified_name} is "
                + (
                    "namespaced, give a namespace"
                    if kind.is_namespaced
                    else "cluster-scoped, leave it out"
                )
            )
        return self.read_targets(kind, namespace)

    def read_targets(self, kind: Kind, namespace: str) -> ReadTargets:
        """The informers for a read of ``namespace``, ``""`` for all; all of them have synced.

        Raises:
            as :meth:`list`.
        """
        if not check_kind(kind).is_namespaced and namespace:
            raise ValueError(
                f"namespace={namespace!r}: {kind.qualified_name} is cluster-scoped, leave it out"
            )
        targets = self._read_targets(kind, namespace)
        if not (obstacle := self._obstacle(kind, targets)):
            return targets
        if not self._is_lazy:
            raise _REMEDIES.not_synced(obstacle)

        def is_ready() -> bool:
            nonlocal targets, obstacle
            targets = self._read_targets(kind, namespace)
            obstacle = self._obstacle(kind, targets)
            return not obstacle

        for target in targets:
            access_to(target.informer).check_process()
        stop, callers = self._stop, present_stop()
        if stop is not None:
            either = stop.child(*([] if callers is None else [callers]))
            try:
                # Not at the informers: a switchover, or a removal of the kind, replaces them.
                if self._changed.wait(is_ready, either, self._sync_timeout):
                    return targets
            finally:
                either.set()  # removes it from the children of both
        if stop is None or stop.is_set():
            raise TimeoutError(
                f"the cache does not run, so {kind.qualified_name} cannot be read: run it first"
            )
        if callers is not None and callers.is_set():
            raise RequestStopped(f"{obstacle}; the read was stopped", sent=False)
        raise TimeoutError(f"{obstacle}; waited {self._sync_timeout:g} s")

    def read_target(self, kind: Kind, namespace: str) -> ReadTarget | None:
        """The read target of ``namespace``, synced or not; None if it is not followed."""
        targets = self._routing(kind).read_targets(namespace)
        return targets[0] if targets else None

    def informer_of(
        self, kind: Kind[SpecT, StatusT], namespace: str
    ) -> Informer[SpecT, StatusT] | None:
        """The informer that follows ``namespace``, even if a switchover is about to end it."""
        return self._routing(kind).informer_of(namespace)

    def next_informer_of(self, kind: Kind, namespace: str) -> Informer | None:
        """The informer that will follow ``namespace`` after a switchover; else the current one."""
        return self._routing(kind).next_informer_of(namespace)

    def note_written(self, obj: Object) -> None:
        """Note that ``obj`` was written: its namespace exists, even if it was gone before."""
        if self._follower is not None:
            with self._lock:
                self._follower.selected.note_written(obj.namespace, obj.resource_version)

    def selects(self, kind: Kind, obj: Object) -> bool:
        """Whether the cache follows ``obj``, by its namespace and the selectors."""
        selections = self._routing(kind).selections_of(obj.namespace)
        return any(selection.selects(obj) for selection in selections)

    def selects_all(self, kind: Kind, namespace: str) -> bool:
        """Whether the cache follows ``namespace`` without selectors."""
        selections = self._routing(kind).selections_of(namespace)
        return all(selection.selects_all for selection in selections)

    def query(
        self,
        kind: Kind,
        *,
        namespace: str | None,
        label_selector: LabelSelection | None,
        field_selector: FieldSelection | None,
    ) -> Query | None:
        """The query for a list; None when no object can match.

        Raises:
            ValueError: the field selector cannot be answered from the indexes.
        """
        return query_of(
            kind,
            list(self._get(kind).indexes),
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
        )

    def _read_targets(self, kind: Kind, namespace: str) -> ReadTargets:
        if self._is_lazy and kind not in self._kind_caches:
            self.add(kind)
        if targets := self._get(kind).routing.read_targets(namespace):
            return targets
        with self._lock:  # what is known of namespaces fits the routing
            kind_cache = self._get(kind)
            routing = kind_cache.routing
            targets = routing.read_targets(namespace)
            if not targets and not self._may_be_empty(kind_cache, namespace):
                known = ", ".join(sorted(str(selection) for selection in routing.selections))
                if self._is_selected(kind_cache):
                    assert self._follower is not None
                    selector = self._follower.selected.selector
                    raise _SELECTED_REMEDIES.not_followed(
                        f"{kind.qualified_name} is cached in the namespaces {selector}, and "
                        f"{namespace!r} does "
                        "not match, or not yet",
                        kind,
                        namespace,
                    )
                raise _REMEDIES.not_followed(
                    f"{kind.qualified_name} is cached in {known} only, not in namespace "
                    f"{namespace!r}",
                    kind,
                    namespace,
                )
        return targets

    # Namespaces that a selector chooses.

    def _is_selected(self, kind_cache: KindCache) -> bool:
        """Whether a selector chooses the namespaces of the kind."""
        return (
            self._follower is not None
            and kind_cache.kind.is_namespaced
            and kind_cache.options.namespaces is None
        )

    def _knows_namespaces_of(self, kind_cache: KindCache) -> Callable[[], bool]:
        return lambda: self._are_namespaces_known or not self._is_selected(kind_cache)

    def _may_be_empty(self, kind_cache: KindCache, namespace: str) -> bool:
        """Whether no informer is needed: nothing exists there, or that is not known yet."""
        if not self._is_selected(kind_cache):
            return False
        assert self._follower is not None
        is_known = self._are_namespaces_known
        return not namespace or not is_known or self._follower.has_ended(namespace)

    def _obstacle(self, kind: Kind, targets: ReadTargets) -> str:
        """Why the local copies cannot be read yet; empty if they can."""
        is_unknown = self._follower is not None and not self._are_namespaces_known
        if is_unknown and self._is_selected(self._get(kind)):
            assert self._follower is not None
            return self._follower.informer.health().text
        return _obstacle(targets)

    def _run_follower(self, follower: NamespaceFollower, stop: StopSignal) -> None:
        self._start(f"{follower.informer.kind}/", lambda: follower.informer.run(stop), stop)
        self._start("namespaces", lambda: follower.run(stop, self.follow_namespaces), stop)

    def follow_namespaces(self) -> None:
        """Follow the namespaces that the selector chooses now; for the follower."""
        assert self._follower is not None
        with self._lock:
            change = self._follower.update(self._informers_in)
            if change is None or (self._are_namespaces_known and not change):
                return
            names = sorted(self._follower.selected.watched)
            self._namespaces = {name: NamespaceOptions() for name in names}
            changed = [each for each in self._kind_caches.values() if self._is_selected(each)]
            for kind_cache in changed:
                is_settled = kind_cache.routing.is_settled
                kind_cache.lets_join |= self._are_namespaces_known and is_settled
                kind_cache.follow(
                    self._selections(kind_cache), joins=kind_cache.lets_join, gone=change.ended
                )
            self._are_namespaces_known = True  # once they are followed: who looks takes no lock
            self._changed.wake()
            informers = _informers_of(changed)
        self._follower.log(change)
        _report_failures(informers)

    def _informers_in(self, namespace: str) -> Sequence[Informer]:
        return [
            each.informer
            for kind_cache in self._kind_caches.values()
            if self._is_selected(kind_cache)
            for each in kind_cache.routing.current
            if each.selection.namespace == namespace
        ]

    def _routing(self, kind: Kind) -> Routing:
        kind_cache = self._kind_caches.get(kind)
        return _NOWHERE if kind_cache is None else kind_cache.routing

    def _get(self, kind: Kind) -> KindCache:
        kind_cache = self._kind_caches.get(kind)
        if kind_cache is None:
            known = ", ".join(sorted(k.qualified_name for k in self.kinds)) or "none"
            raise _REMEDIES.not_cached(
                f"{kind.qualified_name} has no informer in this cache (it holds: {known})"
            )
        return kind_cache

    # Informers.

    def _make_informer(self, kind_cache: KindCache, selection: Selection) -> Informer:
        options = kind_cache.options
        informer = Informer(
            kind_cache.kind,
            self._client,
            namespace=selection.namespace,
            label_selector=selection.label_selector,
            field_selector=selection.sent_field_selector,
            transform=selection.transform,
            metadata_only=selection.metadata_only,
            indexes=kind_cache.indexes,
            resync=self._resync if options.resync is None else options.resync,
            on_error=self._on_error,
            clock=self.clock,
            metrics=self._metrics,
        )
        access_to(informer).on_synced = lambda: self._synced(kind_cache)
        return informer

    def _synced(self, kind_cache: KindCache) -> None:
        with self._lock:
            if self._kind_caches.get(kind_cache.kind) is kind_cache:
                kind_cache.advance()
            self._changed.wake()
            informers = _informers_of([kind_cache])
        if self._follower is not None:
            self._follower.wake()  # a deleted namespace may have been listed, and be empty
        _report_failures(informers)

    def _run(self, made: SelectionInformer) -> None:
        stop = self._stop
        if stop is not None and made.stop is None:
            own = made.stop = stop.child()
            informer = made.informer
            try:
                self._start(f"{informer.kind}/{made.selection}", lambda: informer.run(own), stop)
            except BaseException as error:
                # Handlers and readers of a kind that is here would wait for it for ever. One that
                # is being added can be added again.
                if informer.kind in self._kind_caches:
                    self._failure = error
                    stop.set()
                raise

    def _start(self, name: str, run: Callable[[], None], stop: StopSignal) -> None:
        def follow() -> None:
            try:
                run()
            except BaseException as error:
                # Nobody may go on reading a local copy that no longer follows the server.
                self._failure = error
                stop.set()

        self._threads.start(name, follow)

    def _selections(self, kind_cache: KindCache) -> Sequence[Selection]:
        return selections_of(
            kind_cache.kind,
            kind_cache.options,
            self._namespaces,
            self._defaults,
            are_selected=self._follower is not None,
        )

    def _handlers(self) -> Sequence[CacheRegistration]:
        with self._lock:
            return [r for kc in self._kind_caches.values() for r in kc.registrations]


def _obstacle(targets: ReadTargets) -> str:
    """Why the local copies cannot be read yet; empty if they can."""
    for target in targets:
        if not target.informer.has_synced and not target.is_joining:
            return target.informer.health().text
    for target in targets:
        if target.is_switching:  # the new informers may be behind earlier reads
            return f"{target.informer.kind.qualified_name} is being handed over to other informers"
    return ""


def _informers_of(kind_caches: Sequence[KindCache]) -> Sequence[Informer]:
    return [each.informer for kind_cache in kind_caches for each in kind_cache.routing.current]


def _report_failures(informers: Sequence[Informer]) -> None:
    for informer in informers:
        access_to(informer).report_failures()


def _check_scope(kind: Kind, options: CacheOptions) -> None:
    if options.namespaces and not kind.is_namespaced:
        raise ValueError(f"{kind.qualified_name} is cluster-scoped: leave its namespaces out")


def _check_same(kind: Kind, present: CacheOptions, wanted: CacheOptions) -> None:
    """Refuse other options than the present ones; full objects serve metadata-only users too."""
    if wanted in (present, attrs.evolve(present, metadata_only=True)):
        return
    if present.metadata_only and not wanted.metadata_only:
        raise ValueError(
            f"the cache holds only the metadata of {kind.qualified_name}, and all users share one "
            "copy: leave metadata_only out in the first call, which serves both, or remove the "
            "kind first"
        )
    raise ValueError(
        f"{kind.qualified_name} is in the cache already, with other options: remove it first, or "
        "give all options in the first call"
    )
