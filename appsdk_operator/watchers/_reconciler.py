"""Reconcilers of an InformerController: the protocol, the request, and two adapters."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, final, runtime_checkable

import msgspec

from appsdk_operator._generics import (
    SpecT,
    SpecT_co,
    SpecT_contra,
    StatusT,
    StatusT_co,
    StatusT_contra,
    subscript,
)
from appsdk_operator.cache import ResourceAction
from appsdk_operator.controllers import (
    Outcome,
    ReconcileFunction,
    Reconciler,
    Request,
    Result,
    wrong_outcome,
)
from appsdk_operator.resource import Object, ObjectKey
from appsdk_operator.runtime.validation import check_callable


@final
class ReconcileRequest(
    msgspec.Struct, Generic[SpecT_co, StatusT_co], frozen=True, kw_only=True, eq=False
):
    """The argument of a :class:`ResourceReconciler`; frozen except for ``state``."""

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    action: ResourceAction
    """The event's action; for a retry or requeue, the action of the first call."""
    object: Object[SpecT_co, StatusT_co]
    """The newest state of the object; for a deletion the last known state."""
    old: Object[SpecT_co, StatusT_co] | None = None
    """For an update: the state before it; None for every other action."""
    attempt: int = 0
    """0 for the event itself and for requeues, 1 for the first retry, …"""
    error: Exception | None = None
    """For a retry: the error of the last call, without its traceback."""
    state: dict[str, Any] = msgspec.field(default_factory=dict)
    """Your own data for the next call of the object, after a failure or a result with
    ``requeue_after``.

    If an event replaces the pending call, its call gets the data too. In all other cases, and after
    a restart, it is empty.
    """

    @property
    def key(self) -> Request:
        """Namespace and name of the object: the request of a :class:`Controller`."""
        return self.object.key

    if not TYPE_CHECKING:  # which knows the fields

        def __getattr__(self, name: str) -> Any:
            text = f"a {type(self).__name__} has no {name}"
            if name in ObjectKey._fields:
                text += (
                    f": write request.key.{name}, or give KeyReconciler(reconciler) if it is one "
                    "for a Controller"
                )
            raise AttributeError(text, name=name, obj=self)

    def __str__(self) -> str:
        return f"{self.action.value} of {self.object!r}, attempt {self.attempt}"


@runtime_checkable
class ResourceReconciler(Protocol[SpecT_contra, StatusT_contra]):
    """A reconciler of one kind of object, with one method for all actions.

    Any object with this method is one; it may be ``async def``. When it raises, the call is retried
    as the controller's retry policy says, or as :class:`RetryAfter` and :class:`TerminalError` say.
    A :class:`Result` with ``requeue_after`` repeats the call after so many seconds, with the newest
    state of the object; its ``priority`` is ignored here. The semantics are those of
    grafana-app-sdk's Reconciler.
    """

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def reconcile(
        self, request: ReconcileRequest[SpecT_contra, StatusT_contra], /
    ) -> Outcome | Awaitable[Outcome]:
        """Bring the world to the state that ``request.object`` asks for."""
        ...


@runtime_checkable
class SelectiveReconciler(
    ResourceReconciler[SpecT_contra, StatusT_contra], Protocol[SpecT_contra, StatusT_contra]
):
    """A reconciler that can tell in advance which updates it would ignore.

    The controller does not deliver these updates, so they do not replace pending calls.
    """

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def concerns(
        self, old: Object[SpecT_contra, StatusT_contra], new: Object[SpecT_contra, StatusT_contra]
    ) -> bool:
        """Whether ``reconcile`` would do anything for this update."""
        ...


ObjectFunction: TypeAlias = Callable[
    [ReconcileRequest[SpecT, StatusT]], Outcome | Awaitable[Outcome]
]


@final
class SimpleReconciler(Generic[SpecT_contra, StatusT_contra]):
    """A reconciler made from a function of a :class:`ReconcileRequest`.

    >>> seen = []
    >>> reconciler = SimpleReconciler(lambda request: seen.append(request.object.name))
    """

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def __init__(self, reconcile: ObjectFunction[SpecT_contra, StatusT_contra]) -> None:
        """A reconciler.

        Raises:
            TypeError: ``reconcile`` cannot be called with one argument.
        """
        _check_request_function(reconcile)
        self.function = reconcile
        """The function to call."""

    def reconcile(
        self, request: ReconcileRequest[SpecT_contra, StatusT_contra], /
    ) -> Outcome | Awaitable[Outcome]:
        """Call the function."""
        return self.function(request)

    def __repr__(self) -> str:
        return f"SimpleReconciler({self.function!r})"


@final
class KeyReconciler:
    """Runs a :class:`~appsdk_operator.controllers.Reconciler` in an InformerController.

    The reconciler gets the namespace and name of the object, but not the event, so it works in a
    :class:`Controller` and here. Outside of a Controller it has no :func:`reconcile_context`.

    It does not distinguish successive objects of one name. So a new object does not wait for the
    pending deletion of its predecessor, as with other reconcilers: its call replaces the pending
    one.
    """

    is_by_key = True
    """Whether it treats successive objects of one name as one."""

    def __init__(self, reconciler: Reconciler[Request] | ReconcileFunction[Request]) -> None:
        """A reconciler of objects.

        Args:
            reconciler: a Controller's reconciler, or a function of a :class:`Request`.

        Raises:
            TypeError: ``reconciler`` is neither.
        """
        if not inspect.isroutine(reconciler):
            _check_reconciles(reconciler)
        self.reconciler = reconciler
        """The reconciler or function to call."""
        self._call: ReconcileFunction[Request] = (
            reconciler.reconcile if isinstance(reconciler, Reconciler) else reconciler
        )

    def reconcile(self, request: ReconcileRequest, /) -> Outcome | Awaitable[Outcome]:
        """Call the reconciler with the object's key."""
        return self._call(request.key)

    def __repr__(self) -> str:
        return f"KeyReconciler({self.reconciler!r})"


def check_reconciler(reconciler: object) -> None:
    """Refuse what is not a ResourceReconciler.

    Raises:
        TypeError: it is not a reconciler, or a Controller's.
    """
    _check_reconciles(reconciler)
    if _takes_key(getattr(reconciler, "reconcile", None)):
        raise TypeError(
            f"reconciler={reconciler!r} takes a Request, as a Controller's reconciler does, but "
            "would get a ReconcileRequest: give KeyReconciler(reconciler)"
        )


def _takes_key(function: Any) -> bool:
    """Whether the annotation of its first argument is Request."""
    try:
        signature = inspect.signature(function, eval_str=True)
    except Exception:  # annotations may name what does not exist at run time
        return False
    first = next(iter(signature.parameters.values()), None)
    return first is not None and first.annotation is Request


def _check_reconciles(reconciler: object) -> None:
    method = getattr(reconciler, "reconcile", None)
    if not callable(method):
        raise TypeError(
            f"reconciler={reconciler!r} is not a reconciler: it has no method reconcile; or make "
            "one from a function with SimpleReconciler"
        )
    if isinstance(reconciler, type):
        raise TypeError(
            f"reconciler={reconciler!r} is a class: add an instance, {reconciler.__name__}(…)"
        )
    check_callable("reconciler.reconcile", method, "request", is_awaited=True)
    check_callable("reconciler.concerns", getattr(reconciler, "concerns", None), "old", "new")


def checked_outcome(reconciler: object, outcome: object) -> Outcome:
    """``outcome``, checked.

    Raises:
        TypeError: it is neither a Result nor None.
    """
    if outcome is not None and not isinstance(outcome, Result):
        raise wrong_outcome(repr(reconciler), outcome)
    return outcome


def _check_request_function(function: object) -> None:
    wanted = f"reconcile={function!r} is not a function of a ReconcileRequest"

    def explain(mismatch: TypeError | None) -> str:
        hint = mismatch or "give one such as lambda request: print(request.object)"
        return f"{wanted}: {hint}"

    check_callable(
        "reconcile", function, "request", required=True, is_awaited=True, explain=explain
    )
    if _takes_key(function):
        raise TypeError(f"{wanted}, but of a Request: give KeyReconciler(function) instead")
