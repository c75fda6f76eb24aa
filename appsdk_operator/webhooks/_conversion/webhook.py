"""The conversion webhook: from a review of objects to the same objects in another version."""

from __future__ import annotations

import logging
import threading
from typing import Any, Final, final

from appsdk_operator.resource import (
    ConversionError,
    DecodeError,
    EncodeError,
    Kind,
    Object,
    Versions,
    decode_json,
    members,
)
from appsdk_operator.runtime import (
    FailureLog,
    Family,
    Sample,
    as_exception,
    get_logger,
    present_clock,
)
from appsdk_operator.runtime.validation import check_count, check_instance
from appsdk_operator.serving import HTTPRequest, HTTPResponse, text_response
from appsdk_operator.webhooks._answers import note_failure
from appsdk_operator.webhooks._conversion.reviews import (
    ConversionReview,
    ReviewError,
    decode_review,
    encode_failure,
    encode_success,
)

_log: Final = get_logger("appsdk_operator.webhooks")
_PANICS: Final = Family(
    "controller_runtime_conversion_webhook_panics_total",
    "counter",
    "Total number of conversion webhook panics",
)
_MAX_BODY_BYTES: Final = 64 << 20


class _FunctionFailedError(ConversionError):
    """A function failed, and that is logged already."""


@final
class ConversionWebhook:
    """Converts objects between the versions of one or several kinds, for an API server.

    The API server sends all objects of a list in one request. The webhook converts them in order.
    If it cannot convert one, the whole request fails, and the message, which the client of the API
    server sees, names this object. A :class:`ConversionError` is logged as one line, at WARNING.
    Other errors of a function are logged with the request's uid, counted in
    ``controller_runtime_conversion_webhook_panics_total``, and not shown to the client. Semantics
    are controller-runtime's, which neither limits bodies nor checks metadata.

    Add it to a server with its path, ``server.webhooks.add("/convert", webhook)``, or use
    ``webhook_for(…).convert(versions)``. Thread-safe.

    Args:
        versions: the versions of each kind; :meth:`add` adds more.
        max_body_bytes: the largest review; default 64 MiB, because one review has all objects of a
            list.

    Raises:
        TypeError: a value is not a Versions.
        ValueError: one kind is given twice.
    """

    name: Final = "conversion"
    """Its name in logs."""

    def __init__(self, *versions: Versions, max_body_bytes: int = _MAX_BODY_BYTES) -> None:
        """See the class."""
        check_count("max_body_bytes", max_body_bytes, 1)
        self.max_body_bytes: Final = max_body_bytes
        self._lock = threading.Lock()
        # Replaced at each change, so that reviews read it without the lock.
        self._by_kind: dict[tuple[str, str], Versions] = {}
        self._panics = 0
        self._failure_log = FailureLog(_log, present_clock())
        for each in versions:
            self.add(each)

    def __repr__(self) -> str:
        names = ", ".join(each.hub.qualified_name for each in self.versions)
        return f"<ConversionWebhook {names or 'of no kind yet'}>"

    def add(self, versions: Versions) -> None:
        """Convert between these versions, too, from now on.

        Raises:
            TypeError: they are not Versions.
            ValueError: their kind already has versions.
        """
        check_instance("versions", versions, Versions, "Versions(V1).older(V1Alpha1, up=…, down=…)")
        key = versions.hub.group, versions.hub.kind
        with self._lock:
            if key in self._by_kind:
                raise ValueError(
                    f"{versions.hub.qualified_name} is converted already: give one Versions with "
                    "all its versions"
                )
            self._by_kind = {**self._by_kind, key: versions}

    @property
    def versions(self) -> tuple[Versions, ...]:
        """The versions of each kind, in the order of :meth:`add`."""
        return tuple(self._by_kind.values())

    def samples(self) -> list[Sample]:
        """The number of reviews in which a function failed, as a metric."""
        with self._lock:
            return [Sample(_PANICS, (), self._panics)]

    def __call__(self, request: HTTPRequest) -> HTTPResponse:
        """Answer an HTTP request; see :meth:`review`."""
        if len(request.body) > self.max_body_bytes:
            text = f"the conversion review is too large: the limit is {self.max_body_bytes} bytes"
            _log.error("%s: raise max_body_bytes, or list in pages", text)
            return text_response(413, text)
        status, body = self.review(request.body)
        if status != 200:
            return text_response(status, body.decode())
        return HTTPResponse(body=body, content_type="application/json")

    def review(self, body: bytes) -> tuple[int, bytes]:
        """The HTTP status and the body of the answer to a ConversionReview of ``v1``.

        The status is 400 if the body is not a review or has no request, and otherwise 200: whether
        the conversion succeeded is in the body.
        """
        try:
            review = decode_review(body)
        except ReviewError as error:
            _log.error("a conversion review is refused: %s", error)
            return 400, str(error).encode("utf-8", "replace")
        try:
            return 200, encode_success(review, self._converted(review))
        except _FunctionFailedError as error:
            note_failure(error)
            return 200, encode_failure(review, str(error))
        except ConversionError as error:
            note_failure(error)
            # A user's mistake as a rule, which the answer says.
            # API servers ask again and again for a stored object.
            text = " ".join(str(error).split())
            self._failure_log.failed(
                error,
                f"conversion to {review.desired_api_version}",
                "conversion to %s is refused: %s",
                review.desired_api_version,
                text,
                about=text,
                level=logging.WARNING,
                with_traceback=False,
                extra={"uid": review.uid},
            )
            return 200, encode_failure(review, str(error))

    def _converted(self, review: ConversionReview) -> list[bytes]:
        """The objects in the desired version.

        Raises:
            ConversionError: one of them cannot be converted.
        """
        return [self._one(bytes(text), place, review) for place, text in enumerate(review.objects)]

    def _one(self, text: bytes, place: int, review: ConversionReview) -> bytes:
        obj, versions, target = self._decoded(text, place, review.desired_api_version)
        try:
            return versions.convert(obj, target).raw
        except ConversionError:
            raise
        except (DecodeError, EncodeError) as error:
            raise ConversionError(f"{_name(obj)}: {error}") from error
        except BaseException as raised:  # SystemExit and the like would end the thread silently
            failure = as_exception(f"the conversion of {_name(obj)}", raised)
            with self._lock:
                self._panics += 1
            self._failure_log.failed(
                failure,
                f"conversion from {obj.kind} to {target}",
                "conversion of %s from %s to %s failed",
                _name(obj),
                obj.kind.version,
                target.version,
                about=_name(obj),
                extra={"uid": review.uid},
            )
            raise _FunctionFailedError(
                f"{_name(obj)} from {obj.kind.version} to {target.version}: internal error "
                "occurred during conversion"
            ) from failure

    def _decoded(
        self, text: bytes, place: int, wanted: str
    ) -> tuple[Object[Any, Any], Versions, Kind]:
        """An object of a review, its versions, and the one that it is to be converted to."""
        where = f"object {place}"
        try:
            parts = members(text)
            api_version = decode_json(bytes(parts.get("apiVersion", b'""')))
            kind = decode_json(bytes(parts.get("kind", b'""')))
            if not isinstance(api_version, str) or not isinstance(kind, str):
                raise DecodeError("its apiVersion and kind are not texts")
            group, _, version = api_version.rpartition("/")
            versions = self._by_kind.get((group, kind))
            if versions is None:
                raise ConversionError(
                    f"{where}: this webhook does not convert {kind or 'no kind'} of the group "
                    f"{group!r}, see {self!r}"
                )
            obj = Object.from_json(versions.kind(version), text)
        except ConversionError:
            raise
        except (DecodeError, LookupError, ValueError, RecursionError) as error:
            raise ConversionError(f"{where}: {error}") from error
        wanted_group, _, wanted_version = wanted.rpartition("/")
        if wanted_group != group:
            raise ConversionError(
                f"{_name(obj)} is of the group {group!r}, and {wanted} is of another: objects are "
                "converted within their group and kind"
            )
        if wanted_version == version:
            raise ConversionError(
                f"{_name(obj)} is of {wanted} already: conversion is not allowed to the same "
                "version"
            )
        try:
            return obj, versions, versions.kind(wanted_version)
        except LookupError as error:
            raise ConversionError(f"{_name(obj)}: {error}") from None


def _name(obj: Object) -> str:
    return f"{obj}"
