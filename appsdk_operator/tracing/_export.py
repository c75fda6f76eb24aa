"""Spans sent to a collector, set up as OpenTelemetry's environment variables say."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from appsdk_operator.runtime import get_logger
from appsdk_operator.tracing._log_fields import TraceFields
from appsdk_operator.tracing._packages import opentelemetry
from appsdk_operator.tracing._program import PROGRAM, ProgramProvider
from appsdk_operator.tracing._tracing import Tracing


@contextlib.contextmanager
def otlp_tracing(service_name: str) -> Iterator[Tracing]:
    """Within the block, send spans to a collector by OTLP over HTTP; log records name their spans.

    Where the program has a tracer provider already, that is used, and nothing is set up. Otherwise
    all spans of the program go there, those that its own functions make as well; of two blocks at a
    time, those go to the later one. The standard variables say where and what, among them
    ``OTEL_EXPORTER_OTLP_ENDPOINT`` (default: port 4318 of the own host),
    ``OTEL_EXPORTER_OTLP_HEADERS``, ``OTEL_TRACES_SAMPLER``, ``OTEL_RESOURCE_ATTRIBUTES`` and
    ``OTEL_SERVICE_NAME``. Spans are sent in batches by a thread; what is left is sent at the end of
    the block, for at most as long as ``OTEL_EXPORTER_OTLP_TIMEOUT`` says.

    Args:
        service_name: the ``service.name`` of the spans, unless the environment has one.

    Raises:
        ImportError: the packages of ``appsdk-operator[tracing]`` are not installed.
    """
    provider: Any = None
    if not _has_provider():
        provider = _new_provider(service_name)
        PROGRAM.entered = (*PROGRAM.entered, provider)
        if opentelemetry.trace.get_tracer_provider() is not PROGRAM:
            opentelemetry.trace.set_tracer_provider(PROGRAM)
    tracing = Tracing(provider)
    fields = TraceFields()
    handlers = list(get_logger("").logger.handlers)
    for handler in handlers:
        handler.addFilter(fields)
    try:
        yield tracing
    finally:
        for handler in handlers:
            handler.removeFilter(fields)
        if provider is not None:
            PROGRAM.entered = tuple(each for each in PROGRAM.entered if each is not provider)
            provider.shutdown()


def _has_provider() -> bool:
    # The API's own is a proxy until one is set.
    return not isinstance(
        opentelemetry.trace.get_tracer_provider(),
        (opentelemetry.trace.ProxyTracerProvider, ProgramProvider),
    )


def _new_provider(service_name: str) -> Any:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ImportError(
            "sending spans needs OpenTelemetry's SDK and its exporter: "
            "pip install 'appsdk-operator[tracing]'"
        ) from error
    default = Resource.create({"service.name": service_name})
    provider = TracerProvider(resource=default.merge(Resource.create()) if _is_named() else default)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _is_named() -> bool:
    """Whether the environment names the service."""
    from opentelemetry.sdk.resources import OTELResourceDetector

    return "service.name" in OTELResourceDetector().detect().attributes
