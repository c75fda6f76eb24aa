"""Reasons for reconciles: small values that are converted to text when read.

They are stored with each queued request, so none of them holds an object or a traceback.
"""

from __future__ import annotations

from typing import Any, final

import msgspec

from appsdk_operator.cache import Event, ResourceAction
from appsdk_operator.resource import Kind, Object
from appsdk_operator.runtime import safe_text

_LONGEST = 200
_VERBS = {
    ResourceAction.CREATE: "created",
    ResourceAction.UPDATE: "updated",
    ResourceAction.DELETE: "deleted",
    ResourceAction.RESYNC: "resynced",
    ResourceAction.GENERIC: "signalled",
}


@final
class EventReason(msgspec.Struct, frozen=True, gc=False, weakref=False):
    """An event of an object."""

    action: ResourceAction
    kind: Kind
    namespace: str
    name: str
    is_initial: bool = False

    def __str__(self) -> str:
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        verb = "was there at the start" if self.is_initial else _VERBS[self.action]
        return f"{self.kind.kind} {place} {verb}"


@final
class RetryReason(msgspec.Struct, frozen=True, weakref=False):
    """A retry after a failed reconcile."""

    retry: int
    error: str
    cause: Any = None
    """The reason of the first reconcile, before the retries."""

    def __str__(self) -> str:
        cause = "" if self.cause is None else f" (first: {safe_text(self.cause)})"
        return f"retry {self.retry} after {self.error}{cause}"


@final
class RequeueReason(msgspec.Struct, frozen=True, gc=False, weakref=False):
    """A requeue that a reconcile asked for."""

    seconds: float

    def __str__(self) -> str:
        return f"requeued after {self.seconds:g} s"


def first_cause(reasons: tuple[Any, ...]) -> Any:
    """The reason for a request's first reconcile, before its retries."""
    first = reasons[0] if reasons else None
    return first.cause if isinstance(first, RetryReason) else first


def compact_reason(reason: Any) -> Any:
    """``reason`` without references to objects or tracebacks.

    Events, objects and errors are reduced to a description; other values stay as they are.

    >>> compact_reason(ValueError("too big"))
    'ValueError: too big'
    """
    if reason is None or isinstance(reason, (str, EventReason)):
        return reason
    if isinstance(reason, Event):
        obj = reason.object
        return EventReason(reason.action, obj.kind, obj.namespace, obj.name, reason.is_initial)
    if isinstance(reason, Object):
        return EventReason(ResourceAction.GENERIC, reason.kind, reason.namespace, reason.name)
    if isinstance(reason, BaseException):
        return f"{type(reason).__name__}: {safe_text(reason)}"[:_LONGEST]
    return reason
