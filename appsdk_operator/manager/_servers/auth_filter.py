"""Authentication and authorization of requests by the API server, as in kube-rbac-proxy."""

from __future__ import annotations

import contextlib
import functools
import hmac
import itertools
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any, Final, TypeVar, final

import attrs

from appsdk_operator.client import (
    ClientError,
    ClientLike,
    ServerError,
    TLSFailed,
    TooManyRequests,
    TransportError,
)
from appsdk_operator.manager._servers.auth_reviews import (
    PendingReviews,
    ReviewCache,
    ReviewsClosed,
    TooManyReviews,
    TooManyUnknown,
)
from appsdk_operator.manager._timed_run import NotDone, TimedRun
from appsdk_operator.resource import Kind, MutableObject, kinds
from appsdk_operator.runtime import (
    NO_THREAD,
    Clock,
    StopSignal,
    get_logger,
    present_clock,
    random_of,
)
from appsdk_operator.serving import HTTPHandler, HTTPRequest, HTTPResponse, text_response

_log: Final = get_logger("appsdk_operator.manager")
_T = TypeVar("_T")
_MAX_TOKEN: Final = 64 * 1024
_MAX_NAME: Final = 256
_BUSY: Final = "too many reviews are under way, try again later"
_TRIES: Final = 5
_BACKOFF: Final = 0.5
_FACTOR: Final = 1.5
_JITTER: Final = 0.2


class _ReviewFailed(Exception):  # noqa: N818 - an answer of 500
    """The API server gave no answer; the text may be logged."""


@attrs.frozen
class _User:
    name: str
    uid: str
    groups: tuple[str, ...]
    extra: tuple[tuple[str, tuple[str, ...]], ...] = attrs.field(repr=False)

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> _User:
        extra = info.get("extra") or {}
        return cls(
            str(info.get("username", "")),
            str(info.get("uid", "")),
            tuple(info.get("groups") or ()),
            tuple((key, tuple(values or ())) for key, values in extra.items()),
        )


@final
class AuthFilter:
    """Admits requests whose bearer token the API server knows and whose user is authorized.

    A TokenReview gives the token's user. A SubjectAccessReview says whether the user may use the
    verb (the method in lower case) on the path, as a ``nonResourceURL``. The operator's account
    needs ``create`` on ``tokenreviews.authentication.k8s.io`` and
    ``subjectaccessreviews.authorization.k8s.io``. A scraper needs a ClusterRole with
    ``nonResourceURLs: ["/metrics"], verbs: ["get"]``.

    It answers 401 without a known token, 403 without permission, 429 while too many unknown tokens
    are under review, and 500 if it cannot ask the API server. A 403 names the user, as does the
    log, at INFO and once for each review; a 401 is logged at DEBUG. No log, error or cache holds a
    token: the caches hold keyed hashes.

    As in controller-runtime's ``WithAuthenticationAndAuthorization``, it caches results for a while
    and tries each review up to five times. In addition, the caches are bounded, equal reviews at
    the same time share one request, and cached results in use are refreshed before they expire.
    Unknown tokens, however many, take no capacity from known tokens.

    Give the class as a filter provider: ``MetricsServerOptions(filter_provider=AuthFilter)``, or
    with options ``functools.partial(AuthFilter, audiences=["metrics"])``. Thread-safe.

    Args:
        client: creates the reviews; it must not be limited to one namespace.
        audiences: the audiences that tokens may have; default: the API server.
        token_ttl: seconds for which a token's user is cached, or that the token is unknown, unless
            the API server reports an error; default 60.
        allow_ttl: seconds for which a permission is cached; default 300.
        deny_ttl: seconds for which a refusal is cached; default 30.
        timeout: seconds for each of the two reviews, retries included; default 10.
        cache_size: the maximum number of results in each cache; default 1024.
        max_reviews: the maximum number of concurrent reviews of tokens and users that were known
            within the last hour; the same number applies to unknown tokens; default 16.
        max_reviews_by_peer: the maximum number of concurrent reviews of unknown tokens from one
            address; default 4.
        clock: the clock of these times.
        rng: the source of jitter between retries.

    Raises:
        TypeError: ``audiences`` is one text.
        ValueError: an option is out of its range.
    """

    def __init__(
        self,
        client: ClientLike,
        *,
        audiences: Iterable[str] = (),
        token_ttl: float = 60.0,
        allow_ttl: float = 300.0,
        deny_ttl: float = 30.0,
        timeout: float = 10.0,
        cache_size: int = 1024,
        max_reviews: int = 16,
        max_reviews_by_peer: int = 4,
        clock: Clock | None = None,
        rng: Random | None = None,
    ) -> None:
        """See the class."""
        if isinstance(audiences, str):
            raise TypeError(f"audiences={audiences!r}: give a list of audiences")
        if min(token_ttl, allow_ttl, deny_ttl) < 0:
            raise ValueError("token_ttl, allow_ttl and deny_ttl must be at least 0 seconds")
        if not timeout > 0 or min(cache_size, max_reviews, max_reviews_by_peer) < 1:
            raise ValueError(
                "timeout, cache_size, max_reviews and max_reviews_by_peer must be more than 0"
            )
        self._client = client
        self._audiences = list(audiences)
        self._token_ttl, self._allow_ttl, self._deny_ttl = token_ttl, allow_ttl, deny_ttl
        self._timeout = timeout
        self._clock = clock = present_clock(clock)
        self._rng = rng or random_of(clock)
        self._key = secrets.token_bytes(32)
        self._reviews = PendingReviews(limit=max_reviews, by_peer=max_reviews_by_peer, clock=clock)
        # Guards the caches.
        self._lock = threading.Lock()
        self._users_by_token: ReviewCache[_User] = ReviewCache(cache_size)
        # A cache of its own, so that guessed tokens evict no known ones.
        self._unknown_tokens: ReviewCache[bool] = ReviewCache(cache_size)
        self._permissions: ReviewCache[bool] = ReviewCache(cache_size)
        # The addresses that sent known tokens.
        self._trusted_peers: ReviewCache[bool] = ReviewCache(cache_size)

    def __call__(self, handler: HTTPHandler) -> HTTPHandler:
        """``handler`` behind the filter."""

        def filtered(request: HTTPRequest) -> HTTPResponse:
            refusal = self.check(request)
            return handler(request) if refusal is None else refusal

        return filtered

    def check(self, request: HTTPRequest) -> HTTPResponse | None:
        """The refusal of a request; None when it is admitted."""
        verb = request.method.lower()
        action = f"{verb} {request.path!r}"
        token = _bearer_token(request.headers.get("authorization", ""))
        if token is None:
            _log.debug("peer %s may not %s: no bearer token", request.peer, action)
            return _unauthorized()
        failure = "Authentication failed"
        try:
            user = self._authenticate(token, request)
            if user is None:
                _log.debug("peer %s may not %s: its token is not known", request.peer, action)
                return _unauthorized()
            failure = f"Authorization for user {_printable(user.name)} failed"
            is_allowed = self._authorize(user, verb, request)
        except TooManyUnknown as problem:
            _log.debug("peer %s may not %s now: %s", request.peer, action, problem)
            return text_response(429, f"{failure}: {_BUSY}", **{"Retry-After": "1"})
        except _ReviewFailed as problem:
            text = str(problem).replace(token, "…")
            _log.error("%s: cannot decide whether it may %s: %s", failure, action, text)
            return text_response(500, failure)
        if is_allowed:
            return None
        return text_response(403, f"Authorization denied for user {_printable(user.name)}")

    def close(self, timeout: float | None = 1.0) -> list[str]:
        """Start no more reviews, and answer waiting requests with 500.

        Args:
            timeout: seconds of real time for reviews under way; default 1.

        Returns:
            The names of the threads that still wait for the API server.
        """
        return self._reviews.close(timeout)

    # -- reviews ---------------------------------------------------------------------------------

    def _authenticate(self, token: str, request: HTTPRequest) -> _User | None:
        peer = request.peer
        key = hmac.digest(self._key, token.encode(), "sha256")
        now = self._clock.monotonic()
        with self._lock:
            user = self._users_by_token.get(key, now)
            if user is None and self._unknown_tokens.get(key, now):
                return None
            needs_refresh = self._users_by_token.needs_refresh(key, now)
            is_known, is_trusted_peer = (
                self._users_by_token.had_recently(key, now),
                self._trusted_peers.had_recently(peer, now),
            )
        if user is not None and not needs_refresh:
            return user
        start = functools.partial(
            self._reviews.start,
            ("token", key),
            "TokenReview",
            functools.partial(self._review_token, key, token, peer, now + self._timeout),
            peer=peer,
            is_known=is_known,
            is_trusted_peer=is_trusted_peer,
        )
        if user is None:
            return self._answer(start, now, request.stop)
        _refresh(start)
        return user

    def _review_token(self, key: object, token: str, peer: str, deadline: float) -> _User | None:
        spec = {"token": token, **({"audiences": self._audiences} if self._audiences else {})}
        status = self._create_review(kinds.authentication.v1.TokenReview, spec, deadline)
        known = status.get("authenticated") is True and self._is_audience(status)
        user = _User.of(status.get("user") or {}) if known else None
        now = self._clock.monotonic()
        with self._lock:
            if user is not None:
                self._users_by_token.put(key, user, self._token_ttl, now)
                self._trusted_peers.put(peer, True, self._token_ttl, now)
            elif not status.get("error"):
                # With an error the API server may know the token later.
                self._users_by_token.drop(key)
                self._unknown_tokens.put(key, True, self._token_ttl, now)
        return user

    def _is_audience(self, status: Mapping[str, Any]) -> bool:
        # A server without support for audiences ignores them: the token is then for the API server.
        return not self._audiences or bool({*self._audiences} & {*(status.get("audiences") or ())})

    def _authorize(self, user: _User, verb: str, request: HTTPRequest) -> bool:
        path = request.path
        key = (user, verb, path)
        now = self._clock.monotonic()
        with self._lock:
            known = self._permissions.get(key, now)
            needs_refresh = self._permissions.needs_refresh(key, now)
        if known is False or (known and not needs_refresh):
            if not known:
                _log.debug(
                    "user %s may not %s %r, as said before", _printable(user.name), verb, path
                )
            return known
        start = functools.partial(
            self._reviews.start,
            key,
            "SubjectAccessReview",
            functools.partial(self._review_right, key, now + self._timeout),
            peer=request.peer,
            is_known=True,
        )
        if not known:
            return self._answer(start, now, request.stop)
        _refresh(start)
        return True

    def _review_right(self, key: tuple[_User, str, str], deadline: float) -> bool:
        user, verb, path = key
        spec: dict[str, Any] = {
            "user": user.name,
            "groups": list(user.groups),
            "nonResourceAttributes": {"path": path, "verb": verb},
        }
        if user.uid:
            spec["uid"] = user.uid
        if user.extra:
            spec["extra"] = {name: list(values) for name, values in user.extra}
        status = self._create_review(kinds.authorization.v1.SubjectAccessReview, spec, deadline)
        is_allowed = status.get("allowed") is True and status.get("denied") is not True
        ttl = self._allow_ttl if is_allowed else self._deny_ttl
        with self._lock:
            self._permissions.put(key, is_allowed, ttl, self._clock.monotonic())
        if not is_allowed:
            reason = _printable(str(status.get("reason") or "the API server gives no reason"))
            _log.info("user %s may not %s %r: %s", _printable(user.name), verb, path, reason)
        return is_allowed

    def _answer(self, start: Callable[[], TimedRun[_T]], begun: float, stop: StopSignal) -> _T:
        try:
            run = start()
        except ReviewsClosed:
            raise _ReviewFailed("the server stops") from None
        except TooManyReviews as problem:
            raise _ReviewFailed(str(problem)) from None
        try:
            return run.wait(begun + self._timeout, stop)  # type: ignore[return-value]
        except NotDone:
            if stop.is_set() or self._reviews.stop.is_set():
                raise _ReviewFailed("the server stops") from None
            text = f"{run.name}: no answer from the API server within {self._timeout:g} s"
            raise _ReviewFailed(text) from None
        except Exception as error:
            # Without the cause, whose frames hold the token.
            raise _ReviewFailed(f"{run.name}: {error}") from None

    def _create_review(
        self, kind: Kind, spec: Mapping[str, Any], deadline: float
    ) -> Mapping[str, Any]:
        """The status of a review."""
        wait = _BACKOFF
        for left in itertools.count(_TRIES - 1, -1):
            try:
                answer = self._client.create(MutableObject.new(kind, spec=spec))
            except ClientError as error:
                pause = wait * (1 + _JITTER * self._rng.random())
                is_late = self._clock.monotonic() + pause >= deadline
                is_last = left <= 0 or is_late or not _is_transient(error)
                if is_last or self._reviews.stop.wait(pause):
                    raise
                wait *= _FACTOR
            else:
                status = answer.to_dict().get("status")
                return status if isinstance(status, Mapping) else {}
        raise AssertionError("the loop has no end")


def _refresh(start: Callable[[], object]) -> None:
    """Start a review to refresh a cached result; on failure the next request tries again."""
    with contextlib.suppress(TooManyUnknown, TooManyReviews, ReviewsClosed, *NO_THREAD):
        start()


def _is_transient(error: ClientError) -> bool:
    """Whether to retry: a review changes nothing, so it is safe to repeat."""
    if isinstance(error, TransportError):
        return not isinstance(error, TLSFailed)
    return isinstance(error, (ServerError, TooManyRequests))


def _printable(name: str) -> str:
    """An untrusted name, on one line and not too long."""
    text = name if name.isprintable() else repr(name)
    return text if len(text) <= _MAX_NAME else f"{text[:_MAX_NAME]}…"


def _bearer_token(header: str) -> str | None:
    scheme, _, token = header.strip().partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not 0 < len(token) <= _MAX_TOKEN:
        return None
    return token if token.isascii() and token.isprintable() and " " not in token else None


def _unauthorized() -> HTTPResponse:
    return HTTPResponse(status=401, body=b"Unauthorized\n", headers={"WWW-Authenticate": "Bearer"})
