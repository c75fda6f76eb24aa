"""The errors of answers: refusals by the API server, and answers to another request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from appsdk_operator.client._errors import (
    MAX_EXCERPT,
    ApiError,
    WrongAnswer,
    error_class_of,
    error_from_status,
)
from appsdk_operator.client._redaction import display_text, redacted
from appsdk_operator.client._request import Request
from appsdk_operator.client._secret_texts import HIDDEN
from appsdk_operator.resource import DecodeError, decode_json

if TYPE_CHECKING:
    from appsdk_operator.client._transport.response_head import Headers

_MAX_PAGE = 65536


def error_from_response(request: Request, code: int, headers: Headers, body: bytes) -> ApiError:
    """The error for a refusal with status ``code``: its body is a Status, or a proxy's page."""
    retry_after = _retry_after(headers)
    status = _json_or_none(body)
    if isinstance(status, dict) and status.get("kind") == "Status":
        return error_from_status(status, code=code, request=request, retry_after=retry_after)
    text = " ".join(body[:_MAX_PAGE].decode("utf-8", "replace").split())
    printable = "".join(c if c.isprintable() else "?" for c in redacted(text)[:MAX_EXCERPT])
    if request.secret:
        printable = f"an answer of {len(body)} bytes that is not a Status ({HIDDEN})"
    if 300 <= code < 400:
        location = display_text(headers.get("Location", ""), limit=MAX_EXCERPT)
        printable = f"redirect to '{location}', which is not followed: check the server's address"
    return error_class_of("", code)(
        printable, status=code, request=request, retry_after=retry_after
    )


def check_status(request: Request, status: Mapping[str, Any]) -> None:
    """Refuse a Status about another object of the same kind.

    Raises:
        WrongAnswer: the Status names another object.
    """
    details = status.get("details")
    if not isinstance(details, Mapping) or not request.name:
        return
    kind, group = details.get("kind"), details.get("group")
    resource = f"{kind}.{group}" if group else kind
    name = details.get("name")
    # A Status may be about another kind: a missing namespace, an exhausted quota.
    if resource == request.resource.partition("/")[0] and name and name != request.name:
        raise wrong_answer(request, f"{name!r}")


def wrong_answer(request: Request, found: str) -> WrongAnswer:
    """The error for an answer about ``found`` instead of the requested object."""
    asked = f" {request.answer_name!r}" if request.answer_name and not request.name else ""
    asked += f" with uid {request.answer_uid}" if request.answer_uid else ""
    write = "; it may have been carried out: read the object" if request.method != "GET" else ""
    return WrongAnswer(
        f"{request}{asked}: the answer is about {display_text(found, limit=300)}, so the server or "
        f"a proxy mixes up answers: the connection was dropped, check the proxies in between{write}"
    )


def _retry_after(headers: Headers) -> float | None:
    # API servers send seconds; the HTTP date that the RFC also allows is not worth a wall clock.
    text = headers.get("Retry-After", "").strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _json_or_none(body: bytes) -> Any:
    """The body as JSON; None if it is not JSON."""
    try:
        return decode_json(body)
    except DecodeError:
        return None
