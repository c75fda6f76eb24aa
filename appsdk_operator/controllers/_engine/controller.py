"""The controller: feeds requests from sources to a reconciler, and retries failures."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar, final

from appsdk_operator.cache import Health
from appsdk_operator.controllers import controller_names
from appsdk_operator.controllers._checks import check_name, check_source, checked_reconciler
from appsdk_operator.controllers._engine.chain import ReconcileChain, may_chain
from appsdk_operator.controllers._engine.context import call_describer
from appsdk_operator.controllers._engine.run import ControllerRun
from appsdk_operator.controllers._options import ControllerOptions, ResolvedOptions
from appsdk_operator.controllers._protocols import Source
from appsdk_operator.controllers._reconcile import ReconcileFunction, Reconciler
from appsdk_operator.controllers._sources.starts import SourceStart
from appsdk_operator.resource import Kind, Object, group_kind
from appsdk_operator.runtime import (
    ActivityLog,
    ActivityObserver,
    CallRecord,
    Clock,
    LoopPart,
    LoopThread,
    Metrics,
    SpareWorkers,
    StillRunning,
    StopSignal,
    ThreadGroup,
    Workers,
    as_exception,
    check_stop,
    entered_metrics,
    environment,
    get_logger,
    guarded_call,
    present_clock,
    present_metrics,
    raise_all,
    safe_text,
    thread_clock,
    weak_method,
)
from appsdk_operator.runtime.validation import check_environment, check_instance

R = TypeVar("R", bound=Hashable)

_log = get_logger("appsdk_operator.controllers")

_HELPERS_END = 1.0
"""Seconds that sources and helpers get after the stop time-out."""
_SOURCES_AFTER = 1.0
"""Seconds after the start until a controller without sources is logged."""


@final
class Controller(Generic[R]):
    """Calls a reconciler for each request of its sources.

    Guarantees, whatever the number of workers:
        * Reconciles of one request never overlap. A request that is added meanwhile is reconciled
          once more.
        * A request is reconciled until a reconcile succeeds, is given up or fails terminally. A
          failure delays no other request.
        * No reconcile starts before every source has added its initial requests.

    It runs once. Before the run it has no threads, no queue and no metrics. Thread-safe: you may
    add sources at any time, even in the reconciler. The semantics are those of controller-runtime's
    controllers.

    >>> from appsdk_operator.controllers import Request
    >>> controller = Controller("demo", lambda request: None)
    >>> controller.name, controller.needs_leader_election
    ('demo', True)
    """

    def __init__(
        self,
        name: str,
        reconciler: Reconciler[R] | ReconcileFunction[R],
        *,
        options: ControllerOptions | None = None,
        kind: Kind | None = None,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """A controller without sources.

        Args:
            name: the name in its threads, logs and metrics; unique in the process until the
                controller has ended or is garbage-collected.
            reconciler: a :class:`Reconciler` or a function; it may be ``async def``.
            options: its options; default: the built-in defaults.
            kind: its kind, for logs and debug pages; default: none.
            clock: the clock for all waits; default: the environment's.
            metrics: the metrics that it writes to; default: the metrics of its Manager, or else
                :func:`~appsdk_operator.runtime.default_metrics`.

        Raises:
            TypeError: ``reconciler`` is neither.
            ValueError: the name is empty, or in use.
        """
        check_name(name)
        if options is not None:
            check_instance("options", options, ControllerOptions, "ControllerOptions()")
        check_environment(clock=clock, metrics=metrics)
        self.name = name
        self._reconcile: Callable[[R], Any] = checked_reconciler(reconciler)
        self._options = resolved = ResolvedOptions.of(options or ControllerOptions())
        self._kind = "" if kind is None else group_kind(kind)
        clock = present_clock(clock)
        self.clock: Clock = clock
        """The clock for all waits."""
        self._metrics = entered_metrics(metrics)
        self._own = StopSignal(clock=clock)
        self.activity: ActivityLog = ActivityLog(
            name, clock=clock, describe=call_describer(name, self._kind, self._reconcile)
        )
        """For debug pages and observers: the record of its reconciles."""
        self.activity.stop = self._own
        self._loop: LoopThread | LoopPart = LoopThread(name)
        # Weak: a controller that never ran is collected with its last reference, which frees its
        # name.
        failed = weak_method(self._thread_failed)
        self._on_failure: Callable[[Exception], None] = lambda error: _call(failed, error)
        self._workers = ThreadGroup(name, on_failure=self._on_failure)
        self._callers = Workers(self._workers, self._loop)
        self._helpers = ThreadGroup(name, on_failure=self._on_failure)
        self._lock = threading.Lock()
        self._sources: list[SourceStart] = []
        self._watched: dict[str, None] = {}
        self._finders: list[Callable[[str, str], Object | None]] = []
        self._run: ControllerRun[R] | None = None
        self._has_begun = False
        self._begun = threading.Event()
        self._is_by_hand = False
        self._has_run = False
        self._stands_by = False
        self._works = False
        self._is_closed = False
        self._is_over = False
        self._failures: list[Exception] = []
        self._is_held = False
        if not resolved.skip_name_validation:
            controller_names.claim(name, self)

    @property
    def needs_leader_election(self) -> bool:
        """Whether it runs on the leader only."""
        return self._options.needs_leader_election

    @property
    def watched_kinds(self) -> tuple[str, ...]:
        """The kinds whose events its sources deliver, by resource and group, each once."""
        return tuple(self._watched)

    @property
    def worker_counts(self) -> tuple[int, ...]:
        """The number of its workers, as a tuple with one number; for logs."""
        return (self._options.max_concurrent_reconciles,)

    def object_of(self, call: CallRecord) -> Object | None:
        """The object of a reconcile, from the local copy, for Events; None if there is none."""
        for find in self._finders:
            # A source of the user's may have that method for something else.
            found = guarded_call("find", find, call.name, call.namespace, failed=lambda _: None)
            if isinstance(found, Object):
                return found
        return None

    # Sources.

    def watch(self, source: Source[R]) -> None:
        """Take requests from ``source``; starts it at once if the controller has started.

        If the controller reconciles already, the new source delays no reconcile, and does not end
        the controller when it cannot sync. Until the source has synced, :meth:`health` is not
        ready; its text and the log say why.

        Raises:
            TypeError: ``source`` is not a source.
            RuntimeError: the controller has ended.
            Exception: an error at the start of the source, if the controller reconciles already;
                otherwise :meth:`run` raises it.
        """
        check_source(source)
        start = SourceStart(source)
        launch: Callable[[], object]
        with self._lock:
            if self._is_over:
                raise RuntimeError(
                    f"controller {self.name} has ended and starts no further sources: make a new "
                    "one"
                )
            kind = getattr(source, "kind", None)
            if isinstance(kind, Kind):
                self._watched[kind.qualified_name] = None
                find: Callable[..., Any] | None = getattr(source, "find", None)
                if group_kind(kind) == self._kind and callable(find):
                    self._finders.append(find)
            run = self._run
            if run is None:
                self._sources.append(start)
                return
            if self._is_by_hand:
                launch = functools.partial(run.starts.start_by_hand, start, run.source_queue)
            elif self._works:
                launch = functools.partial(run.starts.start_late, start, run.source_queue)
            else:
                # Registered before the workers can start, so that they wait for it too.
                launch = run.starts.prepare(start, run.source_queue)
        with environment(clock=self.clock, metrics=self._metrics):
            launch()

    # State.

    @property
    def has_synced(self) -> bool:
        """Whether every source has added its initial requests."""
        run = self._run
        return run is not None and run.starts.has_synced

    def health(self) -> Health:
        """Ready unless it failed, ended, or has a source that is not ready; the text says why.

        A controller that was not started is ready: a standby replica must not look broken. The text
        also has the reports of ready sources, for example about a failing handler.
        """
        with self._lock:
            run, is_over = self._run, self._is_over
            failures = list(self._failures)
        if failures:
            texts = "; ".join(safe_text(error) for error in failures)
            return Health(False, f"controller {self.name} failed: {texts}")
        if is_over:
            return Health(False, f"controller {self.name} has ended")
        if run is None:
            return Health(True, f"controller {self.name} is not started")
        sources = run.starts.health()
        if not sources.is_ready:
            return Health(False, f"controller {self.name}: {sources.text}")
        notes = [note for note in (run.given_up_note(), self.activity.monitor.note()) if note]
        text = "; ".join(filter(None, (f"controller {self.name} ok", sources.text, *notes)))
        return Health(True, text, f"{self.name}: {'; '.join(notes)}" if notes else "")

    def wait_idle(self, timeout: float | None = None) -> bool:
        """Wait until no request is due and no reconcile runs; False after ``timeout`` seconds.

        Requests that are not due yet do not count.
        """
        run = self._run
        return True if run is None else run.queue.wait_idle(timeout)

    @property
    def next_due(self) -> float | None:
        """The monotonic time at which the next waiting request is due; None if no request waits."""
        run = self._run
        return None if run is None else run.queue.next_due

    def debug_snapshot(self) -> dict[str, Any]:
        """The options, health, and running and planned requests with reasons, as JSON values."""
        run = self._run
        options = self._options
        snapshot: dict[str, Any] = {
            "controller": self.name,
            "kind": self._kind,
            "workers": options.max_concurrent_reconciles,
            "health": self.health().text,
        }
        if run is None:
            return snapshot
        return snapshot | run.snapshot(self.clock.monotonic(), self.clock.time())

    def await_on(self, loop: LoopThread) -> None:
        """For Apps, before the run: await coroutines on a loop that several controllers share."""
        self._loop = LoopPart(loop)
        self._callers = Workers(self._workers, self._loop)

    def observe_activity(self, observer: ActivityObserver) -> Callable[[], None]:
        """Call ``observer`` for each reconcile; returns a function that ends this.

        ``Manager.observe_activity`` observes all controllers and clients of a manager.
        """
        return self.activity.observers.add(observer)

    def running_reconciles(self) -> list[str]:
        """A text for each running reconcile: its request, and how long it has run."""
        run, now = self._run, self.clock.monotonic()
        return [
            f"{safe_text(context.request)}, begun {now - context.started:.3g} s ago"
            for context in ([] if run is None else run.runner.active())
        ]

    # Running.

    def warm_up(self, stop: StopSignal) -> None:
        """Start the sources and wait until they have synced, without reconciling anything.

        Returns at once unless the option ``warm_up`` is set. It starts no source twice, even if
        called during or after :meth:`run`, or again. The sources run until ``stop`` is set or
        :meth:`run` has ended.

        Raises:
            Exception: as :meth:`run`, for the sources.
        """
        check_stop(stop)
        if not self._options.warm_up:
            return
        forget = stop.on_set(self._own.set)
        self._own.on_set(forget)
        try:
            if self._own.is_set():
                return
            run = self._begin()
            with self._lock:
                is_first, self._stands_by = not self._stands_by, True
            if is_first:  # two would wait for each other at the end
                # run() may never be called, and then nothing else would end the sources.
                self._helpers.start("stand-by", self._end_stand_by)
            run.starts.wait()
        except BaseException:
            self._own.set()
            raise

    def run(self, stop: StopSignal) -> None:
        """Start the sources, and once all have synced reconcile until ``stop`` is set.

        Returns once every reconcile and every source has ended: at the latest ``stop_timeout``
        seconds after the stop, plus a few. The stop cancels ``async def`` reconcilers.

        Raises:
            TypeError: ``stop`` is not a StopSignal.
            RuntimeError: the controller was run before, or closed.
            TimeoutError: a source did not start or sync in time; or (StillRunning) reconciles or
                sources still run after the stop time-out. Alone, or in the group.
            Exception: an error of a source at its start, of a reconciler with
                ``recover_exceptions=False``, or an error that ended a thread.
            ExceptionGroup: several of these.
        """
        check_stop(stop)
        with self._lock:
            if self._has_run or self._is_closed:
                was = "run before" if self._has_run else "closed"
                raise RuntimeError(
                    f"controller {self.name} was {was}: a controller runs once, make a new one"
                )
            self._has_run = not self._is_over
        if not self._has_run:
            # Stopped while it was a standby, which may still be ending.
            if running := self._end():
                raise self._still_running(running)
            return
        forget = stop.on_set(self._own.set)
        try:
            # Nothing is started after a stop.
            if not self._own.is_set() and self._all_synced(run := self._begin()):
                self._start_workers(run)
                self._warn_without_sources(run)
                self.activity.monitor.watch(self._own)
        except Exception as error:
            self._fail(error)
        finally:
            forget()
            running = self._end()
        with self._lock:
            failures = list(self._failures)
        if running:
            failures.append(self._still_running(running))
        raise_all(f"controller {self.name} failed", failures)

    def hold(self) -> None:
        """Begin no reconcile until :meth:`let_go`; running ones end, and requests are queued."""
        self._set_held(is_held=True)

    def let_go(self) -> None:
        """Begin reconciles again, after :meth:`hold`."""
        self._set_held(is_held=False)

    def _set_held(self, *, is_held: bool) -> None:
        with self._lock:
            self._is_held = is_held
            run = self._run
            if run is not None:
                (run.queue.hold if is_held else run.queue.let_go)()

    def process_next(self) -> bool:
        """Reconcile one request in the calling thread; False when none is ready.

        For tests that control the order of reconciles, with a ManualClock and without :meth:`run`.
        The first call starts the sources; call :meth:`close` at the end.

        Raises:
            Exception: an error of a source at its start, raised once; or, with
                ``recover_exceptions=False``, the bug that would end the controller.
        """
        with self._lock:
            if not self._has_begun:
                self._is_by_hand = True
        run = self._begin()
        item = run.queue.try_get()
        if item is None:
            return False
        try:
            with self._loop.bound(), self.activity.entered():
                bug = run.runner.handle(item)
        finally:
            run.queue.done(item.key)
        if bug is not None:
            raise bug
        return True

    def close(self) -> None:
        """End the threads of :meth:`warm_up` or :meth:`process_next`; may be called again.

        :meth:`run` needs no close; this asks a running controller to stop.

        Raises:
            TimeoutError: threads still run after the stop time-out.
        """
        with self._lock:
            is_first, self._is_closed = not self._is_closed, True
            runs = self._has_run
        self._own.set()
        running = self._end() if is_first and not runs else []
        if running:
            raise self._still_running(running)

    def _begin(self) -> ControllerRun[R]:
        """Create the run and start the sources, unless another thread has; returns the run."""
        with self._lock:
            is_first = not self._has_begun
            if is_first and self._is_over:
                raise RuntimeError(f"controller {self.name} has ended: make a new one")
            self._has_begun = True
        if not is_first:
            self._begun.wait()
            run = self._run
            if run is None:
                raise RuntimeError(f"controller {self.name} could not begin: see its first error")
            return run
        self._metrics = present_metrics(self._metrics)
        try:
            run = ControllerRun(
                self.name,
                self._kind,
                self._reconcile,
                options=self._options,
                on_source_failure=self._on_failure,
                helpers=self._helpers,
                activity=self.activity,
                stop=self._own,
                clock=self.clock,
                registry=self._metrics,
                finders=self._finders,
            )
            starts = run.starts
            with self._lock:
                self._run = run
                if self._is_held:
                    run.queue.hold()
                launches = [
                    functools.partial(starts.start_by_hand, start, run.source_queue, stays=True)
                    if self._is_by_hand
                    else starts.prepare(start, run.source_queue)
                    for start in self._sources
                ]
                self._sources.clear()
        finally:
            self._begun.set()
        errors: list[Exception] = []
        for launch in launches:
            try:
                with environment(clock=self.clock, metrics=self._metrics):
                    launch()
            except Exception as error:  # those after it are started all the same
                errors.append(error)
        if errors:
            raise errors[0]
        return run

    def _all_synced(self, run: ControllerRun[R]) -> bool:
        while run.starts.wait():
            with self._lock:
                # A source may have been added since.
                if not run.starts.is_pending:
                    self._works = True
                    return True
        return False

    def _start_workers(self, run: ControllerRun[R]) -> None:
        count = self._options.max_concurrent_reconciles

        def start(number: int) -> None:
            self._workers.start(f"worker/{number}", functools.partial(self._work, run, spares))

        spares = SpareWorkers(self.name, start)
        self.activity.monitor.equip(
            workers=count,
            log=_log,
            remedy="max_concurrent_reconciles",
            replace=spares.replace,
            start_missing=functools.partial(spares.start_missing, run.queue),
        )
        spares.open(count - 1)
        self._own.on_set(spares.close)
        start(0)  # each starts the next one when all that there are have work

    def _work(self, run: ControllerRun[R], spares: SpareWorkers) -> None:
        queue, handle, has_stopped = run.queue, run.runner.handle, self._own.is_set
        with self._loop.bound(), self.activity.entered():
            chain: ReconcileChain[R] | None = None
            if may_chain(self._reconcile, queue.rate_limiter):
                chain = ReconcileChain(run.runner, self._loop, has_stopped)
                handle = chain.handle
            item = queue.get()
            while item is not None:
                if spares.missing and not queue.has_sleepers:
                    spares.fill()
                is_over = True
                try:
                    if not has_stopped():
                        bug = handle(item)
                        if bug is not None:
                            self._fail(bug)
                            self._own.set()
                        is_over = spares.have_replaced_me()
                finally:
                    if chain is not None:
                        item = chain.take(item)
                    # Last: after this another worker may get the request.
                    if is_over:
                        queue.done(item.key)
                if is_over:
                    return
                item = queue.done_and_get(item.key)

    def _warn_without_sources(self, run: ControllerRun[R]) -> None:
        """Log that nothing will ever be reconciled, unless a source is added within a second."""
        if run.starts.is_empty and not self._own.wait(_SOURCES_AFTER) and run.starts.is_empty:
            _log.warning(
                "controller %s has no source and reconciles nothing: add one with watch(…), or "
                "build it with controller_for(manager).for_(KIND)",
                self.name,
                extra={"controller": self.name},
            )

    def _thread_failed(self, error: Exception) -> None:
        """End the run after one of its threads failed; :meth:`run` then raises ``error``."""
        self._fail(error)
        self._own.set()

    def _end_stand_by(self) -> None:
        self._own.wait()
        with self._lock:
            if self._has_run:
                return
            self._is_over = True
        running = self._end()
        if running:
            _log.error("%s", self._still_running(running), extra={"controller": self.name})

    def _fail(self, error: BaseException) -> None:
        failure = as_exception(
            f"the reconciler of controller {self.name}", error, for_main_thread=False
        )
        with self._lock:
            self._failures.append(failure)

    def _end(self) -> list[str]:
        """Stop everything and wait; returns the names of the threads that still run."""
        self._own.set()
        run = self._run
        deadline = thread_clock().monotonic() + self._options.stop_timeout
        if run is not None:
            run.queue.shut_down()
        running = self._callers.stop(deadline)
        if run is not None:
            left = max(_HELPERS_END, deadline - thread_clock().monotonic())
            running += run.starts.join(left)
            # One of them may be the thread that ends a standby, which also calls this.
            left = max(_HELPERS_END, deadline - thread_clock().monotonic())
            running += self._helpers.join(left)
            run.metrics.retire()
            self.activity.monitor.retire()
            run.runner.end()
        with self._lock:
            self._is_over = True
            self._sources.clear()
        controller_names.release(self.name, self)
        return running

    def _still_running(self, names: list[str]) -> StillRunning:
        work = self.running_reconciles()
        callers = self._callers.running()
        others = [name for name in names if name not in callers]
        what = "a source does not return: its threads have to end with its stop signal"
        if work:
            what = (
                f"the reconciler does not return from {'; '.join(work)}: let it look at "
                "reconcile_context().stop, and set a time-out for what it waits for; a "
                "reconcile_timeout sets that signal earlier, and a stop cancels async def"
            )
        return StillRunning(
            f"controller {self.name}: still running {self._options.stop_timeout:g} s after the "
            f"stop: {', '.join(names)}; {what}",
            running=lambda: self._callers.running() + others,
        )


def _call(method: Callable[[], Callable[..., Any] | None], error: Exception) -> None:
    function = method()
    if function is not None:
        function(error)
