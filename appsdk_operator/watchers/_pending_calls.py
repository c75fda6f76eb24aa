"""Calls that are owed: failed ones that will be tried again, requeued ones, and first ones."""

from __future__ import annotations

import enum
from typing import Any, final

import attrs

from appsdk_operator.cache import Event, Lister, ResourceAction
from appsdk_operator.resource import Object, is_older_version
from appsdk_operator.watchers._reconciler import ReconcileRequest, ResourceReconciler
from appsdk_operator.watchers._registered import Entry, goes_back, name_of
from appsdk_operator.watchers._watcher import ResourceWatcher

__all__ = ["OwedCall", "WatcherCall", "Why"]


@attrs.frozen
class WatcherCall:
    """One call of a watcher or reconciler, as error handlers see it."""

    kind: str
    """The kind under which informer and watcher were added."""
    watcher: ResourceWatcher | ResourceReconciler
    """The watcher, or the reconciler."""
    action: ResourceAction
    object: Object
    attempt: int
    """0 for the event itself, 1 for the first retry, …"""

    @property
    def callback(self) -> str:
        """The name of the function that was to be called."""
        return name_of(self.watcher, self.action)

    def __str__(self) -> str:
        return f"{self.callback}: {self.action.value} of {self.object!r}, attempt {self.attempt}"


class Why(enum.Enum):
    """Why a call is owed."""

    FIRST = "first"
    """The watcher has not been told of the object at all."""
    RETRY = "retry"
    """It failed."""
    REQUEUE = "requeue"
    """A reconciler asked for it."""


@final
@attrs.define(eq=False)
class OwedCall:
    """A call that a watcher or reconciler has not had, has failed or has asked for."""

    why: Why

    entry: Entry
    action: ResourceAction
    seen: Object
    """The object as the failed call saw it."""
    latest: Object
    """The newest state of that object; what a retry is called with."""
    old: Object | None
    """For an update: what the watcher knew before."""
    error: Exception | None
    """For a retry: what the call raised last."""
    attempt: int
    """The number of the next try."""
    due: float | None
    """The monotonic time of the next try; None: the policy gave up, and a resync revives it; or
    :attr:`is_terminal`."""
    is_terminal: bool = False
    """Whether no retry would help, and no resync: only a change of what the object asks for."""
    state: dict[str, Any] = attrs.field(factory=dict)
    """A reconciler's notes."""
    store: Lister | None = None
    """For a first call: where the object was found, and must still be when the call is made."""

    @property
    def is_first(self) -> bool:
        """Whether the target has not been told of the object at all."""
        return self.why is Why.FIRST

    @property
    def is_pointless(self) -> bool:
        """Whether the first call is for an object that is gone, perhaps without an event."""
        if self.store is None:
            return False
        present = self.store.get(self.latest.name, self.latest.namespace)
        return present is None or present.uid != self.latest.uid

    def replaces(self, other: OwedCall) -> bool:
        """Whether the two are owed for one thing, of which the target needs to be told once."""
        if other.why is not self.why or other.entry is not self.entry:
            return False
        if other.latest.uid != self.latest.uid:
            return False
        if self.is_terminal:
            return True
        return self.why is Why.REQUEUE or other.action is self.action

    def take_over(self, other: OwedCall) -> None:
        """Stand for ``other`` too, which was owed before."""
        self.old = other.old
        self.action = other.action
        self.attempt = min(self.attempt, other.attempt)
        if other.due is not None and not self.is_terminal:
            self.due = other.due if self.due is None else min(self.due, other.due)

    def learn(self, event: Event) -> None:
        """Take over the newest state of the object.

        Who was added late may have seen a newer one than the events show that waited by then.
        """
        obj, latest = event.object, self.latest
        if obj.uid == latest.uid and (
            goes_back(event) or not is_older_version(obj.resource_version, latest.resource_version)
        ):
            self.latest = self.entry.read(obj)

    def is_news(self, event: Event) -> bool:
        """Whether a call that no retry would help may succeed after ``event``.

        That is so when the object asks for something else, and not because somebody wrote its
        status. Kinds without generations do not tell the two apart.
        """
        seen, obj = self.seen, event.object
        if event.action is ResourceAction.RESYNC:
            return False
        if obj.is_deleting != seen.is_deleting or goes_back(event):
            return True
        if not obj.generation:
            return obj.resource_version != seen.resource_version
        return (obj.generation, obj.labels, obj.annotations) != (
            seen.generation,
            seen.labels,
            seen.annotations,
        )

    def described(self, now: float) -> dict[str, Any]:
        """The call for a debug page, as values that JSON knows."""
        obj = self.latest
        return {
            "watcher": name_of(self.entry.target, self.action),
            "object": f"{obj.namespace}/{obj.name}",
            "action": self.action.value,
            "why": self.why.value,
            "attempt": self.attempt,
            "due_in": None if self.due is None else self.due - now,
            "error": "" if self.error is None else repr(self.error),
        }

    def request(self) -> ReconcileRequest:
        """The call, to be made now."""
        return ReconcileRequest(
            action=self.action,
            object=self.latest,
            old=self.old,
            attempt=self.attempt,
            error=self.error,
            state=self.state,
        )
