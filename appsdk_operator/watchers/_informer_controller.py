"""The informer controller: feeds the events of informers to watchers and reconcilers by kind."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, final

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.cache import Delivery, Health, Informer, Overflow, ResourceAction
from appsdk_operator.resource import Kind, Object
from appsdk_operator.runtime import (
    PREVIOUS_NAMES,
    ActivityLog,
    ActivityObserver,
    CallRecord,
    Clock,
    LoopPart,
    LoopThread,
    Metrics,
    Places,
    RetryPolicy,
    StillRunning,
    StopSignal,
    ThreadGroup,
    Waiters,
    Workers,
    check_previous_names,
    check_stop,
    counted,
    entered_metrics,
    environment,
    get_logger,
    is_operator_name,
    joined_names,
    present_clock,
    present_metrics,
    raise_all,
    safe_text,
    thread_clock,
)
from appsdk_operator.runtime.validation import (
    check_count,
    check_flag,
    check_number,
    checked_limit,
    checked_seconds,
)
from appsdk_operator.watchers._checks import (
    check_argument_order,
    check_cache,
    check_calls,
    check_watcher,
    checked_kind,
)
from appsdk_operator.watchers._dispatch.dispatcher import Dispatcher
from appsdk_operator.watchers._dispatch.failures import ErrorHandler, Failures
from appsdk_operator.watchers._dispatch.metrics import ControllerMetrics, Role
from appsdk_operator.watchers._dispatch.registered import (
    RegisteredFunctions,
    RegisteredReconciler,
    RegisteredTarget,
    RegisteredWatcher,
    name_of,
)
from appsdk_operator.watchers._finalizers.uses import (
    FinalizerUse,
    OperatorName,
    finalizer_uses,
)
from appsdk_operator.watchers._informers.bindings import InformerBindings
from appsdk_operator.watchers._informers.owned import (
    OwnedInformer,
    RunnableInformer,
    check_informer,
)
from appsdk_operator.watchers._reconciler import ResourceReconciler, check_reconciler
from appsdk_operator.watchers._retry import RetryDequeuePolicy, default_retry_policy
from appsdk_operator.watchers._watcher import ResourceWatcher

if TYPE_CHECKING:
    from appsdk_operator.cache import Cache

_log = get_logger("appsdk_operator.watchers")


_HELPERS_END = 1.0
"""Seconds that informers get after the stop time-out."""
_UNMATCHED_KINDS_AFTER = 1.0
"""Seconds after the start until kinds without informers, or without watchers, are logged."""
_DEFAULT_NAME = "informer-controller"


@final
class InformerController:
    """Runs informers and calls the watchers of their kinds.

    A kind is any string that connects informers with watchers. Several informers may share a kind;
    each of them then triggers all watchers of the kind.

    Guarantees, whatever the number of workers:
        * The events of one object come in resourceVersion order, and for one event the watchers
          run one after another in the order in which they were added.
        * Calls for one object never overlap: neither two events nor an event and a retry.
        * A failing watcher does not keep the event from the others. Its call is retried when the
          retry policy says, never earlier, with the newest state of the object.
        * A watcher that is added while the controller runs first gets ``add`` for each existing
          object, and then the later events of that object.

    With one worker, events of different objects keep their order too.

    Thread-safe: informers and watchers may be added and removed at any time, also by a watcher.
    """

    def __init__(
        self,
        *,
        name: str = _DEFAULT_NAME,
        previous_names: Sequence[str] = PREVIOUS_NAMES,
        workers: int = 1,
        retry_policy: RetryPolicy | None = None,
        retry_dequeue_policy: RetryDequeuePolicy | None = None,
        error_handler: ErrorHandler | None = None,
        resyncs_repeat: bool = True,
        max_pending: int = 10_000,
        overflow: Overflow = Overflow.COALESCE,
        time_limit: float | None = None,
        stop_timeout: float = 30.0,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """A controller without informers and watchers.

        Args:
            name: the name in its threads, logs and metrics. It replaces "operator" in the default
                finalizers of its OpinionatedWatchers and OpinionatedReconcilers. Default: the name
                of its :class:`Operator` or :class:`~appsdk_operator.manager.Manager`, if it has
                one. Two operators on one kind need different names.
            previous_names: earlier names. The controller recognises finalizers with these names,
                and replaces them. Default: ``("operator",)``, the name in finalizers of operators
                without a name.
            workers: the number of objects that are handled in parallel; default 1, as in
                grafana-app-sdk.
            retry_policy: when a failed call is retried; default: after 5, 10, 20, 40, 80 and
                160 seconds. When it gives up, the next resync repeats the call.
            retry_dequeue_policy: whether a new event of an object drops a pending retry; default:
                it drops all of them.
            error_handler: called for every failed call; default: logs it.
            resyncs_repeat: whether a resync repeats a call that the policy gave up; default True,
                as in grafana-app-sdk. False: the call is made again only when the object's
                generation, labels or annotations change, or the process restarts. Failed writes of
                finalizers are repeated in any case.
            max_pending: the number of events that may wait before ``overflow`` applies; default
                10,000.
            overflow: how the controller handles further events; default: coalesce them, object by
                object.
            time_limit: seconds that a call may take; default: no limit. At the limit the controller
                sets the stop signal of the call (:func:`~appsdk_operator.runtime.current_stop`),
                and cancels an ``async def``. A call that takes longer has failed, whatever it
                returns. If a call does not return, the controller logs, counts and shows it, and
                starts a spare worker, at most as many as there are workers. The object of the call
                waits until the call returns.
            stop_timeout: seconds to wait at a stop for calls that still run; default 30.
            clock: the clock for all waits; default: the environment's.
            metrics: the metrics that it writes to; default: the metrics of its Manager, or else
                :func:`~appsdk_operator.runtime.default_metrics`.

        Raises:
            TypeError: an option is of another type.
            ValueError: an option is out of bounds.
        """
        if not name:
            raise ValueError("name='': give the controller a name, which logs and metrics show")
        check_count("max_pending", max_pending)
        check_number("stop_timeout", stop_timeout)
        if stop_timeout < 0:
            raise ValueError(f"stop_timeout={stop_timeout}: use at least 0 seconds")
        check_calls(workers, retry_policy, retry_dequeue_policy, error_handler)
        check_flag("resyncs_repeat", resyncs_repeat)
        time_limit = checked_limit("time_limit", time_limit)
        self.name = name
        self.needs_leader_election: bool = True
        """Whether a manager with leader election runs it on the leader only; default True."""
        is_named = name != _DEFAULT_NAME and is_operator_name(name)
        self._operator_name = OperatorName(
            name if is_named else "", check_previous_names(previous_names)
        )
        self._operator: object = None
        self._stop_timeout = stop_timeout
        self._workers = workers
        clock = present_clock(clock)
        self.clock: Clock = clock
        """The clock for all waits."""
        self._publishes_in = entered_metrics(metrics)
        self._loop: LoopThread | LoopPart = LoopThread(name)
        self._metrics = ControllerMetrics(pending=lambda: self.pending_retries)
        self._dispatcher = Dispatcher(
            name,
            failures=Failures(
                name,
                retry_policy=retry_policy or default_retry_policy(),
                error_handler=error_handler,
                metrics=self._metrics,
                clock=clock,
                resyncs_repeat=resyncs_repeat,
            ),
            dequeue_policy=retry_dequeue_policy,
            metrics=self._metrics,
            clock=clock,
            time_limit=time_limit,
        )
        self.activity.read_counts = lambda: (self._metrics.calls(), self.pending_events)
        self._delivery = Delivery(
            name,
            self._dispatcher.handle,
            handle_event=self._dispatcher.handle_event,
            workers=workers,
            max_pending=max_pending,
            overflow=overflow,
            worker_context=self._worker_context,
            is_known=self._dispatcher.is_known,
            on_failure=self._fail,
            clock=clock,
        )
        if time_limit is not None:
            self._delivery.allow_replacement()
        self.activity.monitor.equip(
            workers=workers,
            log=_log,
            remedy="workers=",
            replace=self._delivery.replace,
            is_lent=self._delivery.is_lent,
            start_missing=self._delivery.start_missing,
        )
        self._callers = Workers(self._delivery, self._loop)
        self._bindings = InformerBindings(self._delivery, self._dispatcher, self._metrics, clock)
        self._threads = ThreadGroup(name, on_failure=self._fail)
        self._lock = threading.Lock()
        # Held while targets and the finalizers in use change together.
        self._targets_lock = threading.Lock()
        self._stop: StopSignal | None = None
        self._has_run = False
        self._is_published = False
        self._is_over = False
        self._failures: list[Exception] = []

    # Informers, watchers and reconcilers.

    def add_informer(
        self, informer: RunnableInformer, kind: str | Kind, *, resync: float | None = None
    ) -> None:
        """Run ``informer`` with the controller, and call the watchers of ``kind`` for its events.

        Args:
            informer: the informer; one of this package, or any with the methods of
                :class:`RunnableInformer`.
            kind: the kind; as a :class:`Kind` or as a string, the same for informer and watchers.
            resync: seconds between resyncs from the local copy, plus or minus a tenth; 0: never. A
                resync repeats calls that the retry policy gave up. Default: the informer's own
                resync, which is 30 for a KubernetesInformer and none for an Informer.

        Raises:
            TypeError: ``informer`` is not an informer, or is one of another package, which has a
                resync of its own, and ``resync`` was given.
            ValueError: ``kind`` is empty, ``resync`` is negative, the informer was added before, or
                its objects have the same finalizer by a watcher of another controller.
            RuntimeError: the controller has ended.
        """
        check_argument_order("add_informer", "informer", informer, kind)
        kind = checked_kind(kind)
        check_informer(informer)
        if resync is not None:
            checked_seconds("resync", resync)
            if not isinstance(informer, Informer):
                raise TypeError(
                    f"resync={resync!r}: {informer!r} is an informer of another package: set the "
                    "resync where it is made"
                )
        self._check_open("informers")
        with self._used_finalizers() as check:
            own = self._bindings.add_informer(informer, kind, resync, check)
        with self._lock:
            stop = self._stop
        if stop is not None:
            try:
                self._run_informer(own, stop)
            except BaseException:  # a thread cannot be started
                self.remove_informer(informer)
                raise

    def remove_informer(self, informer: RunnableInformer) -> None:
        """Stop the informer and drop its events and retries. An unknown one is ignored."""
        self._bindings.remove(informer)
        self._reduce_finalizers()

    def add_cache(self, cache: Cache, kind: Kind, *, resync: float | None = 30.0) -> None:
        """Call the watchers of ``kind`` for the events of a cache's informers of it.

        The controller does not run the cache: a Manager does, for example. Several users may share
        it: they have one local copy and one watch. The controller also delivers events of
        namespaces that the cache follows later. If the cache stops following a namespace, the
        controller delivers no deletions, because the objects still exist. With
        :attr:`Overflow.BLOCK` a slow watcher delays all users of the informer.

        Args:
            cache: the cache; it begins to keep ``kind`` if it does not yet.
            kind: the kind. Spec and status of its objects are read with its types.
            resync: seconds between resyncs from the local copy, plus or minus a tenth; default 30,
                as for a KubernetesInformer. A resync repeats calls that the retry policy gave up.
                None: as the cache's options for the kind say; 0: never.

        Raises:
            TypeError: ``kind`` is not a Kind, or ``cache`` is not a cache.
            ValueError: as :meth:`add_informer`.
            RuntimeError: the cache has stopped, or the controller has ended.
        """
        check_argument_order("add_cache", "cache", cache, kind)
        check_cache(cache, kind)
        self._check_open("caches")
        with self._used_finalizers() as check:
            self._bindings.add_cache(cache, kind, resync, check)

    def remove_cache(self, cache: Cache, kind: Kind) -> None:
        """Drop the events of the cache's informers of ``kind``, and the calls pending for them.

        The informers keep running. A kind that was not added is ignored.
        """
        self._bindings.remove(cache, str(kind))
        self._reduce_finalizers()

    def add_watcher(
        self, watcher: ResourceWatcher[SpecT, StatusT], kind: str | Kind[SpecT, StatusT]
    ) -> None:
        """Call ``watcher`` for events of ``kind``, after the watchers that were added before it.

        If ``kind`` is a :class:`Kind`, the watcher gets objects with the types of that kind,
        whatever types the informer has. If it is a string, the objects have the informer's types.

        Raises:
            TypeError: ``watcher`` is not a watcher.
            ValueError: ``kind`` is empty, or an OpinionatedWatcher or OpinionatedReconciler is for
                another kind, or has the same finalizer as another one.
            RuntimeError: the controller has ended.
        """
        check_argument_order("add_watcher", "watcher", watcher, kind)
        checked_kind(kind)
        check_watcher(watcher)
        self._add(RegisteredWatcher(watcher, kind), kind)

    def remove_watcher(self, watcher: ResourceWatcher, kind: str | Kind) -> None:
        """Remove ``watcher`` and its retries. An unknown one is ignored.

        The others keep their order and their retries. If it was added several times, the first
        registration is removed.
        """
        self._remove(watcher, kind, Role.WATCHER)

    def remove_all_watchers_for_resource(self, kind: str | Kind) -> None:
        """Remove all watchers of ``kind`` and their retries; its reconcilers stay."""
        self._remove(None, kind, Role.WATCHER)

    def add_reconciler(
        self, reconciler: ResourceReconciler[SpecT, StatusT], kind: str | Kind[SpecT, StatusT]
    ) -> None:
        """Call ``reconciler`` for events of ``kind``, after the targets that were added before it.

        Args:
            reconciler: an object with ``reconcile(request)``; see :class:`SimpleReconciler` for
                functions and :class:`KeyReconciler` for the reconcilers of a Controller.
            kind: the kind of its events, and of the types of its objects, as for
                :meth:`add_watcher`.

        Raises:
            TypeError: ``reconciler`` is not a reconciler.
            ValueError: as :meth:`add_watcher`.
        """
        check_argument_order("add_reconciler", "reconciler", reconciler, kind)
        checked_kind(kind)
        check_reconciler(reconciler)
        is_level_based = getattr(reconciler, "level_based", None) is not None
        registered = RegisteredFunctions if is_level_based else RegisteredReconciler
        self._add(registered(reconciler, kind, controller=self.name, clock=self.clock), kind)

    def remove_reconciler(self, reconciler: ResourceReconciler, kind: str | Kind) -> None:
        """Remove ``reconciler`` and its pending calls. An unknown one is ignored.

        The others keep their order and their pending calls. If it was added several times, the
        first registration is removed.
        """
        self._remove(reconciler, kind, Role.RECONCILER)

    def remove_all_reconcilers_for_resource(self, kind: str | Kind) -> None:
        """Remove all reconcilers of ``kind`` and their pending calls; its watchers stay."""
        self._remove(None, kind, Role.RECONCILER)

    @contextlib.contextmanager
    def _worker_context(self) -> Iterator[None]:
        with self._loop.bound(), self._dispatcher.activity.entered():
            yield

    def _check_open(self, what: str) -> None:
        if self._is_over:
            raise RuntimeError(
                f"controller {self.name} has ended and takes no further {what}: make a new one"
            )

    def belong_to(self, operator: object, name: str, previous_names: Sequence[str]) -> None:
        """Set the operator that the controller is part of; operators and managers call this.

        The operator's name goes into default finalizers, unless the controller has its own.

        Raises:
            RuntimeError: the controller runs already, and may have written finalizers.
            ValueError: a watcher belongs to another operator, or two would have one finalizer.
        """
        with self._lock:
            self._operator = operator
            if not name or self._operator_name.name:
                return
            if self._has_run:
                raise RuntimeError(
                    f"controller {self.name} runs already, without the operator's name {name!r} in "
                    "its finalizers: add it to the operator before it runs"
                )
            previous = joined_names(self._operator_name.previous, previous_names)
            self._operator_name = OperatorName(name, previous)
        targets = self._dispatcher.registered()
        for target in targets:
            if target.finalizer_lifecycle is not None:
                target.finalizer_lifecycle.use_operator_name(self._operator_name)
        for number, target in enumerate(targets):
            for other in targets[:number]:
                if target.kind == other.kind:
                    target.check_finalizers(other)

    def await_on(self, loop: LoopThread, places: Places | None) -> None:
        """For Apps, before the run: await coroutines on a loop that several controllers share.

        Args:
            loop: the loop, which somebody else closes.
            places: for calls that await something, and hold no worker meanwhile; None: all hold
                one.
        """
        if places is None:
            self._loop = LoopPart(loop)
        else:
            self._loop = LoopPart(loop, lend=self._lend)
            self._delivery.allow_lending(places)
        self._callers = Workers(self._delivery, self._loop)

    def _lend(self) -> Callable[[], None] | None:
        """What :meth:`Delivery.lend` returns; the wait for a turn counts for no time limit."""
        take_back = self._delivery.lend()
        if take_back is None:
            return None

        def back() -> None:
            with self._dispatcher.activity.not_counted():
                take_back()

        return back

    def _add(self, target: RegisteredTarget, kind: str | Kind) -> None:
        self._check_open("watchers and reconcilers")
        target.check_kind(kind)
        if target.finalizer_lifecycle is not None:
            target.finalizer_lifecycle.use_operator_name(self._operator_name)
        if target.has_time_limits:
            self._delivery.allow_replacement()  # before an event finds the target
        with self._targets_lock:
            self._register_finalizers(target)
            try:
                self._dispatcher.add(target, self._bindings.show_present)
            except BaseException:
                finalizer_uses.reduce(self, self._finalizer_uses())
                raise

    def _remove(self, handler: Any, kind: str | Kind, role: Role) -> None:
        with self._targets_lock:
            self._dispatcher.remove(handler, checked_kind(kind), role)
            finalizer_uses.reduce(self, self._finalizer_uses())

    def _register_finalizers(self, *added: RegisteredTarget) -> None:
        """While it runs: register the finalizers of its targets and of ``added``."""
        with self._lock:
            is_running = self._stop is not None
        if is_running:
            finalizer_uses.register(self, self._finalizer_uses(*added))

    @contextlib.contextmanager
    def _used_finalizers(self) -> Iterator[Callable[[], None]]:
        """While it runs: the function that registers its finalizers for all of its informers.

        What it has registered is reduced to what is there if the block raises.
        """

        def register() -> None:
            with self._targets_lock:
                self._register_finalizers()

        try:
            yield register
        except BaseException:
            self._reduce_finalizers()
            raise

    def _reduce_finalizers(self) -> None:
        with self._targets_lock:
            finalizer_uses.reduce(self, self._finalizer_uses())

    # State.

    @property
    def watched_kinds(self) -> tuple[str, ...]:
        """The kinds of its informers, by resource and group if they are known, each once."""
        return self._bindings.names()

    @property
    def worker_counts(self) -> tuple[int, ...]:
        """The number of its workers, as a tuple with one number; for logs."""
        return (self._workers,)

    def object_of(self, call: CallRecord) -> Object | None:
        """The object of a call, from the local copy, for Events; None if there is none."""
        stores = self._bindings.stores(call.kind)
        found = (store.get(call.name, call.namespace) for store in stores)
        return next((obj for obj in found if obj is not None), None)

    @property
    def has_synced(self) -> bool:
        """Whether every watcher was called for each initial object, even if the call failed."""
        return self._bindings.first_unsynced() is None

    def wait_for_sync(self, stop: StopSignal, timeout: float | None = None) -> bool:
        """Wait for :attr:`has_synced`; False when stopped or after ``timeout`` seconds."""
        return self._bindings.wait_for_sync(stop, timeout)

    def wait_idle(self, timeout: float | None = None) -> bool:
        """Wait until no event is queued and no call runs; False after ``timeout`` seconds.

        Retries that are not due yet do not count.
        """
        return self._delivery.wait_idle(timeout)

    @property
    def pending_retries(self) -> int:
        """The number of retries that are not due yet."""
        return self._dispatcher.pending_retries()

    @property
    def pending_requeues(self) -> int:
        """The number of requeues (``requeue_after``) that are not due yet."""
        return self._dispatcher.pending_requeues()

    @property
    def given_up_calls(self) -> int:
        """The number of failed calls that the retry policy gave up; a resync repeats them."""
        return self._dispatcher.given_up()

    @property
    def pending_events(self) -> int:
        """The number of queued events."""
        return self._delivery.pending

    @property
    def next_retry_at(self) -> float | None:
        """The monotonic time of the next retry, requeue or resync; None when none is pending."""
        return self._delivery.next_due()

    def health(self) -> Health:
        """Ready while every informer has synced and follows the server; the text names failures.

        A controller that has failed or ended is not ready.
        """
        with self._lock:
            failures = list(self._failures)
        if failures:
            texts = "; ".join(safe_text(error) or type(error).__name__ for error in failures)
            return Health(False, f"controller {self.name} failed: {texts}")
        if self._is_over:
            return Health(False, f"controller {self.name} has ended")
        healths = self._bindings.healths()
        bad = [health.text for health in healths if not health.is_ready]
        text = "; ".join(bad) or f"{self.name}: {counted(len(healths), 'informer')} ok"
        notes = []
        if given_up := self._dispatcher.given_up():
            notes.append(
                f"{counted(given_up, 'call')} given up until a resync or a change of the object"
            )
        if terminal := self._dispatcher.terminal():
            notes.append(
                f"{counted(terminal, 'call')} failed for good, until the object is changed"
            )
        if failures := self._dispatcher.finalizer_failures():
            notes.append(
                f"the finalizer of {counted(len(failures), 'object')} cannot be written, such as: "
                f"{safe_text(failures[0])}"
            )
        if over := self.activity.monitor.note():
            notes.append(over)
        note = f"{self.name}: {'; '.join(notes)}" if notes else ""
        return Health(not bad, "; ".join([text, *notes]), note)

    def debug_snapshot(self) -> dict[str, Any]:
        """The health, the queue length, the planned and the given up calls, as JSON values."""
        pending = self._dispatcher.pending_as_json()
        return {
            "controller": self.name,
            "workers": self._workers,
            "targets": [
                {
                    "kind": target.kind,
                    "role": target.role.value,
                    "name": name_of(target.handler, ResourceAction.UPDATE),
                }
                for target in self._dispatcher.registered()
            ],
            "informers": self._bindings.snapshots(),
            "health": self.health().text,
            "queued": self.pending_events,
            "oldest_wait": self._delivery.oldest_wait,
            "planned": [call for call in pending if call["due_in"] is not None],
            "given_up": [call for call in pending if call["due_in"] is None],
            "over_time_limit": self.activity.monitor.over_limit(),
            "paused": self._paused_objects(),
        }

    def _paused_objects(self) -> list[str]:
        """The objects that its reconcilers pass over, as they say."""
        found: list[str] = []
        for target in self._dispatcher.registered():
            paused: Callable[[], Sequence[object] | None] | None
            paused = getattr(target.level_based, "paused_objects", None)
            if paused is not None:
                found += map(str, paused() or ())
        return found

    @property
    def activity(self) -> ActivityLog:
        """The record of its calls, for debug pages and observers."""
        return self._dispatcher.activity

    def observe_activity(self, observer: ActivityObserver) -> Callable[[], None]:
        """Call ``observer`` for each call of a watcher; returns a function that ends this.

        ``Manager.observe_activity`` observes all controllers and clients of a manager.
        """
        return self.activity.observers.add(observer)

    # Running.

    def run(self, stop: StopSignal) -> None:
        """Run the informers and call watchers until ``stop`` is set.

        Returns once every call has ended, at most ``stop_timeout`` seconds after the stop, plus a
        few. The stop cancels ``async def`` functions.

        Raises:
            TypeError: ``stop`` is not a StopSignal.
            RuntimeError: the controller was run before, or closed.
            ValueError: a watcher shares its finalizer with one of another controller that runs.
            StillRunning: calls still run after the time-out; alone, or in the group.
            Exception: the error of an informer, or the error that ended a worker. The controller
                stops all others first.
            ExceptionGroup: several of these.
        """
        check_stop(stop)
        with self._lock:
            if self._has_run or self._is_over:
                was = "run before" if self._has_run else "closed"
                raise RuntimeError(
                    f"controller {self.name} was {was}: a controller runs once, make a new one"
                )
            self._has_run = True
            own = self._stop = self.activity.stop = stop.child()
            bindings = self._bindings.owned()
        # At the stop itself: until this thread wakes, workers would begin the calls that wait.
        own.on_set(self._dispatcher.stop)
        try:
            with self._targets_lock:
                self._register_finalizers()
            self._warn_without_name()
            self._publish()
            self._delivery.start()
            for one in bindings:
                self._run_informer(one, own)
            # What is added a moment later may be their counterpart.
            Waiters(self.clock).wait(own.is_set, own, _UNMATCHED_KINDS_AFTER)
            if not own.is_set():
                self._warn_of_unmatched_kinds()
            self.activity.monitor.watch(own)
        except Exception as error:  # a thread cannot be started, for example
            self._fail(error)
        finally:
            own.set()
            with self._lock:
                self._stop = None
            with self._targets_lock:
                finalizer_uses.unregister(self)
            self._bindings.close()
            deadline = thread_clock().monotonic() + self._stop_timeout
            running = self._callers.stop(deadline)
            others = self._threads.join(max(_HELPERS_END, deadline - thread_clock().monotonic()))
            running += others
            self._metrics.retire()
            self.activity.monitor.retire()
            self._dispatcher.end()
            self._is_over = True
        if running:
            kinds = sorted({call.kind for call in self._dispatcher.running_calls()})
            what = "an informer does not return"
            if kinds:
                what = (
                    f"a watcher or reconciler of {', '.join(kinds)} does not return: set a "
                    "time-out for what it waits for, or make it async def, which a stop cancels"
                )
            self._failures.append(
                StillRunning(
                    f"controller {self.name}: still running {self._stop_timeout:g} s after the "
                    f"stop: {', '.join(running)}; {what}",
                    running=lambda: self._callers.running() + others,
                )
            )
        raise_all(f"controller {self.name} failed", self._failures)

    def hold(self) -> None:
        """Begin no call until :meth:`let_go`; running calls end, and events are queued."""
        self._delivery.hold()

    def let_go(self) -> None:
        """Begin calls again, after :meth:`hold`."""
        self._delivery.let_go()

    def process_next(self) -> bool:
        """Handle one event or retry in the calling thread; False when none is ready.

        For tests that control the order of events, with a ManualClock and without :meth:`run`.
        """
        self._publish()
        return self._delivery.step()

    def close(self) -> None:
        """Release the threads of :meth:`process_next`; :meth:`run` needs no close."""
        self._is_over = True
        self._bindings.close()
        self._loop.close()

    def _publish(self) -> None:
        """Publish in the metrics that are given, or else present; once."""
        with self._lock:
            if self._is_published:
                return
            self._is_published = True
        self._publishes_in = metrics = present_metrics(self._publishes_in)
        self._metrics.publish(metrics)
        self.activity.monitor.publish(metrics)
        self._delivery.publish(metrics)

    def _run_informer(self, binding: OwnedInformer, stop: StopSignal) -> None:
        with self._lock:
            if binding.stop is not None:
                return  # it was added just when the run began, and both sides saw to it
            own = binding.stop = stop.child()
        if not self._bindings.contains(binding):
            return  # removed before it could be started

        def run() -> None:
            try:
                with environment(clock=self.clock, metrics=self._publishes_in):
                    binding.run(own)
            except Exception as error:
                is_removed = not self._bindings.contains(binding)
                _log.error(
                    "controller %s: the informer of %s%s failed",
                    self.name,
                    binding.source.kind,
                    ", which was removed," if is_removed else "",
                    exc_info=error,
                    extra={"controller": self.name, "kind": binding.source.kind},
                )
                if not is_removed:
                    self._fail(error)

        self._threads.start(f"informer/{binding.source.kind}", run)

    def _fail(self, error: Exception) -> None:
        """End the run, which raises ``error``."""
        with self._lock:
            self._failures.append(error)
            stop = self._stop
        if stop is not None:
            stop.set()

    def _warn_of_unmatched_kinds(self) -> None:
        """Log kinds without informers, or without watchers: a misspelt kind raises no error."""
        watched = set(self._dispatcher.kinds())
        known = set(self._bindings.origins())
        unfed, unwatched = sorted(watched - known), sorted(known - watched)
        if unfed and unwatched:
            what = (
                f"there are watchers of {', '.join(unfed)}, but no informer, and informers of "
                f"{', '.join(unwatched)}, but no watcher: are they the same kind?"
            )
        elif unfed:
            what = (
                f"there are watchers of {', '.join(unfed)}, but no informer: the kit "
                "never calls them. Call add_informer or add_cache with that kind"
            )
        elif unwatched:
            what = (
                f"there are informers of {', '.join(unwatched)}, but no watcher: the kit "
                "calls nothing for their events. Call add_watcher or add_reconciler with that kind"
            )
        else:
            return
        _log.warning("controller %s: %s", self.name, what, extra={"controller": self.name})

    def _finalizer_uses(self, *added: RegisteredTarget) -> list[FinalizerUse]:
        origins = self._bindings.origins()
        return [
            FinalizerUse(
                user=f"{target.handler!r} of controller {self.name}",
                kind=target.finalizer_lifecycle.kind,
                names=target.finalizer_lifecycle.names,
                client=target.finalizer_lifecycle.client,
                operator=self._operator,
                informers=origins.get(target.kind, ()),
            )
            for target in [*self._dispatcher.registered(), *added]
            if target.finalizer_lifecycle is not None
        ]

    def _warn_without_name(self) -> None:
        if self._operator_name.name:
            return
        finalizer_lifecycles = [
            target.finalizer_lifecycle for target in self._dispatcher.registered()
        ]
        finalizers = {
            one.finalizer
            for one in finalizer_lifecycles
            if one is not None and one.takes_operator_name
        }
        if not finalizers:
            return
        given = ""
        if self.name != _DEFAULT_NAME:
            given = f" (its own, {self.name!r}, has other than a-z, 0-9 and '-', or is too long)"
        _log.warning(
            "controller %s: its watchers write %s, as every operator without a name does%s. With "
            "two such operators on a kind, the server deletes an object when one of them has "
            "cleaned up. Give the controller, its Operator or its Manager a name=; the kit "
            "recognises the finalizers written so far",
            self.name,
            ", ".join(sorted(finalizers)),
            given,
            extra={"controller": self.name},
        )
