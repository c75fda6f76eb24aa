"""Whether an API server answers: what a client heard of it last, and when to ask it."""

from __future__ import annotations

import math
import threading
from typing import Final, final

import msgspec

from appsdk_operator.runtime import fork_safe

ASK_AFTER: Final = 5.0
"""Seconds without a byte from the server after which it is asked for its version."""
ANSWER_WITHIN: Final = 5.0
"""Seconds that the server has to answer."""
LOST_AFTER: Final = 10.0
"""Seconds without a byte, one unanswered question included, after which it counts as lost."""
_ASK_AGAIN: Final = 1.0
_ASK_LOST: Final = 5.0
"""Seconds between two questions to a server that is lost: many operators wait for its return."""


class Look(msgspec.Struct, frozen=True):
    """What a look at a :class:`ServerContact` found."""

    wait: float
    """Seconds until the next look; 0: ask the server now."""
    lost_for: float | None = None
    """The server counts as lost from now on, and has not answered for so many seconds."""
    away: float | None = None
    """The server is back, after so many seconds."""
    error: Exception | None = None
    """Why the last question had no answer, where the server counts as lost from now on."""


class _Failure(msgspec.Struct, frozen=True):
    began: float
    ended: float
    error: Exception


@final
class ContactWatch:
    """One of those who look at a :class:`ServerContact`, each of whom logs every loss."""

    __slots__ = ("lost_since",)

    def __init__(self) -> None:
        self.lost_since: float | None = None
        """:attr:`ServerContact.lost_since` at its last look."""


@final
class ServerContact:
    """Tells a server that does not answer from a quiet one. No I/O and no clock of its own.

    Silence alone proves nothing, as nobody may have asked for anything. So who looks asks the
    server after :data:`ASK_AFTER` seconds of silence; the server counts as lost after
    :data:`LOST_AFTER` seconds of it if such a question failed meanwhile. A slow answer to another
    request is no loss while the server answers this one. Whatever the server sends ends the loss.

    All times are those of one monotonic clock, in seconds. Thread-safe.
    """

    __slots__ = ("_asking", "_back_at", "_failure", "_lock", "_watches", "heard_at", "lost_since")

    def __init__(self, now: float) -> None:
        self.heard_at: float = now
        """When the server last sent something: the head of an answer, or a part of a watch."""
        self.lost_since: float | None = None
        """When the server, which is lost now, was heard last; None: it is not lost."""
        self._back_at = -math.inf
        self._failure: _Failure | None = None
        self._lock = fork_safe(threading.Lock())
        self._watches = 0
        self._asking: ContactWatch | None = None

    @property
    def is_watched(self) -> bool:
        """Whether somebody looks at it, and logs when the server is lost."""
        return self._watches > 0

    @property
    def lost_until(self) -> float:
        """When the last loss ended, or infinity while the server is lost: a request that began
        before may fail by it."""
        return self._back_at if self.lost_since is None else math.inf

    def watch(self, now: float) -> ContactWatch:
        """Begin to look at it, until :meth:`end`. Of several who look, one asks at a time."""
        with self._lock:
            if not self._watches:  # nobody may have asked for anything before
                self.heard_at, self._back_at = now, -math.inf
                self.lost_since = self._failure = None
            self._watches += 1
        return ContactWatch()

    def look(self, watch: ContactWatch, now: float) -> Look:
        """What has changed since the last look of ``watch``, and when to look or ask again."""
        away = lost_for = error = None
        with self._lock:
            wait = max(0.0, self._next_question(now) - now)
            since = self.lost_since
            if watch.lost_since is not None and watch.lost_since != since:
                away = self._back_at - watch.lost_since
            if since is not None and since != watch.lost_since:
                lost_for = now - since
                error = None if self._failure is None else self._failure.error
            watch.lost_since = since
            if not wait and self._asking not in (None, watch):
                wait = _ASK_AGAIN
            elif not wait:
                self._asking = watch
        return Look(wait, lost_for=lost_for, away=away, error=error)

    def _next_question(self, now: float) -> float:
        """Take in what was heard; returns when to ask."""
        heard = self.heard_at
        if self._failure is not None and heard >= self._failure.began:
            self._failure = None
        if self.lost_since is not None and heard > self.lost_since:
            self._back_at, self.lost_since = heard, None  # read without the lock, in this order
        failure = self._failure
        if failure is None:
            return heard + ASK_AFTER
        if self.lost_since is None and now - heard >= LOST_AFTER:
            self.lost_since = heard
        if self.lost_since is None:
            return min(failure.ended + _ASK_AGAIN, heard + LOST_AFTER)
        return failure.ended + _ASK_LOST

    def answered(self, now: float) -> None:
        """Note that a question was answered."""
        with self._lock:
            self.heard_at, self._asking = now, None

    def not_answered(self, error: Exception, began: float, ended: float) -> None:
        """Note that a question failed, without an answer."""
        with self._lock:
            self._failure, self._asking = _Failure(began, ended, error), None

    def end(self, watch: ContactWatch) -> None:
        """``watch`` looks no more."""
        with self._lock:
            self._watches -= 1
            if self._asking is watch:
                self._asking = None
