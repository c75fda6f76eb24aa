"""A local copy of one kind, and the handlers that receive its events."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, final

from appsdk_operator._generics import SpecT, StatusT, subscript
from appsdk_operator.cache._delivery.delivery import Delivery, EventSource, Overflow
from appsdk_operator.cache._events import BatchHandler, Event, EventHandler, ResourceAction
from appsdk_operator.cache._informer.contact_log import ContactLog
from appsdk_operator.cache._informer.handler_caller import (
    ErrorHandler,
    check_handler,
    report_problem,
    sink_of,
)
from appsdk_operator.cache._informer.health import Contact, Health, health_of
from appsdk_operator.cache._informer.metrics import InformerMetrics
from appsdk_operator.cache._informer.options import InformerOptions
from appsdk_operator.cache._informer.reflector import ListWatchClient, Reflector
from appsdk_operator.cache._informer.store import IndexFunction, Lister, Store
from appsdk_operator.cache._informer.transforms import (
    Transform,
    objects_of,
    stored_form,
    transform_step,
)
from appsdk_operator.cache._informer.undecodable import UndecodableObjects
from appsdk_operator.cache._informer.watch_state import (
    Begin,
    Changes,
    Finish,
    Problem,
    Step,
    Unreadable,
    Upsert,
    WatchState,
)
from appsdk_operator.cache._threads import join_all
from appsdk_operator.client import ApiError, Forbidden, ServerContact, TransportError
from appsdk_operator.resource import (
    Kind,
    Object,
    field_selector_of,
    is_older_version,
    label_selector_of,
)
from appsdk_operator.runtime import (
    Clock,
    Metrics,
    OneProcess,
    StopSignal,
    Waiters,
    as_exception,
    check_stop,
    entered_metrics,
    fork_safe,
    present_clock,
    random_of,
    safe_repr,
    safe_text,
)
from appsdk_operator.runtime.validation import (
    check_client,
    check_environment,
    check_wait,
    checked_seconds,
    no_awaitable,
)

if TYPE_CHECKING:
    from appsdk_operator.resource import (
        FieldSelection,
        FieldSelector,
        LabelSelection,
        LabelSelector,
    )

_LOG_PERIOD = 60.0
"""Seconds for which an unchanged problem is not logged again."""
_SHORT_LOSS = 15.0
"""Seconds without the server that need no line where a manager looks whether the server answers."""


class InformerStopped(RuntimeError):  # noqa: N818 - often no error: its owner stopped it
    """A handler was added to an informer that has stopped."""


@final
class Registration:
    """A handler that was added to an informer. Thread-safe."""

    def __init__(
        self,
        informer: Informer,
        sink: BatchHandler,
        own_delivery: Delivery | None,
        *,
        replay: Callable[[Registration], None],
        remove: Callable[[Registration], None],
    ) -> None:
        self.informer = informer
        self._do_replay = replay
        self._do_remove = remove
        self.sink = sink
        self.own_delivery = own_delivery
        self.is_started: bool = False
        self.has_list_end: bool = False
        """Whether the handler was sent the end of the list, or needs none."""
        self.is_awaited: bool = True
        """For the cache: whether the handler has synced only once this registration has."""
        self.end_resync: Callable[[], None] = lambda: None
        self._removed = StopSignal(clock=informer.clock)

    @property
    def has_synced(self) -> bool:
        """Whether the handler has handled every object that existed when it was added."""
        # Both: an EventSource shared by several informers only knows when the first list ended.
        has_synced = self.informer.has_synced and self.has_list_end
        return has_synced and bool(getattr(self.sink, "has_synced", True))

    def wait_for_sync(self, stop: StopSignal, timeout: float | None = None) -> bool:
        """Wait until the local copy is complete and the handler has handled its objects.

        A :class:`BatchHandler` counts as done when it has got the events.

        Args:
            stop: ends the wait.
            timeout: the longest to wait, in seconds of the informer's clock; default: no limit.

        Returns:
            False when stopped, after ``timeout`` seconds, or when the informer or the handler ended
            meanwhile.
        """
        check_wait(stop, timeout)
        clock = self.informer.clock
        deadline = None if timeout is None else clock.monotonic() + timeout
        either = stop.child(self._removed)
        try:
            if not self.informer.wait_for_sync(either, timeout):
                return False
            if not isinstance(self.sink, EventSource):
                return True
            left = None if deadline is None else deadline - clock.monotonic()
            return self.sink.wait_for_sync(either, left)
        finally:
            either.set()  # which detaches it from the others

    def remove(self, *, timeout: float = 30.0) -> None:
        """Stop delivering events, and wait for a call in progress; twice is harmless.

        If a handler removes itself, this does not wait.

        Args:
            timeout: seconds of real time that the call has to end; default 30.

        Raises:
            TimeoutError: the call still runs; the text names its thread.
        """
        own = self.own_delivery
        if own is not None:
            own.stop()
        self.end_resync()
        self._do_remove(self)
        self._removed.set()
        if own is not None:
            join_all([own.join], timeout, f"a handler of {self.informer.kind.qualified_name}")

    @property
    def pending_events(self) -> tuple[int, int]:
        """The number of pending events of an EventHandler, and of events merged so far."""
        own = self.own_delivery
        return (0, 0) if own is None else (own.pending, own.merged)

    def start(self) -> None:
        """Start the handler's thread, if it has one. The informer calls this."""
        if self.own_delivery is not None and not self.is_started:
            self.is_started = True
            self.own_delivery.start()

    def replay(self) -> None:
        """Deliver every object to the handler again, as :attr:`ResourceAction.RESYNC`."""
        self._do_replay(self)


class Informer(Generic[SpecT, StatusT]):
    """A local copy of the objects of one kind, and the handlers of its events.

    Guarantees:
        * The store is updated before handlers run: it is never older than the event they handle.
        * Handlers get the events of one object in order. A handler added late gets the existing
          objects first, with none missing or repeated.
        * If objects were deleted during a gap between watches, handlers get deletions flagged
          "final state unknown". If an object was deleted and recreated, they get a deletion and an
          addition.
        * An object that cannot be decoded affects no other object: the informer reports it once,
          keeps its last readable state in the local copy, and follows all others.
        * Errors never stop it: it passes them to ``on_error``, counts them by cause, and keeps the
          latest in :attr:`last_error`; :meth:`health` says what to do.

    Thread-safe. :meth:`run` blocks; an InformerController or a Manager runs it in a thread.
    """

    default_resync: ClassVar[float] = 0.0
    """The seconds between resyncs without ``resync=``; default 0: never."""

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def __init__(
        self,
        kind: Kind[SpecT, StatusT],
        client: ListWatchClient,
        *,
        namespace: str = "",
        label_selector: LabelSelection | None = None,
        field_selector: FieldSelection | None = None,
        transform: Transform[SpecT, StatusT] | None = None,
        metadata_only: bool = False,
        indexes: Mapping[str, IndexFunction[SpecT, StatusT]] | None = None,
        resync: float | None = None,
        page_size: int = 500,
        stream_first_sync: bool = True,
        watch_timeout: tuple[float, float] = (300.0, 600.0),
        silence_limit: float | None = None,
        on_error: ErrorHandler | None = None,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """An informer that does nothing until :meth:`run`.

        Args:
            kind: the kind to follow.
            client: lists and watches.
            namespace: the namespace to follow; default: all.
            label_selector: selects objects by label, as text, as a mapping of labels or as a
                :class:`~appsdk_operator.resource.LabelSelector`; default: all.
            field_selector: selects objects by field, in the same forms; default: all.
            transform: changes each object before it is stored, for example
                :func:`~appsdk_operator.cache.drop_managed_fields`.
            metadata_only: request and store only the metadata of the objects; default: no.
            indexes: index functions by name.
            resync: seconds after which handlers get every object again, unless they were added with
                another resync; 0: never; default: :attr:`default_resync`.
            page_size: objects per page when listing; default 500, as in client-go; 0: all at once.
            stream_first_sync: request the existing objects as a stream if the server can do this
                (KEP-3157); default: yes.
            watch_timeout: the shortest and the longest watch, in seconds; the length of each watch
                is random between them. Default: 5 to 10 minutes, as in client-go.
            silence_limit: seconds without a byte after which the informer treats a watch as dead
                and replaces it; default: the client's own, 90. Bookmarks come about once a minute.
            on_error: called with every problem, in the informer's thread; default: log a warning,
                and repeat an unchanged one every minute.
            clock: the clock of all waits; default: the environment's.
            metrics: the metrics that it writes to; default: its Manager's, else
                :func:`~appsdk_operator.runtime.default_metrics`.
            rng: the source of jitter, for repeatable tests.

        Raises:
            ValueError: an option is out of bounds, or a namespace was given for a cluster-scoped
                kind.
            TypeError: an option has the wrong type.
            SelectorError: a selector cannot be parsed.
        """
        options = InformerOptions(
            namespace=namespace,
            label_selector=label_selector_of(label_selector),
            field_selector=field_selector_of(field_selector),
            transform=transform,
            metadata_only=metadata_only,
            indexes=indexes,
            resync=checked_seconds("resync", self.default_resync if resync is None else resync),
            page_size=page_size,
            stream_first_sync=stream_first_sync,
            watch_timeout=watch_timeout,
            silence_limit=silence_limit,
            on_error=on_error,
        )
        options.check_for(kind)
        check_client(client, "list_page", "watch")
        check_environment(clock=clock, metrics=metrics, rng=rng)
        self.kind = kind
        self.namespace = namespace
        self.resync: float = options.resync
        self.label_selector: LabelSelector | None = options.label_selector
        self.field_selector: FieldSelector | None = options.field_selector
        self.transform: Transform | Transform[SpecT, StatusT] | None = options.store_transform
        self._on_error = on_error
        clock = present_clock(clock)
        self.clock: Clock = clock
        self._state = WatchState(
            page_size=page_size,
            stream_first_sync=stream_first_sync,
            watch_timeout=watch_timeout,
            rng=rng or random_of(clock),
        )
        # Held while events are applied and sent, so that a handler that is added meanwhile gets
        # each object exactly once. Readers of the store do not need it.
        lock = fork_safe(threading.RLock())
        self._store = Store(kind, indexes=indexes, write_lock=lock)
        self._waiters = Waiters(clock)
        self._has_synced = False
        self._is_list_sent = False
        """Whether handlers were sent the end of the first list, a moment after the sync."""
        self._reached = ""
        self.list_order: int = 0
        """The number of the last complete list, taken before its first request."""
        self.rewinds: int = 0
        """How often a list was older than the one before, as after an etcd restore."""
        self._last_error: Exception | None = None
        self._last_event: float | None = None
        self._logged = ("", 0.0)
        self._contact = Contact(self._state)
        server: object = getattr(client, "contact", None)
        self._server = server if isinstance(server, ServerContact) else None
        self._contact_log = ContactLog(kind, self._selection())
        self._undecodable = UndecodableObjects(kind)
        self._stop: StopSignal | None = None
        self._process = OneProcess(
            f"the informer of {kind.qualified_name}",
            "its copy no longer follows the server: make and run one in the child",
        )
        self._access = InformerAccess(
            self,
            self._store,
            lock,
            on_error=on_error,
            report=self._report,
            process=self._process,
        )
        self._informer_metrics = InformerMetrics(self, entered_metrics(metrics))
        self._reflector = Reflector(
            client,
            kind,
            options,
            state=self._state,
            apply=self._apply,
            clock=clock,
            metrics=self._informer_metrics,
        )

    # State.

    @property
    def store(self) -> Lister[SpecT, StatusT]:
        """The local copy, for reading; complete once :attr:`has_synced`.

        Raises:
            ForkedError: this is a child of the process that made it.
        """
        if self._process.inherited:
            self._process.refuse()
        return self._store

    def add_index(self, name: str, function: IndexFunction[SpecT, StatusT]) -> None:
        """Add an index of existing and future objects.

        Raises:
            ValueError: there is an index of this name.
            TypeError: ``name`` is not text, or ``function`` is not a function of an object.
        """
        self._store.add_index(name, function)

    @property
    def has_synced(self) -> bool:
        """Whether the local copy has been complete once, all pages of the list included."""
        return self._has_synced

    @property
    def last_error(self) -> Exception | None:
        """The latest problem; None if there was no problem so far."""
        return self._last_error

    @property
    def resource_version(self) -> str:
        """The resource version that the local copy has reached; ``""`` before the first sync."""
        return self._reached

    def health(self) -> Health:
        """Whether the local copy is complete and follows the server.

        A problem counts once it has lasted 10 seconds, because watches end and are resumed all the
        time. It is over when a watch has delivered an event, or has been open for 10 seconds. With
        :attr:`Overflow.BLOCK`, a wait of 10 seconds for a slow handler is a problem, too.
        """
        name = f"informer of {self.kind.qualified_name}{self._selection()}"
        if self._process.inherited:
            return Health(False, f"{name}: it belongs to the parent of this forked process")
        return health_of(
            name,
            self._contact,
            self.clock.monotonic(),
            has_run=self._access.has_run,
            has_synced=self._has_synced,
            has_stopped=self._access.has_stopped,
            last_error=self._last_error,
            count=len(self._store),
            undecodable=self._undecodable.text(),
        )

    def _selection(self) -> str:
        """The namespace and selectors, as text that follows the kind."""
        where = f" in {self.namespace}" if self.namespace else ""
        selected = ", ".join(str(s) for s in (self.label_selector, self.field_selector) if s)
        return f"{where} where {selected}" if selected else where

    @property
    def undecodable_objects(self) -> int:
        """The number of objects on the server that cannot be decoded; :meth:`health` names some.

        The last readable state of such an object stays in the local copy; a deletion event has this
        state. Once the object can be decoded again, the informer follows it as before.
        """
        return len(self._undecodable)

    def debug_snapshot(self) -> dict[str, Any]:
        """The followed kind, the progress and the problems, as JSON values."""
        now, state, error = self.clock.monotonic(), self._state, self._last_error
        health, last = self.health(), self._last_event
        lists = self._informer_metrics.lists
        return {
            "kind": str(self.kind),
            "resource": self.kind.qualified_name,
            "namespace": self.namespace,
            "selection": self._selection().strip(),
            "objects": len(self._store),
            "bytes": self._store.json_bytes,
            "synced": self._has_synced,
            "ready": health.is_ready,
            "health": health.text,
            "last_event": None if last is None else now - last,
            "watch_age": now - state.opened_at if state.is_following else None,
            "relists": max(0, lists - 1),
            "rewinds": self.rewinds,
            "undecodable": len(self._undecodable),
            "last_error": ""
            if error is None
            else f"{type(error).__name__}: {safe_text(error)}"[:1000],
            "unreachable_for": self._contact.lost_for(now),
        }

    def wait_for_sync(self, stop: StopSignal, timeout: float | None = None) -> bool:
        """Wait until the local copy is complete, and its objects are queued for the handlers.

        Returns:
            False when stopped, after ``timeout`` seconds, or when the informer has stopped.
        """
        check_wait(stop, timeout)
        return self._wait(stop, timeout, lambda: self._is_list_sent)

    def wait_for_version(
        self, version: str, stop: StopSignal, timeout: float | None = None
    ) -> bool:
        """Wait until the local copy has synced and reached ``version``.

        If the server's history goes back meanwhile, as after an etcd restore, the wait ends, too,
        because the informer may never reach ``version``.

        Returns:
            False when stopped, after ``timeout`` seconds, or when the informer has stopped.
        """
        rewinds = self.rewinds
        return self._wait(
            stop,
            timeout,
            lambda: (
                self.rewinds != rewinds
                or (self._has_synced and not is_older_version(self._reached, version))
            ),
        )

    def _wait(self, stop: StopSignal, timeout: float | None, done: Callable[[], bool]) -> bool:
        self._process.check()
        self._waiters.wait(lambda: done() or self._access.has_stopped, stop, timeout)
        return done()

    # Handlers.

    def add_event_handler(
        self,
        handler: EventHandler[SpecT, StatusT] | BatchHandler,
        *,
        resync: float | None = None,
        max_pending: int = 10_000,
        overflow: Overflow = Overflow.COALESCE,
    ) -> Registration:
        """Send ``handler`` every existing object and all events from now on.

        Args:
            handler: an :class:`EventHandler`, called in a separate thread, or a
                :class:`BatchHandler`, called in the informer's thread, which must not block.
            resync: seconds, plus or minus a tenth, after which the handler gets every object again,
                from the local copy; 0: never. Default: the informer's own resync, except for a
                BatchHandler that is not an :class:`EventSource`.
            max_pending: the pending events of an EventHandler above which ``overflow`` applies;
                default 10,000.
            overflow: how the informer treats further events; default: coalesce, object by object.

        Raises:
            TypeError: ``handler`` has neither form, or ``overflow`` is not an :class:`Overflow`.
            ValueError: ``resync`` is negative, or given for a BatchHandler, which has no thread
                for it: call :meth:`Registration.replay` instead.
            RuntimeError: the informer has stopped.
        """
        registration = self._access.attach(
            handler, resync=resync, max_pending=max_pending, overflow=overflow
        )
        self._access.report_failures()
        return registration

    @property
    def pending_events(self) -> tuple[int, int]:
        """The number of pending events of its EventHandlers, and of events merged so far."""
        return self._access.pending_events

    # Running.

    def run(self, stop: StopSignal, *, stop_timeout: float = 30.0) -> None:
        """Follow the server until ``stop`` is set; returns once its threads have ended.

        Args:
            stop: ends it.
            stop_timeout: seconds of real time that handlers have to end their calls after the
                stop; default 30.

        Raises:
            TypeError: ``stop`` is not a StopSignal.
            RuntimeError: the informer was run before; make a new one.
            TimeoutError: handlers still run; the text names their threads.
        """
        check_stop(stop)
        self._process.check()
        checked_seconds("stop_timeout", stop_timeout)
        access = self._access
        with access.lock:
            if access.has_run:
                raise RuntimeError(
                    f"the informer of {self.kind.qualified_name} was run before: an informer runs "
                    "once, make a "
                    "new one"
                )
            access.has_run = True
            registrations = access.registrations
        # Waits are on the informer's clock, whichever clock the signal was made with.
        own = self._stop = StopSignal(clock=self.clock)
        detach = stop.on_set(own.set)
        try:
            for registration in registrations:
                registration.start()
            self._informer_metrics.publish()
            self._contact_log.begins(self.clock.monotonic())
            self._reflector.run(own)
        finally:
            detach()
            with access.lock:
                access.has_stopped = True
                registrations = access.registrations
            self._waiters.wake()
            own_ones = [r.own_delivery for r in registrations if r.own_delivery is not None]
            for delivery in own_ones:
                delivery.stop()
            self._informer_metrics.retire()
            joins = [delivery.join for delivery in own_ones]
            join_all(joins, stop_timeout, f"the informer of {self.kind.qualified_name}")

    def step(self, stop: StopSignal) -> float:
        """Make one request in the calling thread, and read a watch to its end.

        For tests that control the order of events themselves, with a ManualClock and a scripted
        client, instead of :meth:`run`.

        Returns:
            Seconds to wait before the next step.
        """
        self._stop = stop
        return self._reflector.step(stop)

    @property
    def is_backing_off(self) -> bool:
        """Whether the next :meth:`step` makes no request and only returns the time to wait."""
        return self._state.must_wait

    # Applying the steps of the watch state machine, in the informer's thread.

    def _apply(self, steps: Sequence[Step]) -> None:
        # User code (transforms, index functions, error handlers) and waits run outside of the lock.
        if self.transform is not None:
            steps = [transform_step(step, self.transform, self._report) for step in steps]
        self._contact.blocked_since = self.clock.monotonic()
        for registration in self._access.registrations:
            if isinstance(registration.sink, EventSource):
                registration.sink.wait_for_space(self._stop)
        self._contact.blocked_since = None
        problems = [step.error for step in steps if isinstance(step, Problem)]
        undecodable: list[Exception] = []
        had_synced = self._has_synced
        with self._store.writing(objects_of(steps)):
            if self._access.is_frozen:
                return
            for step in steps:
                if self._undecodable:
                    self._undecodable.note_decodable(objects_of((step,)))
                if isinstance(step, Changes):
                    self._send(self._store.change(step.events))
                elif isinstance(step, Upsert):
                    is_initial = not self._has_synced
                    self._send(self._store.upsert(step.objects, is_initial=is_initial))
                elif isinstance(step, Begin):
                    self._store.begin_list()
                    self._undecodable.begin_list()
                elif isinstance(step, Finish):
                    self._send(self._store.finish_list())
                    self._undecodable.finish_list()
                    self._list_complete(step.resource_version)
                elif isinstance(step, Unreadable):
                    self._send(self._store.unread(step.items, are_deleted=step.are_deleted))
                    if step.are_deleted:
                        self._undecodable.forget(step.items)
                    else:
                        undecodable += self._undecodable.note(step.items)
            self._reached = self._state.resource_version
            if self._waiters.waiting:
                self._waiters.wake()
            now = self.clock.monotonic()
            self._contact.note(now, is_failing=bool(problems))
        for error in (*problems, *undecodable):
            self._report(error)
        if problems and self._on_error is None:
            if not all(map(self._needs_no_line, problems)):
                self._contact_log.has_lost(self._contact.lost_since or now)
        elif not had_synced:
            count = len(self._store)
            if self._has_synced:
                self._contact_log.has_synced(count, now)
            else:
                self._contact_log.lists(count, now, self._state.remaining)
        elif self._contact_log.lost_since is not None and self._state.is_following:
            self._contact_log.follows(now, is_stable=self._contact.lost_since is None)
        self._access.report_failures()
        if self._has_synced and not had_synced:
            self._access.on_synced()

    def _send(self, changes: list[Event]) -> None:
        if changes:
            self._last_event = self.clock.monotonic()
            events = tuple(changes)  # handlers share it, so none may change it
            for registration in self._access.registrations:
                self._access.send(registration, events)

    def _list_complete(self, version: str) -> None:
        self._informer_metrics.lists += 1
        is_rewind = is_older_version(version, self._reached)
        # Before whatever readers take as the sign that the list is complete.
        self._reached = version
        self.list_order = self._state.list_order
        if is_rewind:
            self.rewinds += 1
            self._waiters.wake()
        if not self._has_synced:
            self._has_synced = True
            for registration in self._access.registrations:
                self._access.send(registration, None)
            self._is_list_sent = True
            self._waiters.wake()

    def _needs_no_line(self, error: Exception) -> bool:
        """Whether a manager logs that the server is away, or nobody has to know.

        Connections are lost, and watches fall silent, all the time: a restart of an API server cuts
        them all, and a kind that nobody changes has no bookmarks. Each is replaced at once.
        """
        server = self._server
        if server is None or not server.is_watched or not isinstance(error, TransportError):
            return False
        if self._reflector.began <= server.lost_until:
            return True
        now = self.clock.monotonic()
        return self._has_synced and now - (self._contact.lost_since or now) < _SHORT_LOSS

    def _report(self, error: Exception) -> None:
        if isinstance(error, Forbidden):
            # Both, because the other verb would be refused next.
            error.for_verbs("list", "watch")
        self._informer_metrics.problem(error)
        self._last_error = error
        if self._on_error is None:
            if self._needs_no_line(error):
                return
            # An unreachable server is tried every few seconds, which needs no log line each time.
            now, text = self.clock.monotonic(), _recognizable(error)
            if text == self._logged[0] and now - self._logged[1] < _LOG_PERIOD:
                return
            self._logged = text, now
        report_problem(self._on_error, error, self.kind, self.namespace)


def _recognizable(error: Exception) -> str:
    """The text by which a problem counts as unchanged.

    A missing CRD or a missing role refuses the watch and then the list: the same remedy twice.
    """
    if isinstance(error, ApiError) and error.remedy:
        return f"{type(error).__name__}: {error.remedy}"
    return safe_repr(error)


@final
class InformerAccess:
    """What the cache may do with an informer that its users may not.

    The cache moves handlers from one informer to another while it holds locks of its own. So no
    method here runs user code, except for :meth:`report_failures` and :meth:`transformed`.
    """

    def __init__(
        self,
        informer: Informer,
        store: Store,
        lock: threading.RLock,
        *,
        on_error: ErrorHandler | None,
        report: Callable[[Exception], None],
        process: OneProcess,
    ) -> None:
        self.lock = lock
        """Held while events are applied to the store and sent to handlers."""
        self.registrations: Sequence[Registration] = ()
        """The handlers; replaced, never changed, so that it can be read without the lock."""
        self.has_run = False
        """Whether :meth:`Informer.run` was called."""
        self.has_stopped = False
        """Whether :meth:`Informer.run` has ended."""
        self.is_frozen = False
        """Whether :meth:`freeze` was called."""
        self.on_synced: Callable[[], None] = lambda: None
        """Called without the lock once the first list is complete."""
        self._informer = informer
        self._store = store
        self._on_error = on_error
        self._report = report
        self._process = process
        # Exceptions of handlers, to be reported once the lock is released.
        self._failures: list[Exception] = []
        # Guards both the registrations and the count of those that were removed, so that the sum
        # of merged events never goes down.
        self._counting = fork_safe(threading.Lock())
        self._merged_by_removed = 0

    @property
    def is_refused(self) -> bool:
        """As :attr:`WatchState.is_refused`."""
        return self._informer._state.is_refused  # noqa: SLF001

    def attach(
        self,
        handler: EventHandler | BatchHandler,
        *,
        resync: float | None = None,
        max_pending: int = 10_000,
        overflow: Overflow = Overflow.COALESCE,
        sends_present: bool = True,
    ) -> Registration:
        """:meth:`Informer.add_event_handler` without user code.

        Exceptions of the handler are reported by :meth:`report_failures`. Without ``sends_present``
        the handler gets neither the present objects nor the end of the list, because it has them.
        """
        informer = self._informer
        self._process.check()
        check_handler(handler, resync, max_pending, overflow)
        resync = checked_seconds("resync", informer.resync if resync is None else resync)
        sink, own = sink_of(
            handler, informer.kind, self._on_error, max_pending, overflow, clock=informer.clock
        )
        registration = Registration(informer, sink, own, replay=self._replay, remove=self._remove)
        with self.lock:
            if self.has_stopped and sends_present and not self.is_frozen:
                raise InformerStopped(
                    f"the informer of {informer.kind.qualified_name} has stopped: add handlers "
                    "earlier, or make a new informer"
                )
            if self.has_run:
                registration.start()  # which may fail: first, or its events would wait for ever
            self.registrations = (*self.registrations, registration)
            present = self._store.list() if sends_present else []
            if present:
                events = [Event(ResourceAction.CREATE, obj, None, True) for obj in present]
                self.send(registration, events)
            if informer.has_synced:
                if sends_present:
                    self.send(registration, None)
                registration.has_list_end = True
        if resync and isinstance(sink, EventSource):
            registration.end_resync = sink.resync_every(resync, registration.replay)
        return registration

    def send(self, registration: Registration, events: Sequence[Event] | None) -> None:
        """With :attr:`lock` held: send events, or with None the end of the initial list."""
        try:
            sink: Any = registration.sink
            returned = sink.on_initial_list_end() if events is None else sink.on_events(events)
            if returned is not None:
                no_awaitable("the handler", returned)
        except BaseException as raised:
            # One failing handler must not end the local copy that all others rely on.
            self._failures.append(as_exception("the handler", raised))
        if events is None:
            registration.has_list_end = True

    def sent_to(self, sink: BatchHandler) -> Sequence[Object]:
        """With :attr:`lock` held: the objects of which ``sink`` was sent the current state."""
        is_attached = any(each.sink is sink for each in self.registrations)
        return self._store.list() if is_attached else ()

    def report_failures(self) -> None:
        """Report what handlers raised; without any lock held, because ``on_error`` is user code."""
        with self.lock:
            failures, self._failures = self._failures, []
        for error in failures:
            self._report(error)

    def check_process(self) -> None:
        """Refuse to be used in a child of the process that made the informer.

        Raises:
            ForkedError: this is one.
        """
        self._process.check()

    def freeze(self) -> None:
        """Apply no more events; the local copy stays readable."""
        with self.lock:
            self.is_frozen = True

    def transformed(self, obj: Object[SpecT, StatusT]) -> Object[SpecT, StatusT]:
        """``obj`` as the informer would store it; never raises."""
        transform = self._informer.transform
        return obj if transform is None else stored_form(obj, transform, self._report)

    @property
    def pending_events(self) -> tuple[int, int]:
        """How many events are pending for EventHandlers, and how many were merged so far."""
        with self._counting:
            registrations, merged = self.registrations, self._merged_by_removed
        counts = [registration.pending_events for registration in registrations]
        return sum(c[0] for c in counts), merged + sum(c[1] for c in counts)

    def _replay(self, registration: Registration) -> None:
        with self.lock:
            if registration in self.registrations:
                events = [Event(ResourceAction.RESYNC, obj) for obj in self._store.list()]
                self.send(registration, events)
        self.report_failures()

    def _remove(self, registration: Registration) -> None:
        with self.lock, self._counting:
            if registration in self.registrations:
                self._merged_by_removed += registration.pending_events[1]
            self.registrations = tuple(r for r in self.registrations if r is not registration)


def access_to(informer: Informer) -> InformerAccess:
    """The access of the cache to ``informer``."""
    return informer._access  # noqa: SLF001 - the only way to it, for this room alone
