"""Dispatches events to watchers and reconcilers in order, and runs their retries when due."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from threading import get_ident
from typing import Any, TypeAlias, final

from appsdk_operator.cache import DeliveryKey, Event, EventSource, ResourceAction
from appsdk_operator.controllers import (
    FinalizerError,
    Outcome,
    TerminalError,
    compact_reason,
    sole_error,
)
from appsdk_operator.resource import DecodeError, Object
from appsdk_operator.runtime import (
    NO_MEMORY,
    ActivityLog,
    CallOutcome,
    CallRecord,
    CallSlot,
    Clock,
    FailureCause,
    as_exception,
    callback_name,
    get_logger,
    guarded_call,
)
from appsdk_operator.watchers._dispatch.failures import Failures, WatcherCall, called_of
from appsdk_operator.watchers._dispatch.metrics import ControllerMetrics, Role, RunningCall
from appsdk_operator.watchers._dispatch.pending_calls import CallReason, PendingCall, PendingCalls
from appsdk_operator.watchers._dispatch.registered import RegisteredTarget, name_of
from appsdk_operator.watchers._level_based import SteadyCall
from appsdk_operator.watchers._list_map import ListMap
from appsdk_operator.watchers._reconciler import ReconcileRequest, ResourceReconciler
from appsdk_operator.watchers._retry import RetryDequeuePolicy
from appsdk_operator.watchers._watcher import ResourceWatcher

_log = get_logger("appsdk_operator.watchers")

_ObjectId: TypeAlias = tuple[str, str, str]
_CREATE, _DELETE, _UPDATE = (
    ResourceAction.CREATE,
    ResourceAction.DELETE,
    ResourceAction.UPDATE,
)


@final
class Dispatcher:
    """The watchers and reconcilers of a controller, and their pending calls.

    :meth:`handle` is never called twice at once for one object, whichever informers deliver it;
    everything else is thread-safe.
    """

    def __init__(
        self,
        name: str,
        *,
        failures: Failures,
        dequeue_policy: RetryDequeuePolicy | None,
        metrics: ControllerMetrics,
        clock: Clock,
        time_limit: float | None = None,
    ) -> None:
        self._name = name
        self._time_limit = time_limit
        self._failures = failures
        self._failing = failures.log.failing
        self._dequeue_policy = dequeue_policy
        self._metrics = metrics
        self._clock = clock
        # Looked up once, because each call needs both.
        self._metrics_lock = metrics.lock
        self.activity = ActivityLog(name, clock=clock, describe=self._describe)
        """The record of the calls."""
        self._slots = self.activity.slots
        metrics.running_calls = self.running_calls
        metrics.given_up_calls = self.given_up_by_kind
        self._lock = threading.Lock()
        self._registered: ListMap[str, RegisteredTarget] = ListMap()
        # By kind, namespace and name, since several informers may deliver one object.
        self._pending: dict[_ObjectId, tuple[PendingCalls, ...]] = {}
        self._has_handled_event = False
        self._is_stopped = False
        # Guards what the targets were not shown yet. Held while one is added late, together with
        # locks of informers: a worker that holds one of those must not take it.
        self._showing = threading.Lock()

    def add(
        self,
        target: RegisteredTarget,
        show_present: Callable[[str, Callable[[EventSource, Sequence[Object]], None]], None],
    ) -> None:
        """Register a target, whose first calls are for the objects that exist.

        The first call for an object waits in line with its events. Those before it are not for the
        target, and those after it are.

        Args:
            target: the target.
            show_present: calls a function for each source of a kind with its objects, while no
                event can come.

        Raises:
            ValueError: it conflicts with another target.
        """
        target.call_metrics = self._metrics.add_kind(target.kind, target.role)
        target.failures = self._failures.log
        with self._showing:
            with self._lock:
                for other in self._registered.items(target.kind):
                    target.check_finalizers(other)
                # Before the first event there is nothing to show.
                if self._has_handled_event:
                    target.not_shown = {}
                # From now on workers find it, and wait for the end of the outer block.
                self._registered.add_item(target.kind, target)
            if target.not_shown is None:
                return
            try:
                show_present(target.kind, partial(self._put_first_calls, target))
            except BaseException:
                with self._lock:
                    target.is_removed = True
                    self._registered.remove_items(target.kind, lambda each: each is target)
                raise
            target.not_shown = target.not_shown or None

    def _put_first_calls(
        self, target: RegisteredTarget, source: EventSource, present: Sequence[Object]
    ) -> None:
        objects = {source.key_of(obj): obj for obj in present}
        assert target.not_shown is not None
        for key in source.call_in_order(objects, partial(self._show, target)):
            target.not_shown[key] = objects.get(key)

    def _is_not_shown(self, target: RegisteredTarget, key: DeliveryKey) -> bool:
        """Whether the events of an object are not for the target yet."""
        with self._showing:
            return target.not_shown is not None and key in target.not_shown

    def _show(self, target: RegisteredTarget, key: DeliveryKey) -> float | None:
        """Make a late target's first call for an object, whose events are for it from then on."""
        with self._showing:
            waiting = target.not_shown
            obj = waiting.pop(key, None) if waiting else None
            target.not_shown = waiting or None
        if self._is_stopped:
            return None
        if obj is not None and not target.is_removed:
            source = key.source
            event = Event(_CREATE, obj, None, True)
            event = target.read_event(
                event if source.view is None else event.viewed_as(source.view)
            )
            calls = _of_target(target, self._pending_of(key))
            try:
                if calls is not None:
                    self._react(calls, source, event, is_concerned=True)
                else:
                    trigger = event if target.takes_events else target.request_of(event)
                    self._call(source, target, trigger)
            except DecodeError as error:
                self._unreadable(target, obj, error)
        return self._run_pending(key)

    def is_known(self, key: DeliveryKey, event: Event) -> bool:
        """Whether a waiting event must not be merged with later ones.

        So are the creation of an object that was handled before this process, an update that takes
        a finalizer off, and one that asks for the clean-up.
        """
        return any(target.must_see(event) for target in self._registered.items(key.source.kind))

    def remove(
        self, handler: ResourceWatcher | ResourceReconciler | None, kind: str, role: Role
    ) -> None:
        """Remove ``handler`` (its first registration), or with None all of ``kind``, with their
        pending calls."""
        removed = []
        with self._showing, self._lock:
            for target in self._registered.items(kind):
                if target.role is role and (handler is None or target.handler is handler):
                    target.is_removed = True
                    removed.append(target.handler)
                    if target.not_shown:  # its first calls stay in line, without their objects
                        target.not_shown = dict.fromkeys(target.not_shown)
                    if handler is not None:
                        break
            self._registered.remove_items(kind, lambda target: target.is_removed)
            for calls in self._all_calls():
                if calls.target.is_removed:
                    calls.forget()
            self._drop_empty(list(self._pending))
            removed = [each for each in removed if not self._is_registered(each)]
        for each in removed:
            self._failures.forget_watcher(each)

    def _is_registered(self, handler: ResourceWatcher | ResourceReconciler) -> bool:
        return any(target.handler is handler for target in self.registered())

    def registered(self) -> list[RegisteredTarget]:
        """The watchers and reconcilers, by kind in call order."""
        return [target for _, _, target in self._registered.all_items()]

    def kinds(self) -> list[str]:
        """The kinds that have watchers or reconcilers."""
        return self._registered.keys()

    def forget(self, source: EventSource) -> None:
        """Drop the pending calls for objects of ``source``."""
        with self._showing:
            for target in self.registered():
                left = {k: v for k, v in (target.not_shown or {}).items() if k.source is not source}
                target.not_shown = left or None
        with self._lock:
            for calls in self._all_calls():
                calls.forget(source)
            self._drop_empty(list(self._pending))

    def running_calls(self) -> list[RunningCall]:
        """The running calls, for the metrics."""
        found = []
        for slot in self._slots.copy().values():
            trigger = slot.trigger
            if trigger is not None:
                kind = slot.target.kind
                found.append(RunningCall(trigger.action, kind, is_event=not slot.is_retry))
        return found

    def pending_retries(self) -> int:
        """The number of failed calls that wait for their retry."""
        return self._count_pending(CallReason.RETRY)

    def pending_requeues(self) -> int:
        """The number of calls that reconcilers asked for and that are not due yet."""
        return self._count_pending(CallReason.REQUEUE)

    def _count_pending(self, reason: CallReason) -> int:
        return sum(call.due is not None and call.reason is reason for call in self.pending_calls())

    def given_up(self) -> int:
        """The number of failed calls that wait for a resync."""
        return sum(call.due is None and not call.is_terminal for call in self.pending_calls())

    def given_up_by_kind(self) -> dict[str, int]:
        """The number of failed calls without a retry, by kind: that wait for a resync or change."""
        return Counter(call.source.kind for call in self.pending_calls() if call.due is None)

    def terminal(self) -> int:
        """The number of failed calls that wait for a change of their object."""
        return sum(call.is_terminal for call in self.pending_calls())

    def finalizer_failures(self) -> list[Exception]:
        """Why finalizers could not be written, for each object where that is tried again."""
        errors = (call.error for call in self.pending_calls())
        return [error for error in errors if isinstance(error, FinalizerError)]

    def pending_calls(self) -> list[PendingCall]:
        """All pending calls: those with a due time and those that wait for a resync or a change."""
        with self._lock:
            return [call for calls in self._all_calls() for call in calls.calls]

    def pending_as_json(self) -> list[dict[str, Any]]:
        """All pending calls for a debug page, as JSON values."""
        now = self._clock.monotonic()
        with self._lock:
            found = list(self._all_calls())
        return [shown for calls in found for shown in calls.to_json(now)]

    def end(self) -> None:
        """Log the failures that were counted only."""
        self._failures.log.flush()

    def stop(self) -> None:
        """Start no further event or retry. Sets a plain flag, so a signal handler may call it."""
        self._is_stopped = True

    def handle(self, key: DeliveryKey, event: Event | None) -> float | None:
        """Call the watchers for ``event``, then make the calls that are due.

        Returns:
            Seconds until the next call for this key is due, None when none is pending.
        """
        if event is not None:
            return self.handle_event(key.source, event)
        return None if self._is_stopped else self._run_pending(key)

    def handle_event(self, source: EventSource, event: Event) -> float | None:
        """:meth:`handle` without the event's key, which most events do not need."""
        if self._is_stopped:
            return None
        if event.is_unfollowed:
            for target in self._registered.items(source.kind):
                if target.level_based is not None:
                    target.level_based.forget(event.object)
                elif target.finalizer_lifecycle is not None:
                    target.finalizer_lifecycle.forget(event.object)
            self._failures.forget(event.object)
            return self._forget_object(source.key_of(event.object))
        if source.view is not None:
            event = event.viewed_as(source.view)
        if not self._has_handled_event:
            with self._lock:
                self._has_handled_event = True
        # Without the lock, see add(): if a worker does not find a new target, its event is from
        # before the first call of that target.
        targets = self._registered.items(source.kind)
        pending = self._pending_of(source.key_of(event.object)) if self._pending else ()
        if pending and len(targets) == 1 and targets[0].steady is not None:
            waiting = self._waiting_alone(targets[0], source, event, pending)
            if waiting is not None and (steady := targets[0].steady(event)) is not None:
                waiting.update_latest(event)
                if steady is not False:
                    self._call_steady(source, targets[0], event, steady, is_sole=True)
                now, left = self._clock.monotonic(), pending[0].calls
                if left and left[0] is waiting and waiting.due is not None and now < waiting.due:
                    return waiting.due - now
                return self._run_pending(source.key_of(event.object))
        # Most events lead to one call, whose duration is that of the event.
        is_sole = not pending and len(targets) == 1
        started = 0.0 if is_sole else self._clock.monotonic()
        original = event
        for target in targets:
            event = original
            try:
                if target.view is not None and target.view is not event.object.kind:
                    event = target.read_event(event)
                if target.is_removed:
                    continue
                if target.not_shown is not None and self._is_not_shown(
                    target, source.key_of(event.object)
                ):
                    continue
                if (
                    target.steady is not None
                    and event.action is _UPDATE
                    and not pending
                    and (steady := target.steady(event)) is not None
                ):
                    if steady is not False:
                        self._call_steady(source, target, event, steady, is_sole=is_sole)
                    continue
                is_concerned = target.selective is None or not target.is_unconcerned_by(event)
                if pending and (calls := _of_target(target, pending)) is not None:
                    self._react(calls, source, event, is_concerned=is_concerned)
                elif is_concerned:
                    # The usual path: nothing is pending.
                    trigger = event if target.takes_events else target.request_of(event)
                    self._call(source, target, trigger, is_sole=is_sole)
            except DecodeError as error:
                self._unreadable(target, event.object, error)
        if targets and not is_sole:
            seconds = self._clock.monotonic() - started
            self._metrics.event_handled(source.kind, event.action, seconds)
        return self._run_pending(source.key_of(event.object)) if self._pending else None

    def _waiting_alone(
        self,
        target: RegisteredTarget,
        source: EventSource,
        event: Event,
        pending: Sequence[PendingCalls],
    ) -> PendingCall | None:
        """The call that waits for its time, as a timer's, if it is all that is pending."""
        calls = pending[0].calls
        if len(pending) > 1 or len(calls) > 1 or not calls or event.action is not _UPDATE:
            return None
        (call,) = calls
        is_alone = (
            pending[0].target is target
            and not target.is_removed
            and call.reason is CallReason.REQUEUE
            and call.source is source
            and call.latest.uid == event.object.uid
        )
        return call if is_alone else None

    def _react(
        self, calls: PendingCalls, source: EventSource, event: Event, *, is_concerned: bool
    ) -> None:
        """Handle an event of an object for which the target has pending calls."""
        now = self._clock.monotonic()
        with self._lock:
            if is_concerned:
                reaction = calls.event(source, event, now)
            else:
                reaction = calls.pass_over(source, event)
        for retry in reaction.retries:
            is_dropped = self._is_dropped(retry, event)
            with self._lock:
                calls.supersede(retry, event, is_dropped=is_dropped)
        for call in reaction.repeats:
            self._start(calls, call)
        # The dequeue policy may have removed it.
        if reaction.request is not None and not calls.target.is_removed:
            self._call(source, calls.target, reaction.request)

    def _is_dropped(self, retry: PendingCall, event: Event) -> bool:
        """Ask the dequeue policy whether ``event`` drops a pending retry."""
        policy, error = self._dequeue_policy, retry.error
        if policy is None or error is None:
            return True

        def failed(raised: Exception) -> bool:
            self._failures.log.failed(
                raised,
                "retry dequeue policy",
                "the retry dequeue policy of controller %s failed: the retry is dropped",
                self._name,
                extra={"controller": self._name},
            )
            return True

        is_dropped: bool = guarded_call(
            "retry_dequeue_policy",
            policy,
            *(event.action, event.object, retry.action, retry.seen, error),
            failed=failed,
            check=bool,
        )
        return is_dropped

    def _run_pending(self, key: DeliveryKey) -> float | None:
        """Make the due calls of an object, whichever informer led to them.

        Returns:
            Seconds until its next one, or None.
        """
        found = _id_of(key)
        pending = self._pending.get(found, ())
        if not pending:
            return None
        for calls in pending:
            for call in calls.due(self._clock.monotonic()):
                if self._is_stopped:
                    return None
                try:
                    self._start(calls, call, is_retry=True)
                except DecodeError as error:
                    self._unreadable(calls.target, call.latest, error)
        with self._lock:
            self._drop_empty((found,))
            dues = [calls.next_due() for calls in self._pending.get(found, ())]
        due = min((each for each in dues if each is not None), default=None)
        return None if due is None else max(0.0, due - self._clock.monotonic())

    def _unreadable(self, target: RegisteredTarget, obj: Object, error: DecodeError) -> None:
        """Log that nothing can be planned for an object whose metadata is invalid."""
        self._failures.log.failed(
            error,
            f"metadata of {target.kind}",
            "controller %s: no further call is planned for an object with invalid metadata until "
            "it changes: %s",
            *(self._name, error),
            about=obj.key,
            with_traceback=False,
            extra={"controller": self._name, "kind": target.kind},
        )

    def _start(self, calls: PendingCalls, call: PendingCall, *, is_retry: bool = False) -> None:
        """Make a pending call, unless there is no need any more."""
        with self._lock:
            request = calls.start(call)
        if request is None:
            return
        target = calls.target
        if is_retry and call.reason is CallReason.RETRY and call.due is not None:
            late = self._clock.monotonic() - call.due
            self._metrics.retry_made(target.kind, call.action, late)
        self._call(call.source, target, request, is_retry=is_retry)

    def _forget_object(self, key: DeliveryKey) -> float | None:
        """Drop the pending calls of an object that is no longer followed; it was not deleted."""
        with self._lock:
            for calls in self._pending_of(key):
                calls.forget(key.source)
        return self._run_pending(key)

    def _call(
        self,
        source: EventSource,
        target: RegisteredTarget,
        trigger: Event | ReconcileRequest,
        *,
        is_sole: bool = False,
        is_retry: bool = False,
    ) -> None:
        # Not cached: a manager may hand down another clock.
        monotonic, activity = self._clock.monotonic, self.activity
        failure: Exception | None = None
        outcome: Outcome = None
        thread = get_ident()
        numbers = target.call_metrics[trigger.action]
        slot = self._slots.get(thread) or activity.slot(thread)
        slot.target = target
        slot.is_retry = is_retry
        slot.called = None
        slot.started = started = monotonic()
        slot.trigger = trigger  # last: who looks takes the others for its
        if activity.observers.present:
            activity.begin(slot)
        limit = self._time_limit
        try:
            if limit is None:
                outcome = target.call(trigger)
            else:
                with activity.limited(slot, limit, lambda: name_of(target.handler, trigger.action)):
                    outcome = target.call(trigger)
        except BaseException as error:
            failure = as_exception(f"the {target.role.value}", error)
        finally:
            seconds = monotonic() - started
            slot.trigger = None
            with self._metrics_lock:
                (numbers.sole_duration if is_sole else numbers.duration).observe(seconds)
                if failure is not None:
                    numbers.errors += 1
        if failure is not None:
            try:
                self._failed(source, slot, target, trigger, failure, seconds)
            finally:
                failure = None  # its traceback holds this frame, which would hold it in turn
            return
        if self._failing.calls:
            self._recovered(source, slot, target, trigger)
        if target.level_based is not None:
            if slot.called is None:
                slot.called = None, trigger.action.value
                slot.looks += 1
            if slot.is_noted or started >= activity.skip_until:
                activity.end(slot, trigger, seconds)
            self._reflect(source, target, trigger)
        elif outcome is not None and outcome.requeue_after is not None:
            self._metrics.requeued(source.kind, trigger.action)
            request, due = target.request_of(trigger), monotonic() + outcome.requeue_after
            with self._lock:
                if not target.is_removed and not source.is_removed:
                    calls = self._calls_of(source.key_of(request.object), target)
                    calls.requeued(source, request, due)
            if slot.is_noted or started >= activity.skip_until:
                activity.end(slot, trigger, seconds, "requeued", outcome.requeue_after)
        elif slot.is_noted or started >= activity.skip_until:
            activity.end(slot, trigger, seconds)

    def _call_steady(
        self,
        source: EventSource,
        target: RegisteredTarget,
        event: Event,
        call: SteadyCall,
        *,
        is_sole: bool,
    ) -> None:
        """Make the call that a target said is due: as :meth:`_call` does, with all that it needs
        in one place, because most events of an App lead here."""
        monotonic, activity = self._clock.monotonic, self.activity
        failure: BaseException | None = None
        steady, old, _ = call
        function, called, limit = steady.function, steady.called, steady.limit
        thread = get_ident()
        obj = event.object
        numbers = target.call_metrics[_UPDATE]
        slot = self._slots.get(thread) or activity.slot(thread)
        slot.target = target
        slot.is_retry = False
        slot.called = called
        slot.memory = None
        slot.started = started = monotonic()
        made: list[Any] | None = None
        if limit is not None:
            made = slot.limit = [started, limit]
            if limit < activity.monitor.shortest:
                activity.monitor.name_limit(limit)
        slot.trigger = event  # last: who looks takes the others for its
        if activity.observers.present:
            activity.begin(slot)
        try:
            returned = function(old, obj)
            if returned is not None:
                steady.check(returned)
        except BaseException as raised:
            failure = raised
        ended = monotonic()
        seconds = ended - started
        with self._metrics_lock:
            slot.trigger = None
            (numbers.sole_duration if is_sole else numbers.duration).observe(seconds)
        memory, slot.memory = slot.memory, NO_MEMORY
        if made is not None and limit is not None:
            slot.limit = None
            made.append(None)  # from now on nobody makes it
            if made[2] is not None or seconds >= limit:
                failure = activity.end_call(made[2], started, limit, ended, failure, called[0])
        if failure is not None:
            with self._metrics_lock:
                numbers.errors += 1
            if target.level_based is not None:
                target.level_based.broke(call, obj, memory)
            error: Exception | None = None
            try:
                error = as_exception(f"the {target.role.value}", failure)
                self._failed(source, slot, target, event, error, seconds)
            finally:
                # Their tracebacks hold this frame, which would hold them in turn.
                failure = error = None
            return
        if self._failing.calls:
            self._recovered(source, slot, target, event)
        if slot.is_noted or started >= activity.skip_until:
            activity.end(slot, event, seconds)
        level = target.level_based
        after = level.made(call, obj, started) if level is not None else None
        if after == "more":
            self._reflect(source, target, event)
        elif after == "hot":
            target.found_hot(obj, started)

    def _describe(self, slot: CallSlot) -> CallRecord:
        """The record of the call in ``slot``."""
        target: RegisteredTarget = slot.target
        trigger: Event | ReconcileRequest = slot.trigger
        action, obj = trigger.action, trigger.object
        function, cause = slot.called or (None, action.value)
        callback = "" if slot.called else name_of(target.handler, action, obj)
        if slot.called is None and target.level_based is not None:
            function = target.level_based.called(obj).function  # as far as it is foreseen
        if function is not None:
            callback = callback_name(function)
        return CallRecord(
            controller=self._name,
            callback=callback,
            role=target.role.value,
            kind=target.kind,
            namespace=obj.namespace,
            name=obj.name,
            action=cause,
            reasons=_reasons_of(trigger),
            attempt=trigger.attempt if isinstance(trigger, ReconcileRequest) else 0,
            started=slot.started,
            target=id(target if function is None else function),
        )

    def _recovered(
        self,
        source: EventSource,
        slot: CallSlot,
        target: RegisteredTarget,
        trigger: Event | ReconcileRequest,
    ) -> None:
        """Log that what has failed for the object works again, if that is so."""
        called = called_of(target.handler)
        if target.level_based is not None and trigger.action is not _DELETE:
            if slot.called is None:
                return
            called = slot.called[0]
        elif trigger.action is not _DELETE:
            calls = _of_target(target, self._pending_of(source.key_of(trigger.object)))
            if calls is not None and any(call.error is not None for call in calls.calls):
                return  # a retry that the event has not replaced
        self._failures.succeeded(called, trigger)

    def _failed(
        self,
        source: EventSource,
        slot: CallSlot,
        target: RegisteredTarget,
        trigger: Event | ReconcileRequest,
        error: Exception,
        seconds: float,
    ) -> None:
        """Report a failed call, plan its retry, and record both."""
        key, request = source.key_of(trigger.object), target.request_of(trigger)
        action = request.action
        sole = sole_error(error)
        cause = FailureCause(sole)  # while there is a traceback
        handler: Any = target.handler
        attempt, policy, longest, level = request.attempt, None, None, target.level_based
        if level is not None:
            failing = level.failing(request.object)
            handler, attempt = failing.called, failing.attempt
            policy, longest = failing.retry_policy, failing.longest
            if slot.called is None:  # a write around the call has failed
                slot.called = handler.function, action.value
        call = WatcherCall(key.source.kind, handler, action, request.object, attempt)
        plan = self._failures.plan_after(
            error, call, target.role, longest, policy=policy, is_stopping=self._is_stopped
        )
        delay = plan.delay
        if level is not None:
            level.failed(request.object, error, delay, plan.attempt)
        else:
            with self._lock:
                if not target.is_removed and not source.is_removed:
                    calls = self._calls_of(key, target)
                    calls.failed(source, request, error, plan, self._clock.monotonic())
            if delay is None and action is _DELETE and target.finalizer_lifecycle is not None:
                target.finalizer_lifecycle.forget(request.object)  # no further event comes
        followed: CallOutcome = "retrying" if delay is not None else "given up"
        if delay is None and isinstance(sole, TerminalError) and action is not _DELETE:
            followed = "terminal"
        self.activity.end(slot, trigger, seconds, followed, delay, cause)
        self._reflect(source, target, request)

    def _reflect(
        self, source: EventSource, target: RegisteredTarget, trigger: Event | ReconcileRequest
    ) -> None:
        """Take over the calls that a target waits to make for an object."""
        if target.level_based is None:
            return
        waiting = target.level_based.waiting(trigger.object)
        if not waiting and not self._pending:
            return
        key = source.key_of(trigger.object)
        if not waiting and _of_target(target, self._pending_of(key)) is None:
            return
        request = target.request_of(trigger)
        with self._lock:
            if not target.is_removed and not source.is_removed:
                self._calls_of(key, target).reflect(source, request, waiting)

    def _pending_of(self, key: DeliveryKey) -> tuple[PendingCalls, ...]:
        return self._pending.get(_id_of(key), ())

    # Callers of these hold the lock.

    def _calls_of(self, key: DeliveryKey, target: RegisteredTarget) -> PendingCalls:
        """The pending calls of a target for an object; :meth:`_run_pending` drops empty ones."""
        pending = self._pending_of(key)
        calls = _of_target(target, pending)
        if calls is None:
            calls = PendingCalls(target)
            self._pending[_id_of(key)] = (*pending, calls)
        return calls

    def _all_calls(self) -> Iterator[PendingCalls]:
        return itertools.chain.from_iterable(self._pending.values())

    def _drop_empty(self, objects: Iterable[_ObjectId]) -> None:
        for found in objects:
            left = tuple(calls for calls in self._pending.get(found, ()) if calls.calls)
            # In one step, for readers without the lock.
            if left:
                self._pending[found] = left
            else:
                self._pending.pop(found, None)


def _of_target(target: RegisteredTarget, pending: Sequence[PendingCalls]) -> PendingCalls | None:
    for calls in pending:
        if calls.target is target:
            return calls
    return None


def _id_of(key: DeliveryKey) -> _ObjectId:
    """What names an object whichever informer delivers it."""
    return key.source.kind, key.namespace, key.name


def _reasons_of(trigger: Event | ReconcileRequest) -> tuple[Any, ...]:
    if isinstance(trigger, Event):
        return (compact_reason(trigger),)
    what = f"{trigger.action.value} of {trigger.object}"
    return (f"retry {trigger.attempt} of {what}" if trigger.attempt else what,)
