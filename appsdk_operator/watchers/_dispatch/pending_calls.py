"""The pending calls of one target for one object: a state machine without locks, clock or I/O."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, final

import msgspec
from msgspec import structs

from appsdk_operator.cache import Event, EventSource, ResourceAction
from appsdk_operator.resource import DecodeError, Object, is_older_version
from appsdk_operator.runtime import ACTION_WORDS, error_text
from appsdk_operator.watchers._dispatch.failures import RetryPlan, retry_action
from appsdk_operator.watchers._dispatch.registered import RegisteredTarget, name_of
from appsdk_operator.watchers._level_based import Waiting
from appsdk_operator.watchers._reconciler import ReconcileRequest
from appsdk_operator.watchers._records import without_records
from appsdk_operator.watchers._retry import is_asked_again

_CREATE, _DELETE, _RESYNC = ResourceAction.CREATE, ResourceAction.DELETE, ResourceAction.RESYNC


def goes_back(event: Event) -> bool:
    """Whether the event goes to an older version, as after a restore of the server."""
    old = event.old
    return old is not None and is_older_version(event.object.resource_version, old.resource_version)


class CallReason(enum.Enum):
    """Why a call is pending."""

    FIRST = "first"
    """The object is new, and its predecessor's deletion is pending."""
    RETRY = "retry"
    """The last call failed."""
    REQUEUE = "requeue"
    """A reconciler asked for it with ``requeue_after``."""


@final
class PendingCall(msgspec.Struct, kw_only=True, eq=False):
    """A call that waits: for its time, a resync or a change."""

    reason: CallReason
    source: EventSource
    """The informer whose event led to the call."""
    action: ResourceAction
    seen: Object
    """The object as of the failed call."""
    latest: Object
    """The newest state of the object; a retry gets this one."""
    old: Object | None = None
    """For an update: the state before it."""
    error: Exception | None = None
    """For a retry: the error of the last call."""
    attempt: int = 0
    """The attempt number of the next call."""
    due: float | None
    """The monotonic time of the call. None: the policy gave up, and the next resync repeats the
    call; or :attr:`is_terminal`."""
    is_terminal: bool = False
    """Whether neither a retry nor a resync repeats the call, but only a change of the object's
    generation, labels or annotations."""
    state: dict[str, Any] = msgspec.field(default_factory=dict)
    """A reconciler's ``request.state``."""
    name: str = ""
    """The name of the function; ``""`` if only the target knows it."""
    cause: str = ""
    """What it is called for; ``""``: the action."""

    @property
    def is_first(self) -> bool:
        """Whether it is the target's first call for the object, which waits for another one."""
        return self.reason is CallReason.FIRST

    def request(self) -> ReconcileRequest:
        """The request for the call."""
        return ReconcileRequest(
            action=self.action,
            object=self.latest,
            old=self.old,
            attempt=self.attempt,
            error=self.error,
            state=self.state,
        )

    def replaces(self, other: PendingCall) -> bool:
        """Whether ``other``, an older call, is not made any more because of this one."""
        if other.source is not self.source or other.latest.uid != self.latest.uid:
            return False
        if self.is_terminal:
            return True
        if other.reason is not self.reason:
            return False
        return self.reason is CallReason.REQUEUE or other.action is self.action

    def merge(self, other: PendingCall) -> None:
        """Take over what ``other``, which it replaces, still needs."""
        if other.reason is not self.reason:
            return
        self.old = other.old
        self.action = other.action
        self.attempt = min(self.attempt, other.attempt)
        if other.due is not None and not self.is_terminal:
            self.due = other.due if self.due is None else min(self.due, other.due)

    def update_latest(self, event: Event) -> None:
        """Take the object's state from ``event``."""
        if event.object.uid == self.latest.uid:
            self.latest = event.object


class Reaction(msgspec.Struct, frozen=True):
    """What follows an event of an object that has pending calls, in this order."""

    retries: Sequence[PendingCall] = ()
    """The retries that it supersedes, unless the dequeue policy keeps them: to be answered with
    :meth:`PendingCalls.supersede`."""
    repeats: Sequence[PendingCall] = ()
    """The pending calls to be made now, each after :meth:`PendingCalls.start`."""
    request: ReconcileRequest | None = None
    """The call of the event itself; None: it is not delivered."""


_NOTHING = Reaction()


@final
class PendingCalls:
    """The pending calls of one target for one object; without any, each event leads to its call.

    Inputs are an :meth:`event` or one that is :meth:`passed over <pass_over>`, the time
    (:meth:`due`, :meth:`start`), the outcome of a call (:meth:`failed`, :meth:`requeued`) and that
    an informer is gone (:meth:`forget`). An event leads to the first of these that applies:

    1. Nothing, if a call for the object failed terminally and the event does not change what the
       object asks for. A deletion does.
    2. Nothing yet, if the deletion of an earlier object of the name is pending: the two share their
       name, and a watcher that works by name would create the new object's resources and then
       delete them. A first call follows that deletion, unless the object has gone by then.
    3. For a resync: the calls that were given up, and requeues, but no retries; the resync itself
       if no call is pending.
    4. Its call, which is the first one if that is pending, and not made for an object that has
       gone before its first call. It replaces what is pending, except for retries that the dequeue
       policy keeps.

    Not thread-safe, but :attr:`calls` may be read at any time.
    """

    __slots__ = ("calls", "target")

    def __init__(self, target: RegisteredTarget) -> None:
        self.target = target
        self.calls: tuple[PendingCall, ...] = ()
        """The pending calls, oldest first; replaced at each change."""

    def event(self, source: EventSource, event: Event, now: float) -> Reaction:
        """An event of the object, with the types of the target."""
        action = event.action
        self._update_latest(source, event)
        own = [call for call in self.calls if call.source is source]
        first = next((call for call in own if call.is_first), None)
        if action is _CREATE or first is not None:
            # Its predecessor may have been another informer's, or itself, before it left for here.
            own += [c for c in self.calls if c.action is _DELETE and c.source is not source]
        same = [call for call in own if call.latest.uid == event.object.uid]
        is_in_vain = any(c.is_terminal and not self._is_changed(c, event) for c in same)
        if is_in_vain and action is not _DELETE and self.target.level_based is None:
            return _NOTHING
        if any(self._is_deletion_before(call, event.object) for call in own):
            if action is _DELETE:
                self._remove(first)
            elif first is None:
                request = ReconcileRequest(action=_CREATE, object=event.object)
                self._add(CallReason.FIRST, source, request, due=now)
            return _NOTHING
        if action is _RESYNC:
            return self._resync(event, same)
        return self._deliver(event, own, same, first)

    def pass_over(self, source: EventSource, event: Event) -> Reaction:
        """An event that the target's ``concerns`` filters out, assuming that its calls succeeded.

        So it leads to a call only if one failed terminally, and if it changes what the object asks
        for.
        """
        self._update_latest(source, event)
        if self.target.level_based is not None:
            return _NOTHING
        own = (c for c in self.calls if c.source is source and c.latest.uid == event.object.uid)
        return self._repeat([c for c in own if c.is_terminal and self._is_changed(c, event)])

    def supersede(self, retry: PendingCall, event: Event, *, is_dropped: bool) -> None:
        """Answer whether the dequeue policy drops a retry for an event that supersedes it.

        Whatever it says: after a deletion no call may report the object as existing, nor as gone
        once it is back, in a selector or with a restored server.
        """
        is_gone, was_gone = event.action is _DELETE, retry.action is _DELETE
        if is_dropped or (
            is_gone != was_gone and (is_gone or retry.latest.uid == event.object.uid)
        ):
            self._remove(retry)

    def due(self, now: float) -> list[PendingCall]:
        """The calls whose time has come; :meth:`start` each."""
        return [call for call in self.calls if call.due is not None and call.due <= now]

    def next_due(self) -> float | None:
        """When the next call is due; None when none is."""
        dues = [c.due for c in self.calls if c.due is not None and not self._is_deferred(c)]
        return min(dues, default=None)

    def start(self, call: PendingCall) -> ReconcileRequest | None:
        """Take a pending call out to make it.

        None if it is no longer pending, has to wait for a deletion, or is no longer needed: another
        call of an opinionated target has succeeded with its ``add``.
        """
        if call not in self.calls or self._is_deferred(call):
            return None
        self._remove(call)
        return None if self._is_added(call) else call.request()

    def failed(
        self,
        source: EventSource,
        request: ReconcileRequest,
        error: Exception,
        plan: RetryPlan,
        now: float,
    ) -> None:
        """A call failed, and ``plan`` says what follows."""
        action, delay = request.action, plan.delay
        # A resync delivers no deleted object, and the next resync is a new call anyway.
        if delay is None and (action is _DELETE or (action is _RESYNC and not plan.is_final)):
            return
        if retry_action(action, self.target.role) is not action:  # a watcher's resync
            request = structs.replace(request, action=ResourceAction.UPDATE, old=request.object)
        self._add(
            CallReason.RETRY,
            source,
            request,
            due=None if delay is None else now + delay,
            error=error,
            attempt=plan.attempt,
            is_terminal=plan.is_final,
        )

    def requeued(self, source: EventSource, request: ReconcileRequest, due: float) -> None:
        """A call succeeded, and the reconciler asked for another one."""
        self._add(CallReason.REQUEUE, source, request, due=due)

    def reflect(
        self, source: EventSource, request: ReconcileRequest, waiting: Sequence[Waiting]
    ) -> None:
        """After a call of a target that knows itself what is due: replace the object's calls."""
        seen = request.object
        kept = [c for c in self.calls if c.source is not source or c.latest.uid != seen.uid]
        kept += [
            PendingCall(
                reason=CallReason.REQUEUE if each.error is None else CallReason.RETRY,
                source=source,
                action=request.action,
                seen=seen,
                latest=seen,
                old=request.old,
                due=each.due,
                error=each.error,
                attempt=each.attempt,
                is_terminal=each.due is None,
                name=each.name,
                cause=each.cause,
            )
            for each in waiting
        ]
        self.calls = tuple(kept)

    def forget(self, source: EventSource | None = None) -> None:
        """Drop the calls for an informer's events; without one, all calls."""
        self.calls = tuple(c for c in self.calls if source is not None and c.source is not source)

    def to_json(self, now: float) -> list[dict[str, Any]]:
        """The calls for a debug page, as JSON values."""
        return [
            {
                "object": str(call.latest.key),
                "callback": call.name or name_of(self.target.handler, call.action, call.latest),
                "why": f"{call.reason.value} of {_what(call)}",
                "attempt": call.attempt,
                "due_in": None if call.due is None else call.due - now,
                "error": "" if call.error is None else error_text(call.error),
            }
            for call in self.calls
        ]

    def _resync(self, event: Event, same: Sequence[PendingCall]) -> Reaction:
        if not same or self.target.level_based is not None:
            return Reaction(request=self.target.request_of(event))
        # A resync runs a requeue early; a retry waits for its time.
        return self._repeat([c for c in same if c.due is None or c.reason is CallReason.REQUEUE])

    def _deliver(
        self,
        event: Event,
        own: Sequence[PendingCall],
        same: Sequence[PendingCall],
        first: PendingCall | None,
    ) -> Reaction:
        request = self.target.request_of(event)
        if same:
            # A call that replaces a pending one gets its state.
            request = structs.replace(request, state=same[-1].state)
        retries = [call for call in own if call.error is not None and call.due is not None]
        for call in own:
            if call not in retries:
                self._remove(call)
        if first in same:
            if event.action is _DELETE:
                return Reaction(retries)
            request = structs.replace(request, action=_CREATE, old=None)
        return Reaction(retries, request=request)

    def _repeat(self, calls: Sequence[PendingCall]) -> Reaction:
        for call in calls:
            call.attempt = 0
        return Reaction(repeats=calls)

    def _update_latest(self, source: EventSource, event: Event) -> None:
        for call in self.calls:
            if call.source is source:
                call.update_latest(event)

    def _add(
        self,
        reason: CallReason,
        source: EventSource,
        request: ReconcileRequest,
        *,
        due: float | None,
        **more: Any,
    ) -> None:
        new = PendingCall(
            reason=reason,
            source=source,
            action=request.action,
            seen=request.object,
            latest=request.object,
            old=request.old,
            due=due,
            state=request.state,
            **more,
        )
        kept = []
        for call in self.calls:
            if new.replaces(call):
                new.merge(call)
            else:
                kept.append(call)
        self.calls = (*kept, new)

    def _remove(self, call: PendingCall | None) -> None:
        self.calls = tuple([other for other in self.calls if other is not call])

    def _is_changed(self, call: PendingCall, event: Event) -> bool:
        """Whether a terminally failed call may succeed after ``event``.

        It may after a change of the generation, labels or annotations, a deletion or a restore, not
        after a write of the status. For kinds without generations, and where metadata is invalid,
        any change counts.
        """
        if event.action is _RESYNC:
            return False
        try:
            return self._asks_for_more(call.seen, event)
        except DecodeError:
            return event.object.resource_version != call.seen.resource_version

    def _asks_for_more(self, seen: Object, event: Event) -> bool:
        obj = event.object
        if obj.is_deleting != seen.is_deleting or goes_back(event) or is_asked_again(seen, obj):
            return True
        if not obj.generation:
            lifecycle = self.target.finalizer_lifecycle
            if lifecycle is not None:
                return lifecycle.differs(seen, obj)  # in more than our own finalizers
            return obj.resource_version != seen.resource_version
        return (obj.generation, obj.labels, without_records(obj.annotations)) != (
            seen.generation,
            seen.labels,
            without_records(seen.annotations),
        )

    def _is_deletion_before(self, call: PendingCall, obj: Object) -> bool:
        """Whether the call is for the deletion of an earlier object of the same name."""
        is_of_other = call.action is _DELETE and call.latest.uid != obj.uid
        return is_of_other and not self.target.is_by_key

    def _is_deferred(self, call: PendingCall) -> bool:
        """Whether a first call has to wait for the pending deletion of its predecessor."""
        return call.is_first and any(
            self._is_deletion_before(other, call.latest) for other in self.calls
        )

    def _is_added(self, call: PendingCall) -> bool:
        """Whether another call of an opinionated target has succeeded with this one's ``add``."""
        if call.reason is not CallReason.RETRY or call.action is not _CREATE:
            return False
        if self.target.level_based is not None:
            return False  # it may be the call of another function
        lifecycle = self.target.finalizer_lifecycle
        try:
            return (
                lifecycle is not None
                and lifecycle.finalizer in call.latest.finalizers
                and not lifecycle.is_handled(call.seen)
            )
        except DecodeError:
            return False  # nobody knows


def _what(call: PendingCall) -> str:
    cause = call.cause or call.action.value
    return ACTION_WORDS.get(cause, cause)
