"""Pending calls: retries of failed calls, requeues, and the first calls of late targets."""

from __future__ import annotations

import enum
from typing import Any, final

import attrs

from appsdk_operator.cache import DeliveryKey, Event, Lister, ResourceAction
from appsdk_operator.resource import Object, is_older_version
from appsdk_operator.runtime import safe_repr
from appsdk_operator.watchers._dispatch.registered import (
    RegisteredTarget,
    cause_of,
    goes_back,
    name_of,
)
from appsdk_operator.watchers._reconciler import ReconcileRequest, ResourceReconciler
from appsdk_operator.watchers._watcher import ResourceWatcher

__all__ = ["CallReason", "PendingCall", "WatcherCall"]


@attrs.frozen
class WatcherCall:
    """One call of a watcher or reconciler, as error handlers get it."""

    kind: str
    """The kind under which the informer and the watcher were added."""
    watcher: ResourceWatcher | ResourceReconciler
    """The watcher, or the reconciler."""
    action: ResourceAction
    object: Object
    attempt: int
    """0 for the event itself, 1 for the first retry, …"""

    @property
    def callback(self) -> str:
        """The name of the called function."""
        return name_of(self.watcher, self.action, self.object)

    @property
    def cause(self) -> str:
        """What it was called for: the action, ``SYNC`` for an object that was handled before, or
        ``DELETE`` for one that is being deleted."""
        return cause_of(self.watcher, self.action, self.object)

    def __str__(self) -> str:
        return f"{self.callback}: {self.cause} of {self.object!r}, attempt {self.attempt}"


class CallReason(enum.Enum):
    """Why a call is pending."""

    FIRST = "first"
    """The target was added late, and the object existed already."""
    RETRY = "retry"
    """The last call failed."""
    REQUEUE = "requeue"
    """A reconciler asked for it with ``requeue_after``."""


@final
@attrs.define(eq=False)
class PendingCall:
    """A call of a watcher or reconciler that waits: for its time, a resync or a change."""

    reason: CallReason
    key: DeliveryKey
    """The object, and the informer whose event led to the call."""
    target: RegisteredTarget
    action: ResourceAction
    seen: Object
    """The object as of the failed call."""
    latest: Object
    """The newest state of the object; a retry gets this one."""
    old: Object | None
    """For an update: the state before it."""
    error: Exception | None
    """For a retry: the error of the last call."""
    attempt: int
    """The attempt number of the next call."""
    due: float | None
    """The monotonic time of the call. None: the policy gave up, and the next resync repeats the
    call; or :attr:`is_terminal`."""
    is_terminal: bool = False
    """Whether neither a retry nor a resync repeats the call, but only a change of the object's
    generation, labels or annotations."""
    state: dict[str, Any] = attrs.field(factory=dict)
    """A reconciler's ``request.state``."""
    store: Lister | None = None
    """For a first call: the store that the object was found in. An object that has left it needs
    no call."""

    @property
    def is_first(self) -> bool:
        """Whether it is the target's first call for the object."""
        return self.reason is CallReason.FIRST

    @property
    def is_obsolete(self) -> bool:
        """Whether nothing is left to do: the object of a first call has left the store, or another
        call of an opinionated target has succeeded with its ``add``."""
        if self.store is not None:
            present = self.store.get(self.latest.name, self.latest.namespace)
            return present is None or present.uid != self.latest.uid
        if self.reason is not CallReason.RETRY or self.action is not ResourceAction.CREATE:
            return False
        lifecycle = self.target.finalizer_lifecycle
        return (
            lifecycle is not None
            and lifecycle.finalizer in self.latest.finalizers
            and not lifecycle.is_handled(self.seen)
        )

    def replaces(self, other: PendingCall) -> bool:
        """Whether one of the two calls is enough."""
        if other.reason is not self.reason or other.target is not self.target:
            return False
        if other.key.source is not self.key.source or other.latest.uid != self.latest.uid:
            return False
        if self.is_terminal:
            return True
        return self.reason is CallReason.REQUEUE or other.action is self.action

    def merge(self, other: PendingCall) -> None:
        """Take over what ``other``, the older call, still needs."""
        self.old = other.old
        self.action = other.action
        self.attempt = min(self.attempt, other.attempt)
        if other.due is not None and not self.is_terminal:
            self.due = other.due if self.due is None else min(self.due, other.due)

    def update_latest(self, event: Event) -> None:
        """Take the object's state from ``event`` if it is newer.

        A late target may have a newer one already than the events that waited when it was added.
        """
        obj, latest = event.object, self.latest
        if obj.uid == latest.uid and (
            goes_back(event) or not is_older_version(obj.resource_version, latest.resource_version)
        ):
            self.latest = self.target.read(obj)

    def is_changed_by(self, event: Event) -> bool:
        """Whether a terminally failed call may succeed after ``event``.

        It may after a change of the generation, labels or annotations, a deletion or a restore, not
        after a write of the status. For kinds without generations any change counts.
        """
        seen, obj = self.seen, event.object
        if event.action is ResourceAction.RESYNC:
            return False
        if obj.is_deleting != seen.is_deleting or goes_back(event):
            return True
        if not obj.generation:
            lifecycle = self.target.finalizer_lifecycle
            if lifecycle is not None:
                return lifecycle.differs(seen, obj)  # in more than our own finalizers
            return obj.resource_version != seen.resource_version
        return (obj.generation, obj.labels, obj.annotations) != (
            seen.generation,
            seen.labels,
            seen.annotations,
        )

    def to_json(self, now: float) -> dict[str, Any]:
        """The call for a debug page, as JSON values."""
        obj = self.latest
        return {
            "watcher": name_of(self.target.handler, self.action, obj),
            "object": f"{obj.namespace}/{obj.name}",
            "action": self.action.value,
            "why": self.reason.value,
            "attempt": self.attempt,
            "due_in": None if self.due is None else self.due - now,
            "error": "" if self.error is None else safe_repr(self.error),
        }

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
