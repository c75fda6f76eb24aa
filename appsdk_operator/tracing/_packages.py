"""OpenTelemetry, or the error that says what to install."""

from __future__ import annotations

try:
    import opentelemetry.trace
except ImportError as error:
    raise ImportError(
        "tracing needs OpenTelemetry: pip install 'appsdk-operator[tracing]'"
    ) from error

__all__ = ["opentelemetry"]
