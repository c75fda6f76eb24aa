"""The words between a controller and a reconciler: what to look at, and what came of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Awaitable, Callable, Hashable
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

import attrs

from appsdk_operator.resource import ObjectKey

__all__ = [
    "Outcome",
    "ReconcileFunction",
    "Reconciler",
    "Request",
    "Result",
    "RetryAfter",
    "TerminalError",
]

Request: TypeAlias = ObjectKey
"""Namespace and name of what to reconcile. A controller may use any other hashable value."""

R_contra = TypeVar("R_contra", bound=Hashable, contravariant=True)


def _check_number(name: str, value: object) -> None:
    if isinstance(value, dt.timedelta):
        raise TypeError(f"{name}={value!r}: give seconds as a number, with .total_seconds()")
    if not isinstance(value, (int, float)):
        raise TypeError(f"{name}={value!r}: give seconds as a number")


def _not_negative(_: object, field: attrs.Attribute[float | None], value: float | None) -> None:
    if value is None:
        return
    _check_number(field.name, value)
    if not 0 <= value < float("inf"):
        raise ValueError(f"{field.name}={value}: give seconds from 0 on, or leave it out")


@attrs.frozen(kw_only=True)
class Result:
    """How a reconcile ended when nothing went wrong; None means ``Result()``.

    The semantics are controller-runtime's ``reconcile.Result``.
    """

    requeue_after: float | None = attrs.field(default=None, validator=_not_negative)
    """Seconds until the next reconcile of this request; default, and 0: only when something
    happens. An event that comes earlier brings it forward."""
    priority: int | None = None
    """The priority of that reconcile; default: the one that this reconcile had."""


Outcome: TypeAlias = Result | None
"""What a reconciler returns."""


class TerminalError(Exception):
    """A failure that trying again cannot mend: counted and logged, but not retried.

    An event of the object still brings the next reconcile.

    >>> raise TerminalError("spec.color: no such color")
    Traceback (most recent call last):
    appsdk_operator.controllers._reconcile.TerminalError: spec.color: no such color
    """


class RetryAfter(Exception):  # noqa: N818 - it says what is to be done, as HTTP does
    """A failure that knows when trying again makes sense: retried then, without backoff.

    It neither counts towards the backoff of the request nor resets it.
    """

    def __init__(self, seconds: float, message: str = "") -> None:
        """Try again in ``seconds``.

        Raises:
            TypeError: ``seconds`` is no number.
            ValueError: ``seconds`` is negative or endless.
        """
        _check_number("seconds", seconds)
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"seconds={seconds}: give seconds from 0 on")
        super().__init__(message or f"to be tried again in {seconds:g} s")
        self.seconds = seconds


@runtime_checkable
class Reconciler(Protocol[R_contra]):
    """Brings the world in line with what an object asks for.

    It is told which object, not what happened to it, reads the present state, and does what is
    missing. Whatever it raises is retried with growing delays. It may be ``async def``.
    """

    def reconcile(self, request: R_contra, /) -> Outcome | Awaitable[Outcome]:
        """Look at ``request`` and do what is missing."""
        ...


ReconcileFunction: TypeAlias = Callable[[R_contra], Outcome | Awaitable[Outcome]]
"""A reconciler that is just a function."""
