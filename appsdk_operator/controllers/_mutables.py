"""Argument checks and metadata access for the helpers that change objects."""

from __future__ import annotations

from typing import Any

from appsdk_operator.resource import MutableObject, Object, ReadOnlyError


def mutable(obj: object) -> MutableObject:
    """``obj``, checked to be a MutableObject.

    Raises:
        ReadOnlyError: it is an Object, which threads and caches share.
        TypeError: it is something else.
    """
    if isinstance(obj, MutableObject):
        return obj
    if isinstance(obj, Object):
        raise ReadOnlyError(
            f"{obj!r} is a read-only view: take `copy = obj.mutable_copy()`, change the copy, and "
            "give it to the client"
        )
    raise TypeError(f"{obj!r} is not a MutableObject: make one, or take obj.mutable_copy()")


def check_objects(**objects: object) -> None:
    """Refuse arguments that are not objects.

    Raises:
        TypeError: the text says what to give. It does not show the value, which may be secret.
    """
    for name, obj in objects.items():
        if not isinstance(obj, (Object, MutableObject)):
            given = (
                f"the class {obj.__name__}" if isinstance(obj, type) else f"a {type(obj).__name__}"
            )
            raise TypeError(f"{name} is {given}, not an object: give an Object or a MutableObject")


def metadata_of(obj: Object | MutableObject) -> Any:
    """The metadata, for reading; a missing one is not added."""
    return obj.metadata if isinstance(obj, Object) else obj.data.get("metadata") or {}


def uid_of(obj: Object | MutableObject) -> str:
    """The uid; empty for an object that was not created on a server yet."""
    return obj.uid if isinstance(obj, Object) else str(metadata_of(obj).get("uid") or "")
