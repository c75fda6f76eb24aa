"""Calls of watchers that are owed: failed ones that will be tried again, and first ones."""

from __future__ import annotations

import logging
from typing import final

import attrs

from appsdk_operator.cache import Event, ResourceAction
from appsdk_operator.resource import Object
from appsdk_operator.watchers._watcher import ResourceWatcher, SelectiveWatcher

_log = logging.getLogger("appsdk_operator.watchers")

__all__ = ["Entry", "OwedCall", "WatcherCall"]


@final
class Entry:
    """A watcher's place in a controller: what tells it apart, also from itself added twice."""

    __slots__ = ("is_removed", "kind", "selective", "watcher")

    def __init__(self, watcher: ResourceWatcher, kind: str) -> None:
        self.watcher = watcher
        self.selective = watcher if isinstance(watcher, SelectiveWatcher) else None
        self.kind = kind
        self.is_removed = False

    def ignores(self, event: Event) -> bool:
        """Whether the watcher has nothing to do for ``event``."""
        if self.selective is None or event.action is not ResourceAction.UPDATE or event.old is None:
            return False
        try:
            return not self.selective.concerns(event.old, event.object)
        except Exception:
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

    @property
    def is_first(self) -> bool:
        """Whether the watcher has not been told of the object at all."""
        return self.error is None

    def learn(self, event: Event) -> None:
        """Take over the newest state of the object."""
        if event.object.uid == self.latest.uid:
            self.latest = event.object
