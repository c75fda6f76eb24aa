"""Reconcilers that call one of several functions, and say themselves what is due when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias, final

import msgspec

from appsdk_operator.cache import Event
from appsdk_operator.resource import Object
from appsdk_operator.runtime import RetryPolicy, callback_name


@final
class CalledFunction(msgspec.Struct, frozen=True):
    """A function that a reconciler calls, for logs and error handlers."""

    function: Callable[..., Any]
    cause: str
    """What it is called for, as ``CREATE`` or ``SYNC``."""

    @property
    def name(self) -> str:
        """The function's name."""
        return callback_name(self.function)


class FailedFunction(msgspec.Struct, frozen=True):
    """The call that has failed, and how its retry is decided."""

    called: CalledFunction
    attempt: int
    """0 after its first failure in a row."""
    retry_policy: RetryPolicy | None
    """None: the controller's."""
    longest: float | None
    """Seconds after which it is called again whatever the policy says; None: no such time."""


class Waiting(msgspec.Struct, frozen=True):
    """A call that a reconciler waits to make."""

    name: str
    """The function's."""
    error: Exception | None
    """Of its last call, if that failed."""
    attempt: int
    due: float | None
    """The monotonic time; None: it is given up for the object's current state."""
    cause: str = ""
    """What it is called for, as ``CREATE`` or ``SYNC``; ``""``: it calls no function."""


@final
class SteadyFunction(msgspec.Struct, frozen=True, eq=False):
    """A function that is called for updates."""

    function: Callable[..., Any]
    check: Callable[[Any], object]
    """What is called with a value that it has returned, unless that is None."""
    called: tuple[Callable[..., Any], str]
    """The function as others know it, and what it is called for."""
    limit: float | None
    """The seconds that it may take; None: as many as it likes."""
    number: int
    """Its place in the order of declaration."""


SteadyCall: TypeAlias = tuple[SteadyFunction, Object, Any]
"""A call that is due for an update, and the only one that can be due: the function, the state that
it has handled, and what the reconciler keeps of the object."""


class LevelBased(Protocol):
    """What the dispatcher asks of a reconciler that computes from states which call is due.

    Each ``reconcile`` makes one call at most. Calls for one object do not overlap.
    """

    def called(self, obj: Object, /) -> CalledFunction:
        """The function that is called for the object, or was called last."""
        ...

    def failing(self, obj: Object, /) -> FailedFunction:
        """The call for the object that has just failed."""
        ...

    def failed(self, obj: Object, error: Exception, delay: float | None, attempt: int, /) -> None:
        """That call is repeated after ``delay`` seconds, with None not for this state."""
        ...

    def forget(self, obj: Object, /) -> None:
        """The object is gone, or no longer followed."""
        ...

    def waiting(self, obj: Object, /) -> Sequence[Waiting]:
        """The calls for the object that wait for their time or a change, those due now included."""
        ...

    def steady(self, event: Event, /) -> SteadyCall | Literal[False] | None:
        """The call that is due for an update; False: none is. None: ``reconcile`` has to look.

        Whoever asks makes it: then :meth:`made` is called, or :meth:`broke` and :meth:`failed`.
        """
        ...

    def made(
        self, call: SteadyCall, obj: Object, started: float, /
    ) -> Literal["more", "hot"] | None:
        """The call that :meth:`steady` said has succeeded.

        Returns:
            "more": ``reconcile`` has to look whether there are others to make. "hot": there are too
            many calls for that object.
        """
        ...

    def is_hot(self, obj: Object, now: float, /) -> bool:
        """Count a call for the object that :meth:`steady` did not name.

        Returns:
            Whether there are too many calls for that object.
        """
        ...

    def broke(self, call: SteadyCall, obj: Object, memory: Any, /) -> None:
        """It has failed; :meth:`failing` and :meth:`failed` follow.

        Args:
            call: the call.
            obj: the object that it got.
            memory: what the call has kept (``call_memory``); None: nothing.
        """
        ...
