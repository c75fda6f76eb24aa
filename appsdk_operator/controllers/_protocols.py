"""What the parts of a controller ask of each other; bring your own parts if you like."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from appsdk_operator._generics import SpecT, SpecT_contra, StatusT, StatusT_contra, subscript
from appsdk_operator.cache import Event
from appsdk_operator.runtime import StopSignal

__all__ = [
    "LOW_PRIORITY",
    "EventFilter",
    "Handler",
    "JoinableSource",
    "RequestQueue",
    "Source",
    "SyncingSource",
]

R_co = TypeVar("R_co", bound=Hashable, covariant=True)
R_contra = TypeVar("R_contra", bound=Hashable, contravariant=True)

LOW_PRIORITY = -100
"""The priority of what nobody waits for: objects that were there at the start, and resyncs. The
number is controller-runtime's ``handler.LowPriority``."""

EventFilter: TypeAlias = Callable[[Event[SpecT, StatusT]], bool]
"""Whether an event is worth a reconcile; a :class:`Predicate` is one."""


class RequestQueue(Protocol[R_contra]):
    """Where handlers put requests. Thread-safe, and never waits."""

    def add(
        self,
        request: R_contra,
        *,
        priority: int | None = None,
        after: float = 0.0,
        reason: Any = None,
    ) -> None:
        """Ask for a reconcile of ``request``.

        Args:
            request: what to reconcile.
            priority: higher goes first; default: 0, or what the source finds right for the event.
            after: seconds before which it must not run.
            reason: why, for logs, debug pages and the reconcile context; default: the event. Of
                an event, an object or an error a few words are kept; anything else is kept as it
                is, and turned into text when somebody looks, so text is best.
        """
        ...

    def add_rate_limited(
        self, request: R_contra, *, priority: int | None = None, reason: Any = None
    ) -> float:
        """The same after the rate limiter's delay, which is returned in seconds."""
        ...


@runtime_checkable
class Handler(Protocol[R_co, SpecT_contra, StatusT_contra]):
    """Turns events into requests; may be ``async def``. What it raises leads to a retry."""

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def handle(
        self, event: Event[SpecT_contra, StatusT_contra], queue: RequestQueue[R_co], /
    ) -> Awaitable[None] | None:
        """Put what ``event`` concerns into ``queue``."""
        ...


@runtime_checkable
class Source(Protocol[R_co]):
    """Where events come from."""

    def start(self, queue: RequestQueue[R_co], stop: StopSignal, /) -> None:
        """Begin to feed ``queue`` until ``stop`` is set; returns without waiting for anything."""
        ...


@runtime_checkable
class SyncingSource(Source[R_co], Protocol[R_co]):
    """A source that knows when everything that was there at its start is in the queue."""

    def wait_for_sync(self, stop: StopSignal, timeout: float | None = None, /) -> bool:
        """Wait until it is; False when stopped or after ``timeout`` seconds."""
        ...


@runtime_checkable
class JoinableSource(Source[R_co], Protocol[R_co]):
    """A source with threads of its own."""

    def join(self, timeout: float | None = None, /) -> list[str]:
        """Wait, after the stop, for its threads; the names of those that still run."""
        ...
