"""Events, and the protocols of the handlers that receive them."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, final, runtime_checkable

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
from appsdk_operator.resource import Kind, Object, ObjectKey

MaybeAwaitable: TypeAlias = Awaitable[None] | None
"""The result of a handler's method: None, or with ``async def`` an awaitable."""


class ResourceAction(enum.Enum):
    """The kind of an event."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    RESYNC = "RESYNC"
    """No change: the informer delivers the object again from the local copy, so a handler can
    repeat missed work."""
    GENERIC = "GENERIC"
    """An event outside of the cluster concerns the object; informers never send this."""

    # Enum's own hash is a Python call, which counting by action would make for each event.
    if not TYPE_CHECKING:
        __hash__ = object.__hash__


@final
class Event(
    msgspec.Struct, Generic[SpecT_co, StatusT_co], frozen=True, gc=False, eq=False, weakref=False
):
    """A creation, change or deletion of one object, or another event that concerns it.

    Frozen and safe to share between threads.
    """

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    action: ResourceAction
    object: Object[SpecT_co, StatusT_co]
    """The object's new state; for a deletion its last known state."""
    old: Object[SpecT_co, StatusT_co] | None = None
    """The object's state before an update; None for every other action."""
    is_initial: bool = False
    """Whether the object existed already when the handler was added."""
    is_final_state_unknown: bool = False
    """Whether a list, not a watch, showed the deletion, so the object may be stale."""
    is_unfollowed: bool = False
    """Whether the deletion only means that the cache stopped following the object's namespace.

    The object probably still exists. Set together with :attr:`is_final_state_unknown`."""

    @property
    def key(self) -> ObjectKey:
        """Namespace and name of the object."""
        return self.object.key

    def viewed_as(self, kind: Kind[SpecT, StatusT]) -> Event[SpecT, StatusT]:
        """The event with its objects viewed as ``kind``: see :meth:`Object.viewed_as`.

        An event whose object has that very kind is returned itself.

        Raises:
            WrongKindError: ``kind`` is another kind.
        """
        obj: Object = self.object
        old: Object | None = self.old
        if obj.kind is kind:
            return self  # type: ignore[return-value]  # the kind carries the types
        viewed = obj.viewed_as(kind)
        return Event(
            self.action,
            viewed,
            # One object stays one: handlers know a resync by that.
            viewed if old is obj else old and old.viewed_as(kind),
            self.is_initial,
            self.is_final_state_unknown,
            self.is_unfollowed,
        )

    def __repr__(self) -> str:
        extra = " initial" if self.is_initial else ""
        extra += " final-state-unknown" if self.is_final_state_unknown else ""
        extra += " unfollowed" if self.is_unfollowed else ""
        return f"<{self.action.value} {self.object!r}{extra}>"


@runtime_checkable
class EventHandler(Protocol[SpecT_contra, StatusT_contra]):
    """A handler with one method each for added, updated and deleted objects.

    An informer calls the methods one at a time, in the order of the events, in a separate thread of
    the handler. It reports exceptions and goes on.

    The methods may be ``async def``: the informer awaits each before the next event, on one event
    loop for all calls of the handler, which runs during these calls only.
    """

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def on_add(
        self, obj: Object[SpecT_contra, StatusT_contra], *, is_initial: bool
    ) -> MaybeAwaitable:
        """Handle a new object, or an object that is older than the handler (``is_initial``)."""
        ...

    def on_update(
        self, old: Object[SpecT_contra, StatusT_contra], new: Object[SpecT_contra, StatusT_contra]
    ) -> MaybeAwaitable:
        """Handle a changed object; for a resync ``old is new``."""
        ...

    def on_delete(
        self, obj: Object[SpecT_contra, StatusT_contra], *, is_final_state_unknown: bool
    ) -> MaybeAwaitable:
        """Handle a deleted object; ``obj`` is its last known state."""
        ...


@runtime_checkable
class BatchHandler(Protocol):
    """A handler that queues: it gets all events of one read at once, in the informer's own thread.

    The informer holds its lock during the call, so a handler that is added meanwhile misses no
    event and gets none twice. The handler must only queue: if it waits, runs user code, or takes a
    lock that others hold while they use the informer, it can block the informer for ever. The
    informer reports exceptions after it has released the lock.
    """

    def on_events(self, events: Sequence[Event]) -> None:
        """Queue events, in order."""
        ...

    def on_initial_list_end(self) -> None:
        """Note that all initial events have been sent."""
        ...
