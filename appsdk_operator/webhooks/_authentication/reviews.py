"""Token reviews: the question whose token it is, its answer, and both as JSON. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Self

import attrs
import msgspec

from appsdk_operator.resource import TOO_DEEP, encode_json, is_deeper
from appsdk_operator.runtime import validation
from appsdk_operator.serving import HTTPRequest
from appsdk_operator.webhooks._users import UserInfo

GROUP: Final = "authentication.k8s.io"
_VERSIONS: Final = ("v1", "v1beta1")
_DEFAULT: Final = f"{GROUP}/v1"


class ReviewError(ValueError):
    """The body is not a token review; the text is the answer's error."""


@attrs.frozen(kw_only=True)
class TokenReviewRequest:
    """The question of an API server to which user a token belongs. Its ``repr`` hides the token."""

    token: str = attrs.field(repr=False)
    """The bearer token, opaque to the API server; never empty."""
    audiences: tuple[str, ...] = ()
    """The audiences that the caller accepts; empty: the API server's. If the response has no
    audiences, the token is valid for all of them."""
    uid: str = ""
    """The review's own uid, for logs; often empty."""
    api_version: str = _DEFAULT
    """``authentication.k8s.io/v1``, or ``…/v1beta1`` if the API server is configured to send
    that."""
    http: HTTPRequest | None = attrs.field(default=None, repr=False, eq=False)
    """The HTTP request, with headers and client certificate; None if a test calls the webhook
    directly."""


def _audiences(values: Iterable[str]) -> tuple[str, ...]:
    return validation.checked_texts("audiences", values)


def _check_flag(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    validation.check_flag(attribute.name, value)


@attrs.frozen(kw_only=True)
class TokenReviewResponse:
    """The response to a :class:`TokenReviewRequest`.

    >>> TokenReviewResponse.authenticated(UserInfo("jane")).is_authenticated
    True

    Raises:
        TypeError: ``is_authenticated`` is not a bool, or ``audiences`` are not texts.
    """

    is_authenticated: bool = attrs.field(default=False, validator=_check_flag)
    """Whether the token is valid."""
    user: UserInfo = attrs.field(factory=UserInfo)
    """The user to whom the token belongs."""
    audiences: tuple[str, ...] = attrs.field(default=(), converter=_audiences)
    """The audiences of the request for which the token is valid; empty: the webhook does not check
    audiences."""
    error: str = ""
    """Why it is not authenticated, for the log of the API server."""

    @classmethod
    def authenticated(
        cls, user: UserInfo, *, reason: str = "", audiences: Iterable[str] = ()
    ) -> Self:
        """The token is valid and belongs to ``user``.

        Raises:
            TypeError: ``user`` is not a UserInfo.
        """
        validation.check_instance("user", user, UserInfo, "UserInfo('jane')")
        return cls(is_authenticated=True, user=user, audiences=tuple(audiences), error=reason)

    @classmethod
    def unauthenticated(cls, reason: str = "") -> Self:
        """The token is not valid, or not from this issuer."""
        return cls(error=reason)

    @classmethod
    def errored(cls, error: BaseException | str) -> Self:
        """The token could not be checked; the server treats it as not valid and logs ``error``."""
        return cls(error=str(error))


class _Metadata(msgspec.Struct):
    uid: str | None = None


class _Spec(msgspec.Struct):
    token: str | None = None
    audiences: list[str] | None = None


class _Review(msgspec.Struct, rename="camel"):
    api_version: str | None = None
    kind: str | None = None
    metadata: _Metadata | None = None
    spec: _Spec | None = None


_decoder: Final = msgspec.json.Decoder(_Review)


def decode_review(body: bytes, http: HTTPRequest | None = None) -> TokenReviewRequest:
    """Decode a TokenReview of ``v1`` or ``v1beta1``; one without a version counts as ``v1``.

    Raises:
        ReviewError: it is not a review, or its token is empty.
    """
    if is_deeper(body):
        raise ReviewError(f"couldn't get version/kind; json parse error: {TOO_DEEP}")
    try:
        review = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # Go's text where a body ends early, as clients of other webhooks know it.
        text = (
            "unexpected end of JSON input"
            if "truncated" in str(error)
            else str(error) or type(error).__name__
        )
        raise ReviewError(f"couldn't get version/kind; json parse error: {text}") from error
    api_version = review.api_version or _DEFAULT
    if api_version not in [f"{GROUP}/{version}" for version in _VERSIONS] or review.kind not in (
        None,
        "",
        "TokenReview",
    ):
        given = f"{review.kind or 'nothing'} of {api_version}"
        raise ReviewError(
            f"unable to decode the request: it is {given[:200]}; this webhook answers TokenReview "
            f"of {GROUP}/v1 and v1beta1"
        )
    spec = review.spec or _Spec()
    if not spec.token:
        raise ReviewError("token is empty")
    return TokenReviewRequest(
        token=spec.token,
        audiences=tuple(spec.audiences or ()),
        uid=(review.metadata.uid if review.metadata is not None else "") or "",
        api_version=api_version,
        http=http,
    )


def encode_review(response: TokenReviewResponse, request: TokenReviewRequest | None) -> bytes:
    """Encode the answer; to what was no review (``request`` None) it names no version."""
    status: dict[str, Any] = {"authenticated": True} if response.is_authenticated else {}
    status["user"] = response.user.to_dict()
    if response.audiences:
        status["audiences"] = list(response.audiences)
    if response.error:
        status["error"] = response.error
    head: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    if request is not None:
        head = {"kind": "TokenReview", "apiVersion": request.api_version}
        metadata = {"uid": request.uid} if request.uid else {}
    return encode_json({**head, "metadata": metadata, "spec": {}, "status": status}) + b"\n"
