"""Calls watchers for one event after another, and again for what failed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import final

from appsdk_operator.cache import DeliveryKey, Event, EventSource, Lister, ResourceAction
from appsdk_operator.resource import Object
from appsdk_operator.runtime import Clock, settle
from appsdk_operator.watchers._calls import Entry, OwedCall, WatcherCall
from appsdk_operator.watchers._controller_metrics import ControllerMetrics
from appsdk_operator.watchers._failures import Failures, action_again
from appsdk_operator.watchers._list_map import ListMap
from appsdk_operator.watchers._retry import RetryDequeuePolicy
from appsdk_operator.watchers._turns import Turns
from appsdk_operator.watchers._watcher import ResourceWatcher

__all__ = ["Dispatcher"]

_log = logging.getLogger("appsdk_operator.watchers")

_CREATE, _UPDATE, _DELETE, _RESYNC = (
    ResourceAction.CREATE,
    ResourceAction.UPDATE,
    ResourceAction.DELETE,
    ResourceAction.RESYNC,
)


@final
class Dispatcher:
    """The watchers of a controller, and the calls that they are owed.

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
    ) -> None:
        self._name = name
        self._failures = failures
        self._dequeue_policy = dequeue_policy
        self._metrics = metrics
        self._clock = clock
        self._lock = threading.Lock()
        self._watchers: ListMap[str, Entry] = ListMap()
        self._owed: dict[DeliveryKey, list[OwedCall]] = {}
        self._has_begun = False
        # For kinds with several sources only: their keys differ although the object is the same.
        self._shared_kinds: frozenset[str] = frozenset()
        self._turns = Turns()
        self._is_stopped = False

    def add(
        self,
        watcher: ResourceWatcher,
        kind: str,
        present: Callable[[], Iterable[tuple[EventSource, Lister]]],
    ) -> list[DeliveryKey]:
        """Add a watcher that is owed a first call for each object in the ``present`` stores.

        Returns:
            The keys of those objects: their turn has come.
        """
        entry = Entry(watcher, kind)
        self._metrics.add_kind(kind)
        keys = []
        with self._lock:
            # An event is handled with the watchers before or after this block, so together with
            # the objects in the stores the new watcher misses none. Until the first event nobody
            # has missed anything.
            if self._has_begun:
                for source, store in present():
                    entry.told[source] = {}
                    for obj in store.list():
                        key = DeliveryKey(source, obj.namespace, obj.name)
                        self._owe_first_call(entry, key, obj, store)
                        keys.append(key)
            self._watchers.add_item(kind, entry)
        return keys

    def remove(self, watcher: ResourceWatcher | None, kind: str) -> None:
        """Remove the first entry of ``watcher``, or with None all of ``kind``, and their calls."""
        with self._lock:
            for entry in self._watchers.items(kind):
                if watcher is None or entry.watcher is watcher:
                    entry.is_removed = True
                    if watcher is not None:
                        break
            self._watchers.remove_items(kind, lambda entry: entry.is_removed)
            for key, calls in list(self._owed.items()):
                self._keep_owed(key, [call for call in calls if not call.entry.is_removed])

    def kinds(self) -> list[str]:
        """The kinds that have watchers."""
        return self._watchers.keys()

    def forget(self, source: EventSource) -> None:
        """Drop what is owed for the objects of ``source``."""
        with self._lock:
            for key in [key for key in self._owed if key.source is source]:
                del self._owed[key]
            for _, _, entry in self._watchers.all_items():
                entry.told.pop(source, None)

    def pending_retries(self) -> int:
        """How many failed calls wait for their time."""
        with self._lock:
            return sum(
                call.due is not None and not call.is_first
                for calls in self._owed.values()
                for call in calls
            )

    def given_up(self) -> int:
        """How many failed calls wait for a resync."""
        with self._lock:
            return sum(call.due is None for calls in self._owed.values() for call in calls)

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
        if self._has_stopped():
            return None
        if key.source.kind in self._shared_kinds:
            with self._turns.alone((key.source.kind, key.namespace, key.name)):
                # The wait for the others may have lasted until after the stop.
                return None if self._has_stopped() else self._handle(key, event)
        return self._handle(key, event)

    def share(self, kind: str) -> None:
        """Several sources of ``kind`` may show the same object: still nothing overlaps for it."""
        self._shared_kinds |= {kind}

    def _handle(self, key: DeliveryKey, event: Event | None) -> float | None:
        if event is not None:
            self._deliver(key, event)
        if key not in self._owed:
            return None
        self._pay_due(key)
        with self._lock:
            owed = self._owed.get(key, [])
            dues = [c.due for c in owed if c.due is not None and not _is_held(c, owed)]
        return max(0.0, min(dues) - self._clock.monotonic()) if dues else None

    def _deliver(self, key: DeliveryKey, event: Event) -> None:
        with self._lock:
            self._has_begun = True
            entries = self._watchers.items(key.source.kind)
            calls = list(self._owed[key]) if key in self._owed else ()
            for call in calls:
                call.learn(event)
        for entry in entries:
            if entry.is_removed or entry.ignores(event):
                continue
            if not calls:
                # Nearly always: nobody is owed anything for this object.
                if entry.is_due(key, event, None):
                    old = event.object if event.action is _RESYNC else event.old
                    self._call(key, entry, event.action, event.object, old, attempt=0)
                continue
            own = [call for call in calls if call.entry is entry]
            first = next((call for call in own if call.is_first), None)
            if not entry.is_due(key, event, first):
                continue
            if any(_is_deletion_before(call, event.object) for call in own):
                self._hold(key, event, entry, first)
            elif event.action is _RESYNC:
                self._resync(key, event, entry, own)
            else:
                self._tell(key, event, entry, own)

    def _tell(self, key: DeliveryKey, event: Event, entry: Entry, own: Sequence[OwedCall]) -> None:
        action, old = event.action, event.old
        is_untold = False
        for call in own:
            if call.is_first:
                is_untold = call.latest.uid == event.object.uid
                self._settle_owed(key, call)
            elif call.due is None or self._is_outdated(call, event):
                self._settle_owed(key, call)
        if is_untold:
            if action is _DELETE:
                return
            action, old = _CREATE, None
        self._call(key, entry, action, event.object, old, attempt=0)

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
        """Whether a retry is not to be made, now that ``event`` came."""
        policy = self._dequeue_policy
        drop = True
        if policy is not None and call.error is not None:
            try:
                drop = bool(policy(event.action, event.object, call.action, call.seen, call.error))
            except BaseException:
                _log.exception(
                    "the retry dequeue policy of controller %s failed: the retry is dropped",
                    self._name,
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
            self._call(key, entry, _RESYNC, event.object, event.object, attempt=0)
        for call in own:
            if call.due is None:
                self._settle_owed(key, call)
                self._call(key, entry, call.action, call.latest, call.old, attempt=0)

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
                else:
                    self._metrics.retry_made(key.source.kind, call.action, now - call.due)
                self._call(
                    key, call.entry, call.action, call.latest, call.old, attempt=call.attempt
                )

    def _call(
        self,
        key: DeliveryKey,
        entry: Entry,
        action: ResourceAction,
        obj: Object,
        old: Object | None,
        *,
        attempt: int,
    ) -> None:
        kind = key.source.kind
        self._metrics.begin(kind)
        started = self._clock.monotonic()
        failure: Exception | None = None
        try:
            _invoke(entry.watcher, action, obj, old)
        except Exception as error:
            failure = error
        except BaseException as error:
            if threading.current_thread() is threading.main_thread():
                raise  # no worker: a test that does one step, and Ctrl-C is meant for it
            # SystemExit and its like would end the worker without a word.
            failure = RuntimeError(f"the watcher raised {error!r}")
            failure.__cause__ = error
        finally:
            seconds = self._clock.monotonic() - started
            self._metrics.end(kind, action, seconds, has_failed=failure is not None)
        if failure is not None:
            try:
                self._failed(key, entry, action, obj, old, attempt, failure)
            finally:
                failure = None  # its traceback holds this frame, which would hold it in turn

    def _failed(
        self,
        key: DeliveryKey,
        entry: Entry,
        action: ResourceAction,
        obj: Object,
        old: Object | None,
        attempt: int,
        error: Exception,
    ) -> None:
        call = WatcherCall(key.source.kind, entry.watcher, action, obj, attempt)
        delay = self._failures.delay_after(error, call)
        if delay is None and (action is _DELETE or action is _RESYNC):
            return  # no resync shows what is gone, and the next resync is a new try anyway
        due = None if delay is None else self._clock.monotonic() + delay
        again = OwedCall(
            entry=entry,
            action=action_again(action),
            seen=obj,
            latest=obj,
            old=old,
            error=error,
            attempt=attempt + 1,
            due=due,
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
        call = OwedCall(
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
    """Whether a retry is owed for the deletion of an earlier object of that name."""
    return call.action is _DELETE and call.due is not None and call.latest.uid != obj.uid


def _is_held(call: OwedCall, owed: Sequence[OwedCall]) -> bool:
    """Whether a first call has to wait for such a deletion."""
    return call.is_first and any(
        other.entry is call.entry and _is_deletion_before(other, call.latest) for other in owed
    )


def _invoke(
    watcher: ResourceWatcher, action: ResourceAction, obj: Object, old: Object | None
) -> None:
    if action is _CREATE:
        settle(watcher.add(obj))
    elif action is _DELETE:
        settle(watcher.delete(obj))
    else:
        settle(watcher.update(old if old is not None else obj, obj))
