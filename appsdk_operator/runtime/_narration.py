"""A table of everything that an operator does, row by row as it happens."""

from __future__ import annotations

import datetime as dt
import os
import sys
import threading
from typing import Final, TextIO, final

from appsdk_operator.runtime._activity import CallRecord, RequestRecord
from appsdk_operator.runtime._environment import present_clock
from appsdk_operator.runtime._logs.durations import duration_text
from appsdk_operator.runtime._logs.loggers import get_logger
from appsdk_operator.runtime._logs.setup import has_color, printable

_log: Final = get_logger("appsdk_operator.runtime")

_HEADERS: Final = ("time", "callback", "why", "object", "took", "outcome")
_WIDEST: Final = (12, 28, 40, 40, 8)
_RED, _YELLOW, _DIM, _BOLD, _RESET = (
    "\x1b[31m",
    "\x1b[33m",
    "\x1b[2m",
    "\x1b[1m",
    "\x1b[0m",
)
_COLORS: Final = {"done": "", "requeued": _YELLOW}


@final
class Narrator:
    """Prints a row for each call of a reconciler or watcher, with its reason and outcome.

    A row has the time, the callback, why it was called, the object, the duration and the outcome.
    Below it are the writes of the call. A write outside of calls, such as an Event, has its own
    row; writes of Leases have none. It is an activity observer: ``Manager(narrate=True)`` and
    ``appsdk-operator run --narrate`` use one, and ``manager.observe_activity(Narrator())`` does the
    same. Use it in development: it prints in the thread of the call. Thread-safe.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        """Print to ``stream``; default: standard output."""
        self._stream = stream
        self._lock = threading.Lock()
        self._widths = [len(header) for header in _HEADERS[:-1]]
        self._has_header = False
        self._is_broken = False

    def call_began(self, call: CallRecord) -> None:
        """Nothing: the row is printed once its outcome is known."""

    def call_ended(self, call: CallRecord) -> None:
        """Print the row of a call, and its writes."""
        kind = _kind_of(call)
        about = f"{call.namespace}/{call.name}" if call.namespace else call.name
        writes = [_request(each) for each in call.requests]
        if call.omitted_requests:
            writes.append(f"and {call.omitted_requests} more writes")
        if not call.callback and not writes:
            return
        self._print(
            (
                _time(),
                call.callback or "-",
                _why(call, f"{kind} {about} "),
                f"{kind} {about}".strip(),
                "" if call.seconds is None else duration_text(call.seconds),
                _outcome(call),
            ),
            _COLORS.get(call.outcome, _RED),
            writes,
        )

    def request_began(self, request: RequestRecord) -> None:
        """Nothing."""

    def request_ended(self, request: RequestRecord) -> None:
        """Print a write that was made outside of calls."""
        if request.call is not None or not request.is_write:
            return
        if request.resource.startswith("leases."):
            return
        seconds = "" if request.seconds is None else duration_text(request.seconds)
        failed = request.status == 0 or request.status >= 400
        row = (_time(), "-", "-", _object(request), seconds, _request(request, short=True))
        self._print(row, _RED if failed else _DIM, [])

    def _print(self, row: tuple[str, ...], color: str, more: list[str]) -> None:
        row = tuple(printable(cell) for cell in row)
        with self._lock:
            try:
                stream = sys.stdout if self._stream is None else self._stream
                is_colored = has_color(stream.isatty(), os.environ)
                stream.write(self._text(row, color, more, is_colored=is_colored))
                stream.flush()
            except (OSError, ValueError) as error:  # the terminal is gone
                if not self._is_broken:
                    self._is_broken = True
                    _log.warning("the narration cannot be written any more: %s", error)

    def _text(self, row: tuple[str, ...], color: str, more: list[str], *, is_colored: bool) -> str:
        for column, widest in enumerate(_WIDEST):
            wanted = min(len(row[column]), widest)
            self._widths[column] = max(self._widths[column], wanted)
        lines = [] if self._has_header else [_paint(self._line(_HEADERS), _BOLD, is_colored)]
        self._has_header = True
        lines.append(_paint(self._line(row), color, is_colored))
        indent = " " * (self._widths[0] + 2)
        lines += [_paint(f"{indent}-> {printable(text)}", _DIM, is_colored) for text in more]
        return "\n".join(lines) + "\n"

    def _line(self, row: tuple[str, ...]) -> str:
        cells = [f"{cell:<{width}}" for cell, width in zip(row, self._widths, strict=False)]
        return "  ".join((*cells, row[-1])).rstrip()


def _paint(text: str, color: str, is_colored: bool) -> str:
    return f"{color}{text}{_RESET}" if is_colored and color else text


def _time() -> str:
    when = dt.datetime.fromtimestamp(present_clock().time(), dt.UTC).astimezone()
    return f"{when:%H:%M:%S}.{when.microsecond // 1000:03d}"


def _why(call: CallRecord, about: str) -> str:
    """Why it is called, without the object, which has a column of its own."""
    if call.attempt:
        return f"retry {call.attempt}{call.action and f' of {call.action}'}"
    why = call.action or "; ".join(str(reason).removeprefix(about) for reason in call.reasons)
    return f"{why[: _WIDEST[2] - 1]}…" if len(why) > _WIDEST[2] else why or "-"


def _kind_of(call: CallRecord) -> str:
    return call.kind.partition(".")[0]


def _outcome(call: CallRecord) -> str:
    again = "" if call.next_in is None else duration_text(call.next_in)
    if call.cause is None:
        return f"again in {again}" if again else "ok"
    what = f"{call.cause.type}: {call.cause.text}" if call.cause.text else call.cause.type
    then = {
        "retrying": f"next try in {again}" if again else "tried again",
        "given up": "given up",
        "terminal": "given up until it is changed",
        "fatal": "the controller ends",
    }.get(call.outcome, call.outcome)
    return f"{what}; {then}"


def _request(request: RequestRecord, *, short: bool = False) -> str:
    """A write and its answer."""
    came = request.error or (str(request.status) if request.status else "no answer")
    what = request.verb or request.method
    return f"{what}: {came}" if short else f"{what} {_object(request)}: {came}"


def _object(request: RequestRecord) -> str:
    place = "/".join(part for part in (request.namespace, request.name) if part)
    return f"{request.resource} {place}".strip()
