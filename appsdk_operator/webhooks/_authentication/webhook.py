"""The authentication webhook: from an HTTP request to the answer of a user's function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias, final

from appsdk_operator.resource import EncodeError
from appsdk_operator.runtime import as_exception, get_logger, settle
from appsdk_operator.runtime.validation import check_callable
from appsdk_operator.serving import HTTPRequest, HTTPResponse
from appsdk_operator.webhooks._authentication.reviews import (
    ReviewError,
    TokenReviewRequest,
    TokenReviewResponse,
    decode_review,
    encode_review,
)
from appsdk_operator.webhooks._users import UserInfo

_log: Final = get_logger("appsdk_operator.webhooks")

_MAX_BYTES: Final = 1 << 20
"""controller-runtime's limit: a token has a few KB at most."""

_Verdict: TypeAlias = "TokenReviewResponse | UserInfo | None"
TokenReviewHandler: TypeAlias = Callable[[TokenReviewRequest], "_Verdict | Awaitable[_Verdict]"]
"""Returns the user to whom the token belongs, None if it is not valid, or a
:class:`TokenReviewResponse`. May be ``async def``."""


@final
class TokenReviewWebhook:
    """Tells the API server to which user a bearer token belongs, with a function of yours.

    An API server that was started with ``--authentication-token-webhook-config-file`` calls it for
    each token that no other authenticator knows, and caches the responses for two minutes.

    >>> def check(review: TokenReviewRequest) -> UserInfo | None:
    ...     return UserInfo("jane") if review.token == "sesame" else None
    >>> webhook = TokenReviewWebhook(check)
    >>> webhook.review(TokenReviewRequest(token="sesame")).user.username
    'jane'

    Add it to a server with its path: ``server.webhooks.add("/authenticate", webhook)``. Each
    response has the HTTP status 200; errors are texts in it, which the API server logs. If the
    handler raises, the webhook logs the error, and the response names only the handler, so that no
    part of a token gets into other logs. Semantics and texts are controller-runtime's, for ``v1``
    and ``v1beta1``. It refuses other kinds, which controller-runtime treats as token reviews.

    Thread-safe if the handler is; several threads may call the handler at once.

    Args:
        handler: returns the user to whom the token belongs, see :data:`TokenReviewHandler`.
        name: its name in logs and errors; default: the handler's.

    Raises:
        TypeError: ``handler`` is not a function of one argument.
    """

    max_body_bytes: Final = _MAX_BYTES
    """A body of this size or more is refused; 1 MiB as in controller-runtime."""

    def __init__(self, handler: TokenReviewHandler, *, name: str = "") -> None:
        """See the class."""
        check_callable("handler", handler, "request", required=True, is_awaited=True)
        self._handler = handler
        self.name: Final = name or str(
            getattr(handler, "__qualname__", None) or type(handler).__qualname__
        )

    def __repr__(self) -> str:
        return f"<TokenReviewWebhook {self.name}>"

    def __call__(self, request: HTTPRequest) -> HTTPResponse:
        """Answer an HTTP request; never raises an Exception."""
        review: TokenReviewRequest | None = None
        try:
            review = self._decode(request)
            response = self.review(review)
        except ReviewError as error:
            _log.error("the token review from %s is refused: %s", request.peer, error)
            review, response = None, TokenReviewResponse.errored(error)
        try:
            body = encode_review(response, review)
        except EncodeError as error:
            _log.error(
                "the authentication webhook %s: its response is not JSON: %s", self.name, error
            )
            body = encode_review(TokenReviewResponse.errored("unable to encode response"), review)
        return HTTPResponse(body=body, content_type="application/json")

    def review(self, request: TokenReviewRequest) -> TokenReviewResponse:
        """Call the handler. If it fails, log the error and return a response that names the
        handler."""
        try:
            verdict = settle(self._handler(request))
        except BaseException as error:  # SystemExit and the like would end the thread silently
            as_exception(self.name, error)
            text = f"the authentication webhook {self.name} failed"
            _log.exception("%s", text, extra={"uid": request.uid})
            return TokenReviewResponse.errored(f"{text}: see its log")
        if verdict is None:
            return TokenReviewResponse.unauthenticated()
        if isinstance(verdict, UserInfo):
            return TokenReviewResponse.authenticated(verdict)
        if isinstance(verdict, TokenReviewResponse):
            return verdict
        _log.error(
            "the authentication webhook %s returned %s: return UserInfo, TokenReviewResponse or "
            "None",
            self.name,
            type(verdict).__name__,
        )
        return TokenReviewResponse.errored(
            f"the authentication webhook {self.name} gave no answer: see its log"
        )

    @staticmethod
    def _decode(request: HTTPRequest) -> TokenReviewRequest:
        # In controller-runtime's order, so that the same body gets the same text.
        if not request.body:
            raise ReviewError("request body is empty")
        if len(request.body) >= _MAX_BYTES:
            raise ReviewError(f"request entity is too large; limit is {_MAX_BYTES} bytes")
        content_type = request.headers.get("Content-Type", "")
        if content_type != "application/json":
            raise ReviewError(f"contentType={content_type[:200]}, expected application/json")
        return decode_review(request.body, request)
