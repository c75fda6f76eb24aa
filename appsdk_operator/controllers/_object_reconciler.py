"""Reconcilers that get the object instead of its key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast, runtime_checkable

from appsdk_operator._generics import SpecT, SpecT_contra, StatusT, StatusT_contra, subscript
from appsdk_operator.client import NotFound, Reader
from appsdk_operator.controllers._reconcile import Outcome, ReconcileFunction, Request
from appsdk_operator.resource import Kind, Object, check_kind
from appsdk_operator.runtime import callback_name
from appsdk_operator.runtime.validation import check_client


@runtime_checkable
class ObjectReconciler(Protocol[SpecT_contra, StatusT_contra]):
    """A reconciler that gets the object; it may be ``async def``."""

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def reconcile_object(
        self, obj: Object[SpecT_contra, StatusT_contra], /
    ) -> Outcome | Awaitable[Outcome]:
        """Bring the world to the state that ``obj`` asks for."""
        ...


ObjectReconcileFunction: TypeAlias = Callable[
    [Object[SpecT, StatusT]], Outcome | Awaitable[Outcome]
]
"""An object reconciler as a plain function."""


def as_reconciler(
    reader: Reader,
    kind: Kind[SpecT, StatusT],
    object_reconciler: ObjectReconciler[SpecT, StatusT] | ObjectReconcileFunction[SpecT, StatusT],
) -> ReconcileFunction[Request]:
    """A reconciler that reads the object and passes it to ``object_reconciler``.

    It does nothing for an object that is gone: Kubernetes collects the objects that it owned. For
    any other clean-up use a finalizer.

    Args:
        reader: reads the object: a client, or a cached one.
        kind: the kind of the object.
        object_reconciler: an :class:`ObjectReconciler` or a function of the object.

    Raises:
        TypeError: ``object_reconciler`` is neither.
    """
    check_client(reader, "get", option="reader")
    check_kind(kind)
    if isinstance(object_reconciler, type):
        raise TypeError(
            f"object_reconciler={object_reconciler!r} is a class: give an instance, "
            f"{object_reconciler.__name__}(…)"
        )
    function: Any = getattr(object_reconciler, "reconcile_object", object_reconciler)
    if not callable(function):
        raise TypeError(
            f"object_reconciler={object_reconciler!r} is not an object reconciler: give an object "
            "with reconcile_object(obj), or a function of the object"
        )
    handle = cast("ObjectReconcileFunction[SpecT, StatusT]", function)

    def reconcile(request: Request) -> Outcome | Awaitable[Outcome]:
        try:
            obj = reader.get(kind, request.name, namespace=request.namespace)
        except NotFound:
            return None
        return handle(obj)

    reconcile.__qualname__ = callback_name(function)  # the one that logs name
    return reconcile
