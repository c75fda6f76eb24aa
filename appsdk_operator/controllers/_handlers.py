"""Handlers: they turn the events of a source into requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, final, get_origin

import attrs
import msgspec

from appsdk_operator._generics import SpecT_contra, StatusT_contra, subscript
from appsdk_operator.cache import Event, ResourceAction
from appsdk_operator.controllers._protocols import LOW_PRIORITY, Handler, RequestQueue
from appsdk_operator.controllers._reconcile import Request
from appsdk_operator.controllers._user_functions import (
    check_function,
    check_sync_function,
    name_of,
)
from appsdk_operator.resource import Kind, Object, ObjectKey
from appsdk_operator.runtime import get_logger
from appsdk_operator.runtime.validation import check_flag, no_awaitable

_log = get_logger("appsdk_operator.controllers")

R = TypeVar("R", bound=Hashable)
# Without defaults, which R could not come after.
_SpecT = TypeVar("_SpecT")
_StatusT = TypeVar("_StatusT")

HandlerFunction: TypeAlias = Callable[[Event, RequestQueue[R]], Any]
"""A function that puts what an event concerns into a queue; may be ``async def``."""


def is_unchanged(event: Event) -> bool:
    """Whether ``event`` is an initial creation, a resync, or an update without a change."""
    if event.action is ResourceAction.UPDATE:
        old = event.old
        return old is not None and old.resource_version == event.object.resource_version
    return event.action is ResourceAction.RESYNC or event.is_initial


def check_handler(handler: Any) -> None:
    """Refuse what is not a handler.

    Raises:
        TypeError: it has no method ``handle(event, queue)``.
    """
    if not isinstance(handler, Handler) or isinstance(handler, type):
        raise TypeError(
            f"handler={handler!r} has no method handle(event, queue): use for_object(), "
            "for_owner(kind), map_objects(function) or HandlerFunctions(…)"
        )
    check_function("handler.handle", handler.handle, "event", "queue")


@final
class EventQueue(Generic[R]):
    """A queue whose requests have an event's reason and priority, unless given others."""

    __slots__ = ("_event", "_priority", "_queue")

    def __init__(self, queue: RequestQueue[R], event: Event, priority: int | None) -> None:
        self._queue = queue
        self._event = event
        self._priority = priority

    def add(
        self, request: R, *, priority: int | None = None, after: float = 0.0, reason: Any = None
    ) -> None:
        """Add ``request``; see :meth:`RequestQueue.add`."""
        self._queue.add(
            request,
            priority=self._priority if priority is None else priority,
            after=after,
            reason=self._event if reason is None else reason,
        )

    def add_rate_limited(
        self, request: R, *, priority: int | None = None, reason: Any = None
    ) -> float:
        """Add ``request`` after a delay; see :meth:`RequestQueue.add_rate_limited`."""
        return self._queue.add_rate_limited(
            request,
            priority=self._priority if priority is None else priority,
            reason=self._event if reason is None else reason,
        )


def for_object(*, low_priority_when_unchanged: bool = True) -> Handler[Request]:
    """Requests the object of the event.

    Args:
        low_priority_when_unchanged: whether initial objects, resyncs and updates without a change
            get :data:`LOW_PRIORITY`; default: yes, so that new events go first.

    The semantics are controller-runtime's ``EnqueueRequestForObject``.
    """
    check_flag("low_priority_when_unchanged", low_priority_when_unchanged)
    return _ForObject(LOW_PRIORITY if low_priority_when_unchanged else None)


@final
class _ForObject(msgspec.Struct, frozen=True):
    low: int | None

    def handle(self, event: Event, queue: RequestQueue[Request]) -> None:
        queue.add(event.key, priority=self.low if is_unchanged(event) else None, reason=event)

    def __str__(self) -> str:
        return "for_object()"


def for_owner(
    owner_kind: Kind, *, only_controller: bool = True, low_priority_when_unchanged: bool = True
) -> Handler[Request]:
    """Requests the owners of the event's object, of the kind ``owner_kind`` in any version.

    For an update it requests the owners before and after the change, each once. ``owner_kind``
    decides whether owners are namespaced; a namespaced owner is in its object's namespace.

    Args:
        owner_kind: the kind of the owners, which the reconciler handles.
        only_controller: only the owner whose reference has ``controller: true``; default: yes, as
            with the builder's ``owns``; False: all owners.
        low_priority_when_unchanged: as for :func:`for_object`.

    Raises:
        TypeError: ``owner_kind`` is not a Kind.

    The semantics are controller-runtime's ``EnqueueRequestForOwner``, but it logs an invalid
    reference and goes on with the next ones.
    """
    check_flag("only_controller", only_controller)
    check_flag("low_priority_when_unchanged", low_priority_when_unchanged)
    if not isinstance(owner_kind, Kind):
        raise TypeError(f"owner_kind={owner_kind!r}: give a Kind")
    low = LOW_PRIORITY if low_priority_when_unchanged else None
    return _ForOwner(owner_kind, only_controller, low)


@final
class _ForOwner(msgspec.Struct, frozen=True):
    kind: Kind
    only_controller: bool
    low: int | None

    def handle(self, event: Event, queue: RequestQueue[Request]) -> None:
        # A dict keeps the order of the references.
        owners: dict[Request, None] = {}
        if event.old is not None:
            owners.update(dict.fromkeys(self._owners(event.old)))
        owners.update(dict.fromkeys(self._owners(event.object)))
        if owners:
            priority = self.low if is_unchanged(event) else None
            for owner in owners:
                queue.add(owner, priority=priority, reason=event)

    def _owners(self, obj: Object) -> Iterable[Request]:
        kind = self.kind
        for reference in obj.owner_references:
            if reference.kind != kind.kind or (self.only_controller and not reference.controller):
                continue
            group, _, version = reference.api_version.rpartition("/")
            if not version or "/" in group:
                _log.warning(
                    "%s: its reference to owner %s %s is left out, because apiVersion %r is not "
                    "group/version",
                    obj,
                    reference.kind,
                    reference.name,
                    reference.api_version,
                )
            elif group == kind.group:
                if not kind.is_namespaced:
                    yield ObjectKey("", reference.name)
                elif obj.namespace:
                    yield ObjectKey(obj.namespace, reference.name)
                # Else nothing: a cluster-scoped object cannot have an owner in a namespace.

    def __str__(self) -> str:
        return f"for_owner({self.kind})"


def map_objects(
    function: Callable[[Object[_SpecT, _StatusT]], Iterable[R]],
    *,
    low_priority_when_unchanged: bool = True,
) -> Handler[R, _SpecT, _StatusT]:
    """Requests the results of ``function`` for the event's object.

    For an update it calls the function with the object before and after the change, and adds each
    request once. So objects to which the event's object no longer refers are reconciled too.

    Args:
        function: returns the requests for an object, or None. It must only use the object and
            memory, such as a cache. The source logs and counts an error, and calls the function
            again.
        low_priority_when_unchanged: as for :func:`for_object`.

    Raises:
        TypeError: ``function`` is not a plain function of one argument.

    The semantics are controller-runtime's ``EnqueueRequestsFromMapFunc``.

    >>> def pods_of_node(node):
    ...     return [Request(pod.namespace, pod.name)
    ...             for pod in cache.by_index(POD, "node", node.name)]
    >>> handler = map_objects(pods_of_node)
    """
    check_flag("low_priority_when_unchanged", low_priority_when_unchanged)
    check_sync_function("function", function, "obj")
    low = LOW_PRIORITY if low_priority_when_unchanged else None
    return _MapObjects(function, low)  # pyright: ignore[reportReturnType] - mypy sees that it fits


@final
class _MapObjects(msgspec.Struct, Generic[R, _SpecT, _StatusT], frozen=True):
    function: Callable[[Object[_SpecT, _StatusT]], Iterable[R] | None]
    low: int | None
    request_type: type[Any] | None = None

    def handle(self, event: Event[_SpecT, _StatusT], queue: RequestQueue[R]) -> None:
        # All requests before the first is queued: after a failure it is called again for both.
        requests: dict[R, None] = {}
        if event.old is not None:
            requests.update(dict.fromkeys(self._requests(event.old)))
        requests.update(dict.fromkeys(self._requests(event.object)))
        if requests:
            priority = self.low if is_unchanged(event) else None
            for request in requests:
                queue.add(request, priority=priority, reason=event)

    def _requests(self, obj: Object[_SpecT, _StatusT]) -> Iterable[R]:
        found = self.function(obj)
        if found is None:
            return ()
        if isinstance(found, (str, bytes, ObjectKey)):
            # These can be iterated over, but their items are not requests.
            raise TypeError(
                f"map function {name_of(self.function)} returned {type(found).__name__}: "
                "return a list of requests"
            )
        no_awaitable(f"map function {name_of(self.function)}", found)
        return found if self.request_type is None else self._checked(found, self.request_type)

    def _checked(self, found: Iterable[R], request_type: type[Any]) -> list[R]:
        requests = list(found)
        for request in requests:
            if not isinstance(request, request_type):
                wanted = getattr(request_type, "__name__", request_type)
                if request_type is ObjectKey:
                    wanted = "Request(namespace, name)"
                raise TypeError(
                    f"map function {name_of(self.function)} returned a "
                    f"{type(request).__name__} among its requests: return a list of {wanted}"
                )
        return requests

    def __str__(self) -> str:
        return f"map_objects({name_of(self.function)})"


def with_request_type(handler: Handler[Any], request_type: Any) -> Handler[Any]:
    """``handler``; one of :func:`map_objects` then checks the type of its requests."""
    if not isinstance(handler, _MapObjects):
        return handler
    for plain in (request_type, get_origin(request_type)):
        try:
            isinstance(None, plain)
        except TypeError:
            continue  # isinstance does not accept some types, such as tuple[str, int]
        return msgspec.structs.replace(handler, request_type=plain)
    return handler


def _optional_function(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    if value is not None:
        check_function(field.name, value, "event", "queue")


@final
@attrs.frozen(kw_only=True)
class HandlerFunctions(Generic[R, SpecT_contra, StatusT_contra]):
    """A handler with a function of (event, queue) for each action.

    The functions may be ``async def``. The source logs and counts an error, and calls the function
    again. If a function adds a request without a priority, the request has :data:`LOW_PRIORITY` for
    initial objects, resyncs and updates without a change, as with :func:`for_object`.

    >>> deleted = HandlerFunctions(delete=lambda event, queue: queue.add(event.key))
    """

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    create: Callable[[Event[SpecT_contra, StatusT_contra], RequestQueue[R]], Any] | None = (
        attrs.field(default=None, validator=_optional_function)
    )
    """Called for a new or an initial object (``event.is_initial``); default: ignored."""
    update: Callable[[Event[SpecT_contra, StatusT_contra], RequestQueue[R]], Any] | None = (
        attrs.field(default=None, validator=_optional_function)
    )
    """Called for a change, or a resync (RESYNC, with ``old`` and ``object`` the same)."""
    delete: Callable[[Event[SpecT_contra, StatusT_contra], RequestQueue[R]], Any] | None = (
        attrs.field(default=None, validator=_optional_function)
    )
    """Called for a removed object."""
    generic: Callable[[Event[SpecT_contra, StatusT_contra], RequestQueue[R]], Any] | None = (
        attrs.field(default=None, validator=_optional_function)
    )
    """Called for an event from outside of the cluster."""

    def handle(
        self, event: Event[SpecT_contra, StatusT_contra], queue: RequestQueue[R]
    ) -> Awaitable[None] | None:
        """Call the function for the event's action."""
        match event.action:
            case ResourceAction.CREATE:
                function = self.create
            case ResourceAction.UPDATE:
                function = self.update
            case ResourceAction.RESYNC:
                function = self.update
                event = Event(event.action, event.object, event.object)
            case ResourceAction.DELETE:
                function = self.delete
            case ResourceAction.GENERIC:
                function = self.generic
        if function is None:
            return None
        low = LOW_PRIORITY if is_unchanged(event) else None
        outcome: Awaitable[None] | None = function(event, EventQueue(queue, event, low))
        return outcome

    def __str__(self) -> str:
        fields = attrs.asdict(self, recurse=False)
        given = (f"{name}={name_of(value)}" for name, value in fields.items() if value is not None)
        return f"HandlerFunctions({', '.join(given)})"


def with_low_priority_when_unchanged(
    handler: Handler[R, _SpecT, _StatusT],
) -> Handler[R, _SpecT, _StatusT]:
    """``handler`` with :data:`LOW_PRIORITY` for initial objects, resyncs and unchanged updates.

    If the handler sets a priority, it stays. The handlers of this module do this anyway.

    Raises:
        TypeError: ``handler`` is not a handler.
    """
    check_handler(handler)
    return _WithLowPriority(handler)  # pyright: ignore[reportReturnType] - as above


@final
class _WithLowPriority(msgspec.Struct, Generic[R, _SpecT, _StatusT], frozen=True):
    handler: Handler[R, _SpecT, _StatusT]

    def handle(
        self, event: Event[_SpecT, _StatusT], queue: RequestQueue[R]
    ) -> Awaitable[None] | None:
        if not is_unchanged(event):
            return self.handler.handle(event, queue)
        return self.handler.handle(event, EventQueue(queue, event, LOW_PRIORITY))

    def __str__(self) -> str:
        return str(self.handler)


HANDLERS_WITH_REASONS = (_ForObject, _ForOwner, _MapObjects, HandlerFunctions)
"""Handlers that add requests with a reason themselves."""
