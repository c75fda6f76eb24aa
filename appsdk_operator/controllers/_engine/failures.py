"""What an error of a reconcile means for its retry."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Final, final

from appsdk_operator.cache import NotCachedError, NotFollowedError, NotSyncedError
from appsdk_operator.client import ApiError
from appsdk_operator.controllers._reconcile import RetryAfter
from appsdk_operator.resource import Object, ObjectKey, group_kind
from appsdk_operator.runtime import group_members, guarded_call

_UNKNOWN: Final = object()
"""The state of a request that is about no object of a local copy."""

_SYNC_DELAY = 0.5
"""Seconds until the retry after a read of a local copy that has not synced."""

_EARLY = 1e-6
"""Seconds before its time from which on a call is the planned retry: more than the rounding of the
queue's due times."""

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


@final
class FailureSeries:
    """The failures in a row of one request, and the retry that is planned.

    An event may bring a call earlier. If that fails, too, it is not an attempt, and the plan stays:
    the number of events says nothing about when it is worth trying again. A new state of the object
    ends the series, because what failed was the call for another one.
    """

    __slots__ = ("count", "due", "state")

    def __init__(self, state: object) -> None:
        self.count: int = 0
        """The failed attempts."""
        self.due: float = 0.0
        """The monotonic time of the planned retry."""
        self.state: object = state
        """The :func:`object_state` with which the last call began, as far as known."""

    def is_early(self, now: float) -> bool:
        """Whether a call that begins at ``now`` comes before the planned retry."""
        return now < self.due - _EARLY

    def is_over(self, state: object) -> bool:
        """Whether a call that begins with ``state`` starts a new series; notes the state."""
        if state is _UNKNOWN:
            return False
        before, self.state = self.state, state
        return before is not _UNKNOWN and before != state


def object_state(
    request: Hashable, finders: Sequence[Callable[[str, str], Object | None]]
) -> object:
    """What identifies the desired state of the request's object: uid, generation, deletion.

    Returns:
        A value to compare; None if the object is gone.
    """
    if not isinstance(request, ObjectKey):
        return _UNKNOWN
    state: object = _UNKNOWN
    for find in finders:
        # A source of the user's may have that method for something else.
        found: object = guarded_call(
            "find",
            find,
            request.name,
            request.namespace,
            failed=lambda _: _UNKNOWN,
            check=_compared,
        )
        if found is None:
            state = None
        elif found is not _UNKNOWN:
            return found
    return state


def _compared(obj: Object | None) -> object:
    return None if obj is None else (obj.uid, obj.generation, obj.is_deleting)


def sole_error(error: BaseException) -> BaseException:
    """``error``; if it is a group with one error, as task groups raise it, that one.

    >>> sole_error(ExceptionGroup("tasks", [ValueError("no")]))
    ValueError('no')
    """
    while len(members := group_members(error)) == 1:
        error = members[0]
    return error


def is_bug(error: BaseException) -> bool:
    """Whether ``error`` is a bug in the program: what would be a panic in Go.

    >>> is_bug(KeyError("spec")), is_bug(SystemExit()), is_bug(ConnectionError("reset"))
    (True, True, False)
    """
    if members := group_members(error):
        return any(map(is_bug, members))
    if not isinstance(error, Exception):
        return True
    return isinstance(error, _BUGS) and not isinstance(error, NotCachedError)


_MAX_RETRY_AFTER: Final = 300.0
"""Seconds, as in informers: a mistake of a server or a proxy must not end an object's retries."""


def retry_after_of(error: BaseException) -> float:
    """The seconds of the API server's Retry-After, at most five minutes; 0 without one."""
    seconds = _seconds(error, "retry_after") if isinstance(error, ApiError) else None
    return min(seconds or 0.0, _MAX_RETRY_AFTER)


def retry_after_seconds(error: BaseException) -> float | None:
    """The delay of a :class:`RetryAfter`; None for other errors, and for one that has none.

    A subclass may not call its ``__init__``: then it is a failure like any other.
    """
    seconds = _seconds(error, "seconds") if isinstance(error, RetryAfter) else None
    return None if seconds == math.inf else seconds


def _seconds(error: BaseException, name: str) -> float | None:
    """A number of an error that users may subclass; None if it is not a number from 0 on."""
    seconds: float = guarded_call(
        name, getattr, error, name, failed=lambda _: math.nan, check=float
    )
    return seconds if seconds >= 0 else None


def requested_delay(error: BaseException) -> float | None:
    """The retry delay in seconds that ``error`` asks for, without backoff; None if none.

    The caches of a namespace that was just added sync one after another. A reconcile that has to
    wait for one is not a failure, and backoff would only prolong the wait.
    """
    return _SYNC_DELAY if isinstance(error, NotSyncedError) else retry_after_seconds(error)


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
