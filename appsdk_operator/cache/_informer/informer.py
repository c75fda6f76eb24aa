"""Keep a local copy of one kind and tell handlers what happens to its objects."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic

from appsdk_operator._generics import SpecT, StatusT, subscript
from appsdk_operator.cache import _options
from appsdk_operator.cache._delivery.event_source import EventSource, Overflow
from appsdk_operator.cache._events import BatchHandler, Event, EventHandler, ResourceAction
from appsdk_operator.cache._informer.health import Contact, Health, health_of
from appsdk_operator.cache._informer.metrics import InformerMetrics
from appsdk_operator.cache._informer.reflector import ListWatchClient, Reflector
from appsdk_operator.cache._informer.registration import (
    ErrorHandler,
    Registration,
    check_handler,
    report_problem,
    sink_of,
)
from appsdk_operator.cache._informer.store import IndexFunction, Lister, Store
from appsdk_operator.cache._informer.transforms import (
    Transform,
    objects_of,
    only_metadata_then,
    stored_form,
    transformed,
)
from appsdk_operator.cache._informer.undecodable import UndecodableObjects
from appsdk_operator.cache._informer.watch_state import (
    Begin,
    Changes,
    Finish,
    Problem,
    Step,
    Unread,
    Upsert,
    WatchState,
)
from appsdk_operator.client import Forbidden
from appsdk_operator.resource import (
    FieldSelection,
    FieldSelector,
    Kind,
    LabelSelection,
    LabelSelector,
    Object,
    field_selector_of,
    is_older_version,
    label_selector_of,
)
from appsdk_operator.runtime import (
    Clock,
    Environment,
    Metrics,
    OneProcess,
    StopSignal,
    Waiters,
    check_stop,
    random_of,
)
from appsdk_operator.runtime.validation import check_environment, check_flag, check_wait

__all__ = ["Informer"]

_LOG_PERIOD = 30.0
"""Seconds for which a problem that stays the same is not logged again."""


class Informer(Generic[SpecT, StatusT]):
    """A local copy of the objects of one kind, and those who want to know of changes.

    Guarantees:
        * The store is updated before handlers run: they never see less than the event in hand.
        * Handlers see the events of one object in order; a handler added late gets the present
          objects first, without gap or double.
        * Objects deleted while nobody watched come as deletions flagged "final state unknown"; an
          object deleted and made anew comes as a deletion and an addition.
        * An object that cannot be read costs itself alone: it is reported once, the last state
          that could be read stays, and all others are followed.
        * Errors never stop it: they are handed to ``on_error``, counted by cause, kept in
          :attr:`last_error`, and :meth:`health` says what to do.

    Thread-safe. :meth:`run` blocks; an InformerController or a Manager runs it in a thread.
    """

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
        resync: float = 0.0,
        page_size: int = 500,
        stream_first_sync: bool = True,
        watch_timeout: tuple[float, float] = (300.0, 600.0),
        silence_limit: float | None = None,
        on_error: ErrorHandler | None = None,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """An informer that does nothing until it is run.

        Args:
            kind: what to follow.
            client: lists and watches.
            namespace: the one to follow; default: all.
            label_selector: which objects, as text, as a mapping of labels or as a
                :class:`~appsdk_operator.resource.LabelSelector`; default: all.
            field_selector: the same for fields; default: all.
            transform: runs before the store, for example
                :func:`~appsdk_operator.cache.drop_managed_fields`.
            metadata_only: ask for the metadata of the objects alone, and keep no more; default: no.
            indexes: functions by index name.
            resync: seconds after which handlers are shown every object once more, unless they were
                added with another; default 0: never.
            page_size: objects a page when listing; default 500, as in client-go; 0: all at once.
            stream_first_sync: ask for the present objects as a stream where the server can
                (KEP-3157); default: yes.
            watch_timeout: bounds in seconds between which the length of each watch is drawn;
                default 5 to 10 minutes, as in client-go.
            silence_limit: seconds without a byte after which a watch is taken for dead and
                replaced; default: the client's own, 90. Bookmarks come about once a minute.
            on_error: told of every problem, in the informer's thread; default: logs a warning, of
                one that stays the same each 30 seconds.
            clock: what it waits on; default: that of its Manager, else the machine's.
            metrics: where it publishes; default: in those of its Manager, else in
                :func:`~appsdk_operator.runtime.default_metrics`.
            rng: the source of jitter, for repeatable tests.

        Raises:
            ValueError: an option is out of bounds, or a namespace was given for a cluster-scoped
                kind.
            TypeError: an option has no form that is known.
            SelectorError: a selector cannot be parsed.
        """
        _options.check_informer(kind, namespace, page_size, watch_timeout, silence_limit)
        _options.check_client(client, "list_page", "watch")
        check_flag("metadata_only", metadata_only)
        check_flag("stream_first_sync", stream_first_sync)
        check_environment(clock=clock, metrics=metrics, rng=rng)
        _options.check_function("transform", transform)
        _options.check_function("on_error", on_error)
        _options.check_indexes(indexes)
        self.kind = kind
        self.namespace = namespace
        self.resync: float = _options.checked_seconds("resync", resync)
        self.label_selector: LabelSelector | None = label_selector_of(label_selector)
        self.field_selector: FieldSelector | None = field_selector_of(field_selector)
        self.transform: Transform | Transform[SpecT, StatusT] | None = (
            only_metadata_then(transform) if metadata_only else transform
        )
        self._on_error = on_error
        self._environment = Environment(clock, metrics)
        self.clock: Clock = self._environment.clock
        self._clock = clock = self.clock
        self._state = WatchState(
            page_size=page_size,
            stream_first_sync=stream_first_sync,
            watch_timeout=watch_timeout,
            rng=rng or random_of(clock),
        )
        # Held while news is applied and handed over, so that a handler that is added meanwhile
        # gets each object exactly once. Readers of the store do not need it.
        self._lock = threading.RLock()
        self.lock: threading.RLock = self._lock
        """For the cache: held while what several informers told handlers is brought together."""
        self._store = Store(kind, indexes=indexes, write_lock=self._lock)
        self._waiters = Waiters(clock)
        self._registrations: list[Registration] = []
        # What handlers raised, to be reported once the lock is released.
        self._failures: list[Exception] = []
        self._has_synced = False
        self._has_run = False
        self._has_stopped = False
        self.is_frozen: bool = False
        """For the cache: whether :meth:`freeze` was called."""
        self._reached = ""
        self._merged = 0
        # A handler that goes is counted in one of the two places at any moment.
        self._counting = threading.Lock()
        self.rewinds: int = 0
        """How often a list showed an older state than the one before, as after an etcd restore."""
        self.on_synced: Callable[[], None] = lambda: None
        """For the cache: called without a lock once the first list is complete."""
        self._last_error: Exception | None = None
        self._logged = ("", 0.0)
        self._contact = Contact(self._state)
        self._undecodable = UndecodableObjects(kind)
        self._stop: StopSignal | None = None
        self._process = OneProcess(
            f"the informer of {kind}",
            "its copy no longer follows the server: make and run one in the child",
        )
        self._numbers = InformerMetrics(self, self._environment.metrics)
        self._reflector = Reflector(
            client,
            kind,
            namespace=namespace,
            label_selector=str(self.label_selector) if self.label_selector else None,
            field_selector=str(self.field_selector) if self.field_selector else None,
            state=self._state,
            apply=self._apply,
            silence_limit=silence_limit,
            metadata_only=metadata_only,
            clock=clock,
        )

    # What it knows.

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
        """Index the objects that are there and all that come.

        Raises:
            ValueError: there is an index of that name.
            TypeError: ``name`` is no text, or ``function`` no function of an object.
        """
        self._store.add_index(name, function)

    @property
    def has_synced(self) -> bool:
        """Whether the local copy was complete at least once, all pages included."""
        return self._has_synced

    @property
    def last_error(self) -> Exception | None:
        """The newest problem; None if there was none so far."""
        return self._last_error

    @property
    def resource_version(self) -> str:
        """The server's version that the local copy has reached; ``""`` before the first sync."""
        return self._reached

    def health(self) -> Health:
        """Whether the local copy is complete and follows the server.

        A problem of less than 10 seconds does not count: watches end and are resumed all the time.
        It is over when a watch delivers something or has stood open for as long. With
        :attr:`Overflow.BLOCK`, waiting that long for a slow handler is a problem too.
        """
        name = f"informer of {self.kind}{self._selection()}"
        if self._process.inherited:
            return Health(False, f"{name}: it belongs to the process that this one was forked from")
        return health_of(
            name,
            self._contact,
            self._clock.monotonic(),
            has_run=self._has_run,
            has_synced=self._has_synced,
            has_stopped=self._has_stopped,
            last_error=self._last_error,
            count=len(self._store),
            undecodable=self._undecodable.text(),
        )

    def _selection(self) -> str:
        """What tells it apart from another informer of its kind."""
        where = f" in {self.namespace}" if self.namespace else ""
        selected = ", ".join(str(s) for s in (self.label_selector, self.field_selector) if s)
        return f"{where} where {selected}" if selected else where

    @property
    def undecodable_objects(self) -> int:
        """How many objects of the server cannot be read; :meth:`health` names some.

        What was known of such an object before stays in the local copy. It is followed again from
        when it can be read; what deletes it is told, with the state that was known.
        """
        return len(self._undecodable)

    def wait_for_sync(self, stop: StopSignal, timeout: float | None = None) -> bool:
        """Wait until the local copy is complete; False when stopped or after ``timeout`` s."""
        check_wait(stop, timeout)
        return self._wait(stop, timeout, lambda: self._has_synced)

    def wait_for_version(
        self, version: str, stop: StopSignal, timeout: float | None = None
    ) -> bool:
        """Wait until the local copy has synced and reached ``version``.

        A history that went back meanwhile may never come to ``version`` and counts as reached.

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
        self._waiters.wait(lambda: done() or self._has_stopped, stop, timeout)
        return done()

    # Who wants to know.

    def add_event_handler(
        self,
        handler: EventHandler[SpecT, StatusT] | BatchHandler,
        *,
        resync: float | None = None,
        max_pending: int = 10_000,
        overflow: Overflow = Overflow.COALESCE,
    ) -> Registration:
        """Tell ``handler`` of every object that is there and of all that happens from now on.

        Args:
            handler: an :class:`EventHandler`, called in a thread of its own, or a
                :class:`BatchHandler`, called in the informer's thread, which must not block.
            resync: seconds, give or take a tenth, after which the handler is shown every object
                once more, from the local copy; 0: never; default: the informer's own, which does
                not apply to BatchHandlers that are no :class:`EventSource`.
            max_pending: how many events may wait for an EventHandler before ``overflow`` applies;
                default 10,000.
            overflow: what happens then; default: coalesce, object by object.

        Raises:
            TypeError: ``handler`` has neither form, or ``overflow`` is no :class:`Overflow`.
            ValueError: ``resync`` is negative, or given for a BatchHandler, which has no thread to
                be called in: call :meth:`Registration.replay` instead.
            RuntimeError: the informer has stopped.
        """
        registration = self.attach(
            handler, resync=resync, max_pending=max_pending, overflow=overflow
        )
        self.report_failures()
        return registration

    def attach(
        self,
        handler: EventHandler[SpecT, StatusT] | BatchHandler,
        *,
        resync: float | None = None,
        max_pending: int = 10_000,
        overflow: Overflow = Overflow.COALESCE,
        shows_present: bool = True,
    ) -> Registration:
        """For the cache, which holds a lock: :meth:`add_event_handler` that runs no user code.

        What the handler raises is left for :meth:`report_failures`. Without ``shows_present`` it is
        not told of what is there, nor of the end of the list, because it knows already.
        """
        self._process.check()
        check_handler(handler, resync, max_pending, overflow)
        resync = _options.checked_seconds("resync", self.resync if resync is None else resync)
        sink, own = sink_of(
            handler, self.kind, self._on_error, max_pending, overflow, clock=self._clock
        )
        registration = Registration(self, sink, own, replay=self._replay)
        with self._lock:
            if self._has_stopped and shows_present and not self.is_frozen:
                raise RuntimeError(
                    f"the informer of {self.kind} has stopped: add handlers before, or make a new "
                    "informer"
                )
            # A new list each time, so that a handler may add and remove while it is called.
            self._registrations = [*self._registrations, registration]
            if self._has_run:
                registration.start()
            present = self._store.list() if shows_present else []
            if present:
                events = [Event(ResourceAction.CREATE, obj, None, True) for obj in present]
                self.tell(registration, events)
            if self._has_synced and shows_present:
                self.tell(registration, None)
        if resync and isinstance(sink, EventSource):
            registration.end_resync = sink.resync_every(resync, registration.replay)
        return registration

    def transformed(self, obj: Object[SpecT, StatusT]) -> Object[SpecT, StatusT]:
        """For the cached client: ``obj`` as it would be kept; never raises."""
        return obj if self.transform is None else stored_form(obj, self.transform, self._problem)

    def freeze(self) -> None:
        """For the cache: apply no more news, and keep what there is for those who read it."""
        with self._lock:
            self.is_frozen = True

    def forget(self, registration: Registration) -> None:
        """For the registration, which ends."""
        with self._lock, self._counting:
            if registration in self._registrations:
                self._merged += registration.pending_events[1]
            self._registrations = [r for r in self._registrations if r is not registration]

    @property
    def pending_events(self) -> tuple[int, int]:
        """How many events wait for EventHandlers of its own, and how many were merged so far."""
        with self._counting:
            registrations, merged = self._registrations, self._merged
        counts = [registration.pending_events for registration in registrations]
        return sum(c[0] for c in counts), merged + sum(c[1] for c in counts)

    def report_failures(self) -> None:
        """For the cache: report what handlers raised when they were handed news.

        Never under a lock, because what is told of it is user code.
        """
        with self._lock:
            failures, self._failures = self._failures, []
        for error in failures:
            self._problem(error)

    # Running.

    def inherit_environment(self, clock: Clock, metrics: Metrics) -> None:
        """For managers: use these, unless it was given others or was run already."""
        with self._lock:
            if not self._has_run:
                self._environment.inherit(clock, metrics)

    def run(self, stop: StopSignal, *, stop_timeout: float = 30.0) -> None:
        """Follow the server until ``stop`` is set; returns when its threads have ended.

        Args:
            stop: ends it.
            stop_timeout: seconds of real time that handlers have to end their calls after the
                stop; default 30.

        Raises:
            TypeError: ``stop`` is no StopSignal.
            RuntimeError: it was run before; make a new informer.
            TimeoutError: handlers still run; the text names their threads.
        """
        check_stop(stop)
        self._process.check()
        _options.checked_seconds("stop_timeout", stop_timeout)
        with self._lock:
            if self._has_run:
                raise RuntimeError(
                    f"the informer of {self.kind} was run before: an informer runs once, make a "
                    "new one"
                )
            self._has_run = True
            for registration in self._registrations:
                registration.start()
        self._numbers.publish()
        # Waits are on the informer's clock, whichever clock the signal was made with.
        own = self._stop = StopSignal(clock=self._clock)
        detach = stop.on_set(own.set)
        try:
            self._reflector.run(own)
        finally:
            detach()
            with self._lock:
                self._has_stopped = True
                registrations = self._registrations
            self._waiters.wake()
            own_ones = [r.own_delivery for r in registrations if r.own_delivery is not None]
            for delivery in own_ones:
                delivery.stop()
            self._numbers.retire()
            joins = [delivery.join for delivery in own_ones]
            _options.join_all(joins, stop_timeout, f"the informer of {self.kind}")

    def step(self, stop: StopSignal) -> float:
        """Do one request in the calling thread, a watch to its end.

        For tests that decide themselves what happens when, with a ManualClock, a scripted client
        and without :meth:`run`.

        Returns:
            Seconds to wait before the next step.
        """
        self._stop = stop
        return self._reflector.step(stop)

    @property
    def is_backing_off(self) -> bool:
        """Whether the next :meth:`step` makes no request, but says how long to wait for one."""
        return self._state.must_wait

    def _replay(self, registration: Registration) -> None:
        with self._lock:
            if registration in self._registrations:
                events = [Event(ResourceAction.RESYNC, obj) for obj in self._store.list()]
                self.tell(registration, events)
        self.report_failures()

    # Applying what the watch state machine says, in the informer's thread.

    def _apply(self, steps: Sequence[Step]) -> None:
        # User code (transforms, index functions, error handlers) and waiting come before and after
        # the lock.
        if self.transform is not None:
            steps = [transformed(step, self.transform, self._problem) for step in steps]
        self._contact.blocked_since = self._clock.monotonic()
        for registration in self._registrations:
            if isinstance(registration.sink, EventSource):
                registration.sink.wait_for_room(self._stop)
        self._contact.blocked_since = None
        problems = [step.error for step in steps if isinstance(step, Problem)]
        unread: list[Exception] = []
        had_synced = self._has_synced
        with self._store.writing(objects_of(steps)):
            if self.is_frozen:
                return
            for step in steps:
                if self._undecodable:
                    self._undecodable.mend(objects_of((step,)))
                if isinstance(step, Changes):
                    self._hand_over(self._store.change(step.events))
                elif isinstance(step, Upsert):
                    is_initial = not self._has_synced
                    self._hand_over(self._store.upsert(step.objects, is_initial=is_initial))
                elif isinstance(step, Begin):
                    self._store.begin_list()
                    self._undecodable.begin_list()
                elif isinstance(step, Finish):
                    self._hand_over(self._store.finish_list())
                    self._undecodable.finish_list()
                    self._finished()
                elif isinstance(step, Unread):
                    self._hand_over(self._store.unread(step.items, are_deleted=step.are_deleted))
                    if step.are_deleted:
                        self._undecodable.forget(step.items)
                    else:
                        unread += self._undecodable.note(step.items)
            self._reached = self._state.resource_version
            if self._waiters.waiting:
                self._waiters.wake()
            self._contact.note(self._clock.monotonic(), is_failing=bool(problems))
        for error in (*problems, *unread):
            self._problem(error)
        self.report_failures()
        if self._has_synced and not had_synced:
            self.on_synced()

    def _hand_over(self, changes: list[Event]) -> None:
        if changes:
            events = tuple(changes)  # one for all handlers, who cannot spoil it for each other
            for registration in self._registrations:
                self.tell(registration, events)

    def _finished(self) -> None:
        self._numbers.lists += 1
        if is_older_version(self._state.resource_version, self._reached):
            self.rewinds += 1
            self._waiters.wake()
        if not self._has_synced:
            self._has_synced = True
            for registration in self._registrations:
                self.tell(registration, None)
            self._waiters.wake()

    def tell(self, registration: Registration, events: Sequence[Event] | None) -> None:
        """For the cache, with :attr:`lock` held: hand over events, or with None the list's end."""
        try:
            if events is None:
                registration.sink.on_initial_list_end()
            else:
                registration.sink.on_events(events)
        except Exception as error:
            # One bad handler must not end the local copy that all others rely on.
            self._failures.append(error)

    def _problem(self, error: Exception) -> None:
        if isinstance(error, Forbidden):
            # Who grants one of them is refused the other next.
            error.for_verbs("list", "watch")
        self._numbers.problem(error)
        self._last_error = error
        if self._on_error is None:
            # A server that is away is asked each few seconds: that needs no line each time.
            now, text = self._clock.monotonic(), repr(error)
            if text == self._logged[0] and now - self._logged[1] < _LOG_PERIOD:
                return
            self._logged = text, now
        report_problem(self._on_error, error, self.kind, self.namespace)
