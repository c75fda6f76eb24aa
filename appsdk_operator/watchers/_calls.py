"""Calls of watchers that are owed: failed ones that will be tried again, and first ones."""

from __future__ import annotations

import logging
from typing import final

import attrs

from appsdk_operator.cache import DeliveryKey, Event, EventSource, Lister, ResourceAction
from appsdk_operator.resource import Object, is_older_version
from appsdk_operator.watchers._watcher import ResourceWatcher, SelectiveWatcher

_log = logging.getLogger("appsdk_operator.watchers")

__all__ = ["Entry", "OwedCall", "WatcherCall"]


@final
class Entry:
    """A watcher's place in a controller: what tells it apart, also from itself added twice."""

    __slots__ = ("is_removed", "kind", "selective", "told", "watcher")

    def __init__(self, watcher: ResourceWatcher, kind: str) -> None:
        self.watcher = watcher
        self.selective = watcher if isinstance(watcher, SelectiveWatcher) else None
        self.kind = kind
        self.is_removed = False
        self.told: dict[EventSource, dict[DeliveryKey, tuple[str, str]]] = {}
        """For sources that had told others already when the watcher came: of which objects, by uid
        and resourceVersion, it was told first. What was on its way then may be older than that."""

    def is_due(self, key: DeliveryKey, event: Event, first: OwedCall | None) -> bool:
        """Whether the watcher is to be told of ``event``, given the first call that it is owed."""
        told = self.told.get(key.source)
        if told is None:
            return True
        obj, action = event.object, event.action
        version = obj.resource_version
        known = told.get(key) if first is None else (first.seen.uid, first.seen.resource_version)
        if known is None or known[0] != obj.uid:
            if action is not ResourceAction.CREATE or (
                known and is_older_version(version, known[1])
            ):
                return False
        elif first is None and action is not ResourceAction.DELETE:
            is_shown = version == known[1] and action is not ResourceAction.RESYNC
            if is_shown or is_older_version(version, known[1]):
                return False
        if action is ResourceAction.DELETE:
            told.pop(key, None)
        elif action is not ResourceAction.RESYNC and (
            first is not None or action is ResourceAction.CREATE
        ):
            self.was_told(key, obj)
        return True

    def was_told(self, key: DeliveryKey, obj: Object) -> None:
        """Remember that the watcher was told of ``obj`` for the first time."""
        told = self.told.get(key.source)
        if told is not None:
            told[key] = (obj.uid, obj.resource_version)

    def ignores(self, event: Event) -> bool:
        """Whether the watcher has nothing to do for ``event``."""
        if self.selective is None or event.action is not ResourceAction.UPDATE or event.old is None:
            return False
        try:
            return not self.selective.concerns(event.old, event.object)
        except BaseException:
            _log.exception("concerns() of %r failed: the event is delivered", self.watcher)
            return False


@attrs.frozen
class WatcherCall:
    """One call of a watcher, as error handlers see it."""

    kind: str
    """The kind under which informer and watcher were added."""
    watcher: ResourceWatcher
    action: ResourceAction
    object: Object
    attempt: int
    """0 for the event itself, 1 for the first retry, …"""

    def __str__(self) -> str:
        name = type(self.watcher).__name__
        return f"{name}: {self.action.value} of {self.object!r}, attempt {self.attempt}"


@final
@attrs.define(eq=False)
class OwedCall:
    """A call that a watcher has not had, or has failed, for one object."""

    entry: Entry
    action: ResourceAction
    seen: Object
    """The object as the failed call saw it."""
    latest: Object
    """The newest state of that object; what a retry is called with."""
    old: Object | None
    """For an update: what the watcher knew before."""
    error: Exception | None
    """What the call raised last; None when it was never made."""
    attempt: int
    """The number of the next try."""
    due: float | None
    """The monotonic time of the next try; None: the policy gave up, only a resync revives it."""
    store: Lister | None = None
    """For a first call: where the object was found, and must still be when the call is made."""

    @property
    def is_first(self) -> bool:
        """Whether the watcher has not been told of the object at all."""
        return self.error is None

    @property
    def is_pointless(self) -> bool:
        """Whether the first call is for an object that is gone, perhaps without an event."""
        if self.store is None:
            return False
        present = self.store.get(self.latest.name, self.latest.namespace)
        return present is None or present.uid != self.latest.uid

    def replaces(self, other: OwedCall) -> bool:
        """Whether the two are retries of one thing; a watcher needs to be told of it once."""
        return (
            other.entry is self.entry
            and other.action is self.action
            and other.latest.uid == self.latest.uid
            and not other.is_first
        )

    def take_over(self, other: OwedCall) -> None:
        """Stand for ``other`` too, which failed before."""
        self.old = other.old
        self.attempt = min(self.attempt, other.attempt)
        if other.due is not None:
            self.due = other.due if self.due is None else min(self.due, other.due)

    def learn(self, event: Event) -> None:
        """Take over the newest state of the object."""
        if event.object.uid == self.latest.uid:
            self.latest = event.object
