"""From the informers that handlers were told by to others that follow the same objects."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import attrs

from appsdk_operator.cache._cache.registration import CacheRegistration
from appsdk_operator.cache._cache.selection import Selection
from appsdk_operator.cache._events import Event, ResourceAction
from appsdk_operator.cache._informer.informer import Informer
from appsdk_operator.resource import Object, ObjectKey, is_older_version
from appsdk_operator.runtime import StopSignal

__all__ = ["SelectionInformer", "end", "is_behind", "switch_over"]

_CREATE, _UPDATE, _DELETE = ResourceAction.CREATE, ResourceAction.UPDATE, ResourceAction.DELETE


@attrs.define(eq=False)
class SelectionInformer:
    """A scope, and who follows it."""

    scope: Selection
    informer: Informer
    stop: StopSignal | None = None
    """What ends the informer; None until it runs."""

    def end(self) -> None:
        """Let the informer end, and apply no more news."""
        self.informer.freeze()
        if self.stop is not None:
            self.stop.set()


def end(followed: SelectionInformer, registrations: Sequence[CacheRegistration]) -> None:
    """Follow it no more; handlers are told that its objects are followed no longer."""
    informer = followed.informer
    with informer.lock:
        followed.end()
        events = [_unfollowed(obj) for obj in informer.store.list()]
        for registration in registrations:
            registration.leave(informer, events)


def is_behind(
    new: Sequence[SelectionInformer], old: Sequence[SelectionInformer]
) -> list[SelectionInformer]:
    """Those of ``new`` that may not have seen all that ``old``, which are frozen, have seen."""
    reached = [each.informer.resource_version for each in old]
    return [
        each
        for each in new
        if not all(
            version.isdigit()
            and each.informer.resource_version.isdigit()
            and not is_older_version(each.informer.resource_version, version)
            for version in reached
            if version
        )
    ]


def switch_over(
    old: Sequence[SelectionInformer],
    new: Sequence[SelectionInformer],
    registrations: Sequence[CacheRegistration],
) -> None:
    """Let ``registrations`` be told by ``new`` what they were told by ``old``.

    ``old`` are frozen, ``new`` have synced and are not behind. What differs between the two copies
    happened meanwhile, so that is what handlers are told: nothing twice, and nothing left out. A
    handler that waits for whole objects is told of all that is there.
    """
    with contextlib.ExitStack() as locks:
        for each in (*old, *new):
            locks.enter_context(each.informer.lock)
        had_synced = all(each.informer.has_synced for each in old)
        have_synced = all(each.informer.has_synced for each in new)
        events = _difference(old, new, had_synced=had_synced)
        for registration in registrations:
            told, knows_all, missed = old, had_synced, events
            if registration.is_waiting:
                told = [each for each in old if registration.follows(each.informer)]
                knows_all, missed = False, _difference(told, new, had_synced=False)
            registration.move(
                [each.informer for each in told],
                [each.informer for each in new],
                missed,
                tells_end=not knows_all and have_synced,
            )


def _difference(
    old: Sequence[SelectionInformer], new: Sequence[SelectionInformer], *, had_synced: bool
) -> list[Event]:
    told = _objects(old)
    present = _objects(new)
    events: list[Event] = []
    for key, before in told.items():
        obj = present.get(key)
        if obj is None:
            if any(each.scope.covers(key.namespace) for each in new):
                events.append(Event(_DELETE, before, None, False, True))
            else:
                events.append(_unfollowed(before))
        elif obj.uid != before.uid:
            events.append(Event(_DELETE, before, None, False, True))
            events.append(Event(_CREATE, obj))
        elif obj.resource_version != before.resource_version:
            events.append(Event(_UPDATE, obj, before))
    for key, obj in present.items():
        if key not in told:
            was_followed = any(each.scope.covers(key.namespace) for each in old)
            events.append(Event(_CREATE, obj, None, not (had_synced and was_followed)))
    return events


def _objects(all_followed: Sequence[SelectionInformer]) -> dict[ObjectKey, Object]:
    return {obj.key: obj for each in all_followed for obj in each.informer.store.list()}


def _unfollowed(obj: Object) -> Event:
    return Event(_DELETE, obj, None, False, True, True)
