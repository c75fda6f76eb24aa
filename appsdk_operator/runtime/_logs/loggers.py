"""Loggers that never raise, and a formatter for log records as lines of JSON."""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import sys
import threading
import traceback
from collections.abc import Mapping
from typing import Any, final

import msgspec

from appsdk_operator.runtime._logs.texts import is_interrupt, safe_repr, safe_text
from appsdk_operator.runtime._logs.tracebacks import format_user_exception, formattable


@final
class SafeLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose calls never raise.

    Filters and handlers belong to the program: one may have a bug, or write to a closed stream or a
    full disk. :mod:`logging` raises many of these errors to the caller, where they would end
    workers and lose retries. With this logger only the record is lost. It reports each kind of
    failure once on standard error, unless :data:`logging.raiseExceptions` is off.

    Its own ``extra`` fields are added to those of each call.
    """

    def log(
        self,
        level: int,
        msg: object,
        *args: object,
        exc_info: Any = None,
        stack_info: bool = False,
        stacklevel: int = 1,
        extra: Mapping[str, object] | None = None,
        **_: object,
    ) -> None:
        """Log a record as :meth:`logging.Logger.log` does; all other methods call this one."""
        try:
            if self.logger.isEnabledFor(level):
                if exc_info:
                    exc_info = _formattable(exc_info)
                if args and not _has_text(msg, args):
                    args = tuple(map(_argument, args))
                self.logger.log(
                    level,
                    msg,
                    *args,
                    exc_info=exc_info,
                    stack_info=stack_info,
                    stacklevel=stacklevel + 1,
                    extra={**self.extra, **(extra or {})} if self.extra else extra,
                )
        except Exception as error:
            _report_failure(self.logger.name, error)
        except BaseException as error:
            # Ctrl-C has to reach the main thread. Any other thread would end silently.
            if threading.current_thread() is threading.main_thread():
                raise
            _report_failure(self.logger.name, error)


def _formattable(exc_info: Any) -> Any:
    if isinstance(exc_info, tuple):
        error = exc_info[1]
    else:
        error = exc_info if isinstance(exc_info, BaseException) else sys.exc_info()[1]
    if error is None:
        return exc_info
    shown = formattable(error)
    return exc_info if shown is error else shown


def _has_text(msg: object, args: tuple[object, ...]) -> bool:
    """Whether a handler can format the record; none of the user's objects in it raises then."""
    try:
        # As logging does: one mapping has the values by name.
        values = args[0] if len(args) == 1 and isinstance(args[0], Mapping) and args[0] else args
        _ = str(msg) % values
    except BaseException as error:
        if is_interrupt(error):
            raise
        return False
    return True


def _argument(value: object) -> object:
    return value if type(value) in (int, float, bool) else _Argument(value)


@final
class _Argument:
    """An object in a message, whose own text may raise."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return safe_text(self._value)

    def __repr__(self) -> str:
        return safe_repr(self._value)


def get_logger(name: str) -> SafeLogger:
    """The :class:`SafeLogger` for the logger ``name`` of :func:`logging.getLogger`."""
    return SafeLogger(logging.getLogger(name), {})


_MAX_REPORTS = 100
_reported: set[tuple[str, str]] = set()


def _report_failure(logger: str, error: BaseException) -> None:
    kind = (logger, type(error).__qualname__)
    if kind in _reported or len(_reported) >= _MAX_REPORTS or not logging.raiseExceptions:
        return
    _reported.add(kind)
    # Standard error itself may be broken.
    with contextlib.suppress(Exception):
        lines = traceback.format_exception(error)
        sys.stderr.write(
            f"appsdk_operator: a filter or handler of logger {logger} failed, records are lost, "
            f"and further failures of this kind are not shown:\n{''.join(lines)}"
        )


_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_encode = msgspec.json.Encoder(enc_hook=safe_text).encode


def _encoded(fields: dict[str, Any]) -> str:
    """``fields`` as JSON, whatever their values are."""
    try:
        return _encode(fields).decode()
    except Exception:
        import json

        # A surrogate, for example, as in the name of a file that is not UTF-8.
        pairs = (f"{json.dumps(name)}:{_encoded_value(value)}" for name, value in fields.items())
        return f"{{{','.join(pairs)}}}"


def _encoded_value(value: Any) -> str:
    import json

    try:
        plain = msgspec.to_builtins(value, enc_hook=safe_text, str_keys=True)
        return json.dumps(plain, allow_nan=False)
    except Exception:
        return json.dumps(safe_text(value))


@final
class JSONFormatter(logging.Formatter):
    """Formats a record as a JSON object: ``time`` (RFC 3339, UTC), ``level``, ``logger``,
    ``message``, the record's own fields (``controller``, ``kind``, ``namespace``, ``object``,
    ``action``, ``attempt``, …) and, for errors, ``exception``.

    :func:`~appsdk_operator.runtime.setup_logging` uses it; you can also use it in your own
    handlers. Values that JSON cannot carry are written as text. ``exception`` has the frames of
    your code, and with ``whole_tracebacks`` the kit's, too.

    >>> record = logging.makeLogRecord({"name": "a", "levelname": "INFO", "created": 0.0,
    ...                                 "msg": "did %s", "args": ("it",), "kind": "pods.v1"})
    >>> print(JSONFormatter().format(record))
    {"time":"1970-01-01T00:00:00Z","level":"INFO","logger":"a","message":"did it","kind":"pods.v1"}
    """

    def __init__(self, *, whole_tracebacks: bool = False) -> None:
        """A formatter."""
        super().__init__()
        self._is_whole = whole_tracebacks

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """Format an exception, with its causes."""
        if self._is_whole or ei[1] is None:
            return super().formatException(ei)
        return format_user_exception(ei[1], ei[2])

    def format(self, record: logging.LogRecord) -> str:
        """Format the record as one line."""
        fields: dict[str, Any] = {
            "time": dt.datetime.fromtimestamp(record.created, dt.UTC),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields.update(
            (name, value) for name, value in record.__dict__.items() if name not in _STANDARD
        )
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = record.stack_info
        return _encoded({str(name): value for name, value in fields.items()})
