"""The codec of admission reviews: from a body to a request, from a response to a body."""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec

from appsdk_operator.resource import MAX_LEVELS, TOO_DEEP, encode_json, is_deeper
from appsdk_operator.webhooks._admission.requests import WireRequest
from appsdk_operator.webhooks._admission.responses import AdmissionResponse

MAX_BODY_BYTES: Final = 7 * 1024 * 1024
"""A body of this size is too large: two objects of 3 MiB, and the rest of the review."""
V1: Final = "admission.k8s.io/v1"


class MalformedReview(Exception):  # noqa: N818 - it is an answer, not a failure of the server
    """A body that is not a review."""


class WireReview(msgspec.Struct, rename="camel", gc=False):
    """A review as decoded."""

    api_version: str | None = None
    kind: str | None = None
    request: WireRequest | None = None


_decode: Final = msgspec.json.Decoder(WireReview).decode
_encode_text: Final = msgspec.json.Encoder().encode


def decode_review(body: bytes) -> WireReview:
    """The review in a body.

    Raises:
        MalformedReview: it is not a review.
    """
    # Within the review the object has two levels around it.
    if is_deeper(body, MAX_LEVELS + 2):
        raise MalformedReview(
            f"the body is not an AdmissionReview: {TOO_DEEP}; it has {len(body)} bytes"
        )
    try:
        return _decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        # Not the text itself: it may be a Secret, and answers end up in logs.
        raise MalformedReview(
            f"the body is not an AdmissionReview: {error}; it has {len(body)} bytes"
        ) from None


def encode(response: AdmissionResponse, *, uid: str, api_version: str, kind: str) -> bytes:
    """The body of an answer, field by field as Go writes it.

    Args:
        response: the verdict.
        uid: that of the request.
        api_version: that of the request's review; without it and ``kind`` the API server takes the
            answer for a failure, as is meant for requests that could not be read.
        kind: that of the request's review.

    Raises:
        EncodeError: a value in it is not JSON.
    """
    status: dict[str, Any] = {"metadata": {}, **response.status}
    status.setdefault("code", 200)
    if not status["code"]:
        status["code"] = 200
    found: dict[str, Any] = {"uid": uid, "allowed": response.is_allowed, "status": status}
    if response.patch is not None:
        found["patch"] = base64.b64encode(response.patch.body()).decode("ascii")
        found["patchType"] = "JSONPatch"
    if response.audit_annotations:
        found["auditAnnotations"] = dict(response.audit_annotations)
    if response.warnings:
        found["warnings"] = list(response.warnings)
    review: dict[str, Any] = {}
    if kind:
        review["kind"] = kind
    if api_version:
        review["apiVersion"] = api_version
    review["response"] = found
    return encode_json(review) + b"\n"
