"""What an informer tells those who listen."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, final, runtime_checkable

import msgspec

from appsdk_operator._generics import SpecT_co, SpecT_contra, StatusT_co, StatusT_contra, subscript
from appsdk_operator.resource import Object, ObjectKey

__all__ = ["BatchHandler", "Event", "EventHandler", "MaybeAwaitable", "ResourceAction"]

MaybeAwaitable: TypeAlias = Awaitable[None] | None
"""What a handler's method returns: nothing, or with ``async def`` what is to be awaited."""


class ResourceAction(enum.Enum):
    """What happened to an object."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    RESYNC = "RESYNC"
    """Nothing happened: the local copy is shown again, so that what was missed can be mended."""
    GENERIC = "GENERIC"
    """Something outside of the cluster concerns the object; no informer says this."""

    # An enumeration's own is a call in Python, which counting by action would make for each event.
    if not TYPE_CHECKING:
        __hash__ = object.__hash__


@final
class Event(
    msgspec.Struct, Generic[SpecT_co, StatusT_co], frozen=True, gc=False, eq=False, weakref=False
):
    """Something that happened to one object.

    Frozen and safe to share between threads.
    """

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    action: ResourceAction
    object: Object[SpecT_co, StatusT_co]
    """The object now; for a deletion its last known state."""
    old: Object[SpecT_co, StatusT_co] | None = None
    """The object before an update; None for every other action."""
    is_initial: bool = False
    """Whether the object was there when the handler began to listen."""
    is_final_state_unknown: bool = False
    """Whether a deletion was not seen but found out by a list, so that the object may be stale."""
    is_unfollowed: bool = False
    """Whether a deletion only says that the object's namespace is followed no more: nobody deleted
    it, as far as is known. It comes with :attr:`is_final_state_unknown`."""

    @property
    def key(self) -> ObjectKey:
        """Namespace and name of the object."""
        return self.object.key

    def __repr__(self) -> str:
        extra = " initial" if self.is_initial else ""
        extra += " final-state-unknown" if self.is_final_state_unknown else ""
        extra += " unfollowed" if self.is_unfollowed else ""
        return f"<{self.action.value} {self.object!r}{extra}>"


@runtime_checkable
class EventHandler(Protocol[SpecT_contra, StatusT_contra]):
    """One method for each thing that can happen to an object.

    An informer calls them one at a time, in the order in which things happened, in a thread that
    belongs to the handler. What they raise is reported and goes no further.

    They may be ``async def``: each is awaited to its end before the next event, on one event loop
    for all calls of the handler, which runs during these calls only.
    """

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def on_add(
        self, obj: Object[SpecT_contra, StatusT_contra], *, is_initial: bool
    ) -> MaybeAwaitable:
        """``obj`` appeared, or was there when the handler began to listen (``is_initial``)."""
        ...

    def on_update(
        self, old: Object[SpecT_contra, StatusT_contra], new: Object[SpecT_contra, StatusT_contra]
    ) -> MaybeAwaitable:
        """The object changed; at a resync ``old is new``."""
        ...

    def on_delete(
        self, obj: Object[SpecT_contra, StatusT_contra], *, is_final_state_unknown: bool
    ) -> MaybeAwaitable:
        """The object is gone; ``obj`` is its last known state."""
        ...


@runtime_checkable
class BatchHandler(Protocol):
    """For handlers that queue: gets all events of one read at once, in the informer's own thread.

    It is called with the informer's lock held, so that a handler which is added meanwhile misses
    nothing and gets nothing twice. Therefore it must only queue: what waits, takes a lock that
    others hold while they use the informer, or runs user code here, can stop the informer for ever.
    What it raises is reported once the lock was released.
    """

    def on_events(self, events: Sequence[Event]) -> None:
        """Take over events, in order."""
        ...

    def on_initial_list_end(self) -> None:
        """The objects that were there at the start have all been handed over."""
        ...
