"""Conversion of other libraries' objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from appsdk_operator._generics import SpecT, SpecT_co, StatusT, StatusT_co, subscript
from appsdk_operator.resource._kind import Kind
from appsdk_operator.resource._object import MutableObject, Object


@runtime_checkable
class ObjectWrapper(Protocol[SpecT_co, StatusT_co]):
    """A wrapper around an :class:`Object` (grafana-app-sdk's ResourceObjectWrapper)."""

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def unwrap_object(self) -> Object[SpecT_co, StatusT_co]:
        """The wrapped object."""
        ...


@runtime_checkable
class IntoObject(Protocol):
    """A value that can become an object (grafana-app-sdk's ConvertableIntoResourceObject)."""

    def into_object(self, kind: Kind) -> Object | MutableObject | Mapping[str, Any]:
        """Itself as an object of ``kind``."""
        ...


def as_object(kind: Kind[SpecT, StatusT], value: Any) -> Object[SpecT, StatusT]:
    """An object of ``kind`` from a value of another library.

    As in grafana-app-sdk, it unwraps an :class:`ObjectWrapper` and converts an :class:`IntoObject`,
    a :class:`MutableObject`, a mapping with the API's own field names, or a value whose
    ``to_dict()`` returns such a mapping. An :class:`Object` keeps its content and gets the types of
    ``kind``. For models of the ``kubernetes`` package use ``client.from_model(kind, …)``.

    Raises:
        TypeError: ``value`` is none of these; the text names its type.
        WrongKindError: the object is of another kind.
        DecodeError: the mapping is not an object.

    >>> as_object(Kind(group="", version="v1", kind="Pod"), {"metadata": {"name": "web"}}).name
    'web'
    """
    if isinstance(value, ObjectWrapper):
        value = value.unwrap_object()
    elif isinstance(value, IntoObject):
        value = value.into_object(kind)
    if isinstance(value, Object):
        return value.viewed_as(kind)
    if isinstance(value, MutableObject):
        return value.freeze().viewed_as(kind)
    if isinstance(value, Mapping):
        return Object.from_dict(kind, value)
    what = f"{type(value).__module__}.{type(value).__qualname__}"
    # to_dict() of generated models has Python's field names, which the API does not know.
    if hasattr(type(value), "attribute_map"):
        raise TypeError(f"{what} is a generated model: convert it with client.from_model(kind, …)")
    to_dict = getattr(value, "to_dict", None)
    data = to_dict() if callable(to_dict) else None
    if isinstance(data, Mapping) and "metadata" in data:
        return Object.from_dict(kind, data)
    raise TypeError(
        f"{what} is not an object of {kind}: give an Object or a mapping, or add a method "
        "unwrap_object() or into_object(kind) to its class"
    )
