"""The span that a log record was written in."""

from __future__ import annotations

import logging
from typing import final

from appsdk_operator.tracing._packages import opentelemetry


@final
class TraceFields(logging.Filter):
    """A filter that adds ``trace_id`` and ``span_id`` of the current span to each log record.

    It lets all records pass. Add it to handlers, not to loggers: a logger's filters do not see the
    records of its children. ``appsdk-operator run --tracing`` adds it for you.

    >>> handler = logging.StreamHandler()
    >>> handler.addFilter(TraceFields())
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields, in hexadecimal as W3C Trace Context has them."""
        context = opentelemetry.trace.get_current_span().get_span_context()
        if context.is_valid:
            record.trace_id = opentelemetry.trace.format_trace_id(context.trace_id)
            record.span_id = opentelemetry.trace.format_span_id(context.span_id)
        return True
