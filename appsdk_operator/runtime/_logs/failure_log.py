"""A log of failures in user code, which limits repetitions and starts tracebacks at that code."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Any, TypeAlias, final

from appsdk_operator.runtime._clock import Clock
from appsdk_operator.runtime._logs.counts import counted as counted_text
from appsdk_operator.runtime._logs.failing import FailingCalls
from appsdk_operator.runtime._logs.loggers import SafeLogger
from appsdk_operator.runtime._logs.tracebacks import (
    error_text,
    place_of,
    traceback_of,
    user_traceback,
)

_INTERVAL = 5.0
"""Seconds between two lines about a frequent cause."""
_FIRST_LINES = 10
"""Lines about one cause within that time, before further failures are only counted."""
_PAUSE = 1.0
"""Seconds between two lines with one cause about one object, whose first retries come faster."""
_FORGOTTEN_AFTER = 600.0
"""Seconds without a failure after which a cause counts as new."""
_MOST_CAUSES = 200

_Cause: TypeAlias = tuple[str, int, type[BaseException], tuple[str, int]]


class _CauseCounts:
    """The lines and counts about one cause."""

    __slots__ = ("counted", "lines", "logged_at", "newest", "since")

    def __init__(self, now: float) -> None:
        self.since = self.newest = now
        self.lines = 0
        self.counted = 0
        # By what they were about; no more than lines that one interval has.
        self.logged_at: OrderedDict[Hashable, float] = OrderedDict()

    def is_repeated(self, about: Hashable, now: float) -> bool:
        """Whether there was a line about it within the last second; notes this one if not."""
        before = self.logged_at.get(about)
        if before is not None and now - before < _PAUSE:
            return True
        self.logged_at[about] = now
        self.logged_at.move_to_end(about)
        if len(self.logged_at) > _FIRST_LINES:
            self.logged_at.popitem(last=False)
        return False


@final
class FailureLog:
    """Logs failures, and limits repetitions of one cause.

    The first failure of a cause is logged with its traceback, each later failure with one line.
    After ten lines within five seconds, further failures are only counted, and one line every five
    seconds has their number. One object gets at most one line a second. A cause without a failure
    for ten minutes counts as new. Tracebacks have only the user's frames, and at level DEBUG all
    frames. Thread-safe.
    """

    def __init__(self, log: SafeLogger, clock: Clock) -> None:
        """Log to ``log``, with the times of ``clock``."""
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        # The most recent cause comes last.
        self._by_cause: OrderedDict[_Cause, _CauseCounts] = OrderedDict()
        self.failing: FailingCalls = FailingCalls(log, clock)
        """What fails now, for those who say so after each call."""

    def failed(
        self,
        error: BaseException,
        whose: str,
        message: str,
        *args: object,
        about: Hashable = None,
        level: int = logging.ERROR,
        with_traceback: bool = True,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        """Log or count a failure.

        Args:
            error: the exception.
            whose: a text that separates failures at the same place, such as the name of the
                callback.
            message: as for :meth:`logging.Logger.log`, with ``args``.
            args: for ``message``.
            about: the object for which it failed, hashable; default: none, so each failure counts
                as one of another object.
            level: the level; default: ERROR.
            with_traceback: whether the first line has a traceback; default: yes.
            extra: further fields of the record, in addition to ``error_text`` and ``place``.
        """
        if not self._log.isEnabledFor(level):
            return
        now = self._clock.monotonic()
        cause = (whose, level, type(error), _place_of(error))
        with self._lock:
            counts, counted = self._count(cause, about, now)
            if counts is None:
                return
            is_first = counts.lines == 1 and not counted
            seconds = now - counts.since
            if counted:
                counts.since = now
        exc_info: Any = None
        if is_first and with_traceback:
            is_whole = self._log.isEnabledFor(logging.DEBUG)
            trace = traceback_of(error) if is_whole else user_traceback(error)
            exc_info = (type(error), error, trace)
        if counted:
            message += "; and %d more like it within %.3g s"
            args = (*args, counted, seconds)
        fields = {**(extra or {}), "error_text": error_text(error), "place": place_of(error)}
        self._log.log(level, message, *args, exc_info=exc_info, extra=fields, stacklevel=2)

    def _count(self, cause: _Cause, about: Hashable, now: float) -> tuple[_CauseCounts | None, int]:
        """The counts of a cause to log, and how many failures to report; None: log nothing."""
        counts = self._by_cause.pop(cause, None)
        if counts is None or now - counts.newest >= _FORGOTTEN_AFTER:
            counts = _CauseCounts(now)
        self._by_cause[cause] = counts
        if len(self._by_cause) > _MOST_CAUSES:
            self._by_cause.popitem(last=False)
        counts.newest = now
        if now - counts.since >= _INTERVAL:
            if counts.counted:
                # The failures go on: one line for all of them until the next interval.
                counted, counts.counted, counts.lines = counts.counted, 0, _FIRST_LINES
                return counts, counted
            # Not 0, so that the next failure is not logged as the first one.
            counts.since, counts.lines = now, min(counts.lines, 1)
        if about is not None and counts.is_repeated(about, now):
            counts.counted += 1
            return None, 0
        counts.lines += 1
        if counts.lines > _FIRST_LINES:
            counts.counted += 1
            return None, 0
        return counts, 0

    def flush(self) -> None:
        """Log the numbers of failures that were only counted so far; for the end of a part."""
        with self._lock:
            left = [
                (cause, counts.counted)
                for cause, counts in self._by_cause.items()
                if counts.counted
            ]
            for counts in self._by_cause.values():
                counts.counted = 0
        for (whose, level, kind, _), counted in left:
            what = counted_text(counted, "more failure")
            self._log.log(level, "%s: %s with %s", whose, what, kind.__name__)


def _place_of(error: BaseException) -> tuple[str, int]:
    """The file and line that raised it."""
    traceback = traceback_of(error)
    if traceback is None:
        return "", 0
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
