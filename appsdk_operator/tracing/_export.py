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
    """Within the block, send spans to an OTLP collector over HTTP; log records name their spans.

    If the program already has a tracer provider, spans go to it, and nothing is set up. Otherwise
    all spans of the program go to the collector, including the spans of your own functions. If two
    blocks are active, your own spans go to the later one. OpenTelemetry's standard variables
    configure the collector and the spans, among them ``OTEL_EXPORTER_OTLP_ENDPOINT`` (default: port
    4318 of this host), ``OTEL_EXPORTER_OTLP_HEADERS``, ``OTEL_TRACES_SAMPLER``,
    ``OTEL_RESOURCE_ATTRIBUTES`` and ``OTEL_SERVICE_NAME``. A thread sends the spans in batches. The
    end of the block sends the rest, within ``OTEL_EXPORTER_OTLP_TIMEOUT``.

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
