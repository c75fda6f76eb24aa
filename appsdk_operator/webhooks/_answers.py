"""Answers of webhooks as HTTP responses, with the code that metrics count."""

from __future__ import annotations

import attrs

from appsdk_operator.serving import HTTPResponse

__all__ = ["ReviewResponse", "review_response"]


@attrs.frozen(kw_only=True)
class ReviewResponse(HTTPResponse):
    """A review as an HTTP response; the verdict is in its body."""

    counted_as: int = 200
    """The code that metrics count: the HTTP status, or 500 where a handler failed."""


def review_response(body: bytes, *, counted_as: int = 200) -> ReviewResponse:
    """A review with the HTTP status 200."""
    return ReviewResponse(body=body, content_type="application/json", counted_as=counted_as)
