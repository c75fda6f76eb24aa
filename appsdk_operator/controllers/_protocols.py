"""The protocols of a controller's parts: queue, handler, source; implement them for your own."""

from __future__ import annotations

from collections.abc import Awaitable, Hashable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from appsdk_operator._generics import SpecT_contra, StatusT_contra, subscript
from appsdk_operator.cache import Event
from appsdk_operator.runtime import StopSignal

R_co = TypeVar("R_co", bound=Hashable, covariant=True)
R_contra = TypeVar("R_contra", bound=Hashable, contravariant=True)

LOW_PRIORITY = -100
"""The priority of initial objects and resyncs, so that new events go first. The number is
controller-runtime's ``handler.LowPriority``."""


class RequestQueue(Protocol[R_contra]):
    """The queue that handlers add requests to. Thread-safe; adding never waits."""

    def add(
        self,
        request: R_contra,
        *,
        priority: int | None = None,
        after: float = 0.0,
        reason: Any = None,
    ) -> None:
        """Add ``request``.

        Args:
            request: what to reconcile.
            priority: higher goes first; default: 0, or the source's priority for the event.
            after: the delay in seconds before it may run.
            reason: the reason, for logs, debug pages and the reconcile context; default: the event.
                Of an event, an object or an error the queue stores only a short description. Any
                other value is stored as it is, and converted to text when read, so text is best.

        Raises:
            TypeError: the priority is not a whole number.
        """
        ...

    def add_rate_limited(
        self, request: R_contra, *, priority: int | None = None, reason: Any = None
    ) -> float:
        """Add ``request`` after the rate limiter's delay; returns the delay in seconds."""
        ...


@runtime_checkable
class Handler(Protocol[R_co, SpecT_contra, StatusT_contra]):
    """Turns events into requests; may be ``async def``. The source calls it again if it raises."""

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def handle(
        self, event: Event[SpecT_contra, StatusT_contra], queue: RequestQueue[R_co], /
    ) -> Awaitable[None] | None:
        """Add the requests for ``event`` to ``queue``."""
        ...


@runtime_checkable
class Source(Protocol[R_co]):
    """A source of requests."""

    def start(self, queue: RequestQueue[R_co], stop: StopSignal, /) -> None:
        """Start to feed ``queue``, until ``stop`` is set; returns at once."""
        ...


@runtime_checkable
class SyncingSource(Source[R_co], Protocol[R_co]):
    """A source that knows when all of its initial requests are in the queue."""

    def wait_for_sync(self, stop: StopSignal, timeout: float | None = None, /) -> bool:
        """Wait until they are in the queue; False when stopped or after ``timeout`` seconds."""
        ...


@runtime_checkable
class JoinableSource(Source[R_co], Protocol[R_co]):
    """A source that has threads."""

    def join(self, timeout: float | None = None, /) -> list[str]:
        """Wait for its threads after the stop; returns the names of those that still run."""
        ...
