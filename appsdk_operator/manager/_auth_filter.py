"""Who may read a server's pages: asked of the API server, as kube-rbac-proxy does."""

from __future__ import annotations

import hmac
import itertools
import logging
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any, Final, Generic, TypeVar, final

import attrs

from appsdk_operator.client import (
    ClientError,
    ClientLike,
    ServerError,
    TLSFailed,
    TooManyRequests,
    TransportError,
)
from appsdk_operator.manager._http_messages import (
    HTTPHandler,
    HTTPRequest,
    HTTPResponse,
    text_response,
)
from appsdk_operator.manager._timed_run import TimedRun
from appsdk_operator.resource import Kind, MutableObject, kinds
from appsdk_operator.runtime import Clock, StopSignal, ThreadGroup, random_of, system_clock

__all__ = ["AuthFilter"]

_log: Final = logging.getLogger("appsdk_operator.manager")
_T = TypeVar("_T")
_MAX_TOKEN: Final = 64 * 1024
_TRIES: Final = 5
_BACKOFF: Final = 0.5
_FACTOR: Final = 1.5
_JITTER: Final = 0.2


class _Undecided(Exception):  # noqa: N818 - an answer of 500
    """The API server could not be asked; its text may be logged."""


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
class _Answers(Generic[_T]):
    """Answers for a while, the latest used ones; bounded. Not thread-safe."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: OrderedDict[object, tuple[float, _T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: object, now: float) -> _T | None:
        expiry, answer = self._kept.get(key, (now, None))
        if expiry <= now:
            self._kept.pop(key, None)
            return None
        self._kept.move_to_end(key)
        return answer

    def put(self, key: object, answer: _T, expiry: float) -> None:
        self._kept[key] = (expiry, answer)
        self._kept.move_to_end(key)
        while len(self._kept) > self._size:
            self._kept.popitem(last=False)


@final
class AuthFilter:
    """Lets a request pass whose bearer token the API server knows, and whose user may do it.

    The token is shown to the API server in a TokenReview; a SubjectAccessReview then says whether
    its user may use the verb (the method in lower case) on the path as a ``nonResourceURL``. The
    operator's account needs ``create`` on ``tokenreviews.authentication.k8s.io`` and
    ``subjectaccessreviews.authorization.k8s.io``; who scrapes needs a ClusterRole with
    ``nonResourceURLs: ["/metrics"], verbs: ["get"]``.

    Answers 401 without a token that is known, 403 without the right, and 500 when the API server
    cannot be asked. Tokens are in no log, no error and no cache: what is kept is found by a keyed
    hash. As in controller-runtime's ``WithAuthenticationAndAuthorization``, reviews are kept for a
    while and retried for ten seconds; besides, the caches are bounded, and of equal questions that
    come at once only one is asked.

    It is a filter provider: ``MetricsServerOptions(filter_provider=AuthFilter)``; for other
    options, ``functools.partial(AuthFilter, audiences=["metrics"])``. Thread-safe.

    Args:
        client: asks the API server; not one that reads or writes in a namespace only.
        audiences: whom tokens have to be meant for; default: the API server.
        token_ttl: seconds for which a token's user is remembered, also that it has none, unless
            the API server gives an error as the reason; default 60.
        allow_ttl: seconds for which a permission is remembered; default 300.
        deny_ttl: seconds for which a refusal is remembered; default 30.
        timeout: seconds for each of the two reviews, retries included; default 10.
        cache_size: how many answers of each sort are remembered; default 1024.
        max_reviews: how many reviews may be under way at once; default 16.
        clock: what all these times are measured with.
        rng: spreads the retries.

    Raises:
        ValueError: an option out of its range.
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
        clock: Clock = system_clock,
        rng: Random | None = None,
    ) -> None:
        """See the class."""
        if isinstance(audiences, str):
            raise TypeError(f"audiences={audiences!r}: give a list of them")
        if min(token_ttl, allow_ttl, deny_ttl) < 0:
            raise ValueError("token_ttl, allow_ttl and deny_ttl must be at least 0 seconds")
        if not timeout > 0 or cache_size < 1 or max_reviews < 1:
            raise ValueError("timeout, cache_size and max_reviews must be more than 0")
        self._client = client
        self._audiences = list(audiences)
        self._token_ttl, self._allow_ttl, self._deny_ttl = token_ttl, allow_ttl, deny_ttl
        self._timeout = timeout
        self._max_reviews = max_reviews
        self._clock = clock
        self._rng = rng or random_of(clock)
        self._key = secrets.token_bytes(32)
        self._stop = StopSignal(clock=clock)
        self._threads = ThreadGroup("auth-filter")
        # Guards the caches and the reviews under way.
        self._lock = threading.Lock()
        self._users: _Answers[_User] = _Answers(cache_size)
        # Apart, so that guessed tokens do not push out the good ones.
        self._strangers: _Answers[bool] = _Answers(cache_size)
        self._rights: _Answers[bool] = _Answers(cache_size)
        self._reviews: dict[object, TimedRun[Any]] = {}

    def __call__(self, handler: HTTPHandler) -> HTTPHandler:
        """The handler behind the filter."""

        def filtered(request: HTTPRequest) -> HTTPResponse:
            refusal = self.check(request)
            return handler(request) if refusal is None else refusal

        return filtered

    def check(self, request: HTTPRequest) -> HTTPResponse | None:
        """None when the request may pass, else what to answer."""
        token = _bearer_token(request.headers.get("authorization", ""))
        if token is None:
            return _unauthorized()
        verb = request.method.lower()
        try:
            user = self._authenticate(token)
            if user is None:
                return _unauthorized()
            is_allowed = self._authorize(user, verb, request.path)
        except _Undecided as problem:
            text = str(problem).replace(token, "…")
            _log.error("cannot decide who may %s %r: %s", verb, request.path, text)
            return text_response(500, "Authentication or authorization failed")
        if is_allowed:
            return None
        _log.info("user %s may not %s %r", user.name, verb, request.path)
        return text_response(403, "Forbidden")

    def close(self, timeout: float | None = 1.0) -> list[str]:
        """Ask no more; requests that wait are answered with 500.

        Args:
            timeout: seconds of real time for reviews under way; default 1.

        Returns:
            The names of the threads that still wait for the API server.
        """
        self._stop.set()
        return self._threads.join(timeout)

    # -- questions -------------------------------------------------------------------------------

    def _authenticate(self, token: str) -> _User | None:
        key = hmac.digest(self._key, token.encode(), "sha256")
        now = self._clock.monotonic()
        with self._lock:
            user = self._users.get(key, now)
            if user is not None or self._strangers.get(key, now):
                return user
        spec = {"token": token, **({"audiences": self._audiences} if self._audiences else {})}
        status = self._review(("token", key), kinds.authentication.v1.TokenReview, spec)
        known = status.get("authenticated") is True and self._is_audience(status)
        user = _User.of(status.get("user") or {}) if known else None
        expiry = self._clock.monotonic() + self._token_ttl
        with self._lock:
            if user is not None:
                self._users.put(key, user, expiry)
            elif not status.get("error"):
                # With an error it may be the API server's trouble, and pass.
                self._strangers.put(key, True, expiry)
        return user

    def _is_audience(self, status: Mapping[str, Any]) -> bool:
        # A server that knows nothing of audiences ignores them: then the token is for itself only.
        return not self._audiences or bool({*self._audiences} & {*(status.get("audiences") or ())})

    def _authorize(self, user: _User, verb: str, path: str) -> bool:
        key = (user, verb, path)
        now = self._clock.monotonic()
        with self._lock:
            known = self._rights.get(key, now)
        if known is not None:
            return known
        spec: dict[str, Any] = {
            "user": user.name,
            "groups": list(user.groups),
            "nonResourceAttributes": {"path": path, "verb": verb},
        }
        if user.uid:
            spec["uid"] = user.uid
        if user.extra:
            spec["extra"] = {name: list(values) for name, values in user.extra}
        status = self._review(key, kinds.authorization.v1.SubjectAccessReview, spec)
        is_allowed = status.get("allowed") is True and status.get("denied") is not True
        ttl = self._allow_ttl if is_allowed else self._deny_ttl
        with self._lock:
            self._rights.put(key, is_allowed, self._clock.monotonic() + ttl)
        return is_allowed

    def _review(self, key: object, kind: Kind, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """The status of a review, asked once for all who want to know at the same time."""
        deadline = self._clock.monotonic() + self._timeout
        with self._lock:
            if self._stop.is_set():
                raise _Undecided("the server stops")
            run = self._reviews.get(key)
            if run is None or run.is_done:
                self._reviews = {k: r for k, r in self._reviews.items() if not r.is_done}
                if len(self._reviews) >= self._max_reviews:
                    raise _Undecided(f"{self._max_reviews} reviews are under way (max_reviews)")
                run = self._reviews[key] = TimedRun(
                    kind.kind,
                    lambda: self._ask(kind, spec, deadline),
                    threads=self._threads,
                    clock=self._clock,
                    stop=self._stop,
                )
        try:
            status = run.wait(deadline)
        except TimeoutError:
            if self._stop.is_set():
                raise _Undecided("the server stops") from None
            text = f"{kind.kind}: no answer from the API server within {self._timeout:g} s"
            raise _Undecided(text) from None
        except Exception as error:
            # Not as the cause: its frames hold the token.
            raise _Undecided(f"{kind.kind}: {error}") from None
        finally:
            with self._lock:
                # One that hangs stays, and counts against their number.
                if run.is_done and self._reviews.get(key) is run:
                    del self._reviews[key]
        return status if isinstance(status, Mapping) else {}

    def _ask(self, kind: Kind, spec: Mapping[str, Any], deadline: float) -> Mapping[str, Any]:
        wait = _BACKOFF
        for left in itertools.count(_TRIES - 1, -1):
            try:
                answer = self._client.create(MutableObject.new(kind, spec=spec))
            except ClientError as error:
                pause = wait * (1 + _JITTER * self._rng.random())
                is_late = self._clock.monotonic() + pause >= deadline
                if left <= 0 or is_late or not _may_pass(error) or self._stop.wait(pause):
                    raise
                wait *= _FACTOR
            else:
                return answer.to_dict().get("status") or {}
        raise AssertionError("the loop has no end")


def _may_pass(error: ClientError) -> bool:
    """Whether to ask again: a review changes nothing, so it may be asked twice."""
    if isinstance(error, TransportError):
        return not isinstance(error, TLSFailed)
    return isinstance(error, (ServerError, TooManyRequests))


def _bearer_token(header: str) -> str | None:
    scheme, _, token = header.strip().partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not 0 < len(token) <= _MAX_TOKEN:
        return None
    return token if token.isascii() and token.isprintable() and " " not in token else None


def _unauthorized() -> HTTPResponse:
    return HTTPResponse(status=401, body=b"Unauthorized\n", headers={"WWW-Authenticate": "Bearer"})


def _fits(client: ClientLike) -> Callable[[HTTPHandler], HTTPHandler]:
    return AuthFilter(client)
