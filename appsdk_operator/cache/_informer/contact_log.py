"""What an informer logs of its first list, and when it follows the server again."""

from __future__ import annotations

from typing import Final, final

from appsdk_operator.resource import Kind
from appsdk_operator.runtime import counted, duration_text, get_logger

_log: Final = get_logger("appsdk_operator.cache")

_LONG: Final = 2.0
"""Seconds after which a first list has its first line."""
_PROGRESS: Final = 5.0
"""Seconds between two lines about a first list that takes long."""


@final
class ContactLog:
    """The lines of one informer at INFO. Not thread-safe: for the informer's thread."""

    def __init__(self, kind: Kind, where: str) -> None:
        self._name = f"{kind.qualified_name}{where}"
        self._fields = {"kind": str(kind)}
        self._began: float | None = None
        self._next_line = 0.0
        self.lost_since: float | None = None
        """When the problem began that was logged and is not over; None without one."""
        self._is_back = False

    def begins(self, now: float) -> None:
        """The first list begins."""
        self._began, self._next_line = now, now + _LONG

    def lists(self, count: int, now: float, remaining: int | None = None) -> None:
        """A part of the first list has come; there are ``count`` objects now.

        Args:
            count: the number of objects so far.
            now: the time.
            remaining: how many are still to come, if the server says so.
        """
        if self._began is None:
            self.begins(now)
        elif now >= self._next_line:
            self._next_line = now + _PROGRESS
            total = counted(count + (remaining or 0), "object")
            _log.info(
                "%s: listed %s, %s a second",
                self._name,
                f"{count:,} of about {total}" if remaining else f"{total} so far",
                f"{count / (now - self._began):,.0f}",
                extra=self._fields,
            )

    def has_synced(self, count: int, now: float) -> None:
        """The first list is complete."""
        took = 0.0 if self._began is None else now - self._began
        what = counted(count, "object")
        text = "%s: synced, %s in %s"
        _log.info(text, self._name, what, duration_text(took), extra=self._fields)
        self.lost_since = None

    def has_lost(self, now: float) -> None:
        """A problem was logged."""
        if self.lost_since is None:
            self.lost_since = now
            self._is_back = False

    def follows(self, now: float, *, is_stable: bool) -> None:
        """After :meth:`has_lost`: a watch is open.

        It is said once; a server that accepts each watch and cuts it is not followed for good, so a
        new line needs a watch that was stable before.
        """
        if self.lost_since is None:
            return
        if not self._is_back:
            self._is_back = True
            lost = duration_text(now - self.lost_since)
            text = "%s: watches again, after an outage of %s"
            _log.info(text, self._name, lost, extra=self._fields)
        if is_stable:
            self.lost_since = None
