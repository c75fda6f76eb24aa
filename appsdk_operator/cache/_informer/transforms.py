"""Transforms: functions that change each object before it is stored."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.cache._informer.watch_state import Changes, Step, Upsert
from appsdk_operator.resource import Kind, MutableObject, Object, WatchEvent, as_transformed
from appsdk_operator.resource import members as members_of
from appsdk_operator.runtime import as_exception

Transform: TypeAlias = Callable[
    [Object[SpecT, StatusT]], Object[SpecT, StatusT] | MutableObject[SpecT, StatusT]
]
"""A function that changes each object before it is stored. It returns the object, another one, or a
draft (``obj.mutable_copy()``, changed). It must be idempotent, and leave the object's identity
alone: kind, namespace, name, uid and resourceVersion."""

_encode = msgspec.json.Encoder().encode
_KEY = "managedFields"
_PARTIAL = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
_QUOTED = b'"managedFields"'


def drop_managed_fields(obj: Object[SpecT, StatusT]) -> Object[SpecT, StatusT]:
    """The object without ``metadata.managedFields``, which are two fifths of many objects.

    All other fields keep their bytes and their order, and are not decoded. An update with such an
    object leaves the managedFields on the server unchanged.
    """
    if _QUOTED not in obj.raw:
        return obj
    members = members_of(obj.raw)
    metadata = members_of(bytes(members["metadata"]))
    # The text may have been found elsewhere, in a label or in another part of the object.
    if metadata.pop(_KEY, None) is None:
        return obj
    members["metadata"] = msgspec.Raw(_encode(metadata))
    return Object.from_json(obj.kind, _encode(members))


def only_metadata(obj: Object[SpecT, StatusT]) -> Object[SpecT, StatusT]:
    """The object reduced to its metadata, in the form of a server's PartialObjectMetadata."""
    if obj.is_metadata_only:
        return obj
    metadata = members_of(obj.raw)["metadata"]
    partial = {**_PARTIAL, "metadata": metadata}
    return Object.from_json(obj.kind, _encode(partial))


def only_metadata_then(transform: Transform | None) -> Transform:
    """A transform that applies :func:`only_metadata` and then ``transform``."""
    if transform is None:
        return only_metadata
    return lambda obj: transform(only_metadata(obj))


def stored_form(
    obj: Object[SpecT, StatusT], transform: Transform, on_error: Callable[[Exception], None]
) -> Object[SpecT, StatusT]:
    """The result of ``transform`` for an object, or the object itself if that fails.

    A failure is reported. The object is stored unchanged then, because losing it would be worse and
    go unnoticed.
    """
    try:
        returned: Any = transform(obj)
        if not isinstance(returned, (Object, MutableObject)):
            if inspect.iscoroutine(returned):
                returned.close()  # else Python warns of it as well
            raise TypeError(
                f"the transform returned {type(returned).__name__} for {obj!r}: return the object, "
                "or a draft of it (draft = obj.mutable_copy(); change it; return draft)"
            )
        made: Object[SpecT, StatusT] = (
            returned.freeze() if isinstance(returned, MutableObject) else returned
        )
        if _identity(made) != _identity(obj):
            raise ValueError(
                f"the transform made {made!r} of {obj!r}: it must keep kind, namespace, name, uid "
                "and resourceVersion"
            )
    except BaseException as error:
        on_error(as_exception("the transform", error))
        return obj
    # An update without managedFields leaves those on the server alone.
    is_whole = made is obj or transform is drop_managed_fields
    return made if is_whole else as_transformed(made)


def transform_step(step: Step, transform: Transform, on_error: Callable[[Exception], None]) -> Step:
    """``step`` with each object in its :func:`stored_form`."""
    if isinstance(step, Upsert):
        return Upsert([stored_form(obj, transform, on_error) for obj in step.objects])
    if isinstance(step, Changes):
        return Changes(
            [
                WatchEvent(e.type, stored_form(e.object, transform, on_error))
                for e in step.events
                if e.object
            ]
        )
    return step


def objects_of(steps: Sequence[Step]) -> Iterator[Object]:
    """All objects in ``steps``."""
    for step in steps:
        if isinstance(step, Upsert):
            yield from step.objects
        elif isinstance(step, Changes):
            yield from (event.object for event in step.events if event.object is not None)


def _identity(obj: Object) -> tuple[Kind, str, str, str, str]:
    return obj.kind, obj.namespace, obj.name, obj.uid, obj.resource_version
