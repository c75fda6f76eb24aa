"""Token and access reviews: the cache of their results, and the reviews that are under way."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar, final

import attrs

from appsdk_operator.manager._timed_run import TimedRun
from appsdk_operator.runtime import Clock, StopSignal, ThreadGroup

_T = TypeVar("_T")
_REFRESH: Final = 0.75
"""The part of a result's lifetime after which its next use refreshes it."""
_REMEMBERED: Final = 3600.0
"""Seconds after its expiry for which a result counts as recent: tokens of service accounts change
about once an hour."""


class TooManyUnknown(Exception):  # noqa: N818 - an answer
    """Too many reviews of unknown tokens are under way; the text names the quota."""


class TooManyReviews(Exception):  # noqa: N818 - an answer
    """Too many reviews of known tokens and users are under way: the API server is slow or down."""


class ReviewsClosed(Exception):  # noqa: N818 - an answer
    """No more reviews are started."""


@final
class ReviewCache(Generic[_T]):
    """A bounded LRU cache of review results that expire. Not thread-safe."""

    def __init__(self, size: int) -> None:
        self._size = size
        # By key: when the result is refreshed, when it expires, and the result.
        self._entries: OrderedDict[object, tuple[float, float, _T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: object, now: float) -> _T | None:
        """The result; None when there is none or it has expired."""
        entry = self._entries.get(key)
        if entry is None or entry[1] <= now:
            return None
        self._entries.move_to_end(key)
        return entry[2]

    def needs_refresh(self, key: object, now: float) -> bool:
        """Whether the result is close to its expiry."""
        entry = self._entries.get(key)
        return entry is not None and entry[0] <= now

    def had_recently(self, key: object, now: float) -> bool:
        """Whether there is a result, or one expired within the last hour."""
        entry = self._entries.get(key)
        return entry is not None and now < entry[1] + _REMEMBERED

    def put(self, key: object, answer: _T, ttl: float, now: float) -> None:
        """Store a result for ``ttl`` seconds."""
        self._entries[key] = (now + ttl * _REFRESH, now + ttl, answer)
        self._entries.move_to_end(key)
        while len(self._entries) > self._size:
            self._entries.popitem(last=False)

    def drop(self, key: object) -> None:
        """Remove a result."""
        self._entries.pop(key, None)


@attrs.frozen
class _PendingReview:
    run: TimedRun[Any]
    peer: str
    is_known: bool


@final
class PendingReviews:
    """Reviews under way, with one quota for known tokens and users and one for unknown tokens.

    Each quota is ``limit`` reviews. One peer has at most ``by_peer`` reviews of unknown tokens, so
    guessing tokens takes no capacity from known ones. A peer that sent a known token within the
    last hour may use one review of the known quota for an unknown token, because tokens are
    renewed. Equal reviews share one request. Thread-safe.
    """

    def __init__(self, *, limit: int, by_peer: int, clock: Clock) -> None:
        self._limit = limit
        self._by_peer = by_peer
        self._clock = clock
        self._stop = StopSignal(clock=clock)
        self._threads = ThreadGroup("auth-filter")
        self._lock = threading.Lock()
        self._under_way: dict[object, _PendingReview] = {}

    def __len__(self) -> int:
        with self._lock:  # a review begins before it is among them
            return len(self._under_way)

    @property
    def stop(self) -> StopSignal:
        """Set when no more reviews are started."""
        return self._stop

    def start(
        self,
        key: object,
        name: str,
        review: Callable[[], _T],
        *,
        peer: str,
        is_known: bool,
        is_trusted_peer: bool = False,
    ) -> TimedRun[_T]:
        """The review ``key``: the one under way, or a new one.

        Args:
            key: identifies equal reviews.
            name: the thread's name.
            review: makes the review and caches the result.
            peer: the address of the request.
            is_known: whether the token or user was known within the last hour.
            is_trusted_peer: whether the peer sent a known token within the last hour.

        Raises:
            TooManyUnknown: the quota for unknown tokens is used up.
            TooManyReviews: the quota for known tokens and users is used up.
            ReviewsClosed: after :meth:`close`.
        """
        with self._lock:
            if self._stop.is_set():
                raise ReviewsClosed
            pending = self._under_way.get(key)
            if pending is None:
                uses_known_quota = self._uses_known_quota(
                    peer, is_known=is_known, is_trusted_peer=is_trusted_peer
                )
                run: TimedRun[_T] = TimedRun(
                    name,
                    lambda: self._run(key, review),
                    threads=self._threads,
                    clock=self._clock,
                    stop=self._stop,
                )
                pending = self._under_way[key] = _PendingReview(run, peer, uses_known_quota)
        return pending.run

    def close(self, timeout: float | None) -> list[str]:
        """Start no more; the names of the threads that still run after ``timeout`` seconds."""
        self._stop.set()
        return self._threads.join(timeout)

    def _run(self, key: object, review: Callable[[], _T]) -> _T:
        try:
            return review()
        finally:
            # A review that hangs stays here, and counts against its quota.
            with self._lock:
                del self._under_way[key]

    def _uses_known_quota(self, peer: str, *, is_known: bool, is_trusted_peer: bool) -> bool:
        """Whether a review counts against the quota for known tokens; raises when it is used up."""
        known = [each for each in self._under_way.values() if each.is_known]
        unknown = [each for each in self._under_way.values() if not each.is_known]
        if is_known:
            if len(known) >= self._limit:
                raise TooManyReviews(f"{self._limit} reviews are under way (max_reviews)")
            return True
        of_peer = sum(each.peer == peer for each in unknown)
        if of_peer < self._by_peer and len(unknown) < self._limit:
            return False
        has_borrowed = any(each.peer == peer for each in known)
        if is_trusted_peer and not has_borrowed and len(known) < self._limit:
            return True
        if of_peer >= self._by_peer:
            raise TooManyUnknown(
                f"{of_peer} reviews of unknown tokens of {peer or 'this peer'} are under way "
                "(max_reviews_by_peer)"
            )
        raise TooManyUnknown(f"{self._limit} reviews of unknown tokens are under way (max_reviews)")
