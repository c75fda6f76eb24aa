"""Why a request is to be reconciled: compact_reason values that turn into text when somebody looks.

They are kept beside each queued request, so none of ours holds an object or a traceback.
"""

from __future__ import annotations

from typing import Any, final

import msgspec

from appsdk_operator.cache import Event, ResourceAction
from appsdk_operator.resource import Kind, Object

__all__ = [
    "EventReason",
    "RequeueReason",
    "RetryReason",
    "compact_reason",
    "first_cause",
    "safe_text",
]

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
    """Something happened to an object."""

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
    """A reconcile failed."""

    retry: int
    error: str
    cause: Any = None
    """Why it was reconciled in the first place."""

    def __str__(self) -> str:
        cause = "" if self.cause is None else f" (first: {safe_text(self.cause)})"
        return f"retry {self.retry} after {self.error}{cause}"


@final
class RequeueReason(msgspec.Struct, frozen=True, gc=False, weakref=False):
    """A reconcile asked for the next one."""

    seconds: float

    def __str__(self) -> str:
        return f"requeued after {self.seconds:g} s"


def safe_text(reason: Any) -> str:
    """``reason`` as text, whatever its own code does."""
    try:
        return str(reason)
    except Exception as error:
        return f"<{type(reason).__name__} whose text failed: {type(error).__name__}>"


def first_cause(reasons: tuple[Any, ...]) -> Any:
    """Why a request was reconciled before its retries began."""
    first = reasons[0] if reasons else None
    return first.cause if isinstance(first, RetryReason) else first


def compact_reason(reason: Any) -> Any:
    """``reason`` without what would keep an object or a traceback alive.

    What is none of an event, an object and an error is the caller's own, and kept as it is.

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
