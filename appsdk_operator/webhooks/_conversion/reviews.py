"""Conversion reviews as JSON: decoding of requests and encoding of responses. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
import msgspec

from appsdk_operator.resource import MAX_LEVELS, TOO_DEEP, encode_json, is_deeper

_VERSION: Final = "apiextensions.k8s.io/v1"
_KIND: Final = "ConversionReview"
_DECODE_ERRORS: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)


class ReviewError(ValueError):
    """The body is not a conversion review, or has no request."""


@attrs.frozen(kw_only=True)
class ConversionReview:
    """The request of a conversion review."""

    uid: str
    """The request's uid, which the response repeats."""
    desired_api_version: str
    """``group/version`` that all objects are to be converted to."""
    objects: Sequence[bytes | msgspec.Raw] = attrs.field(repr=False)
    """The JSON text of each object."""
    api_version: str = _VERSION
    """The version of the review, which the response repeats."""
    kind: str = _KIND
    """``ConversionReview``; the response repeats it."""


class _Request(msgspec.Struct, gc=False):
    uid: str | None = None
    desiredAPIVersion: str | None = None  # noqa: N815 - its name in JSON
    objects: list[msgspec.Raw] | None = None


class _Review(msgspec.Struct, gc=False, rename="camel"):
    api_version: str | None = None
    kind: str | None = None
    request: _Request | None = None


_decode: Final = msgspec.json.Decoder(_Review).decode


def decode_review(body: bytes) -> ConversionReview:
    """Decode a ConversionReview of ``v1``; ``v1beta1`` has the same fields.

    Raises:
        ReviewError: it is not a review, or has no request.
    """
    # Within the review an object has three levels around it.
    if is_deeper(body, MAX_LEVELS + 3):
        raise ReviewError(f"the body is not a ConversionReview: {TOO_DEEP}")
    try:
        review = _decode(body)
    except _DECODE_ERRORS as error:
        raise ReviewError(f"the body is not a ConversionReview: {error}") from error
    request = review.request
    if request is None:
        raise ReviewError("the ConversionReview has no request")
    return ConversionReview(
        uid=request.uid or "",
        desired_api_version=request.desiredAPIVersion or "",
        objects=request.objects or (),
        api_version=review.api_version or _VERSION,
        kind=review.kind or _KIND,
    )


def encode_success(review: ConversionReview, objects: Sequence[bytes]) -> bytes:
    """The answer with the converted objects, in the order of the request."""
    head = encode_json({"apiVersion": review.api_version, "kind": review.kind})
    pieces = [head[:-1], b',"response":{"uid":', encode_json(review.uid), b',"convertedObjects":[']
    for text in objects:
        pieces += text, b","
    if objects:
        pieces.pop()
    pieces.append(b'],"result":{"metadata":{},"status":"Success"}}}')
    return b"".join(pieces)


def encode_failure(review: ConversionReview, message: str) -> bytes:
    """The answer that the objects could not be converted."""
    # The text may be of a user's exception, with characters that no JSON can have.
    message = message.encode("utf-8", "replace").decode()
    return encode_json(
        {
            "apiVersion": review.api_version,
            "kind": review.kind,
            "response": {
                "uid": review.uid,
                "convertedObjects": None,
                "result": {"metadata": {}, "status": "Failure", "message": message},
            },
        }
    )
