"""What an error of a reconcile means for its retry."""

from __future__ import annotations

import math
from typing import Any

from appsdk_operator.cache import NotCachedError, NotFollowedError, NotSyncedError
from appsdk_operator.client import ApiError
from appsdk_operator.controllers._options import group_kind
from appsdk_operator.controllers._reconcile import RetryAfter

__all__ = ["is_bug", "is_unfollowed", "requested_delay", "retry_after_of", "sole_error"]

_SYNC_DELAY = 0.5
"""Seconds until the retry after a read of a local copy that has not synced."""

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
    """``error``; if it is a group with one error, as task groups raise it, that one.

    >>> sole_error(ExceptionGroup("tasks", [ValueError("no")]))
    ValueError('no')
    """
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def is_bug(error: BaseException) -> bool:
    """Whether ``error`` is a bug in the program: what would be a panic in Go.

    >>> is_bug(KeyError("spec")), is_bug(SystemExit()), is_bug(ConnectionError("reset"))
    (True, True, False)
    """
    if isinstance(error, BaseExceptionGroup):
        return any(is_bug(inner) for inner in error.exceptions)
    if not isinstance(error, Exception):
        return True
    return isinstance(error, _BUGS) and not isinstance(error, NotCachedError)


def retry_after_of(error: BaseException) -> float:
    """The seconds of the API server's Retry-After; 0 without one."""
    seconds: Any = error.retry_after if isinstance(error, ApiError) else None
    return seconds if seconds is not None and math.isfinite(seconds) and seconds > 0 else 0.0


def requested_delay(error: BaseException) -> float | None:
    """The retry delay in seconds that ``error`` asks for, without backoff; None if none.

    The caches of a namespace that was just added sync one after another. A reconcile that has to
    wait for one is no failure, and backoff would only prolong the wait.
    """
    if isinstance(error, RetryAfter):
        return error.seconds
    return _SYNC_DELAY if isinstance(error, NotSyncedError) else None


def is_unfollowed(error: BaseException, request: object, kind: str) -> bool:
    """Whether ``error`` says that the cache no longer follows the namespace of ``request``.

    Retries would never end; if the namespace is followed again, its objects get new events. Reads
    in another namespace, or of another kind than the controller's, do not count.
    """
    return (
        isinstance(error, NotFollowedError)
        and bool(error.namespace)
        and error.namespace == getattr(request, "namespace", None)
        and (not kind or error.kind is None or kind == group_kind(error.kind))
    )
