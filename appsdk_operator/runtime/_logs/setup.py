"""Log records on standard error: aligned text for people, JSON for machines."""

from __future__ import annotations

import datetime as dt
import logging
import os
import sys
from collections.abc import Mapping
from typing import Any, Final, Literal, TextIO, TypeAlias, final

from appsdk_operator.runtime._logs.loggers import JSONFormatter
from appsdk_operator.runtime._logs.tracebacks import format_user_exception

LogFormat: TypeAlias = Literal["auto", "text", "json"]
"""How log records are written; see :func:`setup_logging`."""

LOG_FORMATS: Final[tuple[LogFormat, ...]] = ("auto", "text", "json")
_LEVELS: Final = ("debug", "info", "warning", "error")
_KIT: Final = "appsdk_operator"

_RESET: Final = "\x1b[0m"
_DIM: Final = "\x1b[2m"
_COLORS: Final = (
    (logging.CRITICAL, "\x1b[1;31m"),
    (logging.ERROR, "\x1b[31m"),
    (logging.WARNING, "\x1b[33m"),
    (logging.INFO, "\x1b[32m"),
    (0, _DIM),
)
# A text from the cluster must neither begin a line of its own nor command the terminal.
_CONTROLS: Final = {
    number: f"\\x{number:02x}" for number in (*range(0x20), *range(0x7F, 0xA0)) if number != 0x0A
} | {0x0A: "\n    ", 0x09: "    ", 0x0D: "\\r"}


@final
class TextFormatter(logging.Formatter):
    """Formats a record as a line for people: time, level, message.

    With ``color``, the time is the local time of day, and the names of the kit's own loggers are
    left out. Without, it is date and time in UTC, and each line has its logger. If a record has an
    object that its message does not name, as with ``reconcile_context().logger``, the line ends
    with it. Further lines of a message, and tracebacks, are indented, and control characters are
    escaped, so that a text from the cluster cannot forge a record. Tracebacks have the frames of
    your code, and with ``whole_tracebacks`` the kit's, too.

    >>> record = logging.makeLogRecord({"name": "shop", "levelname": "INFO", "created": 0.0,
    ...                                 "msg": "did %s", "args": ("it",)})
    >>> print(TextFormatter().format(record))
    1970-01-01T00:00:00.000Z INFO    shop: did it
    """

    def __init__(self, *, color: bool = False, whole_tracebacks: bool = False) -> None:
        """A formatter; give ``color`` for a terminal, not for files and pipes."""
        super().__init__()
        self._color = color
        self._is_whole = whole_tracebacks

    def format(self, record: logging.LogRecord) -> str:
        """Format the record; a traceback follows on its own lines, indented."""
        text = printable(record.getMessage())
        about = _object_of(record)
        if about and about not in text:
            text += self._dim(f"  [{printable(about)}]")
        if not self._color or not _is_of_kit(record.name):
            text = f"{self._dim(record.name + ':')} {text}"
        line = f"{self._dim(self._time(record))} {self._level(record)} {text}"
        if record.exc_info and record.exc_info[1] is not None:
            line += self._below(self._exception(record.exc_info))
        if record.stack_info:
            line += self._below(record.stack_info)
        return line

    def _below(self, text: str) -> str:
        return f"\n{self._dim(f'    {printable(text)}')}"

    def _exception(self, exc_info: Any) -> str:
        if self._is_whole:
            return self.formatException(exc_info)
        return format_user_exception(exc_info[1], exc_info[2])

    def _time(self, record: logging.LogRecord) -> str:
        when = dt.datetime.fromtimestamp(record.created, dt.UTC)
        if self._color:
            return when.astimezone().strftime("%H:%M:%S.") + f"{when.microsecond // 1000:03d}"
        return when.strftime("%Y-%m-%dT%H:%M:%S.") + f"{when.microsecond // 1000:03d}Z"

    def _level(self, record: logging.LogRecord) -> str:
        name = f"{record.levelname:<7}"
        if not self._color:
            return name
        color = next(code for level, code in _COLORS if record.levelno >= level)
        return f"{color}{name}{_RESET}"

    def _dim(self, text: str) -> str:
        return f"{_DIM}{text}{_RESET}" if self._color else text


def printable(text: str) -> str:
    """``text`` without control characters; lines after the first are indented."""
    if text.isprintable():
        return text
    text = text.translate(_CONTROLS)
    # Surrogates, as in names of files that are not UTF-8: a stream would refuse the line.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _is_of_kit(name: str) -> bool:
    return name == _KIT or name.startswith(f"{_KIT}.")


def _object_of(record: logging.LogRecord) -> str:
    """The object that a record is about, from its fields; "" if it has none."""
    name = getattr(record, "object", None)
    if not name or not isinstance(name, str):
        return ""
    namespace = getattr(record, "namespace", "")
    return f"{namespace}/{name}" if namespace else name


@final
class _Handler(logging.StreamHandler[TextIO]):
    """The handler of :func:`setup_logging`, which its next call replaces."""

    def __init__(self, stream: TextIO, operator: str) -> None:
        super().__init__(stream)
        self._operator = operator

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, with the operator's name."""
        if self._operator and not hasattr(record, "operator"):
            record.operator = self._operator
        super().emit(record)


def setup_logging(
    format: LogFormat = "auto",  # noqa: A002 - the word for it
    *,
    level: str | int = "info",
    stream: TextIO | None = None,
    operator: str = "",
    environ: Mapping[str, str] | None = None,
) -> bool:
    """Write the log records of the program to standard error.

    The kit installs no handler by itself; ``App.run`` and the command ``appsdk-operator run`` call
    this. If the root logger already has the program's handlers, it does nothing.

    Args:
        format: ``"text"``: aligned lines, in color on a terminal, see :class:`TextFormatter`;
            ``"json"``: one object per line, see :class:`JSONFormatter`; ``"auto"`` (default): JSON
            in a pod without a terminal, else text.
        level: the lowest level to write, ``"debug"``, ``"info"`` (default), ``"warning"`` or
            ``"error"``, or a number of :mod:`logging`. At ``"debug"`` tracebacks have the kit's
            frames, too.
        stream: the stream to write to; default: standard error.
        operator: the value of the field ``operator`` of each record; default: no such field.
        environ: the environment variables; default: the process'. ``NO_COLOR`` turns colors off,
            ``FORCE_COLOR`` on; ``KUBERNETES_SERVICE_HOST`` shows that this is a pod.

    Returns:
        Whether it was set up; False if the program has its own handlers. A second call replaces the
        handler of the first.

    Raises:
        ValueError: ``format`` or ``level`` is not one of these.
    """
    if format not in LOG_FORMATS:
        raise ValueError(f"format={format!r}: use {', '.join(LOG_FORMATS)}")
    number = _level_number(level)
    root = logging.getLogger()
    if any(not isinstance(handler, _Handler) for handler in root.handlers):
        return False
    out = sys.stderr if stream is None else stream
    environ = os.environ if environ is None else environ
    is_terminal = bool(getattr(out, "isatty", bool)())
    is_json = format == "json" or (
        format == "auto" and not is_terminal and "KUBERNETES_SERVICE_HOST" in environ
    )
    handler = _Handler(out, operator)
    is_whole = number <= logging.DEBUG
    handler.setFormatter(
        JSONFormatter(whole_tracebacks=is_whole)
        if is_json
        else TextFormatter(color=has_color(is_terminal, environ), whole_tracebacks=is_whole)
    )
    for before in list(root.handlers):
        root.removeHandler(before)
        before.close()
    root.addHandler(handler)
    root.setLevel(number)
    return True


def _level_number(level: str | int) -> int:
    if isinstance(level, int) and not isinstance(level, bool):
        return level
    if not isinstance(level, str) or level.lower() not in _LEVELS:
        raise ValueError(f"level={level!r}: use {', '.join(_LEVELS)}, or a number")
    return int(getattr(logging, level.upper()))


def has_color(is_terminal: bool, environ: Mapping[str, str]) -> bool:
    """Whether to write in color, as the usual environment variables say."""
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return is_terminal and environ.get("TERM") != "dumb"
