"""Answers of webhooks as HTTP responses, with the code that metrics count."""

from __future__ import annotations

import contextvars

import attrs

from appsdk_operator.runtime import CallRecord, FailureCause
from appsdk_operator.serving import HTTPResponse

answering: contextvars.ContextVar[CallRecord | None] = contextvars.ContextVar(
    "answered_call", default=None
)
"""The record of the review that is being answered, if somebody observes it."""
waited: contextvars.ContextVar[float] = contextvars.ContextVar("waited_for_a_slot", default=0.0)
"""Seconds of its time that the review has spent before it was its turn."""


def note_object(kind: object, namespace: str, name: str, action: str) -> None:
    """Say what the review is about."""
    call = answering.get()
    if call is not None:
        call.kind, call.namespace, call.name, call.action = str(kind), namespace, name, action


def note_failure(error: Exception) -> None:
    """Say that the handler failed, and is not tried again."""
    call = answering.get()
    if call is not None:
        call.outcome, call.cause = "given up", FailureCause(error)


@attrs.frozen(kw_only=True)
class ReviewResponse(HTTPResponse):
    """A review as an HTTP response; the verdict is in its body."""

    counted_as: int = 200
    """The code that metrics count: the HTTP status, or 500 where a handler failed."""


def review_response(body: bytes, *, counted_as: int = 200) -> ReviewResponse:
    """A review with the HTTP status 200."""
    return ReviewResponse(body=body, content_type="application/json", counted_as=counted_as)
