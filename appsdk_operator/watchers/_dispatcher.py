"""Calls watchers and reconcilers for one event after another, and again for what is owed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from threading import get_ident
from typing import final

from msgspec import structs

from appsdk_operator.cache import DeliveryKey, Event, EventSource, Lister, ResourceAction
from appsdk_operator.controllers import Outcome, TerminalError, sole_error
from appsdk_operator.resource import Kind, Object
from appsdk_operator.runtime import Clock, Turns, as_exception, get_logger
from appsdk_operator.watchers._controller_metrics import ControllerMetrics, Role
from appsdk_operator.watchers._failures import Failures, action_again, counts_as_attempt
from appsdk_operator.watchers._list_map import ListMap
from appsdk_operator.watchers._pending_calls import OwedCall, WatcherCall, Why
from appsdk_operator.watchers._reconciler import ReconcileRequest, ResourceReconciler
from appsdk_operator.watchers._registered import Entry
from appsdk_operator.watchers._retry import RetryDequeuePolicy
from appsdk_operator.watchers._watcher import ResourceWatcher

__all__ = ["Dispatcher"]

_log = get_logger("appsdk_operator.watchers")

_CREATE, _DELETE, _RESYNC = (
    ResourceAction.CREATE,
    ResourceAction.DELETE,
    ResourceAction.RESYNC,
)


@final
class Dispatcher:
    """The watchers and reconcilers of a controller, and the calls that they are owed.

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
        self._running = metrics.running
        self._lock = threading.Lock()
        self._entries: ListMap[str, Entry] = ListMap()
        self._owed: dict[DeliveryKey, list[OwedCall]] = {}
        self._has_begun = False
        # The queue lets one worker in for each key, but several sources may show the same object.
        self._turns = Turns() if workers > 1 else None
        self._is_stopped = False

    def add(
        self, entry: Entry, present: Callable[[], Iterable[tuple[EventSource, Lister]]]
    ) -> list[DeliveryKey]:
        """Add an entry that is owed a first call for each object in the ``present`` stores.

        Returns:
            The keys of those objects: their turn has come.

        Raises:
            ValueError: it does not go together with another one.
        """
        entry.numbers = self._metrics.add_kind(entry.kind, entry.role)
        entry.failures = self._failures.log
        keys = []
        with self._lock:
            for other in self._entries.items(entry.kind):
                entry.check_beside(other)
            # An event is handled with the entries before or after this block, so together with
            # the objects in the stores, which know it before, the new one misses none. Until the
            # first event nobody has missed anything.
            if self._has_begun:
                for source, store in present():
                    entry.told.setdefault(source, {})
                    for found in store.list():
                        obj = found if source.view is None else found.viewed_as(source.view)
                        key = source.key_of(obj)
                        self._owe_first_call(entry, key, obj, store)
                        keys.append(key)
            self._entries.add_item(entry.kind, entry)
        return keys

    def remove(
        self, target: ResourceWatcher | ResourceReconciler | None, kind: str, role: Role
    ) -> None:
        """Remove the first entry of ``target``, or with None all of ``kind``, and their calls."""
        with self._lock:
            for entry in self._entries.items(kind):
                if entry.role is role and (target is None or entry.target is target):
                    entry.is_removed = True
                    if target is not None:
                        break
            self._entries.remove_items(kind, lambda entry: entry.is_removed)
            for key, calls in list(self._owed.items()):
                self._keep_owed(key, [call for call in calls if not call.entry.is_removed])

    def entries(self) -> list[Entry]:
        """The watchers and reconcilers, each in its place."""
        return [entry for _, _, entry in self._entries.all_items()]

    def kinds(self) -> list[str]:
        """The kinds that have watchers or reconcilers."""
        return self._entries.keys()

    def forget(self, source: EventSource) -> None:
        """Drop what is owed for the objects of ``source``."""
        with self._lock:
            for key in [key for key in self._owed if key.source is source]:
                del self._owed[key]
            for _, _, entry in self._entries.all_items():
                entry.told.pop(source, None)

    def pending_retries(self) -> int:
        """How many failed calls wait for their time."""
        return self._waiting(Why.RETRY)

    def pending_requeues(self) -> int:
        """How many calls that reconcilers asked for wait for their time."""
        return self._waiting(Why.REQUEUE)

    def _waiting(self, why: Why) -> int:
        with self._lock:
            return sum(
                call.due is not None and call.why is why
                for calls in self._owed.values()
                for call in calls
            )

    def given_up(self) -> int:
        """How many failed calls wait for a resync."""
        return sum(call.due is None and not call.is_terminal for call in self.owed())

    def terminal(self) -> int:
        """How many failed calls wait until their objects ask for something else."""
        return sum(call.is_terminal for call in self.owed())

    def owed(self) -> list[OwedCall]:
        """The calls that wait, for their time or for a resync."""
        with self._lock:
            return [call for calls in self._owed.values() for call in calls]

    def end(self) -> None:
        """Say what was only counted."""
        self._failures.log.flush()

    def stop(self) -> None:
        """Begin no further event or retry; a plain flag, safe to set from a signal handler."""
        self._is_stopped = True

    def _has_stopped(self) -> bool:
        return self._is_stopped

    def handle(self, key: DeliveryKey, event: Event | None) -> float | None:
        """Call the watchers for ``event``, then make the calls that are due.

        Returns:
            Seconds until the next call for this key is due, None when none is owed.
        """
        if event is not None:
            return self.handle_event(key.source, event)
        if self._is_stopped:
            return None
        with self._alone(key):
            # The wait for the others may have lasted until after the stop.
            return None if self._has_stopped() else self._settle(key)

    def handle_event(self, source: EventSource, event: Event) -> float | None:
        """:meth:`handle` without the event's key, which is mostly not needed."""
        if self._is_stopped:
            return None
        if self._turns is None:
            return self._handle_event(source, event)
        with self._alone(source.key_of(event.object)):
            return None if self._has_stopped() else self._handle_event(source, event)

    def _alone(self, key: DeliveryKey) -> AbstractContextManager[None]:
        """Wait until no other worker handles the same object, whichever source showed it."""
        if self._turns is None:
            return contextlib.nullcontext()
        return self._turns.alone((key.source.kind, key.namespace, key.name))

    def _handle_event(self, source: EventSource, event: Event) -> float | None:
        if event.is_unfollowed:
            self._forget_object(source.key_of(event.object))
            return None
        if source.view is not None:
            event = _viewed_as(event, source.view)
        if not self._has_begun:
            with self._lock:
                self._has_begun = True
        # In this order and without the lock, see add(): who finds the new entry finds what it is
        # owed, and who does not comes before it, with an object that is in the stores.
        entries = self._entries.items(source.kind)
        calls = self._owed_beside(source.key_of(event.object), event) if self._owed else ()
        came = event
        for entry in entries:
            event = came
            if entry.view is not None and entry.view is not event.object.kind:
                event = entry.read_event(event)
            if entry.is_removed:
                continue
            if entry.selective is not None and entry.ignores(event):
                if calls:
                    self._revive(source.key_of(event.object), event, entry, calls)
            elif calls:
                self._deliver_beside(source.key_of(event.object), event, entry, calls)
            elif not entry.told or entry.is_due(source.key_of(event.object), event, None):
                # Nearly always: nobody is owed anything for this object.
                told = event if entry.is_told_events else entry.request_of(event)
                self._call(source, entry, told)
        return self._settle(source.key_of(event.object)) if self._owed else None

    def _settle(self, key: DeliveryKey) -> float | None:
        """Make the calls that are due; seconds until the next one is."""
        if key not in self._owed:
            return None
        self._pay_due(key)
        with self._lock:
            owed = self._owed.get(key, [])
            dues = [c.due for c in owed if c.due is not None and not _is_held(c, owed)]
        return max(0.0, min(dues) - self._clock.monotonic()) if dues else None

    def _owed_beside(self, key: DeliveryKey, event: Event) -> Sequence[OwedCall]:
        """What is owed for the object, each call with what the event tells."""
        with self._lock:
            calls = list(self._owed.get(key, ()))
            for call in calls:
                call.learn(event)
        return calls

    def _deliver_beside(
        self, key: DeliveryKey, event: Event, entry: Entry, calls: Sequence[OwedCall]
    ) -> None:
        """Tell of an event, or not yet, where calls are owed for the object."""
        own = [call for call in calls if call.entry is entry]
        first = next((call for call in own if call.is_first), None)
        if not entry.is_due(key, event, first):
            return
        if event.action is not _DELETE and any(
            call.is_terminal and call.latest.uid == event.object.uid and not call.is_news(event)
            for call in own
        ):
            return
        if any(_is_deletion_before(call, event.object) for call in own):
            self._hold(key, event, entry, first)
        elif event.action is _RESYNC:
            self._resync(key, event, entry, own)
        else:
            self._tell(key, event, entry, own)

    def _revive(
        self, key: DeliveryKey, event: Event, entry: Entry, calls: Sequence[OwedCall]
    ) -> None:
        """Make a call anew that no retry would have helped: the object asks for something else.

        For an event that would mean nothing to the watcher, had that call succeeded.
        """
        for call in calls:
            is_same = call.entry is entry and call.latest.uid == event.object.uid
            if is_same and call.is_terminal and call.is_news(event):
                self._settle_owed(key, call)
                self._call(key.source, entry, structs.replace(call.request(), attempt=0))

    def _forget_object(self, key: DeliveryKey) -> None:
        """Drop what is owed for an object that is no longer followed: nobody deleted it."""
        with self._lock:
            self._owed.pop(key, None)
            for entry in self._entries.items(key.source.kind):
                entry.told.get(key.source, {}).pop(key, None)

    def _tell(self, key: DeliveryKey, event: Event, entry: Entry, own: Sequence[OwedCall]) -> None:
        request = entry.request_of(event)
        is_untold = False
        for call in own:
            if call.latest.uid == event.object.uid:
                # What takes the place of an owed call gets its notes.
                request = structs.replace(request, state=call.state)
            if call.is_first:
                is_untold = call.latest.uid == event.object.uid
                self._settle_owed(key, call)
            elif call.due is None or self._is_outdated(call, event):
                self._settle_owed(key, call)
        if is_untold:
            if event.action is _DELETE:
                return
            request = structs.replace(request, action=_CREATE, old=None)
        self._call(key.source, entry, request)

    def _hold(self, key: DeliveryKey, event: Event, entry: Entry, first: OwedCall | None) -> None:
        """Let an object wait until the deletion of the one before it, of that name, is settled.

        A watcher that knows things by their name would otherwise clean up what it just made.
        """
        if event.action is _DELETE:
            if first is not None:
                self._settle_owed(key, first)
        elif first is None and event.action is not _RESYNC:
            with self._lock:
                self._owe_first_call(entry, key, event.object)

    def _is_outdated(self, call: OwedCall, event: Event) -> bool:
        """Whether an owed call is not to be made, now that ``event`` came."""
        policy = self._dequeue_policy
        drop = True
        if policy is not None and call.error is not None:
            try:
                drop = bool(policy(event.action, event.object, call.action, call.seen, call.error))
            except BaseException as error:
                self._failures.log.failed(
                    error,
                    "retry dequeue policy",
                    "the retry dequeue policy of controller %s failed: the retry is dropped",
                    self._name,
                    extra={"controller": self._name},
                )
        # Whatever the policy says: after a deletion a watcher must not be told that the object
        # exists.
        return drop or (event.action is _DELETE and call.action is not _DELETE)

    def _resync(
        self, key: DeliveryKey, event: Event, entry: Entry, own: Sequence[OwedCall]
    ) -> None:
        # A deletion of an earlier object of that name may be owed beside.
        own = [call for call in own if call.latest.uid == event.object.uid]
        if not own:
            self._call(key.source, entry, entry.request_of(event))
        for call in own:
            # What was asked for is brought forward; what failed waits for its time.
            if call.due is None or call.why is Why.REQUEUE:
                self._settle_owed(key, call)
                self._call(key.source, entry, structs.replace(call.request(), attempt=0))

    def _pay_due(self, key: DeliveryKey) -> None:
        """Make the calls that are due."""
        with self._lock:
            calls = list(self._owed.get(key, ()))
        for call in calls:
            now = self._clock.monotonic()
            if call.due is None or call.due > now or call.entry.is_removed:
                continue
            if _is_held(call, self._owed.get(key, ())):
                continue
            if self._settle_owed(key, call):
                if call.is_pointless:
                    continue
                if call.is_first:
                    call.entry.was_told(key, call.latest)
                elif call.why is Why.RETRY:
                    self._metrics.retry_made(key.source.kind, call.action, now - call.due)
                self._call(key.source, call.entry, call.request())

    def _call(self, source: EventSource, entry: Entry, told: Event | ReconcileRequest) -> None:
        # Not kept: whoever runs the controller may have another clock.
        monotonic, running = self._clock.monotonic, self._running
        failure: Exception | None = None
        outcome: Outcome = None
        thread = get_ident()
        running[thread] = source.kind
        started = monotonic()
        try:
            outcome = entry.call(told)
        except BaseException as error:
            failure = as_exception(f"the {entry.role.value}", error)
        finally:
            seconds = monotonic() - started
            running.pop(thread, None)
            with self._metrics_lock:
                numbers = entry.numbers[told.action]
                numbers.duration.observe(seconds)
                if failure is not None:
                    numbers.errors += 1
        if failure is not None:
            try:
                self._failed(source.key_of(told.object), entry, entry.request_of(told), failure)
            finally:
                failure = None  # its traceback holds this frame, which would hold it in turn
        elif outcome is not None and outcome.requeue_after is not None:
            self._metrics.requeued(source.kind, told.action)
            self._owe_again(
                source.key_of(told.object),
                entry,
                entry.request_of(told),
                Why.REQUEUE,
                outcome.requeue_after,
            )

    def _failed(
        self, key: DeliveryKey, entry: Entry, request: ReconcileRequest, error: Exception
    ) -> None:
        action = request.action
        call = WatcherCall(key.source.kind, entry.target, action, request.object, request.attempt)
        delay = self._failures.delay_after(error, call, entry.role)
        is_terminal = isinstance(sole_error(error), TerminalError)
        if delay is None and (action is _DELETE or (action is _RESYNC and not is_terminal)):
            return  # no resync shows what is gone, and the next resync is a new try anyway
        self._owe_again(key, entry, request, Why.RETRY, delay, error, is_terminal=is_terminal)

    def _owe_again(
        self,
        key: DeliveryKey,
        entry: Entry,
        request: ReconcileRequest,
        why: Why,
        delay: float | None,
        error: Exception | None = None,
        *,
        is_terminal: bool = False,
    ) -> None:
        attempt = 0 if error is None else request.attempt + counts_as_attempt(error)
        again = OwedCall(
            why=why,
            entry=entry,
            action=action_again(request.action, entry.role),
            seen=request.object,
            latest=request.object,
            old=_known_before(request, entry.role),
            error=error,
            attempt=attempt,
            due=None if delay is None else self._clock.monotonic() + delay,
            state=request.state,
            is_terminal=is_terminal,
        )
        with self._lock:
            if not entry.is_removed and not key.source.is_removed:
                owed = self._owed.setdefault(key, [])
                for other in [other for other in owed if again.replaces(other)]:
                    owed.remove(other)
                    again.take_over(other)
                owed.append(again)

    # What is owed. The lock is held by the callers of the first two.

    def _owe_first_call(
        self, entry: Entry, key: DeliveryKey, obj: Object, store: Lister | None = None
    ) -> None:
        obj = entry.read(obj)
        call = OwedCall(
            why=Why.FIRST,
            entry=entry,
            action=_CREATE,
            seen=obj,
            latest=obj,
            old=None,
            error=None,
            attempt=0,
            due=self._clock.monotonic(),
            store=store,
        )
        self._owed.setdefault(key, []).append(call)

    def _keep_owed(self, key: DeliveryKey, calls: list[OwedCall]) -> None:
        if calls:
            self._owed[key] = calls
        else:
            self._owed.pop(key, None)

    def _settle_owed(self, key: DeliveryKey, call: OwedCall) -> bool:
        """Take a call off the list; False when it was taken off meanwhile."""
        with self._lock:
            calls = self._owed.get(key, [])
            if call not in calls:
                return False
            self._keep_owed(key, [other for other in calls if other is not call])
            return True


def _is_deletion_before(call: OwedCall, obj: Object) -> bool:
    """Whether a call is owed for the deletion of an earlier object of that name."""
    return (
        call.action is _DELETE
        and call.due is not None
        and call.latest.uid != obj.uid
        and not call.entry.is_by_key
    )


def _is_held(call: OwedCall, owed: Sequence[OwedCall]) -> bool:
    """Whether a first call has to wait for such a deletion."""
    return call.is_first and any(
        other.entry is call.entry and _is_deletion_before(other, call.latest) for other in owed
    )


def _viewed_as(event: Event, kind: Kind) -> Event:
    obj, old = event.object, event.old
    return Event(
        event.action,
        obj.viewed_as(kind),
        old and old.viewed_as(kind),
        event.is_initial,
        event.is_final_state_unknown,
    )


def _known_before(request: ReconcileRequest, role: Role) -> Object | None:
    is_shown_again = request.action is _RESYNC and role is Role.WATCHER
    return request.object if is_shown_again else request.old
