"""Dispatches events to watchers and reconcilers in order, and runs their retries when due."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from threading import get_ident
from typing import Any, TypeAlias, final

from msgspec import structs

from appsdk_operator.cache import DeliveryKey, Event, EventSource, Lister, ResourceAction
from appsdk_operator.controllers import Outcome, TerminalError, compact_reason, sole_error
from appsdk_operator.resource import Object
from appsdk_operator.runtime import (
    ActivityLog,
    CallOutcome,
    CallRecord,
    CallSlot,
    Clock,
    FailureCause,
    KeyedLock,
    as_exception,
    get_logger,
)
from appsdk_operator.runtime.validation import no_awaitable
from appsdk_operator.watchers._dispatch.failures import Failures, RetryPlan, retry_action
from appsdk_operator.watchers._dispatch.metrics import ControllerMetrics, Role, RunningCall
from appsdk_operator.watchers._dispatch.pending_calls import CallReason, PendingCall, WatcherCall
from appsdk_operator.watchers._dispatch.registered import RegisteredTarget, name_of
from appsdk_operator.watchers._list_map import ListMap
from appsdk_operator.watchers._reconciler import ReconcileRequest, ResourceReconciler
from appsdk_operator.watchers._retry import RetryDequeuePolicy
from appsdk_operator.watchers._watcher import ResourceWatcher

__all__ = ["Dispatcher"]

_log = get_logger("appsdk_operator.watchers")

_ObjectId: TypeAlias = tuple[str, str, str]
_CREATE, _DELETE, _RESYNC = (
    ResourceAction.CREATE,
    ResourceAction.DELETE,
    ResourceAction.RESYNC,
)


@final
class Dispatcher:
    """The watchers and reconcilers of a controller, and their pending calls.

    :meth:`handle` is never called twice at once for one key; everything else is thread-safe.
    """

    def __init__(
        self,
        name: str,
        *,
        failures: Failures,
        dequeue_policy: RetryDequeuePolicy | None,
        metrics: ControllerMetrics,
        clock: Clock,
        workers: int = 1,
    ) -> None:
        self._name = name
        self._failures = failures
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
        self._pending: dict[_ObjectId, list[PendingCall]] = {}
        self._has_handled_event = False
        # The queue gives each key of a source to one worker, but has one for each source.
        self._object_locks = KeyedLock() if workers > 1 else None
        self._is_stopped = False
        self._is_adding = False

    def add(
        self,
        target: RegisteredTarget,
        present: Callable[[], Iterable[tuple[EventSource, Lister]]],
    ) -> list[DeliveryKey]:
        """Register a target, and schedule a first call for each object in the ``present`` stores.

        Returns:
            The keys of those objects, which are due.

        Raises:
            ValueError: it conflicts with another target.
        """
        target.call_metrics = self._metrics.add_kind(target.kind, target.role)
        target.failures = self._failures.log
        keys = []
        with self._lock:
            for other in self._registered.items(target.kind):
                target.check_finalizers(other)
            # An event is handled with the list before or after this block, and stores have each
            # object before its event comes, so the new target misses none. Before the first event
            # there is nothing to miss.
            self._is_adding = self._has_handled_event
            try:
                if self._has_handled_event:
                    for source, store in present():
                        target.delivered.setdefault(source, {})
                        for found in store.list():
                            obj = found if source.view is None else found.viewed_as(source.view)
                            key = source.key_of(obj)
                            self._schedule_first(target, key, obj, store)
                            keys.append(key)
                self._registered.add_item(target.kind, target)
            finally:
                self._is_adding = False
        return keys

    def is_known(self, key: DeliveryKey, event: Event) -> bool:
        """Whether a waiting event must not be merged with later ones.

        So are the creation of an object that a late target has got from a store, or soon will, or
        that was handled before this process; and an update that takes a finalizer off.
        Without the lock, which :meth:`add` holds for long.
        """
        uid, targets = event.object.uid, self._registered.items(key.source.kind)
        if any(target.must_see(event) for target in targets):
            return True
        return event.action is _CREATE and (
            self._is_adding
            or any(
                call.is_first and call.latest.uid == uid
                for call in self._pending.get(_id_of(key), ())
            )
            or any(
                target.delivered.get(key.source, {}).get(key, ("",))[0] == uid for target in targets
            )
        )

    def remove(
        self, handler: ResourceWatcher | ResourceReconciler | None, kind: str, role: Role
    ) -> None:
        """Remove ``handler`` (its first registration), or with None all of ``kind``, with their
        pending calls."""
        with self._lock:
            for target in self._registered.items(kind):
                if target.role is role and (handler is None or target.handler is handler):
                    target.is_removed = True
                    if handler is not None:
                        break
            self._registered.remove_items(kind, lambda target: target.is_removed)
            self._drop(lambda call: call.target.is_removed)

    def registered(self) -> list[RegisteredTarget]:
        """The watchers and reconcilers, by kind in call order."""
        return [target for _, _, target in self._registered.all_items()]

    def kinds(self) -> list[str]:
        """The kinds that have watchers or reconcilers."""
        return self._registered.keys()

    def forget(self, source: EventSource) -> None:
        """Drop the pending calls for objects of ``source``."""
        with self._lock:
            self._drop(lambda call: call.key.source is source)
            for _, _, target in self._registered.all_items():
                target.delivered.pop(source, None)

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
        with self._lock:
            return sum(
                call.due is not None and call.reason is reason
                for calls in self._pending.values()
                for call in calls
            )

    def given_up(self) -> int:
        """The number of failed calls that wait for a resync."""
        return sum(call.due is None and not call.is_terminal for call in self.pending_calls())

    def given_up_by_kind(self) -> dict[str, int]:
        """The number of failed calls without a retry, by kind: that wait for a resync or change."""
        calls = self.pending_calls()
        return Counter(call.target.kind for call in calls if call.due is None)

    def terminal(self) -> int:
        """The number of failed calls that wait for a change of their object."""
        return sum(call.is_terminal for call in self.pending_calls())

    def pending_calls(self) -> list[PendingCall]:
        """All pending calls: those with a due time and those that wait for a resync or a change."""
        with self._lock:
            return [call for calls in self._pending.values() for call in calls]

    def end(self) -> None:
        """Log the failures that were counted only."""
        self._failures.log.flush()

    def stop(self) -> None:
        """Start no further event or retry. Sets a plain flag, so a signal handler may call it."""
        self._is_stopped = True

    def _has_stopped(self) -> bool:
        return self._is_stopped

    def handle(self, key: DeliveryKey, event: Event | None) -> float | None:
        """Call the watchers for ``event``, then make the calls that are due.

        Returns:
            Seconds until the next call for this key is due, None when none is pending.
        """
        if event is not None:
            return self.handle_event(key.source, event)
        if self._is_stopped:
            return None
        with self._lock_object(key):
            # The stop may have come while this waited for the lock.
            return None if self._has_stopped() else self._run_pending(key)

    def handle_event(self, source: EventSource, event: Event) -> float | None:
        """:meth:`handle` without the event's key, which most events do not need."""
        if self._is_stopped:
            return None
        if self._object_locks is None:
            return self._handle_event(source, event)
        with self._lock_object(source.key_of(event.object)):
            return None if self._has_stopped() else self._handle_event(source, event)

    def _lock_object(self, key: DeliveryKey) -> AbstractContextManager[None]:
        """The lock of one object, shared by all sources of its kind."""
        if self._object_locks is None:
            return contextlib.nullcontext()
        return self._object_locks.hold(_id_of(key))

    def _handle_event(self, source: EventSource, event: Event) -> float | None:
        if event.is_unfollowed:
            self._forget_object(source.key_of(event.object))
            return None
        if source.view is not None:
            event = event.viewed_as(source.view)
        if not self._has_handled_event:
            with self._lock:
                self._has_handled_event = True
        # In this order and without the lock, see add(): a reader that finds the new target finds
        # its first calls too; one that does not find it handles an event from before, whose object
        # is in the stores.
        targets = self._registered.items(source.kind)
        calls = self._pending_for(source.key_of(event.object), event) if self._pending else ()
        # Most events lead to one call, whose duration is that of the event.
        is_sole = not calls and len(targets) == 1
        started = 0.0 if is_sole else self._clock.monotonic()
        original = event
        for target in targets:
            event = original
            if target.view is not None and target.view is not event.object.kind:
                event = target.read_event(event)
            if target.is_removed:
                continue
            if target.selective is not None and target.is_unconcerned_by(event):
                if calls:
                    self._retry_terminal(source.key_of(event.object), event, target, calls)
            elif calls:
                self._deliver_with_pending(source.key_of(event.object), event, target, calls)
            elif not target.delivered or target.must_deliver(
                source.key_of(event.object), event, None
            ):
                # The usual path: this object has no pending calls.
                trigger = event if target.takes_events else target.request_of(event)
                self._call(source, target, trigger, is_sole=is_sole)
        if targets and not is_sole:
            seconds = self._clock.monotonic() - started
            self._metrics.event_handled(source.kind, event.action, seconds)
        return self._run_pending(source.key_of(event.object)) if self._pending else None

    def _run_pending(self, key: DeliveryKey) -> float | None:
        """Run the due calls of an object; returns the seconds until its next one, or None."""
        found = _id_of(key)
        if found not in self._pending:
            return None
        self._run_due(found)
        with self._lock:
            pending = self._pending.get(found, [])
            dues = [c.due for c in pending if c.due is not None and not _is_deferred(c, pending)]
        return max(0.0, min(dues) - self._clock.monotonic()) if dues else None

    def _pending_for(self, key: DeliveryKey, event: Event) -> Sequence[PendingCall]:
        """The pending calls of the object, updated with its state in ``event``."""
        with self._lock:
            calls = list(self._pending.get(_id_of(key), ()))
            for call in calls:
                if call.key.source is key.source:
                    call.update_latest(event)
        return calls

    def _deliver_with_pending(
        self,
        key: DeliveryKey,
        event: Event,
        target: RegisteredTarget,
        calls: Sequence[PendingCall],
    ) -> None:
        """Deliver an event of an object that has pending calls, or defer it."""
        own = [c for c in calls if c.target is target and c.key.source is key.source]
        first = next((call for call in own if call.is_first), None)
        if event.action is _CREATE or first is not None:
            # Its predecessor may have been another informer's, or itself, before it left for here.
            own += [
                call
                for call in calls
                if call.target is target and call.action is _DELETE and call not in own
            ]
        if not target.must_deliver(key, event, None if first is None else first.seen):
            return
        if event.action is not _DELETE and any(
            call.is_terminal
            and call.latest.uid == event.object.uid
            and not call.is_changed_by(event)
            for call in own
        ):
            return
        if any(_is_pending_deletion(call, event.object) for call in own):
            self._defer(key, event, target, first)
        elif event.action is _RESYNC:
            self._resync(key, event, target, own)
        else:
            self._deliver(key, event, target, own)

    def _retry_terminal(
        self,
        key: DeliveryKey,
        event: Event,
        target: RegisteredTarget,
        calls: Sequence[PendingCall],
    ) -> None:
        """Repeat a terminally failed call when ``event`` changes what the object asks for.

        For events that the target's ``concerns`` filters out: it assumes that the call succeeded.
        """
        for call in calls:
            is_own = call.target is target and call.key.source is key.source
            is_same = is_own and call.latest.uid == event.object.uid
            if is_same and call.is_terminal and call.is_changed_by(event):
                self._complete(call)
                self._call(key.source, target, structs.replace(call.request(), attempt=0))

    def _forget_object(self, key: DeliveryKey) -> None:
        """Drop the pending calls of an object that is no longer followed; it was not deleted."""
        with self._lock:
            calls = self._pending.get(_id_of(key), ())
            self._set_pending(
                _id_of(key), [call for call in calls if call.key.source is not key.source]
            )
            for target in self._registered.items(key.source.kind):
                target.delivered.get(key.source, {}).pop(key, None)

    def _deliver(
        self,
        key: DeliveryKey,
        event: Event,
        target: RegisteredTarget,
        own: Sequence[PendingCall],
    ) -> None:
        request = target.request_of(event)
        needs_first_call = False
        for call in own:
            if call.latest.uid == event.object.uid:
                # A call that replaces a pending one gets its state.
                request = structs.replace(request, state=call.state)
            if call.is_first:
                needs_first_call = call.latest.uid == event.object.uid
                self._complete(call)
            elif call.due is None or self._is_superseded(call, event):
                self._complete(call)
        if needs_first_call:
            if event.action is _DELETE:
                return
            request = structs.replace(request, action=_CREATE, old=None)
        self._call(key.source, target, request)

    def _defer(
        self,
        key: DeliveryKey,
        event: Event,
        target: RegisteredTarget,
        first: PendingCall | None,
    ) -> None:
        """Defer a new object's events while the deletion of its predecessor is pending.

        The two have one name. A watcher that works by name would otherwise create the new object's
        resources and then delete them.
        """
        if event.action is _DELETE:
            if first is not None:
                self._complete(first)
        elif first is None and event.action is not _RESYNC:
            with self._lock:
                self._schedule_first(target, key, event.object)

    def _is_superseded(self, call: PendingCall, event: Event) -> bool:
        """Whether ``event`` cancels a pending call."""
        policy = self._dequeue_policy
        drop = True
        if policy is not None and call.error is not None:
            try:
                answer: object = policy(
                    event.action, event.object, call.action, call.seen, call.error
                )
                drop = bool(no_awaitable("retry_dequeue_policy", answer))
            except BaseException as error:
                self._failures.log.failed(
                    error,
                    "retry dequeue policy",
                    "the retry dequeue policy of controller %s failed: the retry is dropped",
                    self._name,
                    extra={"controller": self._name},
                )
        # Whatever the policy says: after a deletion no call may report the object as existing, nor
        # as gone once it is back, in a selector or with a restored server.
        is_gone, was_gone = event.action is _DELETE, call.action is _DELETE
        return drop or (is_gone != was_gone and (is_gone or call.latest.uid == event.object.uid))

    def _resync(
        self,
        key: DeliveryKey,
        event: Event,
        target: RegisteredTarget,
        own: Sequence[PendingCall],
    ) -> None:
        # Others may be for the deletion of an earlier object of that name.
        own = [call for call in own if call.latest.uid == event.object.uid]
        if not own:
            self._call(key.source, target, target.request_of(event))
        for call in own:
            # A resync runs a requeue early, but that of a timer; a retry waits for its time.
            is_early = call.reason is CallReason.REQUEUE and target.longest_retry is None
            if call.due is None or is_early:
                self._complete(call)
                self._call(key.source, target, structs.replace(call.request(), attempt=0))

    def _run_due(self, found: _ObjectId) -> None:
        """Run the calls of an object that are due, whichever informer led to them."""
        with self._lock:
            calls = list(self._pending.get(found, ()))
        for call in calls:
            now = self._clock.monotonic()
            if call.due is None or call.due > now or call.target.is_removed:
                continue
            if _is_deferred(call, self._pending.get(found, ())):
                continue
            is_obsolete = call.is_obsolete
            if call.is_first and not is_obsolete:
                # While it is pending: see is_known().
                call.target.note_seen(call.key, call.latest)
            if self._complete(call):
                if is_obsolete:
                    continue
                if call.reason is CallReason.RETRY:
                    self._metrics.retry_made(call.target.kind, call.action, now - call.due)
                self._call(call.key.source, call.target, call.request(), is_retry=True)

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
        slot.trigger = trigger
        slot.started = started = monotonic()
        if activity.observers.present:
            activity.begin(slot)
        try:
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
        elif outcome is not None and outcome.requeue_after is not None:
            self._metrics.requeued(source.kind, trigger.action)
            self._schedule_requeue(
                source.key_of(trigger.object),
                target,
                target.request_of(trigger),
                outcome.requeue_after,
            )
            if slot.is_noted or started >= activity.skip_until:
                activity.end(slot, trigger, seconds, "requeued", outcome.requeue_after)
        elif slot.is_noted or started >= activity.skip_until:
            activity.end(slot, trigger, seconds)

    def _describe(self, slot: CallSlot) -> CallRecord:
        """The record of the call in ``slot``."""
        target: RegisteredTarget = slot.target
        trigger: Event | ReconcileRequest = slot.trigger
        action, obj = trigger.action, trigger.object
        return CallRecord(
            controller=self._name,
            callback=name_of(target.handler, action, obj),
            role=target.role.value,
            kind=target.kind,
            namespace=obj.namespace,
            name=obj.name,
            action=action.value,
            reasons=_reasons_of(trigger),
            attempt=trigger.attempt if isinstance(trigger, ReconcileRequest) else 0,
            started=slot.started,
            target=id(target),
        )

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
        call = WatcherCall(key.source.kind, target.handler, action, request.object, request.attempt)
        plan = self._failures.plan_after(
            error, call, target.role, target.longest_retry, is_stopping=self._is_stopped
        )
        delay = plan.delay
        # A resync delivers no deleted object, and the next resync is a new call anyway.
        if delay is not None or not (
            action is _DELETE or (action is _RESYNC and not plan.is_final)
        ):
            self._schedule_retry(key, target, request, error, plan)
        followed: CallOutcome = "retrying" if delay is not None else "given up"
        if delay is None and isinstance(sole, TerminalError) and action is not _DELETE:
            followed = "terminal"
        self.activity.end(slot, trigger, seconds, followed, delay, cause)

    def _schedule_requeue(
        self, key: DeliveryKey, target: RegisteredTarget, request: ReconcileRequest, delay: float
    ) -> None:
        self._schedule(key, target, request, CallReason.REQUEUE, RetryPlan(delay, 0, False), None)

    def _schedule_retry(
        self,
        key: DeliveryKey,
        target: RegisteredTarget,
        request: ReconcileRequest,
        error: Exception,
        plan: RetryPlan,
    ) -> None:
        self._schedule(key, target, request, CallReason.RETRY, plan, error)

    def _schedule(
        self,
        key: DeliveryKey,
        target: RegisteredTarget,
        request: ReconcileRequest,
        reason: CallReason,
        plan: RetryPlan,
        error: Exception | None,
    ) -> None:
        delay = plan.delay
        again = PendingCall(
            reason=reason,
            key=key,
            target=target,
            action=retry_action(request.action, target.role),
            seen=request.object,
            latest=request.object,
            old=_old_state(request, target.role),
            error=error,
            attempt=plan.attempt,
            due=None if delay is None else self._clock.monotonic() + delay,
            state=request.state,
            is_terminal=plan.is_final,
        )
        with self._lock:
            if not target.is_removed and not key.source.is_removed:
                pending = self._pending.setdefault(_id_of(key), [])
                for other in [other for other in pending if again.replaces(other)]:
                    pending.remove(other)
                    again.merge(other)
                pending.append(again)

    # The pending calls. Callers of all but the last one hold the lock.

    def _schedule_first(
        self,
        target: RegisteredTarget,
        key: DeliveryKey,
        obj: Object,
        store: Lister | None = None,
    ) -> None:
        obj = target.read(obj)
        call = PendingCall(
            reason=CallReason.FIRST,
            key=key,
            target=target,
            action=_CREATE,
            seen=obj,
            latest=obj,
            old=None,
            error=None,
            attempt=0,
            due=self._clock.monotonic(),
            store=store,
        )
        self._pending.setdefault(_id_of(key), []).append(call)

    def _set_pending(self, found: _ObjectId, calls: list[PendingCall]) -> None:
        if calls:
            self._pending[found] = calls
        else:
            self._pending.pop(found, None)

    def _drop(self, matches: Callable[[PendingCall], bool]) -> None:
        for found, calls in list(self._pending.items()):
            self._set_pending(found, [call for call in calls if not matches(call)])

    def _complete(self, call: PendingCall) -> bool:
        """Remove a pending call; False when another thread removed it."""
        found = _id_of(call.key)
        with self._lock:
            calls = self._pending.get(found, [])
            if call not in calls:
                return False
            self._set_pending(found, [other for other in calls if other is not call])
            return True


def _id_of(key: DeliveryKey) -> _ObjectId:
    """What names an object whichever informer delivers it."""
    return key.source.kind, key.namespace, key.name


def _reasons_of(trigger: Event | ReconcileRequest) -> tuple[Any, ...]:
    if isinstance(trigger, Event):
        return (compact_reason(trigger),)
    what = f"{trigger.action.value} of {trigger.object.kind.kind} {trigger.object.key}"
    return (f"retry {trigger.attempt} of {what}" if trigger.attempt else what,)


def _is_pending_deletion(call: PendingCall, obj: Object) -> bool:
    """Whether the call is for the deletion of an earlier object of the same name."""
    return (
        call.action is _DELETE
        and call.due is not None
        and call.latest.uid != obj.uid
        and not call.target.is_by_key
    )


def _is_deferred(call: PendingCall, pending: Sequence[PendingCall]) -> bool:
    """Whether a first call has to wait for a pending deletion of its predecessor."""
    return call.is_first and any(
        other.target is call.target and _is_pending_deletion(other, call.latest)
        for other in pending
    )


def _old_state(request: ReconcileRequest, role: Role) -> Object | None:
    is_watcher_resync = request.action is _RESYNC and role is Role.WATCHER
    return request.object if is_watcher_resync else request.old
