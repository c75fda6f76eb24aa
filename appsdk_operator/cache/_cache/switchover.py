"""The switchover of handlers from one set of informers to another that follows the same objects."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from appsdk_operator.cache._cache.registration import CacheRegistration
from appsdk_operator.cache._cache.routing import SelectionInformer
from appsdk_operator.cache._events import Event, ResourceAction
from appsdk_operator.cache._informer.informer import access_to
from appsdk_operator.cache._informer.store import differ
from appsdk_operator.resource import Object, ObjectKey, is_older_version

_CREATE, _UPDATE, _DELETE = ResourceAction.CREATE, ResourceAction.UPDATE, ResourceAction.DELETE


def end(
    old: SelectionInformer, registrations: Sequence[CacheRegistration], *, is_gone: bool
) -> None:
    """End an informer that has no successor; handlers get a deletion for each of its objects.

    With ``is_gone`` the objects were deleted; else the cache only stops to follow them.
    """
    informer = old.informer
    with access_to(informer).lock:
        old.end()
        ended = _gone if is_gone else _unfollowed
        events = [ended(obj) for obj in informer.store.list()]
        for registration in registrations:
            registration.unfollow(informer, events)


def behind(
    new: Sequence[SelectionInformer], old: Sequence[SelectionInformer]
) -> list[SelectionInformer]:
    """Those of ``new`` that may be at an older resource version than ``old``, which are frozen."""
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
    """Move ``registrations`` from the informers ``old`` to ``new``.

    ``old`` are frozen; ``new`` have synced and are not behind. Handlers get the difference between
    the two local copies as events, because that is what happened meanwhile: nothing twice, and
    nothing left out. A handler that waits for full objects gets all objects as additions.
    """
    with contextlib.ExitStack() as locks:
        for each in (*old, *new):
            locks.enter_context(access_to(each.informer).lock)
        had_synced = all(each.informer.has_synced for each in old)
        have_synced = all(each.informer.has_synced for each in new)
        events = _difference(old, new, had_synced=had_synced)
        for registration in registrations:
            sources, has_all, missed = old, had_synced, events
            if registration.awaits_full_objects:
                sources = [each for each in old if registration.follows(each.informer)]
                has_all, missed = False, _difference(sources, new, had_synced=False)
            registration.switch(
                [each.informer for each in sources],
                [each.informer for each in new],
                missed,
                sends_list_end=not has_all and have_synced,
            )


def _difference(
    old: Sequence[SelectionInformer], new: Sequence[SelectionInformer], *, had_synced: bool
) -> list[Event]:
    """The events that lead from the objects of ``old`` to those of ``new``."""
    before = _objects(old)
    after = _objects(new)
    forms = [(each.selection.transform, each.selection.metadata_only) for each in (*old, *new)]
    have_one_form = all(form == forms[0] for form in forms)
    events: list[Event] = []
    for key, known in before.items():
        obj = after.get(key)
        if obj is None:
            if any(each.selection.covers(key.namespace) for each in new):
                events.append(_gone(known))
            else:
                events.append(_unfollowed(known))
        elif obj.uid != known.uid:
            events.append(_gone(known))
            events.append(Event(_CREATE, obj))
        elif obj.resource_version != known.resource_version or (
            have_one_form and differ(obj, known)
        ):
            events.append(Event(_UPDATE, obj, known))
    for key, obj in after.items():
        if key not in before:
            was_followed = any(each.selection.covers(key.namespace) for each in old)
            events.append(Event(_CREATE, obj, None, not (had_synced and was_followed)))
    return events


def _objects(informers: Sequence[SelectionInformer]) -> dict[ObjectKey, Object]:
    return {obj.key: obj for each in informers for obj in each.informer.store.list()}


def _gone(obj: Object) -> Event:
    return Event(_DELETE, obj, None, False, True)


def _unfollowed(obj: Object) -> Event:
    return Event(_DELETE, obj, None, False, True, True)
