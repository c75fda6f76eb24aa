"""The interface between a controller and a reconciler: requests, results and error types."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import attrs

from appsdk_operator.resource import ObjectKey
from appsdk_operator.runtime.validation import check_count, check_number

Request: TypeAlias = ObjectKey
"""Namespace and name of what to reconcile. A controller may use any other hashable value."""

R_contra = TypeVar("R_contra", bound=Hashable, contravariant=True)


def _not_negative(_: object, field: attrs.Attribute[float | None], value: float | None) -> None:
    if value is None:
        return
    check_number(field.name, value, example=False)
    if not 0 <= value < float("inf"):
        raise ValueError(f"{field.name}={value}: give seconds from 0 on, or leave it out")


def _whole(_: object, field: attrs.Attribute[int | None], value: int | None) -> None:
    if value is not None:
        check_count(field.name, value)


@attrs.frozen(kw_only=True)
class Result:
    """The result of a successful reconcile; None means ``Result()``.

    The semantics are controller-runtime's ``reconcile.Result``, except for a ``requeue_after`` of
    0: Go cannot distinguish it from a missing one, and treats it as done.
    """

    requeue_after: float | None = attrs.field(default=None, validator=_not_negative)
    """Seconds until the next reconcile of this request; default: no requeue.

    0: at once, after the waiting requests. An earlier event brings the reconcile forward."""
    priority: int | None = attrs.field(default=None, validator=_whole)
    """The priority of that reconcile; default: the priority of this one."""

    if not TYPE_CHECKING:  # which knows the arguments

        def __new__(cls, *positional: Any, **named: Any) -> Any:
            if positional or "requeue" in named:
                given = [*map(repr, positional), *(f"{k}={v!r}" for k, v in named.items())]
                raise TypeError(
                    f"Result({', '.join(given)}): give the seconds by name, "
                    "Result(requeue_after=60.0); to be called again at once, or with growing "
                    "delays, raise an error, or RetryAfter(seconds)"
                )
            return object.__new__(cls)


if not TYPE_CHECKING:  # its signature is that of the arguments
    Result.__new__.__wrapped__ = Result.__init__


Outcome: TypeAlias = Result | None
"""The return value of a reconciler."""


class TerminalError(Exception):
    """A failure that a retry cannot fix: counted and logged, but not retried.

    In a Controller the next event of the object still leads to a reconcile. An InformerController
    does not call the watcher or reconciler that raised it for the object again, until the object's
    generation, labels or annotations change, or it is deleted. Resyncs and changes of the status
    do not count. For kinds without generations any change counts.

    >>> raise TerminalError("spec.color: no such color")
    Traceback (most recent call last):
    appsdk_operator.controllers._reconcile.TerminalError: spec.color: no such color
    """


class RetryAfter(Exception):  # noqa: N818 - it says what is to be done, as HTTP does
    """A failure with its own retry delay, without backoff.

    It neither increases the backoff of the request nor resets it.
    """

    def __init__(self, seconds: float, message: str = "") -> None:
        """A failure that is retried after ``seconds``.

        Raises:
            TypeError: ``seconds`` is not a number.
            ValueError: ``seconds`` is negative or infinite.
        """
        check_number("seconds", seconds, example=False)
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"seconds={seconds}: give seconds from 0 on")
        super().__init__(message or f"to be tried again in {seconds:g} s")
        self.seconds = seconds


@runtime_checkable
class Reconciler(Protocol[R_contra]):
    """Brings the current state to the state that an object asks for.

    It gets the key of the object, not the event, reads the current state, and makes the missing
    changes. If it raises, the controller retries with growing delays. It may be ``async def``.
    """

    def reconcile(self, request: R_contra, /) -> Outcome | Awaitable[Outcome]:
        """Read the object of ``request``, and make the missing changes."""
        ...


ReconcileFunction: TypeAlias = Callable[[R_contra], Outcome | Awaitable[Outcome]]
"""A reconciler as a plain function."""


def check_ignored_result(who: str, returned: object, instead: str) -> None:
    """Refuse a Result, an error or a generator from a function whose return value is ignored.

    Other values are by-products, such as that of ``dict.pop`` in a lambda.

    Raises:
        TypeError: it is one of these; a generator's code has not run.
    """
    if inspect.isgenerator(returned) or inspect.isasyncgen(returned):
        raise TypeError(f"{who} has a yield, so none of its code ran: leave the yield out")
    is_error = isinstance(returned, BaseException) or (
        isinstance(returned, type) and issubclass(returned, BaseException)
    )
    if is_error or isinstance(returned, Result):
        name = returned.__name__ if isinstance(returned, type) else type(returned).__name__
        raise TypeError(f"{who} returned {name}, which the kit would ignore: {instead}")
