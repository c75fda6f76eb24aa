"""The runner: calls the reconciler for queued requests, and acts on the results."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Coroutine, Hashable, Sequence
from typing import Any, Generic, TypeVar, final

from appsdk_operator.controllers._engine.context import ReconcileContext, current, log_fields
from appsdk_operator.controllers._engine.failures import (
    FailureSeries,
    is_bug,
    is_unfollowed,
    object_state,
    requested_delay,
    retry_after_of,
    sole_error,
)
from appsdk_operator.controllers._engine.hot_loops import HotLoops
from appsdk_operator.controllers._engine.metrics import ReconcileMetrics
from appsdk_operator.controllers._engine.retries import CheckedRetry, retry_of
from appsdk_operator.controllers._options import ResolvedOptions
from appsdk_operator.controllers._reasons import (
    RequeueReason,
    RetryReason,
    compact_reason,
    first_cause,
)
from appsdk_operator.controllers._reconcile import Result, TerminalError
from appsdk_operator.controllers._wrong_outcome import wrong_outcome
from appsdk_operator.resource import Object, explain_frozen
from appsdk_operator.runtime import (
    ActivityLog,
    CallOutcome,
    CallSlot,
    Clock,
    FailureCause,
    FailureLog,
    QueueItem,
    StopSignal,
    WorkQueue,
    callback_name,
    duration_text,
    error_text,
    failed_function,
    get_logger,
    is_cancelled,
    is_interrupt,
    safe_text,
    settle,
    with_class,
)
from appsdk_operator.runtime.validation import check_count

_log = get_logger("appsdk_operator.controllers")

R = TypeVar("R", bound=Hashable)

_LONG = 0.5
"""Seconds from which on a log line says how long a reconcile took."""
_MOST_GIVEN_UP = 10_000
"""Requests that are known to be given up: those of a message bus may never come again."""


@final
class SourceQueue(Generic[R]):
    """A controller's queue, as the RequestQueue of its sources and handlers."""

    def __init__(self, queue: WorkQueue[R], fail: Callable[[Exception], None]) -> None:
        self._queue = queue
        self.fail = fail
        """Ends the controller with an error, for a source whose thread failed."""

    def add(
        self, request: R, *, priority: int | None = None, after: float = 0.0, reason: Any = None
    ) -> None:
        """Add ``request``; see :meth:`RequestQueue.add`."""
        if priority is not None:  # one that cannot be compared would block its request for ever
            check_count("priority", priority)
        self._queue.add(request, priority=priority or 0, after=after, reason=compact_reason(reason))

    def add_rate_limited(
        self, request: R, *, priority: int | None = None, reason: Any = None
    ) -> float:
        """Add ``request`` after the rate limiter's delay, which is returned in seconds."""
        if priority is not None:
            check_count("priority", priority)
        return self._queue.add_rate_limited(
            request, priority=priority or 0, reason=compact_reason(reason)
        )


@final
class ReconcileRunner(Generic[R]):
    """Reconciles the items of the queue.

    Calls of :meth:`handle` for one request never overlap: the queue prevents that.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        reconcile: Callable[[R], Any],
        *,
        options: ResolvedOptions,
        queue: WorkQueue[R],
        metrics: ReconcileMetrics,
        activity: ActivityLog,
        stop: StopSignal,
        clock: Clock,
        finders: Sequence[Callable[[str, str], Object | None]],
    ) -> None:
        self._name = name
        self._kind = kind
        self._finders = finders
        self._reconcile = reconcile
        self.callback = callback_name(reconcile)
        """The name of the reconciler, for logs."""
        self.queue: WorkQueue[R] = queue
        """The queue."""
        self._metrics = metrics
        self._stop = stop
        self.clock: Clock = clock
        """The clock of all times."""
        self._limit = options.reconcile_timeout or None
        if self._limit is not None:
            activity.monitor.name_limit(self._limit)
        self._max_attempts = options.max_attempts
        self._recovers = options.recover_exceptions
        self._failure_log = FailureLog(_log, clock)
        # Not the rate limiter's counts: some limiters have none, and handlers may change them.
        self._failures: dict[R, FailureSeries] = {}
        self._retry: CheckedRetry[R] = retry_of(
            name,
            queue.rate_limiter,
            retry=options.retry,
            max_attempts=options.max_attempts,
            log=self._failure_log,
        )
        self._given_up: dict[R, str] = {}
        self.activity: ActivityLog = activity
        """The log of its calls."""
        self._slots = activity.slots
        self._hot_loops = HotLoops(_log, name, kind, filter_hint="the predicate generation_changed")

    def active(self) -> list[ReconcileContext]:
        """The contexts of the running reconciles."""
        slots = self._slots.copy().values()
        return [context for slot in slots if (context := slot.trigger) is not None]

    def active_count(self) -> int:
        """The number of running reconciles."""
        return len(self.active())

    def given_up(self) -> dict[R, str]:
        """The error of each request whose last reconcile failed, and that nothing retries.

        At most 10,000; beyond that the one that was given up first is forgotten.
        """
        for request in self._given_up.copy():
            if object_state(request, self._finders) is None:  # gone, which a predicate may hide
                self._given_up.pop(request, None)
        return self._given_up.copy()

    def failing(self) -> dict[R, int]:
        """The number of consecutive failures of each failing request."""
        return {request: series.count for request, series in self._failures.copy().items()}

    def handle(self, item: QueueItem[R]) -> BaseException | None:
        """Reconcile ``item``, and act on its result or error; the caller gives it back then.

        Returns:
            The bug that has to end the controller; None if it continues.
        """
        request = item.key
        clock = self.clock
        started = clock.monotonic()
        self._hot_loops.note(request, started)
        attempt, max_attempts = 0, self._max_attempts
        if self._given_up:
            self._given_up.pop(request, None)
        series = self._failures.get(request)
        if series is not None:
            attempt, max_attempts = self._attempt_of(request, series, started)
        context = ReconcileContext(
            self._name,
            self._kind,
            request,
            reasons=item.reasons,
            priority=item.priority,
            attempt=attempt,
            max_attempts=max_attempts,
            started=started,
            limit=self._limit,
            stop=self._stop,
            clock=clock,
        )
        outcome: Result | None = None
        failure: BaseException | None = None
        thread = threading.get_ident()
        activity = self.activity
        slot = self._slots.get(thread) or activity.slot(thread)
        slot.started = started
        slot.limited = context
        slot.trigger = context
        token = current.set(context)
        if activity.observers.present:
            activity.begin(slot)
        try:
            if _log.logger.isEnabledFor(logging.DEBUG):
                self._log_begin(context)
            returned = self._reconcile(request)
            outcome = None if returned is None else self._outcome(returned)
        except BaseException as error:
            failure = with_class(error)
            explain_frozen(failure)
            if context.is_own_time_out and is_cancelled(failure):
                failure = context.exceeded(self.callback, clock.monotonic())
        finally:
            current.reset(token)
            slot.trigger = slot.limited = None
            ended = clock.monotonic()
            is_timeout = self._limit is not None and activity.monitor.has_exceeded(context, ended)
            context.end()
        seconds = ended - started
        if failure is None:
            self._succeeded(item, context, outcome, seconds, is_timeout)
            if slot.is_noted or started >= activity.skip_until:
                self._record(slot, context, outcome, seconds)
            return None
        try:
            return self._failed(item, context, failure, seconds, is_timeout, slot)
        finally:
            failure = None  # its traceback holds this frame, which would hold it in turn

    # For chains, which take handle() apart. It has these steps itself, as a call of each would
    # cost every reconcile that does nothing.

    def begin(self, item: QueueItem[R]) -> ReconcileContext:
        """The context of a reconcile that begins now."""
        request = item.key
        started = self.clock.monotonic()
        self._hot_loops.note(request, started)
        attempt, max_attempts = 0, self._max_attempts
        if self._given_up:
            self._given_up.pop(request, None)
        series = self._failures.get(request)
        if series is not None:
            attempt, max_attempts = self._attempt_of(request, series, started)
        return ReconcileContext(
            self._name,
            self._kind,
            request,
            reasons=item.reasons,
            priority=item.priority,
            attempt=attempt,
            max_attempts=max_attempts,
            started=started,
            limit=self._limit,
            stop=self._stop,
            clock=self.clock,
        )

    def note_begin(self, context: ReconcileContext) -> None:
        """Log it, if that is asked for."""
        if _log.logger.isEnabledFor(logging.DEBUG):
            self._log_begin(context)

    def has_to_log(self, request: R) -> bool:
        """Whether it is logged if a reconcile succeeds, or that the next one begins."""
        failing = self._failure_log.failing.calls
        is_failing = bool(failing) and (None, request) in failing
        return is_failing or _log.logger.isEnabledFor(logging.DEBUG)

    def exchange(self, request: R) -> QueueItem[R] | None:
        """The next request in place of this one, unless a source may be asked for its object."""
        return self.queue.exchange(request, unless=self._failures)

    def coroutine(self, request: R) -> Coroutine[Any, Any, Any]:
        """A coroutine that calls an ``async def`` reconciler."""
        return _called(self._reconcile, request)

    def end_of(
        self,
        item: QueueItem[R],
        context: ReconcileContext,
        slot: CallSlot,
        outcome: Result | None = None,
        error: BaseException | None = None,
    ) -> BaseException | None:
        """Act on the end of a reconcile; returns what :meth:`handle` does."""
        failure = None if error is None else with_class(error)
        if failure is not None:
            explain_frozen(failure)
            if context.is_own_time_out and is_cancelled(failure):
                failure = context.exceeded(self.callback, self.clock.monotonic())
        slot.trigger = slot.limited = None
        ended = self.clock.monotonic()
        is_timeout = self._limit is not None and self.activity.monitor.has_exceeded(context, ended)
        context.end()
        seconds = ended - context.started
        try:
            if failure is not None:
                return self._failed(item, context, failure, seconds, is_timeout, slot)
        finally:
            failure = error = None  # its traceback holds this frame, which would hold it in turn
        self._succeeded(item, context, outcome, seconds, is_timeout)
        if slot.is_noted or context.started >= self.activity.skip_until:
            self._record(slot, context, outcome, seconds)
        return None

    def _attempt_of(self, request: R, series: FailureSeries, now: float) -> tuple[int, int]:
        """The attempt number of a call after failures, and the limit that applies to it."""
        if series.is_over(object_state(request, self._finders)):
            del self._failures[request]
            self._retry.forget(request)
            return 0, self._max_attempts
        return series.count, 0 if series.is_early(now) else self._max_attempts

    def _record(
        self, slot: CallSlot, context: ReconcileContext, outcome: Result | None, seconds: float
    ) -> None:
        again_after = None if outcome is None else outcome.requeue_after
        followed: CallOutcome = "done" if again_after is None else "requeued"
        self.activity.end(slot, context, seconds, followed, again_after)

    def _outcome(self, returned: Any) -> Result | None:
        if inspect.isawaitable(returned):
            coroutine, returned = returned, None
            try:
                returned = settle(_awaited(coroutine))
            finally:
                # Needed if the loop was closed and never awaited it; harmless otherwise.
                if inspect.iscoroutine(coroutine):
                    coroutine.close()
        return self.checked(returned)

    def checked(self, returned: Any) -> Result | None:
        """What a reconcile has returned.

        Raises:
            TypeError: it is no result.
            BaseException: what a coroutine raised to end the program.
        """
        if isinstance(returned, _Raised):
            raise returned.error
        if returned is None or isinstance(returned, Result):
            return returned
        raise wrong_outcome(f"the reconciler of controller {self._name}", returned)

    def _succeeded(
        self,
        item: QueueItem[R],
        context: ReconcileContext,
        outcome: Result | None,
        seconds: float,
        is_timeout: bool,
    ) -> None:
        if context.attempt:
            self._failures.pop(item.key, None)
        self._retry.forget(item.key)
        failing = self._failure_log.failing
        if failing.calls and (None, item.key) in failing.calls:
            failing.succeeded(None, item.key, self._text_of(item.key))
        result = "success"
        if outcome is not None and outcome.requeue_after is not None:
            result = "requeue_after"
            self.queue.add(
                item.key,
                priority=item.priority if outcome.priority is None else outcome.priority,
                after=outcome.requeue_after,
                reason=RequeueReason(outcome.requeue_after),
            )
        self._metrics.count(result, seconds, is_timeout=is_timeout)

    def _failed(
        self,
        item: QueueItem[R],
        context: ReconcileContext,
        failure: BaseException,
        seconds: float,
        is_timeout: bool,
        slot: CallSlot,
    ) -> BaseException | None:
        error = sole_error(failure)
        if is_unfollowed(error, item.key, self._kind):
            self._log_unfollowed(context, error)
            self._failure_log.failing.forget(about=item.key)  # it does not work again
            self._succeeded(item, context, None, seconds, is_timeout)
            self.activity.end(slot, context, seconds)
            return None
        series = self._failures.get(item.key)
        is_early = series is not None and series.is_early(context.started)
        count = context.attempt if is_early else context.attempt + 1
        is_panic = is_bug(error)
        is_fatal = is_panic and (not self._recovers or is_interrupt(error))
        delay: float | None = None
        if not is_fatal and not isinstance(error, TerminalError):
            delay = self._plan(item.key, series, error, context.attempt, is_early=is_early)
        gives_up = delay is None and not is_fatal
        if gives_up:
            self._failures.pop(item.key, None)
            self._retry.forget(item.key)
            self._given_up[item.key] = error_text(error)
            if len(self._given_up) > _MOST_GIVEN_UP:
                self._given_up.pop(next(iter(self._given_up.copy())), None)
        elif delay is not None:
            self.queue.add(
                item.key,
                priority=item.priority,
                after=delay,
                reason=RetryReason(count, type(error).__name__, first_cause(item.reasons)),
            )
        self._metrics.count(
            "error",
            seconds,
            is_terminal=gives_up,
            is_panic=is_panic,
            is_timeout=is_timeout,
        )
        followed: CallOutcome = "fatal" if is_fatal else "given up" if gives_up else "retrying"
        if gives_up and isinstance(error, TerminalError):
            followed = "terminal"
        self.activity.end(slot, context, seconds, followed, delay, FailureCause(error))
        self._log_failure(context, error, delay, seconds, count)
        return failure if is_fatal else None

    def _plan(
        self,
        request: R,
        series: FailureSeries | None,
        error: BaseException,
        attempt: int,
        *,
        is_early: bool,
    ) -> float | None:
        """Count a failure unless it came early; returns the seconds until the next call.

        None: the request is given up.
        """
        now = self.clock.monotonic()
        asked = requested_delay(error)
        if asked is not None:
            if series is not None:
                series.due = max(series.due, now + asked)
            return asked
        if series is not None and is_early:
            return max(0.0, series.due - now)
        delay = self._retry.delay(request, error, attempt)
        if delay is None:
            return None
        delay = max(delay, retry_after_of(error))
        if series is None:
            series = FailureSeries(object_state(request, self._finders))
            self._failures[request] = series
        series.count += 1
        series.due = now + delay
        return delay

    def _log_begin(self, context: ReconcileContext) -> None:
        _log.debug(
            "controller %s: reconcile of %s begins: %s",
            self._name,
            safe_text(context.request),
            "; ".join(context.reasons) or "no reason given",
            extra=log_fields(context),
        )

    def _log_unfollowed(self, context: ReconcileContext, error: BaseException) -> None:
        _log.debug(
            "controller %s: no informer follows %s any more, so its retries end: %s",
            self._name,
            safe_text(context.request),
            safe_text(error),
            extra=log_fields(context),
        )

    def _log_failure(
        self,
        context: ReconcileContext,
        error: BaseException,
        delay: float | None,
        seconds: float,
        count: int,
    ) -> None:
        is_asked_for = requested_delay(error) is not None
        is_failure = not is_asked_for and not (self._stop.is_set() and is_cancelled(error))
        if delay is None:
            then = "not tried again"
        elif self._stop.is_set():
            then = "not tried again, for the controller stops"
        else:
            then = f"next try in {duration_text(delay)}"
        if count > 1 and not is_asked_for:
            then += f", failed {count} times"
        name = self._callback_of(error)
        took = f" after {duration_text(seconds)}" if seconds >= _LONG else ""
        request = context.request
        if is_failure:
            self._failure_log.failing.failed(None, request, name, error)
        self._failure_log.failed(
            error,
            name,
            "%s %s%s for %s: %s; %s",
            name,
            "asks to be called again" if is_asked_for else "failed",
            took,
            self._text_of(request),
            error_text(error),
            then,
            about=request,
            level=logging.ERROR if is_failure else logging.INFO,
            with_traceback=is_failure,
            extra={
                **log_fields(context),
                "callback": name,
                "error": type(error).__name__,
                "failures": count,
                "retry_in": delay,
            },
        )

    def _callback_of(self, error: BaseException) -> str:
        """The name of the user's function that failed."""
        name = self.callback
        return failed_function(error) or name if "<lambda>" in name else name

    def _text_of(self, request: R) -> str:
        """The request for people, with its kind."""
        kind = self._kind.partition(".")[0]
        return f"{kind} {safe_text(request)}" if kind else safe_text(request)

    def end(self) -> None:
        """Log the failures that were counted only."""
        self._failure_log.flush()


class _Raised:
    """An error that would end the event loop's thread if a task raised it."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


async def _called(reconcile: Callable[[R], Any], request: R) -> Any:
    """Call an ``async def`` reconciler, and await it; before it begins, there is none to close."""
    try:
        return await reconcile(request)
    except (SystemExit, KeyboardInterrupt) as error:
        return _Raised(error)


async def _awaited(awaitable: Any) -> Any:
    """Await an ``async def`` reconciler."""
    try:
        return await awaitable
    except (SystemExit, KeyboardInterrupt) as error:
        return _Raised(error)
