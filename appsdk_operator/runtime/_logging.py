"""Log records as one line of JSON each, with the fields that the kit adds."""

from __future__ import annotations

import datetime as dt
import logging
from typing import Any, final

import msgspec

__all__ = ["JSONFormatter"]

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_encode = msgspec.json.Encoder(enc_hook=str).encode


@final
class JSONFormatter(logging.Formatter):
    """Formats a record as a JSON object: ``time`` (RFC 3339, UTC), ``level``, ``logger``,
    ``message``, the record's own fields (``controller``, ``kind``, ``namespace``, ``object``,
    ``action``, ``attempt``, …) and, for errors, ``exception``.

    The kit installs no handlers; give this to one of yours. What JSON does not know is written as
    text.

    >>> record = logging.makeLogRecord({"name": "a", "levelname": "INFO", "created": 0.0,
    ...                                 "msg": "did %s", "args": ("it",), "kind": "pods.v1"})
    >>> print(JSONFormatter().format(record))
    {"time":"1970-01-01T00:00:00Z","level":"INFO","logger":"a","message":"did it","kind":"pods.v1"}
    """

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
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
        return _encode({str(name): value for name, value in fields.items()}).decode()
