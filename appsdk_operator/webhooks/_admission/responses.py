"""Admission responses, and the error that denies a request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import attrs

from appsdk_operator.client import ApiError
from appsdk_operator.resource import JsonPatch
from appsdk_operator.runtime import validation

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]+")
_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})


class Denied(Exception):  # noqa: N818 - a verdict, not a failure
    """A handler denies the request: the user sees ``message``.

    To list wrong fields, return a list of field errors, or raise ``Invalid.of(…)``.

    >>> raise Denied("spec.schedule: there is no February 30")
    Traceback (most recent call last):
    appsdk_operator.webhooks._admission.responses.Denied: spec.schedule: there is no February 30
    """

    def __init__(
        self,
        message: str,
        *,
        code: int = 403,
        reason: str = "Forbidden",
        warnings: Iterable[str] = (),
    ) -> None:
        """A denial.

        Args:
            message: the reason, for people; kubectl shows it after the name of the webhook.
            code: the HTTP status that the user gets, 400 to 599; default 403.
            reason: the reason of the Status; default ``"Forbidden"``.
            warnings: warnings that kubectl prints with it.

        Raises:
            ValueError: ``code`` is not an error.
        """
        self.response: AdmissionResponse = AdmissionResponse.denied(
            message, code=code, reason=reason
        ).with_warnings(*warnings)
        """The response that it becomes."""
        super().__init__(message)


def _warnings(values: Iterable[str]) -> tuple[str, ...]:
    if values == ():
        return ()
    # An API server drops a warning that has control characters.
    return tuple(
        _CONTROL.sub(" ", each).strip() if _CONTROL.search(each) else each
        for each in validation.checked_texts("warnings", values)
    )


def _annotations(values: Mapping[str, str]) -> Mapping[str, str]:
    if values is _EMPTY:
        return values
    for key, value in values.items():
        validation.check_text("the key of an audit annotation", key, empty=False)
        validation.check_text(f"audit annotation {key!r}", value)
    return MappingProxyType(dict(values))


@attrs.frozen(kw_only=True)
class AdmissionResponse:
    """The response to an :class:`AdmissionRequest`; an immutable value.

    Make one with its class methods:

    >>> AdmissionResponse.denied("no").with_warnings("spec.size is deprecated").warnings
    ('spec.size is deprecated',)
    """

    is_allowed: bool
    """Whether the request goes on."""
    status: Mapping[str, Any] = attrs.field(default=_EMPTY, hash=False)
    """Parts of a ``Status``: ``code``, ``message``, ``reason``, ``details``."""
    patch: JsonPatch | None = None
    """The changes to the object; for mutating webhooks only."""
    warnings: tuple[str, ...] = attrs.field(default=(), converter=_warnings)
    """Warnings that clients such as kubectl print. Line breaks and other control characters become
    spaces, because API servers drop warnings with such characters. The API server cuts each warning
    at 256 characters, and all together at 4096."""
    audit_annotations: Mapping[str, str] = attrs.field(
        default=_EMPTY, converter=_annotations, hash=False
    )
    """Annotations of the audit event; the API server puts the webhook's name in front of keys."""

    @property
    def code(self) -> int:
        """The HTTP status in :attr:`status`; 200 if there is none."""
        return self.status.get("code") or 200

    @property
    def message(self) -> str:
        """The message in :attr:`status`."""
        return self.status.get("message") or ""

    @classmethod
    def allowed(cls, message: str = "") -> AdmissionResponse:
        """The request goes on as it is."""
        return cls(is_allowed=True, status=_status(200, message))

    @classmethod
    def denied(
        cls, message: str = "", *, code: int = 403, reason: str = "Forbidden"
    ) -> AdmissionResponse:
        """The request is refused: the user gets ``code`` and ``message``.

        Raises:
            ValueError: ``code`` is not an error, 400 to 599.
        """
        return cls(is_allowed=False, status=_status(_checked(code), message, reason))

    @classmethod
    def errored(cls, code: int, message: str) -> AdmissionResponse:
        """The webhook could not decide on the request, which is refused; the Status has no reason.

        Raises:
            ValueError: ``code`` is not an error, 400 to 599.
        """
        return cls(is_allowed=False, status=_status(_checked(code), message))

    @classmethod
    def patched(
        cls, patch: JsonPatch | Sequence[Mapping[str, Any]], message: str = ""
    ) -> AdmissionResponse:
        """The request goes on with a changed object; for mutating webhooks only.

        Args:
            patch: the changes, for example ``JsonPatch.between(before, after)``.
            message: for logs of the API server.
        """
        if not isinstance(patch, JsonPatch):
            patch = JsonPatch(patch)
        return cls(is_allowed=True, status=_status(200, message), patch=patch)

    @classmethod
    def of_error(cls, error: ApiError | Denied) -> AdmissionResponse:
        """The request is refused with the Status of an error, such as ``Invalid.of(…)``.

        For handlers that add warnings to it; otherwise a handler can just raise the error.
        """
        if isinstance(error, Denied):
            return error.response
        return cls(is_allowed=False, status=_of_api_error(error))

    def with_warnings(self, *warnings: str) -> AdmissionResponse:
        """The same response with more warnings."""
        return attrs.evolve(self, warnings=(*self.warnings, *warnings)) if warnings else self

    def with_audit_annotations(self, annotations: Mapping[str, str]) -> AdmissionResponse:
        """The same response with more annotations for the audit log."""
        if not annotations:
            return self
        return attrs.evolve(self, audit_annotations={**self.audit_annotations, **annotations})


def _checked(code: int) -> int:
    validation.check_count("code", code)
    if not 400 <= code <= 599:
        raise ValueError(f"code={code} is not an error: use 400 to 599, for example 403 or 422")
    return code


def _status(code: int, message: str = "", reason: str = "") -> Mapping[str, Any]:
    validation.check_text("message", message)
    # The order of Go's fields.
    found: dict[str, Any] = {}
    if message:
        found["message"] = message
    if reason:
        found["reason"] = reason
    found["code"] = code
    return found


def _of_api_error(error: ApiError) -> dict[str, Any]:
    # A Status within a review has no type.
    return {k: v for k, v in error.to_status().items() if k not in ("kind", "apiVersion")}
