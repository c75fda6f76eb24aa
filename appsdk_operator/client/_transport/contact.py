"""Whether an API server answers: what a client heard of it last, and when to ask it."""

from __future__ import annotations

import math
from typing import Final, NamedTuple, final

ASK_AFTER: Final = 5.0
"""Seconds without a byte from the server after which it is asked for its version."""
ANSWER_WITHIN: Final = 5.0
"""Seconds that the server has to answer."""
LOST_AFTER: Final = 10.0
"""Seconds without a byte, one unanswered question included, after which it counts as lost."""
_ASK_AGAIN: Final = 1.0
_ASK_LOST: Final = 5.0
"""Seconds between two questions to a server that is lost: many operators wait for its return."""


class Look(NamedTuple):
    """What a look at a :class:`ServerContact` found."""

    wait: float
    """Seconds until the next look; 0: ask the server now."""
    lost_for: float | None = None
    """The server counts as lost from now on, and has not answered for so many seconds."""
    away: float | None = None
    """The server is back, after so many seconds."""


class _Failure(NamedTuple):
    began: float
    ended: float
    error: Exception


@final
class ServerContact:
    """Tells a server that does not answer from a quiet one. No I/O and no clock of its own.

    Silence alone proves nothing, as nobody may have asked for anything. So who looks asks the
    server after :data:`ASK_AFTER` seconds of silence; the server counts as lost after
    :data:`LOST_AFTER` seconds of it if such a question failed meanwhile. A slow answer to another
    request is no loss while the server answers this one. Whatever the server sends ends the loss.

    All times are those of one monotonic clock, in seconds. Any thread may set :attr:`heard_at`;
    one thread calls the methods.
    """

    __slots__ = ("_failure", "heard_at", "is_watched", "lost_since", "lost_until")

    def __init__(self, now: float) -> None:
        self.heard_at: float = now
        """When the server last sent something: the head of an answer, or a part of a watch."""
        self.is_watched: bool = False
        """Whether somebody looks at it, and logs when the server is lost."""
        self.lost_since: float | None = None
        """When the server, which is lost now, was heard last; None: it is not lost."""
        self.lost_until: float = -math.inf
        """When the last loss ended, or infinity while the server is lost: a request that began
        before may fail by it."""
        self._failure: _Failure | None = None

    def begin(self, now: float) -> None:
        """Begin to watch it: nobody may have asked for anything before."""
        self.heard_at, self.is_watched = now, True
        self.lost_since, self.lost_until, self._failure = None, -math.inf, None

    @property
    def error(self) -> Exception | None:
        """Why the last question had no answer; None while there is none without."""
        return None if self._failure is None else self._failure.error

    def look(self, now: float) -> Look:
        """What has changed since the last look, and when to look or ask again."""
        heard, away, lost_for = self.heard_at, None, None
        if self._failure is not None and heard >= self._failure.began:
            self._failure = None
        if self.lost_since is not None and heard > self.lost_since:
            away, self.lost_since, self.lost_until = heard - self.lost_since, None, heard
        failure = self._failure
        if failure is None:
            return Look(max(0.0, heard + ASK_AFTER - now), away=away)
        if self.lost_since is None and now - heard >= LOST_AFTER:
            self.lost_since, self.lost_until, lost_for = heard, math.inf, now - heard
        if self.lost_since is None:
            due = min(failure.ended + _ASK_AGAIN, heard + LOST_AFTER)
        else:
            due = failure.ended + _ASK_LOST
        return Look(max(0.0, due - now), lost_for=lost_for, away=away)

    def not_answered(self, error: Exception, began: float, ended: float) -> None:
        """Note that a question failed, without an answer."""
        self._failure = _Failure(began, ended, error)
