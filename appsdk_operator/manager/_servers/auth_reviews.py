"""Token and access reviews: the cache of their results, and the reviews that are under way."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar, final

import attrs

from appsdk_operator.manager._timed_run import TimedRun
from appsdk_operator.runtime import Clock, StopSignal, ThreadGroup

__all__ = ["PendingReviews", "ReviewCache", "ReviewsClosed", "TooManyReviews", "TooManyUnknown"]

_T = TypeVar("_T")
_REFRESH: Final = 0.75
"""The part of its time after which an answer is asked for again, by the next who uses it."""
_REMEMBERED: Final = 3600.0
"""Seconds for which it is remembered that a key had an answer, once that is not used any more: the
tokens of service accounts change about once an hour."""


class TooManyUnknown(Exception):  # noqa: N818 - an answer
    """Too many reviews of unknown tokens are under way; the text says whose."""


class TooManyReviews(Exception):  # noqa: N818 - an answer
    """Too many reviews of what is known are under way: the API server is slow, or away."""


class ReviewsClosed(Exception):  # noqa: N818 - an answer
    """No more reviews are begun."""


@final
class ReviewCache(Generic[_T]):
    """ReviewCache for a while, the latest used ones; bounded. Not thread-safe."""

    def __init__(self, size: int) -> None:
        self._size = size
        # When it is to be asked for again, when it is not used any more, and what it is.
        self._kept: OrderedDict[object, tuple[float, float, _T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: object, now: float) -> _T | None:
        """The answer; None when there is none, or its time is over."""
        entry = self._kept.get(key)
        if entry is None or entry[1] <= now:
            return None
        self._kept.move_to_end(key)
        return entry[2]

    def needs_refresh(self, key: object, now: float) -> bool:
        """Whether the answer's time is almost over."""
        entry = self._kept.get(key)
        return entry is not None and entry[0] <= now

    def had_recently(self, key: object, now: float) -> bool:
        """Whether there is an answer, or was one not long ago."""
        entry = self._kept.get(key)
        return entry is not None and now < entry[1] + _REMEMBERED

    def put(self, key: object, answer: _T, ttl: float, now: float) -> None:
        """Keep an answer for ``ttl`` seconds."""
        self._kept[key] = (now + ttl * _REFRESH, now + ttl, answer)
        self._kept.move_to_end(key)
        while len(self._kept) > self._size:
            self._kept.popitem(last=False)

    def drop(self, key: object) -> None:
        """Forget an answer."""
        self._kept.pop(key, None)


@attrs.frozen
class _Review:
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
        self._under_way: dict[object, _Review] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    @property
    def stop(self) -> StopSignal:
        """Set when no more reviews are begun."""
        return self._stop

    def start(
        self,
        key: object,
        name: str,
        ask: Callable[[], _T],
        *,
        peer: str,
        is_known: bool,
        is_trusted_peer: bool = False,
    ) -> TimedRun[_T]:
        """The review ``key``: the one under way, or a new one.

        Args:
            key: what is asked.
            name: the thread's.
            ask: asks, and keeps the answer.
            peer: who wants to know.
            is_known: whether the token or user is, or was not long ago, known.
            is_trusted_peer: whether the peer sent a known token not long ago.

        Raises:
            TooManyUnknown: there is no room for an unknown token.
            TooManyReviews: there is none for what is known.
            ReviewsClosed: after :meth:`close`.
        """
        with self._lock:
            if self._stop.is_set():
                raise ReviewsClosed
            review = self._under_way.get(key)
            if review is None:
                in_known = self._uses_known_quota(
                    peer, is_known=is_known, is_trusted_peer=is_trusted_peer
                )
                run: TimedRun[_T] = TimedRun(
                    name,
                    lambda: self._run(key, ask),
                    threads=self._threads,
                    clock=self._clock,
                    stop=self._stop,
                )
                review = self._under_way[key] = _Review(run, peer, in_known)
        return review.run

    def close(self, timeout: float | None) -> list[str]:
        """Begin none any more; the names of the threads that run on after ``timeout`` seconds."""
        self._stop.set()
        return self._threads.join(timeout)

    def _run(self, key: object, ask: Callable[[], _T]) -> _T:
        try:
            return ask()
        finally:
            # One that hangs stays, and counts against their number.
            with self._lock:
                del self._under_way[key]

    def _uses_known_quota(self, peer: str, *, is_known: bool, is_trusted_peer: bool) -> bool:
        """Whether it goes into the room of the known ones."""
        known = [each for each in self._under_way.values() if each.is_known]
        unknown = [each for each in self._under_way.values() if not each.is_known]
        if is_known:
            if len(known) >= self._limit:
                raise TooManyReviews(f"{self._limit} reviews are under way (max_reviews)")
            return True
        own = sum(each.peer == peer for each in unknown)
        if own < self._by_peer and len(unknown) < self._limit:
            return False
        lent = any(each.peer == peer for each in known)
        if is_trusted_peer and not lent and len(known) < self._limit:
            return True
        if own >= self._by_peer:
            raise TooManyUnknown(
                f"{own} reviews of unknown tokens of {peer or 'this peer'} are under way "
                "(max_reviews_by_peer)"
            )
        raise TooManyUnknown(f"{self._limit} reviews of unknown tokens are under way (max_reviews)")
