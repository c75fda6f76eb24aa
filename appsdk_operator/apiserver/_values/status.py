"""API errors: ``Status`` objects with code, reason, message and causes.

The texts are the real server's, so that programs and people who read them find what they know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from appsdk_operator.resource import Verbatim, go_quote, go_value, joined_errors

__all__ = [
    "FieldError",
    "RefusedError",
    "StatusError",
    "Verbatim",
    "already_exists",
    "bad_request",
    "check_name",
    "check_namespace",
    "conflict",
    "expired",
    "forbidden",
    "internal_error",
    "invalid",
    "method_not_allowed",
    "name_missing",
    "not_acceptable",
    "not_found",
    "reason_of",
    "unsupported_media_type",
]

_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def reason_of(code: int) -> str:
    """The API reason for an HTTP status code; ``""`` for a code without one."""
    return _REASONS.get(code, "")


class StatusError(Exception):
    """An API error to answer a request with; :meth:`body` is the ``Status`` object."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str | None = None,
        details: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        retry_after: int | None = None,
    ) -> None:
        """A ``Status`` with HTTP ``code``; ``reason`` defaults to the one for that code."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason: str = reason_of(code) if reason is None else reason
        self.details: dict[str, Any] | None = dict(details) if details is not None else None
        self.metadata: dict[str, Any] = dict(metadata or {})
        self.retry_after = retry_after
        self.warnings: list[str] = []
        """The warnings to send along with the error."""

    def body(self) -> dict[str, Any]:
        """The ``Status`` object."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        details = self.details
        if self.retry_after is not None:
            details = {**(details or {}), "retryAfterSeconds": self.retry_after}
        if details is not None:
            body["details"] = details
        body["code"] = self.code
        return body


class RefusedError(StatusError):
    """A webhook denied the request, or could not be called."""


@attrs.frozen
class FieldError:
    """A validation error of one field, in the words of Kubernetes' field errors."""

    reason: str
    """For example ``FieldValueInvalid``."""
    field: str
    """The path, for example ``spec.containers[0].name``."""
    message: str
    """For example ``Invalid value: "x": must be an integer``."""

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"

    def cause(self) -> dict[str, str]:
        """The entry in ``details.causes``."""
        return {"reason": self.reason, "message": self.message, "field": self.field}

    @classmethod
    def invalid(cls, field: str, value: Any, detail: str) -> FieldError:
        """An invalid value."""
        return cls("FieldValueInvalid", field, f"Invalid value: {go_value(value)}: {detail}")

    @classmethod
    def required(cls, field: str, detail: str = "") -> FieldError:
        """A missing value."""
        return cls("FieldValueRequired", field, f"Required value{': ' if detail else ''}{detail}")

    @classmethod
    def not_supported(cls, field: str, value: Any, supported: Iterable[str]) -> FieldError:
        """A value outside the list of supported values."""
        allowed = ", ".join(map(go_quote, supported))
        message = f"Unsupported value: {go_value(value)}"
        if allowed:
            message += f": supported values: {allowed}"
        return cls("FieldValueNotSupported", field, message)

    @classmethod
    def forbidden(cls, field: str, detail: str) -> FieldError:
        """A field that may not be set, whatever its value."""
        return cls("FieldValueForbidden", field, f"Forbidden: {detail}")

    @classmethod
    def duplicate(cls, field: str, value: Any) -> FieldError:
        """A value that occurs twice where it may occur once."""
        return cls("FieldValueDuplicate", field, f"Duplicate value: {go_value(value)}")


def _details(name: str, group: str, kind: str) -> dict[str, Any]:
    details = {"name": name, "group": group, "kind": kind}
    return {key: value for key, value in details.items() if value}


def _qualified(plural: str, group: str) -> str:
    return f"{plural}.{group}" if group else plural


def not_found(plural: str, group: str, name: str) -> StatusError:
    """404: there is no object of this name."""
    return StatusError(
        404,
        f'{_qualified(plural, group)} "{name}" not found',
        details=_details(name, group, plural),
    )


def already_exists(plural: str, group: str, name: str, *, deleting: bool = False) -> StatusError:
    """409: the name is taken; ``deleting``: by an object that is being deleted."""
    state = "object is being deleted: " if deleting else ""
    return StatusError(
        409,
        f'{state}{_qualified(plural, group)} "{name}" already exists',
        reason="AlreadyExists",
        details=_details(name, group, plural),
    )


def conflict(plural: str, group: str, name: str, why: str = "") -> StatusError:
    """409: the object has changed, or is not in the state that the request needs."""
    why = why or (
        "the object has been modified; please apply your changes to the latest version and try "
        "again"
    )
    return StatusError(
        409,
        f'Operation cannot be fulfilled on {_qualified(plural, group)} "{name}": {why}',
        details=_details(name, group, plural),
    )


def invalid(kind: str, group: str, name: str, errors: Iterable[FieldError]) -> StatusError:
    """422: the object is not valid; one cause for each error."""
    found = list(errors)
    details = _details(name, group, kind)
    details["causes"] = [error.cause() for error in found]
    return StatusError(
        422,
        f"{_qualified(kind, group)} {go_quote(name)} is invalid: {joined_errors(found)}",
        details=details,
    )


def forbidden(
    plural: str, group: str, name: str, why: str, causes: list[dict[str, str]] | None = None
) -> StatusError:
    """403: the request is not allowed."""
    details = _details(name, group, plural)
    if causes:
        details["causes"] = causes
    quoted = f' "{name}"' if name else ""
    return StatusError(
        403, f"{_qualified(plural, group)}{quoted} is forbidden: {why}", details=details
    )


def bad_request(message: str) -> StatusError:
    """400: the request cannot be understood."""
    return StatusError(400, message)


def check_namespace(metadata: Mapping[str, Any], namespace: str | None) -> None:
    """Refuse an object that names another namespace than its request.

    Raises:
        StatusError: 400, it does.
    """
    if metadata.get("namespace") and metadata["namespace"] != namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def check_name(metadata: Mapping[str, Any], name: str) -> None:
    """Refuse an object that names itself otherwise than its request does.

    Raises:
        StatusError: 400, it does.
    """
    if metadata.get("name", name) != name:
        raise bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL "
            f"({name})"
        )


def name_missing(name: str) -> StatusError:
    """400: an object does not say its name."""
    return bad_request(
        f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
    )


def method_not_allowed(message: str = "", details: Mapping[str, Any] | None = None) -> StatusError:
    """405: the resource does not support the method."""
    return StatusError(
        405,
        message or "the server does not allow this method on the requested resource",
        details=details if details is not None else {},
    )


def not_acceptable(accepted: Iterable[str]) -> StatusError:
    """406: the client accepts none of the media types that the server can produce."""
    return StatusError(406, f"only the following media types are accepted: {', '.join(accepted)}")


def unsupported_media_type(accepted: Iterable[str]) -> StatusError:
    """415: the body has a media type that the server does not read."""
    return StatusError(
        415,
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted),
    )


def expired(message: str, *, metadata: Mapping[str, Any] | None = None) -> StatusError:
    """410: the requested resourceVersion is too old."""
    return StatusError(410, message, metadata=metadata)


def internal_error(message: str) -> StatusError:
    """500: the server failed."""
    return StatusError(
        500,
        f"Internal error occurred: {message}",
        details={"causes": [{"message": message}]},
    )
