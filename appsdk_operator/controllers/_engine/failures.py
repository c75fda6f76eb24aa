"""What a reconcile's failure says about trying again."""

from __future__ import annotations

import math
from typing import Any

from appsdk_operator.cache import NotCachedError, NotFollowedError, NotSyncedError
from appsdk_operator.client import ApiError
from appsdk_operator.controllers._options import group_kind
from appsdk_operator.controllers._reconcile import RetryAfter

__all__ = ["is_bug", "is_unfollowed", "requested_delay", "retry_after_of", "sole_error"]

_SYNC_DELAY = 0.5
"""Seconds until the next try of what has read a local copy that is not complete."""

_BUGS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    NotImplementedError,
    RecursionError,
    TypeError,
)


def sole_error(error: BaseException) -> BaseException:
    """``error``, or what is in it if it is a group of one, as task groups raise.

    >>> sole_error(ExceptionGroup("tasks", [ValueError("no")]))
    ValueError('no')
    """
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def is_bug(error: BaseException) -> bool:
    """Whether ``error`` says that the program is wrong: what would be a panic in Go.

    >>> is_bug(KeyError("spec")), is_bug(SystemExit()), is_bug(ConnectionError("reset"))
    (True, True, False)
    """
    if isinstance(error, BaseExceptionGroup):
        return any(is_bug(inner) for inner in error.exceptions)
    if not isinstance(error, Exception):
        return True
    return isinstance(error, _BUGS) and not isinstance(error, NotCachedError)


def retry_after_of(error: BaseException) -> float:
    """The seconds after which the API server wants to be asked again; 0: it did not say."""
    seconds: Any = error.retry_after if isinstance(error, ApiError) else None
    return seconds if seconds is not None and math.isfinite(seconds) and seconds > 0 else 0.0


def requested_delay(error: BaseException) -> float | None:
    """The seconds after which ``error`` asks for another try that counts no failure; None: not so.

    A namespace that was just added brings its kinds one after another: what one of them waits for
    is no failure, and backoff would only make everybody wait longer.
    """
    if isinstance(error, RetryAfter):
        return error.seconds
    return _SYNC_DELAY if isinstance(error, NotSyncedError) else None


def is_unfollowed(error: BaseException, request: object, kind: str) -> bool:
    """Whether ``error`` says that the cache follows the object of ``request`` no longer.

    Trying again would go on for ever. If its namespace is followed once more, its events come anew.
    A read elsewhere, or of another kind than the controller's, is no such thing.
    """
    return (
        isinstance(error, NotFollowedError)
        and bool(error.namespace)
        and error.namespace == getattr(request, "namespace", None)
        and (not kind or error.kind is None or kind == group_kind(error.kind))
    )
