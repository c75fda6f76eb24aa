"""Failures of user code in the log: who failed, where, and no more lines than somebody can read."""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias, final

from appsdk_operator.runtime._clock import Clock
from appsdk_operator.runtime._logging import SafeLogger

__all__ = ["FailureLog", "failed_function", "user_traceback"]

_INTERVAL = 5.0
"""Seconds between two lines on a cause of which there are many."""
_FIRST_LINES = 10
"""Lines in such a time before those of one cause are counted instead."""
_FORGOTTEN_AFTER = 600.0
"""Seconds after which a cause is a new one."""
_MOST_CAUSES = 200

_KIT = f"{Path(__file__).parent.parent}{os.sep}"
_LIBRARY = Path(logging.__file__).parent.parent
# What lies between the kit and a coroutine that it waits for.
_BETWEEN = tuple(
    f"{_LIBRARY.joinpath(*package)}{os.sep}" for package in (["asyncio"], ["concurrent", "futures"])
)

_Cause: TypeAlias = tuple[str, int, type[BaseException], tuple[str, int]]


def user_traceback(error: BaseException) -> TracebackType | None:
    """The traceback of ``error`` from the first function on that is not the kit's.

    The whole one, if it never left the kit.
    """
    traceback = error.__traceback__
    while traceback is not None:
        filename = traceback.tb_frame.f_code.co_filename
        if not filename.startswith(_KIT) and not filename.startswith(_BETWEEN):
            return traceback
        traceback = traceback.tb_next
    return error.__traceback__


def failed_function(error: BaseException) -> str:
    """The name of the function that the kit called and that raised; ``""``: it had no frame."""
    traceback = user_traceback(error)
    if traceback is None or traceback.tb_frame.f_code.co_filename.startswith(_KIT):
        return ""
    return traceback.tb_frame.f_code.co_qualname.replace("<locals>.", "")


class _Told:
    """What was said of a cause."""

    __slots__ = ("counted", "lines", "newest", "since")

    def __init__(self, now: float) -> None:
        self.since = self.newest = now
        self.lines = 0
        self.counted = 0


@final
class FailureLog:
    """Logs failures so that many of one cause do not drown the log.

    The first one of a cause is logged with its traceback, those after it with a line each. When
    there were ten within five seconds they are counted, and a line every five seconds says how many
    there were. A cause that has not been seen for ten minutes is a new one. Tracebacks begin with
    the user's code. Thread-safe.
    """

    def __init__(self, log: SafeLogger, clock: Clock) -> None:
        """Log to ``log``; times are those of ``clock``."""
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        # The one that was seen last comes last.
        self._told: OrderedDict[_Cause, _Told] = OrderedDict()

    def failed(
        self,
        error: BaseException,
        whose: str,
        message: str,
        *args: object,
        level: int = logging.ERROR,
        with_traceback: bool = True,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        """Log or count a failure.

        Args:
            error: what was raised.
            whose: tells apart what may fail in the same way, such as the names of callbacks.
            message: as for :meth:`logging.Logger.log`, with ``args``.
            args: for ``message``.
            level: default: ERROR.
            with_traceback: whether the first line has one; default: yes.
            extra: further fields of the record.
        """
        if not self._log.isEnabledFor(level):
            return
        now = self._clock.monotonic()
        cause = (whose, level, type(error), _place_of(error))
        with self._lock:
            told, counted = self._count(cause, now)
            if told is None:
                return
            is_first = told.lines == 1 and not counted
            seconds = now - told.since
            if counted:
                told.since = now
        exc_info: Any = None
        if is_first and with_traceback:
            exc_info = (type(error), error, user_traceback(error))
        if counted:
            message += "; and %d more like it within %.3g s"
            args = (*args, counted, seconds)
        self._log.log(level, message, *args, exc_info=exc_info, extra=extra, stacklevel=2)

    def _count(self, cause: _Cause, now: float) -> tuple[_Told | None, int]:
        """What is to be said of the cause, and how many were counted before; None: nothing."""
        told = self._told.pop(cause, None)
        if told is None or now - told.newest >= _FORGOTTEN_AFTER:
            told = _Told(now)
        self._told[cause] = told
        if len(self._told) > _MOST_CAUSES:
            self._told.popitem(last=False)
        told.newest = now
        if now - told.since >= _INTERVAL:
            if told.counted:
                # It goes on: one line for all that comes until the next one.
                counted, told.counted, told.lines = told.counted, 0, _FIRST_LINES
                return told, counted
            # At least two, so that it is not taken for the first of all.
            told.since, told.lines = now, min(told.lines, 1)
        told.lines += 1
        if told.lines > _FIRST_LINES:
            told.counted += 1
            return None, 0
        return told, 0

    def flush(self) -> None:
        """Say how many were counted and not told, at the end of who failed."""
        with self._lock:
            left = [(cause, told.counted) for cause, told in self._told.items() if told.counted]
            for told in self._told.values():
                told.counted = 0
        for (whose, level, kind, _), counted in left:
            self._log.log(level, "%s: %d more failures with %s", whose, counted, kind.__name__)


def _place_of(error: BaseException) -> tuple[str, int]:
    """Where it was raised."""
    traceback = error.__traceback__
    if traceback is None:
        return "", 0
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
