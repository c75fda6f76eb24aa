"""Which states of objects a late target was shown, so that older events are left out."""

from __future__ import annotations

from typing import final

from appsdk_operator.cache import DeliveryKey, Event, EventSource, ResourceAction
from appsdk_operator.resource import Object, is_older_version

_CREATE, _DELETE, _RESYNC = ResourceAction.CREATE, ResourceAction.DELETE, ResourceAction.RESYNC


def goes_back(event: Event) -> bool:
    """Whether the event goes to an older version, as after a restore of the server."""
    old = event.old
    return old is not None and is_older_version(event.object.resource_version, old.resource_version)


@final
class DeliveredVersions(dict[EventSource, dict[DeliveryKey, tuple[str, str]]]):
    """By source: uid and resourceVersion of the last state of each object that a late target got.

    So are states that its ``concerns`` filters out: the server may have gone back with one.
    Events that waited when it was added may be older. Empty for a target that was there from the
    start, and without a source whose informer was added later: these get every event.
    """

    __slots__ = ()

    def has(self, key: DeliveryKey, uid: str) -> bool:
        """Whether the target got a state of this object."""
        return self.get(key.source, {}).get(key, ("",))[0] == uid

    def note(self, key: DeliveryKey, obj: Object) -> None:
        """Record that the target got this state of ``obj``."""
        delivered = self.get(key.source)
        if delivered is not None:
            delivered[key] = (obj.uid, obj.resource_version)

    def forget(self, key: DeliveryKey) -> None:
        """Forget an object that is no longer followed."""
        self.get(key.source, {}).pop(key, None)

    def accept(self, key: DeliveryKey, event: Event, first: Object | None) -> bool:
        """Whether the target needs ``event``, which is recorded if so.

        Args:
            key: of the event's object.
            event: the event.
            first: the object of the target's pending first call, if there is one.
        """
        delivered = self.get(key.source)
        if delivered is None:
            return True
        obj, action = event.object, event.action
        version = obj.resource_version
        known = delivered.get(key) if first is None else (first.uid, first.resource_version)
        if known is None or known[0] != obj.uid:
            if action is not _CREATE or (known and is_older_version(version, known[1])):
                return False
        elif first is None and action is not _DELETE and not goes_back(event):
            is_shown = bool(version) and version == known[1] and action is not _RESYNC
            if is_shown or is_older_version(version, known[1]):
                return False
        if action is _DELETE:
            delivered.pop(key, None)
        elif action is not _RESYNC:
            delivered[key] = (obj.uid, version)
        return True
